"""What the worker of one site must know of it. Read from the environment as FLEET_SITE__<FIELD>."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleet_manager.core.domain.slurm_bootstrap_config import BIRTH_REASON


class SiteSettings(BaseSettings):
    """The site's own facts and the patience that an adoption has with it."""

    model_config = SettingsConfigDict(env_prefix="FLEET_SITE__", frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    """The site's id in the hub; names the task queues. No default: a worker of the wrong site is worse than none."""
    slurm_user: str
    """Whom SLURM's token stands for: AdminLevel Administrator, with an association, named in the reservations."""
    slurm_users: frozenset[str] = frozenset({"slurm", "root"})
    """Who slurmctld writes its own reasons as (SlurmUser): tells its drains from people's."""
    birth_reason: str = BIRTH_REASON
    """The reason that the user-data gives a new node; the hub must check for the same one."""
    burn_in_partition: str
    """Partition that burn-in jobs are sent to; every adopted node must be in it."""
    burn_in_account: str | None = None
    """SLURM account of burn-in jobs; None takes the user's default."""
    burn_in_path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH of a burn-in job: it must lead to nvidia-smi on the node."""
    burn_in_directory: str = "/tmp"  # noqa: S108 - on the node, every node's scratch
    """Working directory and place of the output of a burn-in job, on the node."""
    reserved_cpus: Annotated[int, Field(ge=0)] = 0
    """CPUs of the flavor that a node may keep from SLURM (specialised cores) and still be whole."""
    reserved_memory_mib: Annotated[int, Field(ge=0)] = 2048
    """MiB of the flavor's memory that firmware, kernel and MemSpecLimit may take; 2 GiB is what a VM loses."""
    build_patience: timedelta = timedelta(minutes=45)
    """How long Nova may take to a server that is ACTIVE: bare metal is deployed in 10 to 30 minutes."""
    boot_patience: timedelta = timedelta(minutes=30)
    """How long the machine may take from ACTIVE to its registration: firmware, kernel, cloud-init, slurmd."""
    start_patience: timedelta = timedelta(minutes=10)
    """How long a burn-in job may be pending: nothing else can run there, so more means that it never will."""
    watch_interval: timedelta = timedelta(seconds=5)
    """Between two looks of the shared watch: bounds slurmctld's load and is the delay of every wait."""
