"""What a SLURM job is, and what its end means.

The state decides first; the exit code is read only where the state leaves the question open. A job that timed out has
`exit_code` SUCCESS in slurmdb (case 005), so whoever looks at the code alone passes a node that hung.

Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class JobPhase(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETING = "completing"
    """Its end is known, its node is not yet free of it."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """A word that we do not know: asked again, never taken for an end."""


class JobEnd(StrEnum):
    """How a job ended, told apart by who has to do something about it."""

    PASSED = "passed"
    FAILED = "failed"
    """It ran and said no, or did not end in time, or ran out of memory."""
    INFRASTRUCTURE = "infrastructure"
    """The node or SLURM failed under it: says nothing about what it tests."""
    NEVER_STARTED = "never_started"
    CANCELLED = "cancelled"


_PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
_RUNNING = frozenset(
    {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "POWER_UP_NODE", "EXPEDITING"}
)
_ON_NODES = frozenset({"RUNNING", "SUSPENDED"})
"""Bases, not flags: with one of them a job has its nodes, whatever other words stand beside it."""
_ENDS: dict[str, JobEnd] = {
    "LAUNCH_FAILED": JobEnd.INFRASTRUCTURE,
    "RECONFIG_FAIL": JobEnd.INFRASTRUCTURE,
    "REVOKED": JobEnd.INFRASTRUCTURE,
    "NODE_FAIL": JobEnd.INFRASTRUCTURE,
    "BOOT_FAIL": JobEnd.INFRASTRUCTURE,
    "PREEMPTED": JobEnd.INFRASTRUCTURE,
    "TIMEOUT": JobEnd.FAILED,
    "OUT_OF_MEMORY": JobEnd.FAILED,
    "DEADLINE": JobEnd.FAILED,
    "FAILED": JobEnd.FAILED,
    "CANCELLED": JobEnd.CANCELLED,
    "COMPLETED": JobEnd.PASSED,
}
"""What ends a job, in the order in which one decides where there are several: the first three are flags beside a base
(slurm.h `job_states`), and COMPLETED says least."""
_CAUSES: dict[str, str] = {
    "TIMEOUT": "did not end within its time limit",
    "OUT_OF_MEMORY": "ran out of memory",
    "DEADLINE": "missed its deadline",
    "NODE_FAIL": "its node failed under it",
    "BOOT_FAIL": "its node did not boot",
    "LAUNCH_FAILED": "could not be launched on its node",
    "RECONFIG_FAIL": "its node could not be reconfigured",
    "REVOKED": "was revoked by another cluster",
    "PREEMPTED": "was preempted",
}
_FAULTS: dict[str, str] = {
    "NodeDown": "its node went down",
    "JobLaunchFailure": "it could not be launched on its node",
    "SystemFailure": "SLURM itself, a file system or the network failed",
}
"""`state_reason` of a FAILED job that says nothing about what the job tests (slurm's job_state_reason.c)."""
KNOWN_STATES = _PENDING | _RUNNING | frozenset(_ENDS) | {"COMPLETING"}
"""The closed set of v0.0.45's `job_state`: 28 words (case 057)."""

NEVER_STARTS = frozenset(
    {"BadConstraints", "ReqNodeNotAvail", "PartitionDown", "PartitionConfig", "ReservationDeleted"}
)
"""Reasons of a pending job that end only if somebody changes something (slurm-api.md 7; case 042)."""

OUTPUT_NOT_WRITABLE_SIGNAL = 53
"""What a job whose output file cannot be opened is ended with: FAILED, RaisedSignal:53."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job as slurmctld or slurmdbd tells it. Times are aware UTC datetimes, None where SLURM has none."""

    id: int
    name: str
    states: frozenset[str]
    """Upper-case words; several at once are possible, e.g. RUNNING and CONFIGURING."""
    state_reason: str = ""
    user: str = ""
    partition: str = ""
    comment: str = ""
    reservation: str = ""
    nodes: tuple[str, ...] = ()
    """Expanded from the top-level hostlist only (case 009)."""
    return_code: int | None = None
    signal: int | None = None
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    """When it ended; while it runs: when its time limit ends it."""
    time_limit_minutes: int | None = None
    requeue: bool = False
    restarts: int = 0
    standard_output: str = ""


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """Where a job stands: its phase, and its end with a sentence once it has one."""

    phase: JobPhase
    end: JobEnd | None = None
    why: str = ""


def judge(job: SlurmJob) -> JobVerdict:
    """Tell a job's phase and end. An unknown word is UNKNOWN, so that nobody takes it for an end."""
    if not job.states or job.states - KNOWN_STATES:
        return JobVerdict(JobPhase.UNKNOWN, None, f"state {_words(job.states) or 'missing'} is not known to us")
    if job.states & _PENDING:
        return JobVerdict(JobPhase.PENDING, None, job.state_reason)
    state = next((word for word in _ENDS if word in job.states), None)
    if state is None or job.states & _ON_NODES:
        return JobVerdict(JobPhase.RUNNING)
    if state == "PREEMPTED" and job.requeue:
        return JobVerdict(JobPhase.PENDING, None, "preempted, to be requeued")
    end, why = _end_of(job, state)
    completing = "COMPLETING" in job.states
    return JobVerdict(JobPhase.COMPLETING if completing else JobPhase.ENDED, end, why)


def _end_of(job: SlurmJob, state: str) -> tuple[JobEnd, str]:
    if state == "COMPLETED":
        if job.return_code == 0 and not job.signal:
            return JobEnd.PASSED, "completed with exit code 0"
        return JobEnd.FAILED, f"COMPLETED, but its exit code is {_code(job)}"
    if state in _CAUSES:
        end = _ENDS[state]
        if state == "DEADLINE" and never_ran(job):
            end = JobEnd.NEVER_STARTED
        return end, f"{state}: {_CAUSES[state]}"
    if state == "CANCELLED":
        return JobEnd.CANCELLED, "cancelled before it started" if never_ran(job) else "cancelled while it ran"
    if job.state_reason in NEVER_STARTS:
        return JobEnd.NEVER_STARTED, f"never started: {job.state_reason}"
    if job.state_reason in _FAULTS:
        return JobEnd.INFRASTRUCTURE, f"FAILED: {_FAULTS[job.state_reason]}"
    if job.signal == OUTPUT_NOT_WRITABLE_SIGNAL:
        return JobEnd.INFRASTRUCTURE, "FAILED: its output file could not be opened on the node"
    return JobEnd.FAILED, f"FAILED: exit code {_code(job)}" + (f", {job.state_reason}" if job.state_reason else "")


def never_ran(job: SlurmJob) -> bool:
    """Say whether an ended job never had a node: slurmctld sets start and end to the same moment for such a one."""
    return job.start_time is None or not job.nodes


def _code(job: SlurmJob) -> str:
    if job.signal:
        return f"signal {job.signal}"
    return "unknown" if job.return_code is None else str(job.return_code)


def _words(states: Iterable[str]) -> str:
    return "+".join(sorted(states))


def is_listed(job: SlurmJob) -> bool:
    """Say whether the job still has nodes: anything with nodes that has not wholly ended, CONFIGURING included."""
    return bool(job.nodes) and judge(job).phase is not JobPhase.ENDED


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job to be submitted.

    slurmrestd needs script, working directory and a non-empty environment, which is the job's whole environment.
    """

    name: str
    script: str
    partition: str
    current_working_directory: str
    environment: tuple[str, ...]
    """`KEY=value`, at least one."""
    time_limit_minutes: int
    required_nodes: tuple[str, ...] = ()
    reservation: str | None = None
    tres_per_node: str | None = None
    """As `gres/gpu:8`; `gpu:8` is refused (2115)."""
    exclusive: bool = True
    """Sent as `shared: ["none"]`; `["exclusive"]` gives an error *and* runs the job."""
    account: str | None = None
    comment: str | None = None
    standard_output: str | None = None
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    """slurmctld took a job. `refused` holds what the answer complained of although the job was taken (case 042)."""

    job_id: int
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def words_of_job(job: SlurmJob) -> str:
    """Return where a job stands, in words."""
    verdict = judge(job)
    why = f" ({verdict.why})" if verdict.why else ""
    return f"job {job.id} is {_words(job.states) or 'in no state'}{why}"
