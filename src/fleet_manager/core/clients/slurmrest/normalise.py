"""The one place that turns slurmrestd's shapes into domain models, whatever the version of the API.

What is odd is refused (`ValueError`), never guessed: a list that does not expand or an id that is no number makes the
whole answer unreadable, because a job that we leave out of a list is a job that we would kill.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ClusterShell.NodeSet import (  # type: ignore[import-untyped]  # it ships no types
    RESOLVER_NOGROUP,
    NodeSet,
    NodeSetException,
)

from fleet_manager.core.clients.slurmrest import wire
from fleet_manager.core.domain.slurm_cluster import ClusterConfig, Partition, Ping, Reservation, SlurmVersion
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import SlurmNode, SlurmNodeState

NO_VALUE = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
"""slurm.h NO_VAL, INFINITE and their 64-bit kin, which some answers write as plain numbers."""

INFINITE_RESERVATION = timedelta(days=365)
"""What slurmctld makes of `duration: {"infinite": true}`: an end exactly this long after the start (seen on 26.05)."""

MAX_HOSTS = 200_000
"""More names than any cluster has: a hostlist of that size is a broken one, and would fill the memory."""

_HOSTLIST = re.compile(r"[A-Za-z0-9_.,\[\]-]+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"(\d+)-(\d+)")
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_NOT_ALLOCATED = frozenset({"", "(null)", "None assigned"})
_RETURN_TO_SERVICE = {"none": 0, "non_responsive_only": 1, "any": 2}


def expand(hostlist: str) -> tuple[str, ...]:
    """Expand a hostlist such as `gpu[001-003,7],cpu-0` to its names (case 031).

    Raises:
        ValueError: it is not one.
    """
    if hostlist in _NOT_ALLOCATED:
        return ()
    if not _HOSTLIST.fullmatch(hostlist):
        raise ValueError(f"{hostlist[:80]!r} is not a hostlist")
    if "[" not in hostlist and "]" not in hostlist:
        names = tuple(hostlist.split(","))
        if not all(names):
            raise ValueError(f"{hostlist[:80]!r} has an empty name in it")
        return names
    return _expand_brackets(hostlist)


@lru_cache(maxsize=4096)
def _expand_brackets(hostlist: str) -> tuple[str, ...]:
    if _at_most(hostlist) > MAX_HOSTS:
        raise ValueError(f"{hostlist[:80]!r} names more nodes than any cluster has")
    try:
        return tuple(NodeSet(hostlist, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError, IndexError) as error:
        raise ValueError(f"{hostlist[:80]!r} is not a hostlist: {error}") from error


def _at_most(hostlist: str) -> int:
    """Return a bound of the names in a hostlist, without building them as ClusterShell does."""
    bound = 1
    for inside in _BRACKETS.findall(hostlist):
        spans = _SPAN.findall(inside)
        bound *= inside.count(",") + 1 + sum(max(0, int(last) - int(first)) for first, last in spans)
    return bound


def words(value: wire.Words) -> tuple[str, ...]:
    """Return words of a list, or of a text that joins them by comma, plus or blank."""
    if not value:
        return ()
    if isinstance(value, str):
        return tuple(word for word in re.split(r"[,+\s]+", value) if word)
    return tuple(value)


def number(value: wire.AnyNumber) -> int | None:
    """Return a number of any form, None if it is not set or infinite."""
    if isinstance(value, wire.Number):
        if not value.set or value.infinite:
            return None
        value = value.number
    if value is None or value in NO_VALUE:
        return None
    return int(value)


def moment(value: wire.AnyNumber) -> datetime | None:
    """Return epoch seconds as a time; None for 0, which SLURM writes where there is none."""
    seconds = number(value)
    return datetime.fromtimestamp(seconds, UTC) if seconds and seconds > 0 else None


@lru_cache(maxsize=1024)
def _state(all_words: tuple[str, ...]) -> SlurmNodeState:
    return SlurmNodeState.from_words(all_words)


def node_state(state: wire.Words, flags: wire.Words = None) -> SlurmNodeState:
    """Read a node's state of any form: list, text, or text with flags beside it (case 006).

    No word is dropped: one that is not in the closed set, such as sinfo's `drain*`, makes the state not understood.
    """
    return _state(words(state) + words(flags))


def node(raw: wire.WireNode) -> SlurmNode:
    return SlurmNode(
        name=_named(raw.name, "node"),
        state=node_state(raw.state, raw.state_flags),
        reason=raw.reason or "",
        reason_set_by=raw.reason_set_by_user or "",
        reason_changed_at=moment(raw.reason_changed_at),
        features=words(raw.features),
        active_features=words(raw.active_features),
        gres=raw.gres or "",
        gres_used=raw.gres_used or "",
        cpus=number(raw.cpus) or 0,
        memory_mib=number(raw.real_memory) or 0,
        alloc_cpus=number(raw.alloc_cpus) or 0,
        instance_id=raw.instance_id or "",
        extra=raw.extra or "",
        comment=raw.comment or "",
        boot_time=moment(raw.boot_time),
        slurmd_start_time=moment(raw.slurmd_start_time),
        last_busy=moment(raw.last_busy),
        partitions=words(raw.partitions),
        reservation=raw.reservation or "",
        address=raw.address or "",
        hostname=raw.hostname or "",
        version=raw.version or "",
    )


def job(raw: wire.WireJob) -> SlurmJob:
    return_code, signal = _exit(raw.exit_code)
    return SlurmJob(
        id=_job_id(raw.job_id),
        name=raw.name or "",
        states=_job_states(raw.job_state),
        state_reason=_reason(raw.state_reason),
        user=raw.user_name or "",
        partition=raw.partition or "",
        comment=raw.comment or "",
        reservation=raw.resv_name or "",
        nodes=expand(raw.nodes or ""),
        return_code=return_code,
        signal=signal,
        submit_time=moment(raw.submit_time),
        start_time=moment(raw.start_time),
        end_time=moment(raw.end_time),
        time_limit_minutes=number(raw.time_limit),
        requeue=bool(raw.requeue),
        restarts=number(raw.restart_cnt) or 0,
        standard_output=raw.standard_output or "",
    )


def job_record(raw: wire.WireRecord) -> SlurmJob:
    """Read slurmdbd's form. It does not tell `requeue`; its exit code of a timed-out job is 0 (case 005)."""
    return_code, signal = _exit(raw.exit_code)
    time = raw.time or wire.WireRecordTime()
    comment = raw.comment.job if isinstance(raw.comment, wire.WireRecordComment) else raw.comment
    return SlurmJob(
        id=_job_id(raw.job_id),
        name=raw.name or "",
        states=_job_states(raw.state.current if raw.state else None),
        state_reason=_reason(raw.state.reason if raw.state else ""),
        user=raw.user or "",
        partition=raw.partition or "",
        comment=comment or "",
        reservation=(raw.reservation.name if raw.reservation else "") or "",
        nodes=expand(raw.nodes or ""),
        return_code=return_code,
        signal=signal,
        submit_time=moment(time.submission),
        start_time=moment(time.start),
        end_time=moment(time.end),
        time_limit_minutes=number(time.limit),
        restarts=number(raw.restart_cnt) or 0,
        standard_output=raw.stdout_expanded or raw.stdout or "",
    )


def reservation(raw: wire.WireReservation) -> Reservation:
    start, end = moment(raw.start_time), moment(raw.end_time)
    if start and end and end - start == INFINITE_RESERVATION:
        end = None
    node_list = ",".join(raw.node_list) if isinstance(raw.node_list, list) else raw.node_list
    return Reservation(
        name=_named(raw.name, "reservation"),
        nodes=expand(node_list or ""),
        users=words(raw.users),
        accounts=words(raw.accounts),
        flags=frozenset(word.upper() for word in words(raw.flags)),
        partition=raw.partition or "",
        start=start,
        end=end,
    )


def partition(raw: wire.WirePartition) -> Partition:
    state = words(raw.partition.state) if raw.partition else ()
    return Partition(
        name=_named(raw.name, "partition"),
        nodes=expand((raw.nodes.configured if raw.nodes else "") or ""),
        node_sets=raw.node_sets or "",
        state="+".join(state).upper() or "UNKNOWN",
        default="DEFAULT" in words(raw.flags),
        max_time_minutes=number(raw.maximums.time) if raw.maximums else None,
    )


def ping(raw: wire.WirePing) -> Ping:
    """Read a ping; every sign that is there must be good, and one must be there."""
    signs = []
    if raw.responding is not None:
        signs.append(raw.responding)
    if raw.pinged is not None:
        signs.append(raw.pinged.upper() == "UP")
    if raw.status is not None:
        signs.append(raw.status == "No error")
    primary = raw.primary if raw.primary is not None else (raw.mode or "").lower() == "primary"
    return Ping(
        hostname=raw.hostname or "",
        responding=bool(signs) and all(signs),
        primary=primary,
        status=raw.status or raw.pinged or "",
    )


def config(raw: wire.WireConf) -> ClusterConfig:
    back = raw.return_to_service
    return ClusterConfig(
        min_job_age=_seconds(raw.min_job_age),
        slurmd_timeout=_seconds(raw.slurmd_timeout),
        return_to_service=_RETURN_TO_SERVICE.get(back.lower()) if isinstance(back, str) else back,
    )


def version(text: str) -> SlurmVersion | None:
    """Read a release such as `26.05.5` or `Slurm-24.11.5&openapi/slurmctld`; "05" is 5 (case 008)."""
    found = _RELEASE.search(text)
    return SlurmVersion(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def meta_version(meta: wire.Meta | None) -> SlurmVersion | None:
    """Return the release that an answer's `meta` tells, in numbers or in texts."""
    if meta is None or meta.slurm is None:
        return None
    parts = meta.slurm.version or {}
    try:
        return SlurmVersion(int(parts["major"]), int(parts["minor"]), int(parts.get("micro") or 0))
    except (KeyError, TypeError, ValueError):
        return version(meta.slurm.release or "")


def _named(name: str, what: str) -> str:
    if not name:
        raise ValueError(f"a {what} without a name")
    return name


def _job_id(value: wire.AnyNumber) -> int:
    found = number(value)
    if not found or found <= 0:
        raise ValueError(f"job id {found!r} is not a number above 0")
    return found


def _job_states(value: wire.Words) -> frozenset[str]:
    return frozenset(word.upper() for word in words(value))


def _reason(text: str | None) -> str:
    return "" if text in (None, "None") else text


def _exit(raw: wire.WireExitCode | int | None) -> tuple[int | None, int | None]:
    """Return return code and signal; a plain number is a wait status, as `wait(2)` packs it."""
    if raw is None:
        return None, None
    if isinstance(raw, int):
        return raw >> 8 & 0xFF, raw & 0x7F or None
    signal = None
    if raw.signal:
        signal = number(raw.signal.id if raw.signal.id is not None else raw.signal.signal_id)
    return number(raw.return_code), signal or None


def _seconds(value: wire.AnyNumber) -> timedelta | None:
    found = number(value)
    return None if found is None else timedelta(seconds=found)
