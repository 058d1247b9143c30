"""Settings of the hub, read from FLEET_HUB__... in the environment. Nothing else of the hub reads the environment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet_manager.core.domain.slurm_bootstrap_config import BIRTH_REASON
from fleet_manager.settings.addresses import is_loopback


class HubSettings(BaseSettings):
    """Where the hub listens, keeps its rows and finds its clients."""

    model_config = SettingsConfigDict(env_prefix="FLEET_HUB__", frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    """Address to listen on. Loopback by default: a hub that is reachable from elsewhere is a decision."""

    port: int = Field(default=8800, ge=1, le=65535)
    """TCP port to listen on. 8800 as nothing that a site runs beside it (slurmrestd, Nova, Temporal) uses it."""

    state_dir: Path = Path("fleet-hub")
    """Folder of the signing key and of the default database; made with mode 0700. Relative to the working folder."""

    database_url: SecretStr | None = None
    """SQLAlchemy address of the database. None is SQLite in `state_dir`; `postgresql://user:password@host/name` for
    Postgres (driver psycopg, chosen by itself). Secret, as it may hold a password."""

    roster_path: Path = Path("roster.json")
    """JSON file of the OAuth clients: id, public keys, scopes, site. Read anew when it changes, so that a key is added
    or a client is struck off without a restart."""

    issuer: str | None = None
    """The hub's own name: `iss` of its tokens and the `aud` of client assertions, compared letter by letter. None is
    http://HOST:PORT. No path and no slash at the end (its metadata then is at the one well-known address)."""

    api_audience: str | None = None
    """`aud` of the access tokens. None is ISSUER/api/v1: the API, not the token endpoint."""

    access_token_ttl: timedelta = Field(default=timedelta(minutes=5), ge=timedelta(seconds=5), le=timedelta(minutes=10))
    """Life of an access token. Five minutes: a stolen one is soon worthless, and a client asks 300 times a day."""

    assertion_max_ttl: timedelta = Field(default=timedelta(minutes=5), ge=timedelta(seconds=5))
    """How far ahead the `exp` of a client assertion may be; its jti is kept as long, so it bounds the replay table."""

    clock_leeway: timedelta = Field(default=timedelta(seconds=30), ge=timedelta(0), le=timedelta(minutes=2))
    """How much the clocks of the hub and a client may differ. 30 s: more than NTP leaves, less than a short exp."""

    birth_reason: str = Field(default=BIRTH_REASON, min_length=4, max_length=64, pattern=r"^fm:[A-Za-z0-9 ._-]+$")
    """The reason that new nodes register with; user-data on write must carry exactly it. It begins with `fm:`, so that
    people see whose it is, and holds no quote, so that slurmd keeps all of it."""

    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=128 * 1024)
    """Largest request body in bytes. 4 MiB holds 5,000 condition reports with room."""

    shutdown_grace: timedelta = Field(default=timedelta(seconds=10), ge=timedelta(0))
    """How long open requests may take to end after SIGTERM; keep it under the pod's grace of 30 s."""

    log_format: str = Field(default="json", pattern="^(json|plain)$")
    """`json`, one object a line for the log store, or `plain` for people at a terminal."""

    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """Least level that is logged. INFO has one line a request; no level logs a token, a key or user-data."""

    @field_validator("issuer")
    @classmethod
    def _plain_issuer(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or parts.path
                or parts.query
                or parts.fragment
            ):
                raise ValueError("the issuer is scheme://host[:port] without path or slash at the end")
        return value

    @model_validator(mode="after")
    def _https_beyond_loopback(self) -> HubSettings:
        parts = urlsplit(self.issuer_id)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ValueError(
                f"issuer {self.issuer_id} is neither https nor on loopback; set FLEET_HUB__ISSUER to the https address "
                "that clients use (assertions and tokens would travel in the clear)"
            )
        return self

    @property
    def issuer_id(self) -> str:
        return self.issuer or f"http://{self.host}:{self.port}"

    @property
    def audience(self) -> str:
        return self.api_audience or f"{self.issuer_id}/api/v1"

    @property
    def sqlalchemy_url(self) -> str:
        """The async SQLAlchemy address, driver included; it may hold a password."""
        if self.database_url is None:
            return f"sqlite+aiosqlite:///{(self.state_dir / 'hub.sqlite3').absolute()}"
        url = self.database_url.get_secret_value()
        scheme, _, rest = url.partition("://")
        drivers = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "sqlite": "sqlite+aiosqlite"}
        return f"{drivers.get(scheme, scheme)}://{rest}"
