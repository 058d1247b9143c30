"""The one activity that writes drains: it reads the node, asks the domain for the next write, writes, reads back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from fleet_manager.core.clients.errors import Conflict
from fleet_manager.core.clients.slurmrest.errors import NodeNotFound, NotSupportedHere, ReservationNotFound
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate, SlurmClient
from fleet_manager.core.domain.slurm_adoption import known_ids
from fleet_manager.core.domain.slurm_cluster import Reservation
from fleet_manager.core.domain.slurm_holds import Ownership, ReasonClass, classify
from fleet_manager.core.domain.slurm_projection import (
    HoldRecord,
    NodeVerb,
    NodeWrite,
    OpenNode,
    Projection,
    next_write,
    problem_of,
)
from fleet_manager.core.domain.slurm_registration import reservation_problem
from fleet_manager.temporal.contracts.node_actor import ProjectParams

log = logging.getLogger(__name__)

MAX_WRITES = 4
"""Writes of one projection: DRAIN, its reason, and room for one change that came between."""


@dataclass
class ProjectionActivities:
    """Needs SLURM alone.

    Attributes:
        slurm: the site's SLURM.
        slurm_user: whom the token stands for; the reservation must let in him alone.
        birth_reason: the site's constant in the user-data.
        slurm_users: who slurmctld writes its own reasons as.
        now: the clock.
    """

    slurm: SlurmClient
    slurm_user: str
    birth_reason: str
    slurm_users: frozenset[str]
    now: Callable[[], datetime]

    @activity.defn
    async def project_holds(self, params: ProjectParams) -> Projection:
        """Make SLURM show the record, as far as nobody else's drain is touched.

        A node that is open and must be drained is not written in the first call: what it shows comes back as
        `to_drain`, the actor's history keeps it, and the next call carries it. So the reason is ours to write, and
        the DRAIN ours to take off, whatever dies between the two writes.

        Raises:
            Unavailable: SLURM cannot be read or written now; nothing is known then.
        """
        try:
            now = await self.slurm.read_node(params.node)
        except NodeNotFound:
            return Projection(
                seen=False, drained=False, state="", reason="", whose=ReasonClass.NONE, problem="SLURM has no such node"
            )
        record, closed_because = await self._record(params)
        writes: list[str] = []
        to_drain: OpenNode | None = None
        while len(writes) < MAX_WRITES and (write := next_write(record, now, params.before)):
            if not now.state.drain and write.state is NodeVerb.DRAIN and params.before is None:
                to_drain = OpenNode.of(now)
                break
            await self._write(params.node, write)
            writes.append(f"{write.state}{' with reason' if write.reason else ''}")
            now = await self.slurm.read_node(params.node)
        whose = classify(now.hold_reason, now.reason_set_by, record.ownership)
        return Projection(
            to_drain=to_drain,
            seen=True,
            drained=now.state.drain,
            state=str(now.state),
            reason=now.reason,
            whose=whose,
            writes=tuple(writes),
            problem=closed_because or problem_of(record, now, whose),
        )

    async def _record(self, params: ProjectParams) -> tuple[HoldRecord, str]:
        """Return the record, with the gate shut when its reservation does not guard it, and why it is shut."""
        ownership = Ownership(
            known_ids=known_ids(params.holds, params.ended),
            birth_reason=self.birth_reason if params.before_verdict else None,
            slurm_users=self.slurm_users,
            slurm_user=self.slurm_user,
        )
        gate, problem = params.gate, ""
        if gate:
            guard = await self._reservation(gate.reservation)
            problem = reservation_problem(guard, params.node, self.slurm_user, self.now())
        record = HoldRecord(
            holds=params.holds,
            ownership=ownership,
            open_for=gate.build if gate and not problem else None,
            clears_system=bool(gate and gate.clears_system),
            opened=bool(gate and gate.opened),
            proven=params.proven,
        )
        return record, f"the gate stays shut: {problem}" if problem else ""

    async def _reservation(self, name: str) -> Reservation | None:
        try:
            return await self.slurm.reservation(name)
        except (ReservationNotFound, NotSupportedHere):
            return None

    async def _write(self, node: str, write: NodeWrite) -> None:
        log.info("node %s: %s, reason %r", node, write.state, write.reason)
        try:
            await self.slurm.update_node(node, NodeUpdate(state=NodeStateWord(write.state), reason=write.reason))
        except Conflict as error:
            # such as RESUME of a node that came up between our read and our write: the read that follows decides
            log.info("node %s: %s was refused: %s", node, write.state, error)
