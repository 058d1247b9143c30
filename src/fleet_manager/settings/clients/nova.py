"""Settings of the Nova client: which cloud, how long to wait, and what every server of the site is made with.

The credential itself is not here: it stands in clouds.yaml, or in the OS_* variables that openstacksdk reads.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LOWEST_MICROVERSION = "2.74"


class NovaSettings(BaseSettings):
    """Read from `FLEET_NOVA__*`."""

    model_config = SettingsConfigDict(env_prefix="FLEET_NOVA__", frozen=True, extra="ignore")

    cloud: str | None = None
    """Name of the cloud in clouds.yaml; None: OS_CLOUD, or the only cloud of the file."""

    config_file: Path | None = None
    """clouds.yaml; None: where openstacksdk looks (OS_CLIENT_CONFIG_FILE, ./, ~/.config/openstack, /etc/openstack)."""

    microversion: str = Field(default=LOWEST_MICROVERSION, pattern=r"^2\.\d{1,3}$")
    """Sent with every call, never negotiated. 2.74 is the lowest that has all we use: embedded flavor (2.47), tags in
    the create call (2.52), user-data in a rebuild (2.57), hypervisor_hostname in a create (2.74)."""

    connect_timeout: timedelta = timedelta(seconds=10)
    """For the TCP and TLS handshake."""

    read_timeout: timedelta = timedelta(seconds=90)
    """Between two bytes of an answer. Not under 60 s: a busy Nova took 15.7 s for a POST at the 95th percentile."""

    max_threads: int = Field(default=8, ge=1, le=50)
    """Calls in flight; each holds a thread. More make Nova slower, not faster (0.8 servers/s with 50)."""

    networks: Literal["none", "auto"] | tuple[str, ...] = "auto"
    """Networks of a new server, by name or id, as a JSON list; or "auto", or "none"."""

    availability_zone: str | None = None
    """Zone of a new server. Not "zone:host": the pin is the device's hypervisor_hostname."""

    key_name: str | None = None
    """Key pair of a new server, for people; None: no key."""

    config_drive: bool = False
    """Whether a new server gets its user-data on a drive too, for images that cannot reach the metadata service."""

    @field_validator("microversion")
    @classmethod
    def _not_below_what_is_used(cls, value: str) -> str:
        if int(value.split(".")[1]) < int(LOWEST_MICROVERSION.split(".")[1]):
            raise ValueError(f"microversion {value} is below {LOWEST_MICROVERSION}, which a pinned create needs")
        return value
