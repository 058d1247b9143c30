"""What a reader and a client of SLURM can do, whatever stands behind: slurmrestd, scontrol's text, the tests' fake.

Callers (activities, watch, agents) annotate with these Protocols and never with a concrete class. Everything that is
returned is a domain model; everything that fails is an error of `core.clients.errors` or of `slurmrest.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType, Protocol

from fleet_manager.core.domain.slurm_cluster import ClusterConfig, Partition, Ping, Reservation, SlurmVersion
from fleet_manager.core.domain.slurm_job import JobSpec, SlurmJob, Submitted
from fleet_manager.core.domain.slurm_node import SlurmNode

ChangeMark = NewType("ChangeMark", int)
"""slurmctld's own time of a reading, in epoch seconds; it means something only to the server that gave it."""


@dataclass(frozen=True, slots=True)
class NodesReading:
    """Every node of the cluster at one moment."""

    nodes: tuple[SlurmNode, ...]
    mark: ChangeMark | None = None
    """To be handed to `read_nodes_if_changed`; None where the server cannot tell changes."""


class NodeReader(Protocol):
    """Reads nodes and jobs as they are now. One shared watch per process stands on this; it never writes."""

    async def tells_changes(self) -> bool:
        """Say whether `read_nodes_if_changed` is sound here (SLURM 26.05; not 24.11, whose answer is an error)."""
        ...

    async def read_node(self, name: str) -> SlurmNode:
        """Return the node of exactly this spelling, by one small request.

        Raises:
            NodeNotFound: slurmctld answered and has no such node (case 001). Never means drained or idle.
            Unavailable, Rejected: anything else; nothing is known then.
        """
        ...

    async def read_nodes(self) -> NodesReading:
        """Return all nodes. Costs slurmctld seconds at 10,000 nodes: only the watch and the agent call it."""
        ...

    async def read_nodes_if_changed(self, since: ChangeMark) -> NodesReading | None:
        """Return all nodes, or None if nothing changed since that reading.

        Raises:
            NotSupportedHere: the server cannot tell soundly (`tells_changes` is False).
        """
        ...

    async def read_jobs(self) -> tuple[SlurmJob, ...]:
        """Return every job record that slurmctld has, ended ones too until MinJobAge has passed."""
        ...

    async def jobs_on_node(self, name: str) -> tuple[SlurmJob, ...]:
        """Return every job record that names the node, ended ones too.

        What still uses the node is told by `slurm_job.is_listed`; the ended records matter to a delete (case 037).
        """
        ...


class NodeStateWord(StrEnum):
    """The state words that we send, one at a time. DOWN is left out on purpose: it kills the node's jobs."""

    DRAIN = "DRAIN"
    """No new jobs. Overwrites the reason if one is sent, keeps the one that is there if none is."""
    UNDRAIN = "UNDRAIN"
    """Takes everybody's drain off; leaves DOWN alone; accepted on a node that is not drained."""
    RESUME = "RESUME"
    """UNDRAIN, and DOWN becomes IDLE: only under our own active MAINT reservation (design 4.4)."""
    FUTURE = "FUTURE"
    """Takes a node that cannot be deleted out of sight."""


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """What to change of one node; None leaves a thing as it is."""

    state: NodeStateWord | None = None
    reason: str | None = None
    """Empty is refused: slurmctld ignores it and keeps the old one."""
    features: tuple[str, ...] | None = None
    active_features: tuple[str, ...] | None = None
    comment: str | None = None
    extra: str | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this slurmrestd can do with the newest data_parser that we know."""

    api_version: str
    """As "v0.0.45"."""
    slurm_version: SlurmVersion
    reservations_writable: bool
    """False on 24.11: no way over REST there."""
    requeue: bool
    conf: bool
    new_node: bool
    cancel_tells: bool
    """Whether a cancel's answer tells the job's fate (from v0.0.42)."""
    job_records: bool
    """Whether slurmdbd answers through this slurmrestd (`/slurmdb/` paths)."""
    sound_304: bool
    """Whether `update_time` can be trusted on nodes (26.05)."""


class SlurmClient(NodeReader, Protocol):
    """Everything that we ask of SLURM. No method retries a write."""

    async def capabilities(self) -> Capabilities:
        """Return what the server can do; discovered once, again when an endpoint vanishes or the release changes.

        Raises:
            IncompatibleServer: it offers no version that we know; names wanted and offered (case 045).
        """
        ...

    async def ping(self) -> tuple[Ping, ...]:
        """Return whether each slurmctld answers; decided on the body, HTTP 200 says nothing."""
        ...

    async def version(self) -> SlurmVersion: ...

    async def nodes(self) -> tuple[SlurmNode, ...]: ...

    async def node(self, name: str) -> SlurmNode:
        """Return the node, also when SLURM spells its name in another case: look at `.name` (case 027).

        Costs one small request when the spelling is right; a full list when it is not.

        Raises:
            NodeNotFound: there is none in any spelling.
            AmbiguousNode: none of this spelling, and two or more that differ only in case.
        """
        ...

    async def update_node(self, name: str, update: NodeUpdate) -> None:
        """Change one node, whose exact spelling is given. Reading back is the caller's.

        Raises:
            NodeNotFound: no such node.
            InvalidTransition: RESUME with nothing to resume, FUTURE of a busy node (case 011).
            NotAnAdministrator: the token's user lacks AdminLevel=Administrator.
            BadRequest: a name that SLURM would take for several nodes, an empty update, an empty reason.
        """
        ...

    async def delete_node(self, name: str) -> None:
        """Delete a dynamic node.

        Raises:
            NodeNotFound: no such node. NodeBusy: a job is on it. InvalidTransition: it is a static node.
        """
        ...

    async def jobs(self) -> tuple[SlurmJob, ...]: ...

    async def jobs_named(self, name: str, user: str | None = None) -> tuple[SlurmJob, ...]:
        """Return the jobs of that name: how a submit whose answer was lost is found again."""
        ...

    async def job(self, job_id: int) -> SlurmJob:
        """Return slurmctld's record.

        Raises:
            JobNotFound: slurmctld has forgotten it or never had it: ask `job_record` (case 004).
        """
        ...

    async def job_record(self, job_id: int) -> SlurmJob | None:
        """Return slurmdbd's record, or None if it has none (yet): that is unknown, never an end (case 004).

        Raises:
            NotSupportedHere: there is no slurmdbd behind this slurmrestd.
        """
        ...

    async def submit(self, spec: JobSpec) -> Submitted:
        """Submit once. A job id in the answer means submitted, whatever else it says (case 042).

        Raises:
            SubmitRefused: slurmctld did not take it.
            SubmitUnknown: no answer: a job may exist; look with `jobs_named` before submitting again.
            Unavailable: any other one: it did not reach slurmctld, no job exists.
        """
        ...

    async def cancel(self, job_id: int) -> bool:
        """Cancel a job; False when it had ended or was forgotten already.

        Raises:
            Forbidden: it is another user's.
        """
        ...

    async def reservations(self) -> tuple[Reservation, ...]: ...

    async def reservation(self, name: str) -> Reservation:
        """Return it. Raises ReservationNotFound."""
        ...

    async def create_reservation(
        self,
        name: str,
        *,
        nodes: tuple[str, ...],
        users: tuple[str, ...],
        flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS"),
        start: datetime | None = None,
        duration: timedelta | None = None,
    ) -> None:
        """Create a reservation; `start` None is now, `duration` None is without end.

        Raises:
            ReservationExists: one of that name is there (SLURM itself would update it).
            ReservationBusy: it overlaps another one.
            NotSupportedHere: below data_parser v0.0.43 (SLURM 24.11).
        """
        ...

    async def delete_reservation(self, name: str) -> None:
        """Delete it.

        Raises:
            ReservationNotFound: no such reservation.
            ReservationBusy: a job, even a pending one, names it: cancel those first.
            NotSupportedHere: on SLURM 24.11.
        """
        ...

    async def partitions(self) -> tuple[Partition, ...]: ...

    async def config(self) -> ClusterConfig:
        """Return slurm.conf's values that our rules use. Raises NotSupportedHere below v0.0.45."""
        ...
