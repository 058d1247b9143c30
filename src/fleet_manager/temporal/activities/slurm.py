"""What an adoption does with the node in SLURM: see it register, make it whole, reserve it, and give it free.

No drain is written here: only the node's actor does that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime
from temporalio import activity
from temporalio.exceptions import ApplicationError

from fleet_manager.core.clients.slurmrest.errors import ReservationBusy, ReservationExists, ReservationNotFound
from fleet_manager.core.clients.slurmrest.protocol import NodeUpdate, SlurmClient
from fleet_manager.core.clients.watch import Watch
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.slurm_cluster import Reservation
from fleet_manager.core.domain.slurm_job import JobPhase, judge
from fleet_manager.core.domain.slurm_node import NodeFlag, SlurmNode
from fleet_manager.core.domain.slurm_projection import Build
from fleet_manager.core.domain.slurm_registration import (
    CLOCK_DIFFERENCE,
    RESERVATION_FLAGS,
    Expectation,
    missing_features,
    partition_problem,
    refuse_machine,
    registered,
    reservation_name,
    reservation_problem,
    why_not_registered,
)
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.errors import Refused
from fleet_manager.temporal.activities.waiting import beat_while
from fleet_manager.temporal.contracts.common import Failure, Payload

log = logging.getLogger(__name__)


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


class NodeParams(Payload):
    """A node."""

    node: str


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
        site: the site's facts.
        now: the clock.
    """

    slurm: SlurmClient
    watch: Watch
    site: SiteSettings
    now: Callable[[], datetime]

    @activity.defn
    async def wait_registered(self, params: WaitRegisteredParams) -> None:
        """Wait until this build, and no other, has registered under the node's name.

        Raises:
            Refused: it has not by the deadline; says what is there instead.
        """
        seen = ["SLURM was not read yet"]
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
            too_late=lambda: Refusal(
                code=Failure.NOT_REGISTERED,
                why=f"Build {params.build.build_id} has not registered as {params.node} in time: {words()}.",
                way_out=f"Look at its console (openstack console log show {params.build.server_id}), at slurmctld's "
                "log, and at the machine's clock (a boot time before slurmctld's last word from it is not taken), "
                "then adopt it again with force_rebuild=true.",
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
    async def reserve_node(self, params: NodeParams) -> str:
        """Put our one MAINT reservation, without end, on the node; return its name.

        Raises:
            Refused: one of that name is there and does not guard the node.
        """
        name = reservation_name(params.node)
        there = await self._reservation(name)
        if there is None:
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

    @activity.defn
    async def unreserve_node(self, params: NodeParams) -> None:
        """Cancel what still names our reservation, then delete it. Not there is done.

        Raises:
            ReservationBusy: a job still names it (retried: it is being cleaned up).
        """
        name = reservation_name(params.node)
        if await self._reservation(name) is None:
            return
        for job in await self.slurm.jobs():
            if job.reservation == name and judge(job).phase in (JobPhase.PENDING, JobPhase.RUNNING):
                log.info("cancelling job %d, which names reservation %s", job.id, name)
                await self.slurm.cancel(job.id)
        try:
            await self.slurm.delete_reservation(name)
        except ReservationNotFound:
            return
        except ReservationBusy as error:
            raise ApplicationError(str(error), type=type(error).__name__) from None

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

        def decide(node: SlurmNode | None) -> SlurmNode | None:
            if node is None:
                return None
            last[:] = [node]
            return node if node.state.schedulable or NodeFlag.DRAIN in node.state.flags else None

        try:
            node = await beat_while(
                self.watch.nodes.wait(params.node, decide),
                deadline=params.deadline,
                now=self.now,
                words=lambda: str(last[0].state) if last else "SLURM was not read yet",
                too_late=lambda: Refusal(code=Failure.WAIT_DEADLINE, why="not in service in time"),
            )
        except Refused:
            if not last:
                raise
            node = last[0]
        return InService(
            schedulable=node.state.schedulable, state=str(node.state), why_not=node.state.why_not_schedulable()
        )
