"""A device as the hub knows it, its build, and the conditions that are reported of it. Pure: no I/O, no clock.

A device is a machine of a site; its SLURM node is what the scheduler calls it. A condition follows the Kubernetes
convention: one row a type, `last_transition_time` moves only when the status does. Nothing here decides what SLURM
means; it decides only how one report changes what was known.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

SITE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
"""A site's id goes into task queues, workflow ids and host names, so it is a DNS label."""

NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62})$"
"""A device's name, its SLURM node's name and a device role: what SLURM takes as NodeName without quoting."""

ANY_SITE = "*"
"""The site of a client that may act at every site (people of HPC; never a satellite)."""

MAX_CLOCK_AHEAD = timedelta(minutes=5)
"""How far a reporter's clock may run ahead of the hub's: beyond it, later true reports would look stale."""


class ConditionStatus(StrEnum):
    """What is known of a condition; Unknown is a status like the others, for what could not be read."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(BaseModel):
    """One condition of one device.

    Attributes:
        type: which condition, in CamelCase ("SlurmMember").
        status: True, False or Unknown.
        reason: one CamelCase word for machines ("Drained").
        message: a sentence for people.
        last_transition_time: when the status last changed, by the observer's clock.
        observed_at: when the observer last saw it.
    """

    model_config = ConfigDict(frozen=True)

    type: str
    status: ConditionStatus
    reason: str
    message: str
    last_transition_time: AwareDatetime
    observed_at: AwareDatetime


class ConditionReport(BaseModel):
    """What an observer says of one condition of one device, named by its id or its name."""

    model_config = ConfigDict(frozen=True)

    device: str
    type: str
    status: ConditionStatus
    reason: str
    message: str
    observed_at: AwareDatetime


class ConditionOutcome(StrEnum):
    """What became of one report."""

    CREATED = "created"
    """The device had no condition of that type."""
    TRANSITIONED = "transitioned"
    """The status changed, and with it last_transition_time."""
    REFRESHED = "refreshed"
    """Same status; reason, message and observed_at are new."""
    STALE = "stale"
    """Something later was known already; nothing was written."""
    UNKNOWN_DEVICE = "unknown_device"
    """The site has no such device; nothing was written."""


class ConditionResult(BaseModel):
    """The hub's answer to one report; `device` is as the report spelled it."""

    model_config = ConfigDict(frozen=True)

    device: str
    type: str
    outcome: ConditionOutcome
    last_transition_time: AwareDatetime | None = None


class DeviceBuild(BaseModel):
    """What a device was built as; all None means that it has no server (it was released)."""

    model_config = ConfigDict(frozen=True)

    server_id: str | None = None
    build_id: str | None = None
    config_revision: int | None = None


class Device(BaseModel):
    """A machine of a site.

    Attributes:
        id: the hub's own id (UUID or ULID); it never changes and goes into Nova's tags.
        site: the site's id.
        name: unique in its site whatever the case.
        role: the device role; names the SLURM bootstrap configuration.
        slurm_node: its name in SLURM where that differs from `name`; use `node_name`.
        hypervisor_hostname: the Nova hypervisor that is this machine.
        server_id: the Nova server on it, None when it is free.
        build_id: the build that stands on it.
        config_revision: the revision of the bootstrap configuration it was built from.
        revision: counts the changes of this row; the hub's ETag.
        conditions: what is reported of it, by type.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    site: str
    name: str
    role: str
    slurm_node: str | None = None
    hypervisor_hostname: str | None = None
    server_id: str | None = None
    build_id: str | None = None
    config_revision: int | None = None
    revision: int = 1
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    updated_by: str | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def node_name(self) -> str:
        """The exact spelling that SLURM knows: node names are case-sensitive there, unlike in DNS."""
        return self.slurm_node or self.name

    @property
    def build(self) -> DeviceBuild:
        return DeviceBuild(server_id=self.server_id, build_id=self.build_id, config_revision=self.config_revision)

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of that type, or None where nobody ever reported it."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


def name_key(name: str) -> str:
    """Return what two names of one site must not share: SLURM tells A001 from a001, DNS and people do not."""
    return name.lower()


def is_site_id(text: str) -> bool:
    return re.fullmatch(SITE_PATTERN, text) is not None


def is_name(text: str) -> bool:
    return re.fullmatch(NAME_PATTERN, text) is not None


def apply_report(known: Condition | None, report: ConditionReport) -> tuple[Condition, ConditionOutcome]:
    """Return the condition after one report, and what the report did.

    A report that was observed before what is known is stale and changes nothing (a delayed retry must not overwrite
    the present). The same instant is taken, so that the retry of a write answers as the write did or "refreshed".
    """
    if known is not None and report.observed_at < known.observed_at:
        return known, ConditionOutcome.STALE
    if known is None:
        outcome, since = ConditionOutcome.CREATED, report.observed_at
    elif known.status is report.status:
        outcome, since = ConditionOutcome.REFRESHED, known.last_transition_time
    else:
        outcome, since = ConditionOutcome.TRANSITIONED, report.observed_at
    return _condition(report, since), outcome


def _condition(report: ConditionReport, since: datetime) -> Condition:
    return Condition(
        type=report.type,
        status=report.status,
        reason=report.reason,
        message=report.message,
        last_transition_time=since,
        observed_at=report.observed_at,
    )
