"""Holds: who keeps a node from taking jobs, and how that is written into SLURM's one reason.

Our own record of the holds (the node's actor has it) is the authority. SLURM's reason is its projection, because
slurmctld appends to it, replaces it and forgets it (slurm-api.md 11). A reason that is not ours is never knowingly
overwritten and never cleared: "ours" needs our exact prefix *and* a hold id that stands in our record.

The form, at most 480 bytes, one printable line; `sinfo -R` shows the first 20 characters, so people come first:

    fm:<owner> <why>; <owner> <why> +1 [fm 0123456789ab 89ab01234567 +2]

`+N` before the bracket: that many holds have no words here; within: that many have no id here.

Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

PREFIX = "fm:"
MAX_REASON_BYTES = 480
MAX_ID_BYTES = 280
"""Room that ids may take of a reason: 20 of them; people's words need the rest."""
SHORT_ID = 12

OwnerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._@-]{0,31}$")]
UtcTime = Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
"""Whatever zone a caller writes: everybody who shows it says UTC."""
HoldId = Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z-]{12,64}$")]

_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\U0010ffff]+")
_BLOCK = re.compile(r"\[fm((?: [0-9a-z]{12})+)(?: \+(\d+))?\]")


def one_line(text: str, limit: int) -> str:
    """Return the text as one printable line of at most LIMIT characters, without the characters our form uses."""
    clean = "".join(char if char.isprintable() else " " for char in _UNPRINTABLE.sub(" ", text))
    clean = " ".join(clean.replace("[", "(").replace("]", ")").replace(";", ",").split())
    return clean if len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


class HoldKind(StrEnum):
    """What a hold is for: decides whether a hand that takes DRAIN off ends it."""

    DRAIN = "drain"
    """Somebody asked that the node takes no jobs. Ended by its owner, or by a human's UNDRAIN."""
    GATE = "gate"
    """Stands from registration to verdict. Never ended by a hand outside of us: put back."""
    VERDICT = "verdict"
    """A build that did not pass. Put back likewise; ended by a passed burn-in or an override through us."""


class Hold(BaseModel):
    """One owner's claim that a node must not take jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: HoldId
    """The first run id of the workflow that placed it."""
    owner: OwnerName
    why: Annotated[str, Field(min_length=1, max_length=500)]
    since: UtcTime
    kind: HoldKind = HoldKind.DRAIN
    expires: UtcTime | None = None

    @property
    def short_id(self) -> str:
        return short_id(self.id)

    def words(self) -> str:
        return f"{self.owner} {one_line(self.why, 160)}"


def short_id(hold_id: str) -> str:
    """Return the last 12 letters of an id: the random part of a UUID of either version that Temporal makes."""
    return hold_id.replace("-", "").lower()[-SHORT_ID:]


def _bytes(text: str) -> int:
    return len(text.encode())


def _cut(text: str, limit: int) -> str:
    """Cut to LIMIT bytes at a character's edge."""
    return text.encode()[: max(limit, 0)].decode(errors="ignore").rstrip()


def render(holds: tuple[Hold, ...]) -> str:
    """Write the holds as one reason.

    Oldest first, so that the reason does not change for those who read it when another hold comes.

    Raises:
        ValueError: no holds; an empty reason would be a foreign hold.
    """
    if not holds:
        msg = "no hold to render: a node without holds is opened, it gets no reason"
        raise ValueError(msg)
    ordered = sorted(holds, key=lambda hold: (hold.since, hold.id))
    fit = MAX_ID_BYTES // (SHORT_ID + 1)
    ids, more_ids = ordered[:fit], len(ordered) - fit
    block = "[fm " + " ".join(hold.short_id for hold in ids) + (f" +{more_ids}]" if more_ids > 0 else "]")
    room = MAX_REASON_BYTES - _bytes(block) - 1
    text = _cut(PREFIX + ordered[0].words(), room - 5)
    shown = 1
    for hold in ordered[1:]:
        longer = f"{text}; {hold.words()}"
        if _bytes(longer) > room - 5:
            break
        text, shown = longer, shown + 1
    if shown < len(ordered):
        text += f" +{len(ordered) - shown}"
    return f"{text} {block}"


class ParsedReason(BaseModel):
    """A reason of our form, read back."""

    model_config = ConfigDict(frozen=True)

    short_ids: tuple[str, ...]
    more: int
    """Holds whose ids did not fit."""
    appended: str
    """What slurmctld wrote behind ours, e.g. `Not responding`."""


def parse(reason: str) -> ParsedReason | None:
    """Read a reason of our form, or return None. Our form alone does not make it ours: see `classify`."""
    if not reason.startswith(PREFIX):
        return None
    found = list(_BLOCK.finditer(reason))
    if not found:
        return None
    last = found[-1]
    appended = reason[last.end() :].strip().removeprefix(":").strip()
    return ParsedReason(short_ids=tuple(last[1].split()), more=int(last[2] or 0), appended=appended)


class ReasonClass(StrEnum):
    """Whose a drain is."""

    NONE = "none"
    """DRAIN is not set: whatever the reason says, it holds nothing."""
    OURS = "ours"
    BIRTH = "birth"
    """The one constant that the user-data gives a new build; ours only until its first verdict."""
    SYSTEM = "system"
    """slurmctld's own words."""
    FOREIGN = "foreign"
    """Everything else, an empty reason too (case 021)."""


_SYSTEM_TEXTS = (
    "Not responding",  # ping_nodes.c
    "Node unexpectedly rebooted",  # node_mgr.c validate_node_specs
    "Prolog/Epilog failure",  # agent.c
    "Prolog error",
    "Epilog error",  # job_mgr.c
    "Duplicate jobid",  # agent.c
    "Job env setup error",  # job_mgr.c
    "Failed to parse dynamic_conf nodeline",  # node_mgr.c, 26.05
    "Kill task failed",  # slurm_errno.c, by job completion in proc_req.c
    "batch job complete failure",
    "POWER_DOWN_ASAP",
    "ResumeTimeout reached",  # power_save.c
    "reboot timed out",
    "reboot issued",
    "reboot complete",
    "reboot requested",  # proc_req.c
    "NO NETWORK ADDRESS FOUND",  # read_config.c
    "Could not unpack gres data",
    "CoreSpec differ",
    "Low TmpDisk",
    "Low CPUs",
    "Low socket*core*thread count",
)
_SYSTEM_FORMS = (
    re.compile(r"Low RealMemory \(reported:\d+ < [\d.]+% of configured:\d+\)"),
    re.compile(r"gres/\S+ count reported lower than configured \(\d+ < \d+\)"),
    re.compile(r"\S+ count too low \(\d+ < \d+\)"),
    re.compile(r"RestrictedCoresPerGPU.*"),
    re.compile(r"Reported active features .*"),
)


def is_system_text(reason: str) -> bool:
    """Say whether each part of a reason is one of slurmctld's own texts (SLURM sources, 26.05).

    slurmctld joins what it found at one registration by ", " and appends later findings by " : ".
    """
    parts = [part.strip() for chunk in reason.split(" : ") for part in re.split(r", (?![^(]*\))", chunk)]
    return bool(parts) and all(
        part in _SYSTEM_TEXTS or any(form.fullmatch(part) for form in _SYSTEM_FORMS) for part in parts
    )


def is_birth(reason: str, birth_reason: str) -> bool:
    """Say whether it is the site's birth reason, perhaps with slurmctld's own words behind it."""
    if reason == birth_reason:
        return True
    return reason.startswith(f"{birth_reason} : ") and is_system_text(reason.removeprefix(f"{birth_reason} : "))


class Ownership(BaseModel):
    """What we need to know to tell whose a drain is."""

    model_config = ConfigDict(frozen=True)

    known_ids: frozenset[str]
    """Short ids of the holds in our record, ended ones too."""
    birth_reason: str | None
    """The site's constant while the build has no verdict yet, else None."""
    slurm_users: frozenset[str] = frozenset({"slurm", "root"})
    """Who slurmctld writes reasons as: SlurmUser."""
    slurm_user: str | None = None
    """Whom we write reasons as; None: anybody may have."""

    def may_be_ours(self, set_by: str) -> bool:
        """Say whether a reason set by this user can be one that we wrote (slurmctld's own hand refreshes it)."""
        return not set_by or self.slurm_user is None or set_by in {self.slurm_user, *self.slurm_users}


def classify(reason: str | None, set_by: str, ownership: Ownership) -> ReasonClass:
    """Tell whose a drain is.

    Args:
        reason: the node's `hold_reason`: None when DRAIN is not set.
        set_by: the user that SLURM says set it, "" if it says none.
        ownership: our record.
    """
    if reason is None:
        return ReasonClass.NONE
    parsed = parse(reason)
    untouched = parsed is not None and (not parsed.appended or is_system_text(parsed.appended))
    if parsed and untouched and ownership.may_be_ours(set_by) and ownership.known_ids.intersection(parsed.short_ids):
        return ReasonClass.OURS
    if ownership.birth_reason and is_birth(reason, ownership.birth_reason):
        return ReasonClass.BIRTH
    if is_system_text(reason) and (not set_by or set_by in ownership.slurm_users):
        return ReasonClass.SYSTEM
    return ReasonClass.FOREIGN


def live(holds: tuple[Hold, ...], now: datetime) -> tuple[Hold, ...]:
    """Return the holds that have not expired."""
    return tuple(hold for hold in holds if hold.expires is None or hold.expires > now)


def gate_why_left(holds: tuple[Hold, ...], gate_id: str, why: str) -> tuple[Hold, ...]:
    """Return the holds with that gate turned into what it leaves when there is no pass: a verdict's hold, with WHY."""
    return tuple(
        hold.model_copy(update={"kind": HoldKind.VERDICT, "why": why}) if hold.id == gate_id else hold for hold in holds
    )
