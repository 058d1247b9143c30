"""What else of a SLURM cluster we look at: reservations, partitions, the configuration values that rules need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation. `end` is None when it has none (SLURM writes an end of a year ahead for `infinite`)."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    accounts: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    """Upper-case words such as MAINT, IGNORE_JOBS, SPEC_NODES."""
    partition: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def covers(self, node: str, at: datetime) -> bool:
        """Say whether it stands on the node at that time or will later: a coming one overlaps as well."""
        return node in self.nodes and (self.end is None or self.end > at)

    def active(self, at: datetime) -> bool:
        return (self.start is None or self.start <= at) and (self.end is None or self.end > at)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: the nodes that it has now, and the words of its `Nodes=` (a NodeSet, `ALL`, names)."""

    name: str
    nodes: tuple[str, ...]
    node_sets: str = ""
    state: str = "UP"
    default: bool = False
    max_time_minutes: int | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """Whether a slurmctld answers. HTTP 200 alone says nothing: a dead token pings with 200 (slurm-api.md 5)."""

    hostname: str
    responding: bool
    primary: bool
    status: str = ""


@dataclass(frozen=True, slots=True)
class SlurmVersion:
    """slurmctld's release, compared by number: "05" is 5 (case 008)."""

    major: int
    minor: int
    micro: int = 0

    def __str__(self) -> str:
        return f"{self.major:02d}.{self.minor:02d}.{self.micro}"

    @property
    def key(self) -> tuple[int, int, int]:
        return self.major, self.minor, self.micro


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The values of slurm.conf that our rules use, where the API can tell them (`conf`, from v0.0.45)."""

    min_job_age: timedelta | None = None
    slurmd_timeout: timedelta | None = None
    return_to_service: int | None = None
