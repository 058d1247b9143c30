"""Settings of the hub's clients: where the hub is, and who we are to it. The key itself is never in a setting."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet_manager.settings.addresses import is_loopback


class FleetManagerSettings(BaseSettings):
    """Read from `FLEET_MANAGER__*`."""

    model_config = SettingsConfigDict(
        env_prefix="FLEET_MANAGER__", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    url: str = Field(pattern=r"^https?://[^/?#@]+(/[^?#]*)?$")
    """Address of the hub, without `/api/v1`. No user or password in it."""

    issuer: str | None = None
    """The issuer identifier that the hub's metadata must name, letter by letter. None: `url` without a slash at the
    end, as the hub's API and its authorization server are one."""

    client_id: str = Field(min_length=1, max_length=128)
    """Our id in the hub's roster: `slurm-agent-<site>`, `temporal-worker-<site>`, or a person's."""

    private_key_file: Path
    """PEM of our private key (EC P-256, Ed25519, or RSA of 2,048 bits), mode 0600 or 0440. Read at each request for a
    token, so that a new key is taken without a restart."""

    key_id: str | None = None
    """The `kid` by which the roster knows the key. None: its RFC 7638 thumbprint, as `make-key` prints it."""

    assertion_ttl: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(seconds=5), le=timedelta(minutes=5))
    """Life of one client assertion. It is used at once, so a minute covers slow networks and the clocks' difference;
    the hub refuses more than five."""

    token_refresh_before: timedelta = Field(default=timedelta(seconds=60), ge=timedelta(0))
    """How long before its end a token is replaced. A minute is longer than any call; of a token that lives less than
    four times as long, the last quarter is taken instead."""

    connect_timeout: timedelta = timedelta(seconds=5)
    """For the TCP and TLS handshake; nothing has been sent when it passes."""

    request_timeout: timedelta = timedelta(seconds=30)
    """For one whole exchange with the hub. Its slowest call writes 1,000 conditions in about a second."""

    pool_size: int = Field(default=8, ge=1, le=64)
    """Connections at once; the hub has 20 database connections for everybody."""

    read_attempts: int = Field(default=3, ge=1, le=10)
    """How often a read is tried before it fails as Unavailable (within a second; a time-out is not tried again).
    Writes are tried once: Temporal retries them."""

    ca_file: Path | None = None
    """Certificates to trust for https; None: the system's."""

    @model_validator(mode="after")
    def _https_beyond_loopback(self) -> FleetManagerSettings:
        for name, address in (("url", self.url), ("issuer", self.issuer_id)):
            parts = urlsplit(address)
            if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise ValueError(f"{name} must be https (http is taken on loopback only): tokens travel over it")
        return self

    @property
    def issuer_id(self) -> str:
        return self.issuer or self.url.rstrip("/")
