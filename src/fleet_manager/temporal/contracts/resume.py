"""`ResumeNode`: our hold comes off; the node takes jobs again when none is left."""

from __future__ import annotations

from fleet_manager.core.domain.slurm_holds import HoldId
from fleet_manager.temporal.contracts.common import Contract, NodeName, Payload, SiteId
from fleet_manager.temporal.contracts.node_actor import Words

WORKFLOW = "ResumeNode"


class Override(Contract):
    """A named human takes responsibility for clearing a hold that is not ours."""

    human: Words
    reason: Words


class ResumeInput(Contract):
    """Whose hold to end: one id, or the only one there is."""

    site: SiteId
    node: NodeName
    hold: HoldId | None = None
    override: Override | None = None


class ResumeResult(Payload):
    """Schedulable, or whose holds are left."""

    schedulable: bool
    holds_left: tuple[str, ...] = ()
    why: str = ""


def workflow_id(site: str, node: str) -> str:
    """Return the id of a resume of a node."""
    return f"resume/{site}/{node}"
