"""`BurnInNode`: the present build of a node is put through a suite, under the gate."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from fleet_manager.core.domain.burn_in import Verdict
from fleet_manager.temporal.contracts.adopt import known_suite
from fleet_manager.temporal.contracts.common import Contract, NodeName, Payload, SiteId

WORKFLOW = "BurnInNode"
QUERY_PROGRESS = "progress"


class BurnInInput(Contract):
    """What to prove, and by which suite."""

    site: SiteId
    node: NodeName
    suite: Annotated[str, AfterValidator(known_suite)] = "smoke"


class BurnInResult(Payload):
    """The verdict with its evidence, a sentence for each job."""

    verdict: Verdict
    job_ids: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()


def workflow_id(site: str, node: str) -> str:
    """Return the id of a node's burn-in."""
    return f"burn-in/{site}/{node}"
