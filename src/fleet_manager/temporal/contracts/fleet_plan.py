"""`FleetPlan`: one verb over many nodes, a preview first, then canaries and waves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleet_manager.temporal.contracts.common import Contract, Payload, SiteId, Verb

WORKFLOW = "FleetPlan"
QUERY_PROGRESS = "progress"
SIGNAL_PAUSE = "pause"
SIGNAL_RESUME = "resume"
UPDATE_ABORT = "abort"


class FleetPlanInput(Contract):
    """Which nodes, what to do, and how boldly. `preview` (the default) changes nothing."""

    site: SiteId
    verb: Literal[Verb.ADOPT, Verb.DRAIN, Verb.RESUME, Verb.RELEASE]
    selector: Annotated[str, Field(min_length=1)]
    preview: bool = True
    canary: Annotated[int, Field(ge=0)] = 1
    max_unavailable: Annotated[str, Field(pattern=r"^(\d+|\d{1,3}%)$")] = "10%"
    """A number, or a percentage rounded down, at least 1; every node that is out for any reason counts."""
    stop_after: Annotated[int, Field(gt=0)] = 1
    """Failures after which no further node is begun."""


class NodeOutcome(Payload):
    """What became of one node."""

    node: str
    outcome: str
    why: str = ""


class FleetPlanResult(Payload):
    """A result for every node of the selector, unknown names too."""

    outcomes: tuple[NodeOutcome, ...]


def workflow_id(site: str, verb: str, plan: str) -> str:
    """Return the id of a plan; PLAN is a name or a ULID that its maker gives."""
    return f"plan/{site}/{verb}/{plan}"
