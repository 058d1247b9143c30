"""`DrainNode`: no new jobs on a node, and word when the last one has gone."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from fleet_manager.core.domain.slurm_holds import OwnerName
from fleet_manager.temporal.contracts.common import Contract, NodeName, Payload, SiteId
from fleet_manager.temporal.contracts.node_actor import Words

WORKFLOW = "DrainNode"
UPDATE_EXTEND_DEADLINE = "extend_deadline"
UPDATE_CANCEL_JOBS_NOW = "cancel_jobs_now"
QUERY_PROGRESS = "progress"


class OnDeadline(StrEnum):
    """How far up the ladder a drain goes when its deadline passes; the default never ends a job."""

    WAIT = "wait"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    FAIL = "fail"


class DrainInput(Contract):
    """What to drain, why, and until when."""

    site: SiteId
    node: NodeName
    reason: Words
    owner: OwnerName = "sre"
    deadline: Annotated[timedelta, Field(gt=timedelta())] | None = None
    """From the start; None waits for the jobs to end."""
    on_deadline: OnDeadline = OnDeadline.WAIT


class DrainResult(Payload):
    """The node is drained and held; or what still runs."""

    drained: bool
    hold_id: str
    holds: tuple[str, ...]
    running_jobs: tuple[int, ...] = ()
    eta: AwareDatetime | None = None


def workflow_id(site: str, node: str, owner: str) -> str:
    """Return the id of one owner's drain of a node: the same intent twice joins the running one."""
    return f"drain/{site}/{node}/{owner}"
