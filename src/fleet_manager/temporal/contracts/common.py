"""What every contract shares: ids, queues, the words of failures. No workflow, no client is imported here.

Workflow ids are natural keys, so that an operation can be found by what it is about. An SRE may start a verb under any
id from the Temporal UI: the node's actor, not the id, is what makes two operations exclude each other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from fleet_manager.core.domain.device import is_name, is_site_id


def _site_id(text: str) -> str:
    if not is_site_id(text):
        msg = f"{text!r} is not a site's id: lower-case letters, digits and inner '-', at most 63, as in 'ams1'"
        raise ValueError(msg)
    return text


def _name(text: str) -> str:
    if not is_name(text):
        msg = f"{text!r} is not a name: a letter or digit, then letters, digits and . _ -, at most 63, as in 'gpu-001'"
        raise ValueError(msg)
    return text


SiteId = Annotated[str, AfterValidator(_site_id)]
"""A site's id: a DNS label, as it stands in queue names and workflow ids."""
NodeName = Annotated[str, AfterValidator(_name)]
"""A SLURM node's exact name."""
DeviceRef = Annotated[str, AfterValidator(_name)]
"""A device's id or its name."""


class Contract(BaseModel):
    """What a person or a caller hands in: frozen; unknown fields are refused, so that a typo is no consent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _say_what_is_allowed(cls, value: Any) -> Any:
        """Refuse unknown and missing fields with a sentence that lists those that there are."""
        if not isinstance(value, dict):
            return value
        fields = cls.model_fields
        unknown = sorted(set(value) - set(fields))
        missing = [name for name, field in fields.items() if field.is_required() and name not in value]
        if unknown or missing:
            words = [f"no field {', '.join(map(repr, unknown))}"] if unknown else []
            words += [f"needs {', '.join(map(repr, missing))}"] if missing else []
            optional = [name for name, field in fields.items() if not field.is_required()]
            required = [name for name in fields if name not in optional]
            msg = (
                f"{cls.__name__}: {'; '.join(words)}. Required: {', '.join(required)}; "
                f"optional: {', '.join(optional) or 'none'}."
            )
            raise ValueError(msg)
        return value


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
    NEEDS_OVERRIDE = "NeedsOverride"
    BUILD_REPLACED = "BuildReplaced"
    BAD_INPUT = "BadInput"
    WAIT_DEADLINE = "WaitDeadline"


def task_queue(site: str) -> str:
    """Return the queue of the site's worker: workflows and short activities."""
    return f"fleet-slurm/{site}"


def watch_queue(site: str) -> str:
    """Return the queue of the one process that has the site's watch: every wait is an activity on it."""
    return f"fleet-slurm/{site}/watch"
