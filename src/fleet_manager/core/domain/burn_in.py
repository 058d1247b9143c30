"""Burn-in suites as data, and the verdict over what their jobs did.

A suite is a list of jobs that must all pass on the present build. Each job must run on the node itself, alone, with
all of its GPUs. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from fleet_manager.core.domain.slurm_job import JobEnd, JobSpec
from fleet_manager.core.domain.slurm_node import parse_gres

SMOKE_SCRIPT = """\
#!/bin/bash
# Every GPU that SLURM promises must be given to the job, answer its driver, and report no uncorrected memory error.
want=${FM_GPUS:?}
given=$(tr ',' '\\n' <<< "${CUDA_VISIBLE_DEVICES:-}" | grep -c .)
[ "$given" -eq "$want" ] || { echo "SLURM gave $given of $want GPUs"; exit 20; }
command -v nvidia-smi > /dev/null || { echo "nvidia-smi is not on this node's PATH"; exit 21; }
rows=$(nvidia-smi --query-gpu=uuid,ecc.errors.uncorrected.volatile.total --format=csv,noheader) || {
    echo "nvidia-smi fails: $rows"; exit 22; }
alive=$(grep -cE '^(GPU|MIG)-[^,]+, *([0-9]+|\\[?(N/A|Not Supported)\\]?) *$' <<< "$rows")
[ "$alive" -ge "$want" ] || { echo "$alive of $want GPUs answer"; exit 23; }
errors=$(awk -F', *' '$2 ~ /^[0-9]+$/ { sum += $2 } END { print sum + 0 }' <<< "$rows")
[ "$errors" -eq 0 ] || { echo "$errors uncorrected memory errors"; exit 24; }
echo "burn-in smoke: $alive of $want GPUs answer, no uncorrected memory error"
"""


class SuiteJob(BaseModel):
    """One job of a suite: its script, its limit, and what its exit codes mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    script: str
    time_limit_minutes: int
    exit_meanings: Mapping[int, str] = {}


class Suite(BaseModel):
    """A named list of jobs, run one after the other; the first that does not pass ends it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    jobs: tuple[SuiteJob, ...]


SMOKE = Suite(
    name="smoke",
    jobs=(
        SuiteJob(
            name="smoke",
            script=SMOKE_SCRIPT,
            time_limit_minutes=10,
            exit_meanings={
                20: "SLURM gave the job fewer GPUs than the node has",
                21: "nvidia-smi is not on the node's PATH",
                22: "nvidia-smi fails on the node",
                23: "fewer GPUs answer nvidia-smi than the node has",
                24: "a GPU reports uncorrected memory errors",
            },
        ),
    ),
)
SUITES: Mapping[str, Suite] = {SMOKE.name: SMOKE}
"""Suite name -> suite. More suites are data beside this one."""


def suite(name: str) -> Suite:
    """Return the suite. Raises ValueError with the names that exist."""
    found = SUITES.get(name)
    if found is None:
        msg = f"burn-in suite {name!r} does not exist; allowed: {', '.join(sorted(SUITES))}"
        raise ValueError(msg)
    return found


class BurnInPlace(BaseModel):
    """Where and as whom the jobs of a burn-in run."""

    model_config = ConfigDict(frozen=True)

    node: str
    partition: str
    reservation: str | None
    gres: str
    build_id: str
    path: str = "/usr/local/bin:/usr/bin:/bin"
    working_directory: str = "/tmp"  # noqa: S108 - on the node, as the job's user; it is every node's scratch
    account: str | None = None


def job_name(place: BurnInPlace, job: SuiteJob, attempt: int) -> str:
    """Return the name by which a submit is found again: unique for build, job and attempt."""
    return f"fm-burnin-{job.name}-{place.build_id}-{attempt}"


def job_spec(place: BurnInPlace, job: SuiteJob, attempt: int) -> JobSpec:
    """Return the job: pinned to the node, alone on it, with every GPU of it, in the reservation."""
    gpus = sum(gres.count for gres in parse_gres(place.gres) if gres.name == "gpu")
    name = job_name(place, job, attempt)
    return JobSpec(
        name=name,
        script=job.script,
        partition=place.partition,
        current_working_directory=place.working_directory,
        environment=(f"PATH={place.path}", f"FM_GPUS={gpus}"),
        time_limit_minutes=job.time_limit_minutes,
        required_nodes=(place.node,),
        reservation=place.reservation,
        tres_per_node=f"gres/gpu:{gpus}" if gpus else None,
        exclusive=True,
        account=place.account,
        comment=f"fleet-manager burn-in of {place.node}, build {place.build_id}",
        standard_output=f"{place.working_directory}/{job.name}-%j.out",
    )


class Verdict(StrEnum):
    """What a burn-in says. Only PASS opens a node."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INFRASTRUCTURE = "infrastructure"
    NEVER_STARTED = "never_started"


_VERDICTS: Mapping[JobEnd, Verdict] = {
    JobEnd.PASSED: Verdict.PASS,
    JobEnd.FAILED: Verdict.FAIL,
    JobEnd.INFRASTRUCTURE: Verdict.INFRASTRUCTURE,
    JobEnd.NEVER_STARTED: Verdict.NEVER_STARTED,
    JobEnd.CANCELLED: Verdict.INFRASTRUCTURE,  # by a hand that was not ours: it says nothing of the machine
}


def verdict_of(end: JobEnd) -> Verdict:
    return _VERDICTS[end]


def evidence(job: SuiteJob, job_id: int, end: JobEnd, why: str, return_code: int | None) -> str:
    """Return one sentence of what the job showed, for the hold's reason and for the result.

    A code means something only where it decided: a job that timed out may have left any code behind.
    """
    decided = end is JobEnd.FAILED and return_code is not None and f"exit code {return_code}" in why
    meaning = job.exit_meanings.get(return_code or 0, "") if decided else ""
    return f"job {job_id} ({job.name}) {end}: {meaning or why}"
