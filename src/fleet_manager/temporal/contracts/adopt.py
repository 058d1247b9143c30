"""`AdoptNode`: a device becomes a SLURM node that has passed burn-in."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

from fleet_manager.core.domain.burn_in import suite
from fleet_manager.temporal.contracts.common import Contract, DeviceRef, Payload, SiteId

WORKFLOW = "AdoptNode"
QUERY_PROGRESS = "progress"


def workflow_id(site: str, device: str) -> str:
    """Return the id that the hub and the CLI start it under; an SRE in the UI may take any."""
    return f"adopt/{site}/{device}"


def known_suite(name: str) -> str:
    """Return the name of a burn-in suite. Raises ValueError, with those that exist, when there is none."""
    return suite(name).name


class AdoptInput(Contract):
    """What to adopt. From the Temporal UI: `{"site": "lab", "device": "gpu-001"}`."""

    site: SiteId
    device: DeviceRef
    """Id or name in the hub."""
    burn_in: Annotated[str, AfterValidator(known_suite)] = "smoke"
    """Burn-in suite."""
    force_rebuild: bool = False
    """Build anew although everything matches, or although slurmctld itself has drained the node."""


class AdoptOutcome(StrEnum):
    """How it ended well. Everything else is a failure whose type and sentence say why, and the node is held."""

    IN_SERVICE = "in_service"
    """Passed, and no hold is left: the node takes jobs."""
    PASSED_BUT_HELD = "passed_but_held"
    """Passed, and somebody holds the node: `held_by` says who."""
    ALREADY_IN_SERVICE = "already_in_service"
    """The present build has passed and matches the configuration: nothing was touched."""


class AdoptPhase(StrEnum):
    """Where an adoption is; search attribute FleetPhase."""

    SURVEY = "survey"
    CLAIM = "claim"
    BUILD = "build"
    BOOT = "boot"
    REGISTER = "register"
    RESERVE = "reserve"
    BURN_IN = "burn-in"
    VERDICT = "verdict"
    DONE = "done"
    GIVING_UP = "giving up"


class StepTime(Payload):
    """When a phase began."""

    phase: AdoptPhase
    since: AwareDatetime


class AdoptProgress(Payload):
    """The answer to `progress`."""

    phase: AdoptPhase
    since: AwareDatetime
    waiting_for: str
    until: AwareDatetime | None = None
    node: str | None = None
    server_id: str | None = None
    build_id: str | None = None
    job_ids: tuple[int, ...] = ()


class AdoptResult(Payload):
    """What an adoption leaves behind."""

    outcome: AdoptOutcome
    site: str
    device_id: str
    device: str
    node: str
    server_id: str
    build_id: str
    config_revision: int
    way: str
    """create, rebuild or leave."""
    job_ids: tuple[int, ...] = ()
    evidence: str = ""
    held_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be done after the node was in service, such as telling the hub."""
    steps: tuple[StepTime, ...] = ()
    finished_at: AwareDatetime
