"""What a SLURM node is, and what its state means, in one place.

A state is one base and a set of flags (slurm.h `enum node_states` and the `NODE_STATE_*` bits above it; slurmrestd
writes them as one list, base first). The set of words is closed: a word that is not in it is kept and makes the node
"not known good", because a state that we do not understand is no ground to send a job there or to delete a server.

Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class NodeBase(StrEnum):
    """The base states of `enum node_states`."""

    UNKNOWN = "UNKNOWN"
    """slurmctld restarted and has not heard of the node yet; seen for about 2 s."""
    DOWN = "DOWN"
    """Cannot run jobs. Setting it kills the node's jobs, so we never do."""
    IDLE = "IDLE"
    ALLOCATED = "ALLOCATED"
    MIXED = "MIXED"
    """Part of it is allocated. A single GET may say ALLOCATED until somebody lists all nodes."""
    ERROR = "ERROR"
    FUTURE = "FUTURE"
    """Defined and not there: in neither list nor single GET unless asked for."""


class NodeFlag(StrEnum):
    """The flag bits above the base, as data_parser v0.0.40 to v0.0.45 write them."""

    INVALID = "INVALID"
    RESERVED = "RESERVED"
    UNDRAIN = "UNDRAIN"
    CLOUD = "CLOUD"
    RESUME = "RESUME"
    DRAIN = "DRAIN"
    COMPLETING = "COMPLETING"
    """A job is being cleaned up; its processes may still be there."""
    NOT_RESPONDING = "NOT_RESPONDING"
    POWERED_DOWN = "POWERED_DOWN"
    FAIL = "FAIL"
    POWERING_UP = "POWERING_UP"
    MAINTENANCE = "MAINTENANCE"
    """A reservation with the flag MAINT is active on it."""
    REBOOT_REQUESTED = "REBOOT_REQUESTED"
    REBOOT_CANCELED = "REBOOT_CANCELED"
    REBOOT_CANCEL = "REBOOT_CANCEL"
    REBOOT_ISSUED = "REBOOT_ISSUED"
    POWERING_DOWN = "POWERING_DOWN"
    DYNAMIC_FUTURE = "DYNAMIC_FUTURE"
    """A FUTURE node that a slurmd has taken (`slurmd -F`): it is there, and IDLE with this flag takes jobs."""
    DYNAMIC_NORM = "DYNAMIC_NORM"
    """Registered itself with `slurmd -Z`; it can be deleted."""
    PLANNED = "PLANNED"
    """The backfill scheduler means to use it; it takes jobs."""
    INVALID_REG = "INVALID_REG"
    """The slurmd registered with less than configured."""
    POWER_DOWN = "POWER_DOWN"
    POWER_UP = "POWER_UP"
    POWER_DRAIN = "POWER_DRAIN"
    POWER_DOWN_ASAP = "POWER_DOWN_ASAP"
    """v0.0.45 writes it beside POWER_DOWN and POWER_DRAIN when both are set."""
    POWER_DOWN_FORCE = "POWER_DOWN_FORCE"
    """Likewise for POWER_DOWN and POWERED_DOWN."""
    BLOCKED = "BLOCKED"
    EXTERNAL = "EXTERNAL"


_BUSY_BASES = frozenset({NodeBase.ALLOCATED, NodeBase.MIXED})
_WORKING_BASES = _BUSY_BASES | {NodeBase.IDLE}
_REBOOTING = frozenset({NodeFlag.REBOOT_REQUESTED, NodeFlag.REBOOT_ISSUED})

BLOCKING_FLAGS: dict[NodeFlag, str] = {
    NodeFlag.DRAIN: "drained or draining",
    NodeFlag.FAIL: "marked as failing",
    NodeFlag.NOT_RESPONDING: "its slurmd does not answer",
    NodeFlag.INVALID_REG: "its slurmd registered with less than configured",
    NodeFlag.INVALID: "in an invalid state",
    NodeFlag.MAINTENANCE: "in a maintenance reservation",
    NodeFlag.REBOOT_REQUESTED: "a reboot is requested",
    NodeFlag.REBOOT_ISSUED: "rebooting",
    NodeFlag.POWERED_DOWN: "powered down",
    NodeFlag.POWERING_DOWN: "powering down",
    NodeFlag.POWER_DOWN: "about to be powered down",
    NodeFlag.POWER_DRAIN: "draining before it is powered down",
    NodeFlag.POWER_DOWN_ASAP: "to be powered down once its jobs have ended",
    NodeFlag.POWER_DOWN_FORCE: "being powered down at once",
    NodeFlag.POWERING_UP: "powering up",
    NodeFlag.BLOCKED: "blocked by another job's exclusive topology",
    NodeFlag.EXTERNAL: "managed outside of this SLURM, no job can run there",
}
"""Flag -> why a node with it takes no job. PLANNED, RESERVED, COMPLETING and the rest do not keep jobs off."""


@dataclass(frozen=True, slots=True)
class SlurmNodeState:
    """One base, a set of flags, and the words that are not in our closed set."""

    base: NodeBase | None
    flags: frozenset[NodeFlag] = frozenset()
    unknown: frozenset[str] = frozenset()

    @classmethod
    def from_words(cls, words: Iterable[str]) -> SlurmNodeState:
        """Read the words of any form: `["IDLE","DRAIN"]`, `"IDLE+DRAIN"` split, lower case, `NODE*` suffixes apart.

        A list without a base, or with two, has base None: such a state is not known good.
        """
        bases: list[NodeBase] = []
        flags: set[NodeFlag] = set()
        unknown: set[str] = set()
        for raw in words:
            word = raw.strip().upper()
            if word in NodeBase.__members__:
                bases.append(NodeBase[word])
            elif word in NodeFlag.__members__:
                flags.add(NodeFlag[word])
            elif word:
                unknown.add(word)
        base = bases[0] if len(set(bases)) == 1 else None
        return cls(base, frozenset(flags), frozenset(unknown))

    def __str__(self) -> str:
        words = [self.base or "?", *sorted(self.flags), *sorted(self.unknown)]
        return "+".join(words)

    @property
    def understood(self) -> bool:
        """Say whether every word is known and there is exactly one base."""
        return self.base is not None and not self.unknown

    @property
    def drain(self) -> bool:
        return NodeFlag.DRAIN in self.flags

    @property
    def busy(self) -> bool:
        """Say whether a job has it or is being cleaned up on it."""
        return self.base in _BUSY_BASES or NodeFlag.COMPLETING in self.flags

    @property
    def down(self) -> bool:
        return self.base in (NodeBase.DOWN, NodeBase.ERROR)

    @property
    def responding(self) -> bool:
        return NodeFlag.NOT_RESPONDING not in self.flags

    @property
    def dead(self) -> bool:
        """Say whether nothing can run there: DOWN, or its slurmd is silent."""
        return self.down or not self.responding

    @property
    def rebooting(self) -> bool:
        return bool(self.flags & _REBOOTING)

    @property
    def dynamic(self) -> bool:
        return NodeFlag.DYNAMIC_NORM in self.flags

    def why_not_schedulable(self) -> tuple[str, ...]:
        """Return each cause that keeps jobs off, in words; empty when the scheduler can use it now."""
        causes: list[str] = []
        if self.unknown:
            causes.append(f"state words not known to us: {', '.join(sorted(self.unknown))}")
        if self.base is None:
            causes.append("no single base state in SLURM's answer")
        elif self.base not in _WORKING_BASES:
            causes.append(f"its state is {self.base}")
        causes.extend(BLOCKING_FLAGS[flag] for flag in BLOCKING_FLAGS if flag in self.flags)
        return tuple(causes)

    @property
    def schedulable(self) -> bool:
        return not self.why_not_schedulable()


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource of a node, as in `gpu:h100:8`."""

    name: str
    type: str | None
    count: int

    def __str__(self) -> str:
        return ":".join([self.name, *([self.type] if self.type else []), str(self.count)])


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read a GRES text such as `gpu:h100:8(S:0-1),nic:2`, as slurm.conf and slurmctld write it.

    Raises:
        ValueError: a part that is not `name[:type][:no_consume]:count`; a count may have the suffix K, M, G, T or P.
    """
    found: list[Gres] = []
    for part in _split_outside_brackets(text):
        body, bracket, sockets = part.strip().partition("(")
        if not body and not bracket:
            continue
        words = body.split(":")
        words[1:-1] = [word for word in words[1:-1] if word.lower() != "no_consume"]
        if len(words) not in (2, 3) or not all(words) or (bracket and not sockets.endswith(")")):
            msg = f"GRES {part!r} is not of the form name[:type]:count, as in gpu:h100:8"
            raise ValueError(msg)
        found.append(Gres(words[0], words[1] if len(words) == 3 else None, _count(words[-1], part)))
    return tuple(found)


def _count(word: str, part: str) -> int:
    power = "KMGTP".find(word[-1].upper()) + 1
    digits = word[:-1] if power else word
    if not (digits.isascii() and digits.isdecimal()):
        msg = f"GRES {part!r} has no whole number as its count, as in gpu:h100:8"
        raise ValueError(msg)
    return int(digits) << (10 * power)


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return parts


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as slurmctld sees it, whatever version of the API said so.

    Times are aware datetimes in UTC, None where SLURM has none (it writes 0 for that). `boot_time` and
    `slurmd_start_time` are the node's own clock and jitter by a second: they prove nothing about a build;
    `instance_id` and `extra` do (`slurmd --instance-id --extra`).
    """

    name: str
    """SLURM's exact spelling; names are case-sensitive there."""
    state: SlurmNodeState
    reason: str = ""
    """Counts only while DRAIN is set: 24.11 leaves it behind after UNDRAIN."""
    reason_set_by: str = ""
    reason_changed_at: datetime | None = None
    """Refreshed when slurmctld appends to the reason."""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    gres: str = ""
    gres_used: str = ""
    cpus: int = 0
    memory_mib: int = 0
    alloc_cpus: int = 0
    instance_id: str = ""
    extra: str = ""
    comment: str = ""
    boot_time: datetime | None = None
    slurmd_start_time: datetime | None = None
    last_busy: datetime | None = None
    partitions: tuple[str, ...] = ()
    """Wrong for dynamic nodes on 24.11: take it from the partitions there."""
    reservation: str = ""
    address: str = ""
    hostname: str = ""
    version: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What the server said beside the answer; kept for people, never decided upon."""

    @property
    def hold_reason(self) -> str | None:
        """Return the reason if it is a hold now: only while DRAIN is set (it may be "" then), else None."""
        return self.reason if self.state.drain else None

    @property
    def draining(self) -> bool:
        return self.state.drain and self.state.busy

    def drained(self, jobs: int) -> bool:
        """Say whether nothing runs there and nothing new can start.

        Args:
            jobs: number of jobs that slurmctld lists on the node. The flags alone are not enough: a DOWN node may
                still have jobs that are not cleaned up.
        """
        return self.state.understood and self.state.drain and not self.state.busy and jobs == 0

    @property
    def in_our_world(self) -> bool:
        """Say whether it is a member of the cluster: known, defined and not FUTURE."""
        return self.state.base is not NodeBase.FUTURE


def extra_value(extra: str, key: str) -> str | None:
    """Return KEY's value in a node's `extra` of the form `fm_build=ID other=X` (blanks or commas between), or None."""
    for word in extra.replace(",", " ").split():
        name, sep, value = word.partition("=")
        if sep and name == key:
            return value
    return None
