"""What an adoption does with the node in SLURM: see it register, make it whole, reserve it, and give it free.

No drain is written here: only the node's actor does that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import AwareDatetime
from temporalio import activity
from temporalio.exceptions import ApplicationError

from fleet_manager.core.clients.slurmrest.errors import (
    NodeNotFound,
    ReservationBusy,
    ReservationExists,
    ReservationNotFound,
)
from fleet_manager.core.clients.slurmrest.protocol import NodeUpdate, SlurmClient
from fleet_manager.core.clients.watch import Watch
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.slurm_cluster import Reservation
from fleet_manager.core.domain.slurm_job import JobPhase, is_listed, judge
from fleet_manager.core.domain.slurm_node import NodeFlag, SlurmNode
from fleet_manager.core.domain.slurm_projection import Build
from fleet_manager.core.domain.slurm_registration import (
    CLOCK_DIFFERENCE,
    RESERVATION_FLAGS,
    Expectation,
    missing_features,
    partition_problem,
    refuse_machine,
    refuse_reached,
    refuse_replaced,
    registered,
    reservation_name,
    reservation_problem,
    why_not_registered,
)
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.errors import Refused
from fleet_manager.temporal.activities.waiting import beat_while
from fleet_manager.temporal.contracts.common import Failure, Payload
from fleet_manager.temporal.contracts.node_actor import ActorState

log = logging.getLogger(__name__)

UNREAD = "SLURM was not read yet"


class WaitRegisteredParams(Payload):
    """Which build is to register under which name, until when."""

    node: str
    build: Build
    deadline: AwareDatetime


class SettleParams(Payload):
    """What the machine must be."""

    node: str
    build: Build
    gres: str
    features: tuple[str, ...]
    flavor_vcpus: int
    flavor_ram_mib: int


class Actors(Protocol):
    """What of the nodes' actors is used here."""

    async def view(self, site: str, node: str) -> ActorState | None: ...

    async def look(self, site: str, node: str) -> None: ...


class ReserveParams(Payload):
    """The node to be reserved, and the operation that must have it."""

    node: str
    claim_id: str


class UnreserveParams(Payload):
    """The node that is to be given free, and what must be true of it at that moment."""

    node: str
    passed: Build | None = None
    """The build that passed and must still be there; None: the node must be drained."""


class WaitInServiceParams(Payload):
    """Which node is to take jobs, until when."""

    node: str
    deadline: AwareDatetime


class InService(Payload):
    """Whether the scheduler uses the node, and why not."""

    schedulable: bool
    state: str
    why_not: tuple[str, ...] = ()


@dataclass
class SlurmActivities:
    """Needs SLURM alone.

    Attributes:
        slurm: the site's SLURM.
        watch: the one watch of this process.
        actors: the nodes' actors, which alone write drains.
        site: the site's facts.
        now: the clock.
    """

    slurm: SlurmClient
    watch: Watch
    actors: Actors
    site: SiteSettings
    now: Callable[[], datetime]

    @activity.defn
    async def wait_registered(self, params: WaitRegisteredParams) -> None:
        """Wait until this build, and no other, has registered under the node's name.

        Raises:
            Refused: it has not by the deadline; says what is there instead.
        """
        seen = [UNREAD]
        trouble: list[str] = []

        def decide(node: SlurmNode | None) -> bool | None:
            seen[0] = why_not_registered(node, params.node, params.build)
            return True if node and registered(node, params.build) else None

        def words() -> str:
            return f"SLURM cannot be read now: {trouble[0]}" if trouble else seen[0]

        await beat_while(
            self.watch.nodes.wait(params.node, decide, trouble),
            deadline=params.deadline,
            now=self.now,
            words=words,
            looked=lambda: bool(trouble) or seen[0] != UNREAD,
            too_late=lambda: Refusal(
                code=Failure.NOT_REGISTERED,
                why=f"Build {params.build.build_id} has not registered as {params.node} in time: {words()}.",
                way_out=f"Look at its console (openstack console log show {params.build.server_id}), at slurmctld's "
                "log, and at the machine's clock (a boot time before slurmctld's last word from it is not taken), "
                "then adopt it again with --force-rebuild.",
            ),
        )

    @activity.defn
    async def settle_node(self, params: SettleParams) -> None:
        """Check that the whole machine is there, and give the node the configuration's features.

        Raises:
            Refused: fewer GPUs, CPUs or MiB than promised, or the burn-in's partition does not have it.
        """
        node = await self.slurm.read_node(params.node)
        refusal = refuse_machine(node, self._expected(params))
        if refusal:
            raise Refused(refusal)
        features = missing_features(node, params.features)
        if features:
            await self.slurm.update_node(node.name, NodeUpdate(features=features, active_features=features))
            if missing_features(await self.slurm.read_node(node.name), features):
                text = f"node {node.name} does not show the features {', '.join(features)} yet"
                raise ApplicationError(text, type="FeaturesNotShown")
        problem = partition_problem(await self.slurm.partitions(), self.site.burn_in_partition, node.name)
        if problem:
            raise Refused(Refusal(code="NoBurnInPartition", why=f"No burn-in can run: {problem}."))

    def _expected(self, params: SettleParams) -> Expectation:
        return Expectation(
            build=params.build,
            gres=params.gres,
            features=params.features,
            flavor_vcpus=params.flavor_vcpus,
            flavor_ram_mib=params.flavor_ram_mib,
            reserved_cpus=self.site.reserved_cpus,
            reserved_memory_mib=self.site.reserved_memory_mib,
        )

    @activity.defn
    async def reserve_node(self, params: ReserveParams) -> str:
        """Put our one MAINT reservation, without end, on the node; return its name.

        Raises:
            Refused: a user's job is on the node, another operation has it, or one of that name does not guard it.
            NodeNotDrained: somebody took DRAIN off; the actor was told to put it back (retried).
        """
        name = reservation_name(params.node)
        there = await self._reservation(name)
        if there is None:
            await self._must_be_closed(params)
            try:
                await self.slurm.create_reservation(
                    name,
                    nodes=(params.node,),
                    users=(self.site.slurm_user,),
                    flags=RESERVATION_FLAGS,
                    start=self.now() - CLOCK_DIFFERENCE,
                )
            except ReservationExists:
                log.info("reservation %s came up meanwhile", name)
            there = await self._reservation(name)
        problem = reservation_problem(there, params.node, self.site.slurm_user, self.now())
        if problem:
            raise Refused(
                Refusal(
                    code="ReservationUnfit",
                    why=f"Users' jobs cannot be kept off node {params.node}: {problem}.",
                    way_out=f"Delete it (scontrol delete reservation={name}) once no job uses it, then adopt again.",
                )
            )
        return name

    async def _must_be_closed(self, params: ReserveParams) -> None:
        """Refuse a node that users' jobs have reached, or that is not this operation's; have DRAIN put back."""
        state = await self.actors.view(self.site.id, params.node)
        if state is None or state.claim is None or state.claim.id != params.claim_id:
            text = f"operation {params.claim_id} does not have node {params.node} any more"
            raise ApplicationError(text, type=Failure.CLAIM_LOST, non_retryable=True)
        node = await self.slurm.read_node(params.node)
        jobs = tuple(job for job in await self.slurm.jobs_on_node(params.node) if is_listed(job))
        refusal = refuse_reached(params.node, jobs)
        if refusal:
            raise Refused(refusal)
        if not node.state.drain:
            await self._put_back(params.node)

    async def _put_back(self, node: str) -> None:
        await self.actors.look(self.site.id, node)
        raise ApplicationError(f"node {node} is not drained, its DRAIN is being put back", type="NodeNotDrained")

    @activity.defn
    async def unreserve_node(self, params: UnreserveParams) -> None:
        """Cancel what still names our reservation, look at the node once more, then delete it. Not there is done.

        Raises:
            Refused: the build that passed is not on the node any more.
            NodeNotDrained: it must be drained and is not; the actor was told to put DRAIN back (retried).
            ReservationBusy: a job still names it (retried: it is being cleaned up).
        """
        name = reservation_name(params.node)
        if await self._reservation(name) is None:
            return
        for job in await self.slurm.jobs():
            if job.reservation == name and judge(job).phase in (JobPhase.PENDING, JobPhase.RUNNING):
                log.info("cancelling job %d, which names reservation %s", job.id, name)
                await self.slurm.cancel(job.id)
        await self._may_be_freed(params)
        try:
            await self.slurm.delete_reservation(name)
        except ReservationNotFound:
            return
        except ReservationBusy as error:
            raise ApplicationError(str(error), type=type(error).__name__) from None

    async def _may_be_freed(self, params: UnreserveParams) -> None:
        try:
            node = await self.slurm.read_node(params.node)
        except NodeNotFound:
            return
        if params.passed is None and not node.state.drain:
            await self._put_back(params.node)
        if params.passed is not None and not params.passed.proven_by(node):
            raise Refused(refuse_replaced(node, params.passed))

    async def _reservation(self, name: str) -> Reservation | None:
        try:
            return await self.slurm.reservation(name)
        except ReservationNotFound:
            return None

    @activity.defn
    async def wait_in_service(self, params: WaitInServiceParams) -> InService:
        """Wait until the scheduler can use the node, or somebody's DRAIN is there; at the deadline say what is seen.

        The flag MAINTENANCE goes some seconds after its reservation.
        """
        last: list[SlurmNode] = []
        trouble: list[str] = []

        def decide(node: SlurmNode | None) -> SlurmNode | None:
            if node is None:
                return None
            last[:] = [node]
            return node if node.state.schedulable or NodeFlag.DRAIN in node.state.flags else None

        try:
            node = await beat_while(
                self.watch.nodes.wait(params.node, decide, trouble),
                deadline=params.deadline,
                now=self.now,
                words=lambda: trouble[0] if trouble else str(last[0].state) if last else "SLURM was not read yet",
                looked=lambda: bool(last or trouble),
                too_late=lambda: Refusal(code=Failure.WAIT_DEADLINE, why="not in service in time"),
            )
        except Refused:
            if trouble or not last:
                why = trouble[0] if trouble else "it was not seen"
                return InService(schedulable=False, state="unknown", why_not=(f"SLURM cannot be read now: {why}",))
            node = last[0]
        return InService(
            schedulable=node.state.schedulable, state=str(node.state), why_not=node.state.why_not_schedulable()
        )
