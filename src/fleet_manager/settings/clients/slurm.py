"""Settings of the slurmrestd client, and the one place where `env://` secrets are read from the environment."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pydantic import AnyHttpUrl, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SLOWEST_ANSWER = timedelta(seconds=25)
"""What slurmrestd may take to say that slurmctld is away is 20 s (seen): a shorter time-out would hide the reason."""


class SlurmSettings(BaseSettings):
    """Read from `FLEET_SLURM__*`."""

    model_config = SettingsConfigDict(env_prefix="FLEET_SLURM__", frozen=True, extra="ignore")

    url: AnyHttpUrl
    """Address of slurmrestd, with the path in front of `/slurm/` if a proxy adds one."""

    jwt_op_item: str = Field(pattern=r"^(op://[^/]+/[^/]+/.+|file:///.+|env://[A-Za-z_][A-Za-z0-9_]*)$")
    """Where the SLURM JWT is: `op://vault/item/field` in 1Password; `file:///path` and `env://NAME` for the lab."""

    user_name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")
    """Sent as X-SLURM-USER-NAME; None: the token alone says who we are, as it does anyway."""

    connect_timeout: timedelta = timedelta(seconds=5)
    """For the TCP and TLS handshake; nothing has been sent when it passes."""

    request_timeout: timedelta = timedelta(seconds=60)
    """For one whole exchange. Over 25 s: slurmrestd takes up to 20 s when slurmctld is away, 10 s for 10,000 nodes."""

    pool_size: int = Field(default=8, ge=1, le=32)
    """Connections at once. slurmrestd stops answering at its 124th, so all clients together stay far below."""

    pool_timeout: timedelta = timedelta(seconds=120)
    """How long a call waits for a free connection before it gives up without having been sent."""

    token_refresh_before: timedelta = timedelta(minutes=5)
    """How long before its `exp` the token is read again. Longer than the longest exchange and any clock's error."""

    ca_file: Path | None = None
    """Certificates to trust for https; None: the system's."""

    @field_validator("request_timeout")
    @classmethod
    def _longer_than_the_slowest_answer(cls, value: timedelta) -> timedelta:
        if value <= SLOWEST_ANSWER:
            raise ValueError(f"must be over {SLOWEST_ANSWER.total_seconds():.0f} s: slurmrestd itself may take 20 s")
        return value


def environment_variable(name: str) -> str | None:
    """Return a variable of this process, for secrets that a setting names as `env://NAME`."""
    return os.environ.get(name)
