"""What to write to SLURM so that a node shows the holds that our record has: one write at a time, read between.

SLURM has no compare-and-swap, so a DRAIN is first set *without* a reason (that keeps the one that is there), then the
node is read, and a reason is written only where it is empty because we have just drained it, or ours. UNDRAIN takes
everybody's drain off: it is sent only when the drain there is ours alone. RESUME also turns DOWN into IDLE: it is sent
only with the gate open, which means under our own active MAINT reservation on a build that has proven itself.

Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, Ownership, ReasonClass, classify, render
from fleet_manager.core.domain.slurm_node import SlurmNode, extra_value


class NodeVerb(StrEnum):
    """The states that we ever ask slurmctld for. DOWN is none of them: it kills jobs."""

    DRAIN = "DRAIN"
    UNDRAIN = "UNDRAIN"
    RESUME = "RESUME"


class NodeWrite(BaseModel):
    """One update of a node: a single state word (two at once are refused) and perhaps a reason."""

    model_config = ConfigDict(frozen=True)

    state: NodeVerb
    reason: str | None = None
    """None leaves the one that is there."""


class Build(BaseModel):
    """A build of a device, as the machine says it of itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str
    build_id: str

    def proven_by(self, node: SlurmNode) -> bool:
        """Say whether this node was registered by this build: `slurmd --instance-id S --extra fm_build=B`."""
        return node.instance_id == self.server_id and extra_value(node.extra, BUILD_KEY) == self.build_id


BUILD_KEY = "fm_build"
"""The word in `extra`, and the key in the server's metadata that it is taken from."""


class OpenNode(BaseModel):
    """What a node showed before our DRAIN: written down first, so that no crash can hide whose the DRAIN is."""

    model_config = ConfigDict(frozen=True)

    down: bool
    reason: str
    reason_changed_at: datetime | None

    @classmethod
    def of(cls, node: SlurmNode) -> OpenNode:
        return cls(down=node.state.down, reason=node.reason, reason_changed_at=node.reason_changed_at)


class HoldRecord(BaseModel):
    """The record of one node that a projection is made of."""

    model_config = ConfigDict(frozen=True)

    holds: tuple[Hold, ...]
    ownership: Ownership
    open_for: Build | None = None
    """Set while the gate is open: the build that may run its burn-in under our reservation."""
    clears_system: bool = False
    """Whether the drain of slurmctld itself may be taken off at the gate's opening (a new build has come)."""
    opened: bool = False
    """Whether the gate was seen open before: what drains the node or sets it DOWN later is about this very build."""
    proven: Build | None = None
    """The build that has passed, if the record has one: no other is opened by the end of a hold."""

    @property
    def closing(self) -> tuple[Hold, ...]:
        """The holds that must be on the node now: all, but with the gate open none (the reservation stands in)."""
        return () if self.open_for else self.holds


def next_write(record: HoldRecord, now: SlurmNode, before: OpenNode | None) -> NodeWrite | None:
    """Return the next write, or None when SLURM shows what it can of the record.

    Args:
        record: what our record says.
        now: the node, just read.
        before: what the node showed when it was last seen without DRAIN in this projection; None if it never was.
    """
    whose = classify(now.hold_reason, now.reason_set_by, record.ownership)
    if record.closing:
        return _close(record, now, before, whose)
    return _open(record, now, whose)


def _close(record: HoldRecord, now: SlurmNode, before: OpenNode | None, whose: ReasonClass) -> NodeWrite | None:
    if whose is ReasonClass.NONE:
        return NodeWrite(state=NodeVerb.DRAIN)
    wanted = render(record.closing)
    if now.reason == wanted or now.reason.startswith(f"{wanted} : "):
        return None
    if whose in (ReasonClass.OURS, ReasonClass.BIRTH) or _left_behind(now, before):
        return NodeWrite(state=NodeVerb.DRAIN, reason=wanted)
    return None


def _left_behind(now: SlurmNode, before: OpenNode | None) -> bool:
    """Say whether the reason is nobody's: the node was open before our DRAIN, and its text has not changed since.

    24.11 leaves a reason behind after UNDRAIN; it held nothing then, so it is no hold because we drained now. The
    reason of a node that was DOWN is somebody's all the same: an admin's, or slurmctld's.
    """
    if before is None:
        return False
    if now.reason == "":
        return True
    same = now.reason == before.reason and now.reason_changed_at == before.reason_changed_at
    return same and not before.down


def _open(record: HoldRecord, now: SlurmNode, whose: ReasonClass) -> NodeWrite | None:
    ours = whose in (ReasonClass.OURS, ReasonClass.BIRTH)
    if record.open_for is None:
        present = record.proven is None or record.proven.proven_by(now)
        return NodeWrite(state=NodeVerb.UNDRAIN) if ours and present else None
    if not record.open_for.proven_by(now):
        return None
    if whose is ReasonClass.SYSTEM and record.clears_system and not record.opened:
        ours = True
    if now.state.down and not record.opened and (ours or whose is ReasonClass.NONE):
        return NodeWrite(state=NodeVerb.RESUME)
    return NodeWrite(state=NodeVerb.UNDRAIN) if ours else None


class Projection(BaseModel):
    """What SLURM shows of our record after the last read."""

    model_config = ConfigDict(frozen=True)

    seen: bool
    """False when SLURM has no node of that name (yet): the record stands, there is nothing to write it to."""
    drained: bool
    state: str
    reason: str
    whose: ReasonClass
    writes: tuple[str, ...] = ()
    problem: str = ""
    """Why SLURM does not show what the record says, in words; empty when it does."""
    to_drain: OpenNode | None = None
    """Set when nothing was written yet: the node is open and must be drained. Write this down, then project again."""


def problem_of(record: HoldRecord, node: SlurmNode, whose: ReasonClass) -> str:
    """Return why the node does not show the record after everything that may be written was written."""
    if record.closing and not node.state.drain:
        return "DRAIN is not set although it was asked for"
    if record.open_for and not record.open_for.proven_by(node):
        return f"{node.name} was registered by instance {node.instance_id or '(none)'} {node.extra}, not by this build"
    if not record.closing and not record.open_for and record.proven and not record.proven.proven_by(node):
        return f"{node.name} does not run the build that passed: instance {node.instance_id or '(none)'} {node.extra}"
    if not record.closing and node.state.drain and whose is not ReasonClass.NONE:
        by = f" (set by {node.reason_set_by})" if node.reason_set_by else ""
        return f"held by {whose}: {node.reason or 'a drain without a reason'}{by}"
    return ""


def gate_of(holds: tuple[Hold, ...]) -> Hold | None:
    """Return the gate among the holds: there is at most one, as it belongs to the node's one claim."""
    return next((hold for hold in holds if hold.kind is HoldKind.GATE), None)
