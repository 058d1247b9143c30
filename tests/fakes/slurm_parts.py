"""The node and the job of the in-memory slurmctld."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet_manager.core.domain.slurm_cluster import Reservation, SlurmVersion
from fleet_manager.core.domain.slurm_job import JobSpec, SlurmJob
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag, SlurmNode, SlurmNodeState, parse_gres


@dataclass
class Node:
    """One node: the base without its jobs, the flags that are set on it, and what its slurmd said."""

    name: str
    dynamic: bool
    features: tuple[str, ...]
    active_features: tuple[str, ...] = ()
    base: NodeBase = NodeBase.IDLE
    flags: set[NodeFlag] = field(default_factory=set)
    reason: str = ""
    reason_by: str = ""
    reason_at: datetime | None = None
    gres: str = "gpu:h100:8"
    cpus: int = 16
    memory_mib: int = 4000
    instance_id: str = ""
    extra: str = ""
    comment: str = ""
    alive: bool = True
    silent_until: datetime | None = None
    started_at: datetime | None = None

    def view(
        self, *, busy: bool, reservations: list[Reservation], partitions: tuple[str, ...], version: SlurmVersion
    ) -> SlurmNode:
        """Return it as slurmrestd tells it.

        Args:
            busy: whether a job runs on it, which then has all of it.
            reservations: those that are active on it.
            partitions: those that it is in.
            version: of its slurmd.
        """
        flags = self.flags | ({NodeFlag.DYNAMIC_NORM} if self.dynamic else set())
        flags |= {NodeFlag.RESERVED} if reservations else set()
        flags |= {NodeFlag.MAINTENANCE} if any("MAINT" in one.flags for one in reservations) else set()
        used = parse_gres(self.gres)[0].count if busy else 0
        return SlurmNode(
            name=self.name,
            state=SlurmNodeState(
                NodeBase.ALLOCATED if busy and self.base is NodeBase.IDLE else self.base, frozenset(flags)
            ),
            reason=self.reason,
            reason_set_by=self.reason_by,
            reason_changed_at=self.reason_at,
            features=self.features,
            active_features=self.active_features,
            gres=self.gres,
            gres_used=f"{self.gres.rsplit(':', 1)[0]}:{used}",
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            alloc_cpus=self.cpus if busy else 0,
            instance_id=self.instance_id,
            extra=self.extra,
            comment=self.comment,
            boot_time=self.started_at,
            slurmd_start_time=self.started_at,
            partitions=partitions,
            reservation=reservations[0].name if reservations else "",
            address="127.0.0.1",
            hostname=self.name,
            version=str(version),
        )


@dataclass
class Job:
    """One job, and what it will do: run for so long and end so."""

    record: SlurmJob
    spec: JobSpec
    runs: timedelta
    code: int
    forgotten_at: datetime | None = None

    @property
    def pending(self) -> bool:
        return "PENDING" in self.record.states

    @property
    def running(self) -> bool:
        return "RUNNING" in self.record.states

    @property
    def over(self) -> bool:
        return not self.pending and not self.running

    @property
    def user(self) -> str:
        return self.record.user


def what_it_does(script: str) -> tuple[timedelta, int]:
    """Read the two commands that the tests' jobs are made of: `sleep SECONDS` and `exit CODE`."""
    slept = sum(float(word) for word in re.findall(r"^sleep ([\d.]+)", script, re.MULTILINE))
    code = re.search(r"^exit (\d+)", script, re.MULTILINE)
    failed = re.search(r"^false$", script, re.MULTILINE)
    return timedelta(seconds=slept), int(code[1]) if code else int(bool(failed))
