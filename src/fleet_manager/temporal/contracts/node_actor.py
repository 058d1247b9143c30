"""`NodeActor`: the one writer of a node's holds, claim and gate. Everybody reaches it by update-with-start.

Updates only record and answer at once (the server takes ten in flight per workflow); the actor's run then projects the
newest record into SLURM. Whoever needs the projection waits until `projected_revision` has come up to the revision of
his answer (query `view`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AwareDatetime, Field, StringConstraints

from fleet_manager.core.domain.slurm_holds import Hold, HoldId, OwnerName
from fleet_manager.core.domain.slurm_projection import Build, OpenNode, Projection
from fleet_manager.temporal.contracts.common import Contract, NodeName, Payload, SiteId, Verb

WORKFLOW = "NodeActor"
UPDATE_CLAIM = "claim"
UPDATE_UNCLAIM = "unclaim"
UPDATE_REAP_CLAIM = "reap_claim"
UPDATE_OPEN_GATE = "open_gate"
UPDATE_END_GATE = "end_gate"
UPDATE_PLACE_HOLD = "place_hold"
UPDATE_END_HOLD = "end_hold"
SIGNAL_LOOK = "look"
"""Something changed in SLURM: project again."""
QUERY_VIEW = "view"

MAX_ENDED = 200
"""Ids of ended holds that are remembered; older texts of ours in SLURM would be foreign then."""

Words = Annotated[str, StringConstraints(min_length=1, max_length=500)]


def workflow_id(site: str, node: str) -> str:
    """Return the id of a node's actor: at most one open run has it."""
    return f"node/{site}/{node}"


class Claim(Payload):
    """The one long operation that has the node."""

    id: HoldId
    """The operation's first run id; its gate has the same."""
    verb: Verb
    workflow_id: str
    started_by: str
    since: AwareDatetime


class Proof(Payload):
    """A build that passed its burn-in, and what shows it."""

    build: Build
    config_revision: int | None
    suite: str
    job_ids: tuple[int, ...]
    passed_at: AwareDatetime


class Gate(Payload):
    """The gate's state beside its hold: for which build it is open, and what stands in for DRAIN meanwhile."""

    build: Build
    reservation: str
    clears_system: bool = False
    opened: bool = False
    """Set by the actor once SLURM has shown the node open."""


class ActorState(Payload):
    """Everything the actor knows; carried over continue-as-new."""

    holds: tuple[Hold, ...] = ()
    claim: Claim | None = None
    gate: Gate | None = None
    ended: tuple[str, ...] = ()
    proof: Proof | None = None
    revision: int = 0
    """Counts what was recorded."""
    projected_revision: int = 0
    projection: Projection | None = None
    before: OpenNode | None = None
    """What the node showed before a DRAIN of ours that is not read back yet."""
    opened_before: HoldId | None = None
    """The claim whose gate found the node open: only that gate may be taken down without a verdict."""
    reopening: bool = False
    """The next projection restores what was before a gate that is taken down: no proof is asked for."""
    dropping: HoldId | None = None
    """A gate that is to go once it is known whether the node was open before it."""
    trouble: str = ""
    """Why the last try to project failed, "" when it did not."""


class ActorInput(Contract):
    """Whose actor it is; `state` only by continue-as-new."""

    site: SiteId
    node: NodeName
    state: ActorState = ActorState()
    history_limit: int | None = None
    """Events after which it continues as new; None: when the server suggests it. For tests."""


class ClaimRequest(Contract):
    """Ask for the node. `gate_why` also puts the gate up in the same step, so that none comes between."""

    id: HoldId
    verb: Verb
    workflow_id: str
    started_by: str
    owner: OwnerName = "adopt"
    gate_why: Words | None = None


class ClaimAnswer(Payload):
    """Granted, or who has it: `state.claim` names the operation, since when, started by whom."""

    granted: bool
    state: ActorState


class ClaimEnd(Contract):
    """Give the claim back. A gate that is still up stays as a hold with this why, unless nothing was built yet."""

    claim_id: HoldId
    why: Words = "the operation ended without a verdict"
    keep_gate: bool = True


class OpenGate(Contract):
    """Let the burn-in of this build in: only under the reservation, which the projection checks each time."""

    claim_id: HoldId
    gate: Gate


class EndGate(Contract):
    """The verdict. With proof the gate's hold goes; without it stays as the verdict's hold, with this why."""

    claim_id: HoldId
    why: Words
    proof: Proof | None = None


class PlaceHold(Contract):
    """Add a hold. The same id again is no second hold; an ended id is refused (case 040)."""

    hold: Hold


class EndHold(Contract):
    """Take a hold off. One that is not there is success: the answer shows what is left."""

    hold_id: HoldId
    override: bool = False
    """Also end what a build without a pass has left (a verdict's hold): a human takes responsibility."""


class ProjectParams(Payload):
    """What the actor hands to the activity that writes SLURM."""

    site: str
    node: str
    holds: tuple[Hold, ...]
    ended: Annotated[tuple[str, ...], Field(max_length=MAX_ENDED)]
    gate: Gate | None
    before_verdict: bool
    """Whether the site's birth reason is ours: a gate is up."""
    before: OpenNode | None = None
    """What the node showed when it was last seen open; without it an open node is only looked at."""
    proven: Build | None = None
