"""What every contract shares: ids, queues, the words of failures. No workflow, no client is imported here.

Workflow ids are natural keys, so that an operation can be found by what it is about. An SRE may start a verb under any
id from the Temporal UI: the node's actor, not the id, is what makes two operations exclude each other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

SiteId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""A site's id: a DNS label, as it stands in queue names and workflow ids."""
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$")]
"""A SLURM node's exact name."""
DeviceRef = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$")]
"""A device's id or its name."""


class Contract(BaseModel):
    """What a person or a caller hands in: frozen; unknown fields are refused, so that a typo is no consent."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Payload(BaseModel):
    """What workflows and activities hand back: frozen; unknown fields of a newer sender are let through."""

    model_config = ConfigDict(frozen=True)


class Verb(StrEnum):
    """The operations, as in search attribute FleetVerb."""

    ADOPT = "adopt"
    DRAIN = "drain"
    RESUME = "resume"
    RELEASE = "release"
    BURN_IN = "burn-in"
    JOB = "job"
    PLAN = "plan"
    ACTOR = "actor"


class Failure(StrEnum):
    """Types of an ApplicationError that a workflow of ours fails with; refusals of the domain add their own codes.

    All are final: a human or a changed fact is needed. Clients' error classes appear under their own names.
    """

    WRONG_SITE = "WrongSite"
    CLAIM_REFUSED = "ClaimRefused"
    CLAIM_LOST = "ClaimLost"
    CONFIG_MISSING = "BootstrapConfigMissing"
    CONFIG_INCOMPLETE = "BootstrapConfigIncomplete"
    BUILD_FAILED = "BuildFailed"
    NOT_REGISTERED = "NotRegistered"
    BURN_IN_FAILED = "BurnInFailed"
    BURN_IN_INFRASTRUCTURE = "BurnInInfrastructure"
    BURN_IN_NEVER_STARTED = "BurnInNeverStarted"
    HOLD_ENDED = "HoldEnded"
    GATE_NOT_OPEN = "GateNotOpen"
    WAIT_DEADLINE = "WaitDeadline"


def task_queue(site: str) -> str:
    """Return the queue of the site's worker: workflows and short activities."""
    return f"fleet-slurm/{site}"


def watch_queue(site: str) -> str:
    """Return the queue of the one process that has the site's watch: every wait is an activity on it."""
    return f"fleet-slurm/{site}/watch"
