"""The shapes of slurmrestd's answers, as msgspec structs of the fields that we use and of no others.

One struct per shape and not per version: where v0.0.40 to v0.0.45 (and what is older or reported elsewhere) differ, the
field has a union type, and `normalise` alone knows what to do with it. A field that is not here is skipped while
decoding, which is what makes a list of 10,000 nodes cheap. Nothing here decides anything.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType


class Number(Struct, gc=False):
    """SLURM's number object. `set` is True with number 0 where there is nothing, so both are looked at."""

    number: int | float = 0
    set: bool = True
    infinite: bool = False


AnyNumber = Number | int | float | None
Words = list[str] | str | None


class ErrorItem(Struct, gc=False):
    description: str | None = ""
    error_number: int | None = None
    error: str | None = ""
    source: str | None = ""


class WarningItem(Struct, gc=False):
    description: str | None = ""
    source: str | None = ""


class SlurmMeta(Struct):
    release: str | None = ""
    version: dict[str, Any] | None = None


class Meta(Struct):
    slurm: SlurmMeta | None = None


class Envelope(Struct):
    """What every JSON answer has around its payload."""

    errors: list[ErrorItem] | None = None
    warnings: list[WarningItem] | None = None
    meta: Meta | None = None


class WireNode(Struct, gc=False):
    name: str
    state: Words = None
    state_flags: Words = None
    reason: str | None = ""
    reason_set_by_user: str | None = ""
    reason_changed_at: AnyNumber = None
    features: Words = None
    active_features: Words = None
    gres: str | None = ""
    gres_used: str | None = ""
    cpus: AnyNumber = 0
    real_memory: AnyNumber = 0
    alloc_cpus: AnyNumber = 0
    instance_id: str | None = ""
    extra: str | None = ""
    comment: str | None = ""
    boot_time: AnyNumber = None
    slurmd_start_time: AnyNumber = None
    last_busy: AnyNumber = None
    partitions: Words = None
    reservation: str | None = ""
    address: str | None = ""
    hostname: str | None = ""
    version: str | None = ""


class NodesAnswer(Envelope):
    nodes: list[WireNode] | UnsetType | None = UNSET
    last_update: AnyNumber = None


class WireSignal(Struct, gc=False):
    id: AnyNumber = None
    signal_id: AnyNumber = None


class WireExitCode(Struct, gc=False):
    return_code: AnyNumber = None
    signal: WireSignal | None = None


class WireJob(Struct, gc=False):
    """A job of slurmctld. `job_resources` is left out on purpose: its form changed three times (case 009)."""

    job_id: AnyNumber
    name: str | None = ""
    job_state: Words = None
    state_reason: str | None = ""
    user_name: str | None = ""
    partition: str | None = ""
    comment: str | None = ""
    resv_name: str | None = ""
    nodes: str | None = ""
    exit_code: WireExitCode | int | None = None
    submit_time: AnyNumber = None
    start_time: AnyNumber = None
    end_time: AnyNumber = None
    time_limit: AnyNumber = None
    requeue: bool | None = False
    restart_cnt: AnyNumber = 0
    standard_output: str | None = ""


class JobsAnswer(Envelope):
    jobs: list[WireJob] | UnsetType | None = UNSET


class WireRecordState(Struct, gc=False):
    current: Words = None
    reason: str | None = ""


class WireRecordTime(Struct, gc=False):
    submission: AnyNumber = None
    start: AnyNumber = None
    end: AnyNumber = None
    limit: AnyNumber = None


class WireRecordComment(Struct, gc=False):
    job: str | None = ""


class WireRecordReservation(Struct, gc=False):
    name: str | None = ""


class WireRecord(Struct, gc=False):
    """A job of slurmdbd, where everything has another name."""

    job_id: AnyNumber
    name: str | None = ""
    state: WireRecordState | None = None
    user: str | None = ""
    partition: str | None = ""
    comment: WireRecordComment | str | None = None
    reservation: WireRecordReservation | None = None
    nodes: str | None = ""
    exit_code: WireExitCode | int | None = None
    time: WireRecordTime | None = None
    restart_cnt: AnyNumber = 0
    stdout_expanded: str | None = ""
    stdout: str | None = ""


class RecordsAnswer(Envelope):
    jobs: list[WireRecord] | UnsetType | None = UNSET


class SubmitAnswer(Envelope):
    job_id: AnyNumber = None


class CancelError(Struct, gc=False):
    code: int | None = None
    string: str | None = ""
    message: str | None = ""


class CancelStatus(Struct, gc=False):
    error: CancelError | None = None


class CancelAnswer(Envelope):
    status: list[CancelStatus] | UnsetType | None = UNSET


class WireReservation(Struct, gc=False):
    name: str
    node_list: Words = None
    users: Words = None
    accounts: Words = None
    flags: Words = None
    partition: str | None = ""
    start_time: AnyNumber = None
    end_time: AnyNumber = None


class ReservationsAnswer(Envelope):
    reservations: list[WireReservation] | UnsetType | None = UNSET


class WirePartitionNodes(Struct, gc=False):
    configured: str | None = ""


class WirePartitionState(Struct, gc=False):
    state: Words = None


class WirePartitionMaximums(Struct, gc=False):
    time: AnyNumber = None


class WirePartition(Struct, gc=False):
    name: str
    nodes: WirePartitionNodes | None = None
    node_sets: str | None = ""
    partition: WirePartitionState | None = None
    flags: Words = None
    maximums: WirePartitionMaximums | None = None


class PartitionsAnswer(Envelope):
    partitions: list[WirePartition] | UnsetType | None = UNSET


class WirePing(Struct, gc=False):
    hostname: str | None = ""
    pinged: str | None = None
    responding: bool | None = None
    primary: bool | None = None
    mode: str | None = None
    status: str | None = None


class PingAnswer(Envelope):
    pings: list[WirePing] | UnsetType | None = UNSET


class WireConf(Struct, rename="pascal"):
    min_job_age: AnyNumber = None
    slurmd_timeout: AnyNumber = None
    return_to_service: str | int | None = None


class ConfAnswer(Envelope):
    slurm_conf: WireConf | UnsetType | None = UNSET


class OpenApiXSlurm(Struct):
    release: str | None = ""


class OpenApiInfo(Struct, rename={"x_slurm": "x-slurm"}):
    version: str | None = ""
    x_slurm: OpenApiXSlurm | None = None


class OpenApi(Struct):
    """The part of GET /openapi/v3 that tells which endpoint answers which method."""

    paths: dict[str, dict[str, msgspec.Raw]]
    info: OpenApiInfo | None = None


T = TypeVar("T")


def decode(body: bytes, shape: type[T]) -> T:
    """Read a JSON body in a shape.

    Raises:
        msgspec.MsgspecError: it is not JSON, or does not fit (`DecodeError`, `ValidationError`).
        UnicodeDecodeError: it is not UTF-8.
    """
    return msgspec.json.decode(body, type=shape)
