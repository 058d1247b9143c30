"""What a job's words mean and how it ended: the closed map, word by word (cases 005, 009, 042, 057)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_manager.core.domain.slurm_job import (
    KNOWN_STATES,
    JobEnd,
    JobPhase,
    JobSpec,
    JobVerdict,
    SlurmJob,
    is_listed,
    judge,
    words_of_job,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

V0_0_45_WORDS = (
    "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY "
    "LAUNCH_FAILED REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESIZING CONFIGURING COMPLETING STOPPED RECONFIG_FAIL "
    "POWER_UP_NODE REVOKED REQUEUE_FED RESV_DEL_HOLD SIGNALING STAGE_OUT EXPEDITING"
).split()
"""The enum of `job.job_state` in the OpenAPI document of slurmrestd 26.05.5, data_parser v0.0.45 (case 057)."""


def job(*states: str, **facts: object) -> SlurmJob:
    """Return a job that ran on gpu-001 and ended with exit code 0, unless FACTS say otherwise."""
    base = SlurmJob(
        id=7,
        name="smoke",
        states=frozenset(states),
        nodes=("gpu-001",),
        return_code=0,
        start_time=NOW,
        end_time=NOW + timedelta(minutes=1),
    )
    return replace(base, **facts)


def waiting(*states: str, reason: str = "", **facts: object) -> SlurmJob:
    return job(*states, state_reason=reason, nodes=(), return_code=None, start_time=None, end_time=None, **facts)


def test_the_map_is_closed_over_every_word_that_slurmrestd_can_write() -> None:
    assert set(V0_0_45_WORDS) == KNOWN_STATES
    assert len(KNOWN_STATES) == 28


P, R, C, E, U = JobPhase.PENDING, JobPhase.RUNNING, JobPhase.COMPLETING, JobPhase.ENDED, JobPhase.UNKNOWN

EACH_WORD: list[tuple[str, JobPhase, JobEnd | None]] = [
    ("PENDING", P, None),
    ("CONFIGURING", P, None),
    ("REQUEUED", P, None),
    ("REQUEUE_FED", P, None),
    ("REQUEUE_HOLD", P, None),
    ("SPECIAL_EXIT", P, None),
    ("RESV_DEL_HOLD", P, None),
    ("RUNNING", R, None),
    ("SUSPENDED", R, None),
    ("STOPPED", R, None),
    ("RESIZING", R, None),
    ("SIGNALING", R, None),
    ("STAGE_OUT", R, None),
    ("POWER_UP_NODE", R, None),
    ("EXPEDITING", R, None),
    ("COMPLETING", R, None),  # no word of its end yet
    ("COMPLETED", E, JobEnd.PASSED),
    ("FAILED", E, JobEnd.FAILED),
    ("TIMEOUT", E, JobEnd.FAILED),
    ("OUT_OF_MEMORY", E, JobEnd.FAILED),
    ("DEADLINE", E, JobEnd.FAILED),
    ("NODE_FAIL", E, JobEnd.INFRASTRUCTURE),
    ("BOOT_FAIL", E, JobEnd.INFRASTRUCTURE),
    ("LAUNCH_FAILED", E, JobEnd.INFRASTRUCTURE),
    ("RECONFIG_FAIL", E, JobEnd.INFRASTRUCTURE),
    ("REVOKED", E, JobEnd.INFRASTRUCTURE),
    ("PREEMPTED", E, JobEnd.INFRASTRUCTURE),
    ("CANCELLED", E, JobEnd.CANCELLED),
]


def test_each_of_the_28_words_has_a_row() -> None:
    assert {row[0] for row in EACH_WORD} == set(V0_0_45_WORDS)


@pytest.mark.parametrize(("word", "phase", "end"), EACH_WORD)
def test_what_each_word_alone_says(word: str, phase: JobPhase, end: JobEnd | None) -> None:
    verdict = judge(job(word))
    assert (verdict.phase, verdict.end) == (phase, end)


COMBINED: list[tuple[str, JobPhase, JobEnd | None]] = [
    ("RUNNING CONFIGURING", P, None),  # it has its nodes, its script has not begun
    ("RUNNING COMPLETING", R, None),
    ("RUNNING STOPPED", R, None),
    ("RUNNING SIGNALING", R, None),
    ("RUNNING POWER_UP_NODE CONFIGURING", P, None),
    ("SUSPENDED SIGNALING", R, None),
    ("COMPLETED COMPLETING", C, JobEnd.PASSED),
    ("CANCELLED COMPLETING", C, JobEnd.CANCELLED),
    ("FAILED COMPLETING", C, JobEnd.FAILED),
    ("NODE_FAIL COMPLETING", C, JobEnd.INFRASTRUCTURE),
    # requeued: not an end, it runs again
    ("PENDING COMPLETING", P, None),
    ("NODE_FAIL REQUEUED", P, None),
    ("NODE_FAIL COMPLETING REQUEUED", P, None),
    ("PREEMPTED REQUEUED", P, None),
    ("FAILED SPECIAL_EXIT", P, None),
    ("FAILED REQUEUE_HOLD", P, None),
    ("COMPLETED REQUEUED", P, None),
    ("PENDING RESV_DEL_HOLD", P, None),
    ("PENDING EXPEDITING", P, None),
    # a flag tells more than the base beside it
    ("FAILED LAUNCH_FAILED", E, JobEnd.INFRASTRUCTURE),
    ("COMPLETED LAUNCH_FAILED", E, JobEnd.INFRASTRUCTURE),
    ("CANCELLED RECONFIG_FAIL", E, JobEnd.INFRASTRUCTURE),
    ("CANCELLED REVOKED", E, JobEnd.INFRASTRUCTURE),
    ("PENDING LAUNCH_FAILED", P, None),
    # with a base that has nodes nothing beside it is an end
    ("RUNNING LAUNCH_FAILED", R, None),
    ("RUNNING REVOKED", R, None),
    ("RUNNING COMPLETED", R, None),
    ("SUSPENDED CANCELLED", R, None),
    # what SLURM cannot mean is never a pass
    ("COMPLETED FAILED", E, JobEnd.FAILED),
    ("COMPLETED TIMEOUT", E, JobEnd.FAILED),
    ("COMPLETED NODE_FAIL", E, JobEnd.INFRASTRUCTURE),
    ("COMPLETED CANCELLED", E, JobEnd.CANCELLED),
]


@pytest.mark.parametrize(("words", "phase", "end"), COMBINED)
def test_what_several_words_at_once_say(words: str, phase: JobPhase, end: JobEnd | None) -> None:
    verdict = judge(job(*words.split()))
    assert (verdict.phase, verdict.end) == (phase, end)


@pytest.mark.parametrize("words", ["QUANTUM", "COMPLETED QUANTUM", "RUNNING QUANTUM", "CD", "completed", ""])
def test_an_unknown_word_or_none_is_unknown_and_never_an_end(words: str) -> None:
    verdict = judge(job(*words.split()))
    assert (verdict.phase, verdict.end) == (U, None)
    assert "not known to us" in verdict.why


def test_the_sentence_names_the_word_that_is_not_known() -> None:
    assert judge(job("RUNNING", "QUANTUM")).why == "state QUANTUM+RUNNING is not known to us"
    assert judge(job()).why == "state missing is not known to us"


@given(st.sets(st.sampled_from([*V0_0_45_WORDS, "QUANTUM"]), max_size=4), st.integers(0, 2), st.booleans())
def test_only_a_job_that_completed_and_nothing_else_passes(words: set[str], code: int, requeue: bool) -> None:
    verdict = judge(job(*words, return_code=code, requeue=requeue))
    if verdict.end is JobEnd.PASSED:
        assert "COMPLETED" in words
        assert code == 0
        assert not words & {"FAILED", "TIMEOUT", "NODE_FAIL", "LAUNCH_FAILED", "RUNNING", "REQUEUED", "QUANTUM"}
    assert (verdict.end is None) is (verdict.phase in (P, R, U))


@pytest.mark.parametrize(
    ("facts", "end", "why"),
    [
        ({"return_code": 0}, JobEnd.PASSED, "completed with exit code 0"),
        ({"return_code": 0, "signal": 0}, JobEnd.PASSED, "completed with exit code 0"),
        ({"return_code": 3}, JobEnd.FAILED, "COMPLETED, but its exit code is 3"),
        ({"return_code": 0, "signal": 9}, JobEnd.FAILED, "COMPLETED, but its exit code is signal 9"),
        ({"return_code": None}, JobEnd.FAILED, "COMPLETED, but its exit code is unknown"),  # never a pass unread
    ],
)
def test_a_completed_job_passes_by_its_exit_code_alone(facts: dict[str, object], end: JobEnd, why: str) -> None:
    verdict = judge(job("COMPLETED", **facts))
    assert verdict == JobVerdict(E, end, why)


@pytest.mark.parametrize(
    ("state", "end", "why"),
    [
        ("TIMEOUT", JobEnd.FAILED, "TIMEOUT: did not end within its time limit"),
        ("OUT_OF_MEMORY", JobEnd.FAILED, "OUT_OF_MEMORY: ran out of memory"),
        ("DEADLINE", JobEnd.FAILED, "DEADLINE: missed its deadline"),
        ("NODE_FAIL", JobEnd.INFRASTRUCTURE, "NODE_FAIL: its node failed under it"),
        ("BOOT_FAIL", JobEnd.INFRASTRUCTURE, "BOOT_FAIL: its node did not boot"),
        ("LAUNCH_FAILED", JobEnd.INFRASTRUCTURE, "LAUNCH_FAILED: could not be launched on its node"),
        ("RECONFIG_FAIL", JobEnd.INFRASTRUCTURE, "RECONFIG_FAIL: its node could not be reconfigured"),
        ("REVOKED", JobEnd.INFRASTRUCTURE, "REVOKED: was revoked by another cluster"),
        ("PREEMPTED", JobEnd.INFRASTRUCTURE, "PREEMPTED: was preempted"),
    ],
)
@pytest.mark.parametrize(
    "code",
    [
        {"return_code": 0, "signal": None},  # slurmdb's word of a job that timed out: SUCCESS (case 005)
        {"return_code": None, "signal": 15},  # slurmctld's word of the same job
        {"return_code": 1, "signal": None},
        {"return_code": None, "signal": None},
    ],
)
def test_the_state_decides_before_the_exit_code(state: str, end: JobEnd, why: str, code: dict[str, int | None]) -> None:
    assert judge(job(state, **code)) == JobVerdict(E, end, why)


@pytest.mark.parametrize(
    ("facts", "end", "why"),
    [
        ({"return_code": 1}, JobEnd.FAILED, "FAILED: exit code 1"),
        ({"return_code": 3, "state_reason": "NonZeroExitCode"}, JobEnd.FAILED, "FAILED: exit code 3, NonZeroExitCode"),
        (
            {"return_code": None, "signal": 11, "state_reason": "RaisedSignal:11"},
            JobEnd.FAILED,
            "FAILED: exit code signal 11, RaisedSignal:11",
        ),
        ({"return_code": 0}, JobEnd.FAILED, "FAILED: exit code 0"),
        ({"return_code": None}, JobEnd.FAILED, "FAILED: exit code unknown"),
        ({"state_reason": "NodeDown"}, JobEnd.INFRASTRUCTURE, "FAILED: its node went down"),
        (
            {"return_code": 1, "state_reason": "JobLaunchFailure"},
            JobEnd.INFRASTRUCTURE,
            "FAILED: it could not be launched on its node",
        ),
        (
            {"return_code": 1, "state_reason": "SystemFailure"},
            JobEnd.INFRASTRUCTURE,
            "FAILED: SLURM itself, a file system or the network failed",
        ),
        (
            {"return_code": None, "signal": 53, "state_reason": "RaisedSignal:53"},
            JobEnd.INFRASTRUCTURE,
            "FAILED: its output file could not be opened on the node",
        ),
        # a submit that is refused leaves such a record (slurm-api.md 7)
        ({"state_reason": "BadConstraints"}, JobEnd.NEVER_STARTED, "never started: BadConstraints"),
        ({"state_reason": "ReqNodeNotAvail"}, JobEnd.NEVER_STARTED, "never started: ReqNodeNotAvail"),
    ],
)
def test_a_failed_job_is_told_by_its_reason_then_its_code(facts: dict[str, object], end: JobEnd, why: str) -> None:
    assert judge(job("FAILED", **facts)) == JobVerdict(E, end, why)


def test_a_job_cancelled_while_pending_never_ran() -> None:
    """As slurmctld tells it: start and end are the moment of the cancel, nodes is empty (job 2 of the samples)."""
    pending = job("CANCELLED", state_reason="ReqNodeNotAvail", nodes=(), start_time=NOW, end_time=NOW)
    assert judge(pending) == JobVerdict(E, JobEnd.CANCELLED, "cancelled before it started")
    assert judge(waiting("CANCELLED")).why == "cancelled before it started"


def test_a_job_with_a_node_and_no_start_never_ran() -> None:
    assert judge(job("CANCELLED", start_time=None)).why == "cancelled before it started"


def test_a_job_cancelled_on_its_node_ran() -> None:
    cancelled = judge(job("CANCELLED", return_code=None, signal=15))
    assert cancelled == JobVerdict(E, JobEnd.CANCELLED, "cancelled while it ran")


def test_a_deadline_missed_in_the_queue_is_a_job_that_never_started() -> None:
    """slurmctld sets start and end to the same moment then (job_scheduler.c, deadline_ok)."""
    missed = job("DEADLINE", nodes=(), return_code=1, start_time=NOW, end_time=NOW)
    assert judge(missed).end is JobEnd.NEVER_STARTED
    assert judge(waiting("DEADLINE")).end is JobEnd.NEVER_STARTED


@pytest.mark.parametrize(("state", "end"), [("NODE_FAIL", JobEnd.INFRASTRUCTURE), ("TIMEOUT", JobEnd.FAILED)])
def test_only_a_deadline_is_missed_in_the_queue(state: str, end: JobEnd) -> None:
    assert judge(waiting(state)).end is end


def test_a_preempted_job_that_is_requeued_has_not_ended() -> None:
    verdict = judge(job("PREEMPTED", requeue=True))
    assert (verdict.phase, verdict.end, verdict.why) == (P, None, "preempted, to be requeued")
    assert judge(job("PREEMPTED", "COMPLETING", requeue=True)).end is None


def test_preempted_then_run_again_then_completed_is_a_pass() -> None:
    ends = [
        judge(job(*words, requeue=True)).end
        for words in [("RUNNING",), ("PREEMPTED",), ("PENDING",), ("RUNNING",), ("COMPLETED",)]
    ]
    assert ends == [None, None, None, None, JobEnd.PASSED]


def test_a_pending_job_says_what_it_waits_for() -> None:
    assert judge(waiting("PENDING", reason="ReqNodeNotAvail")).why == "ReqNodeNotAvail"
    assert words_of_job(waiting("PENDING", reason="ReqNodeNotAvail")) == "job 7 is PENDING (ReqNodeNotAvail)"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (job("RUNNING"), "job 7 is RUNNING"),
        (job("CANCELLED", "COMPLETING"), "job 7 is CANCELLED+COMPLETING (cancelled while it ran)"),
        (job(), "job 7 is in no state (state missing is not known to us)"),
    ],
)
def test_a_job_is_told_in_words(seen: SlurmJob, words: str) -> None:
    assert words_of_job(seen) == words


def test_a_job_is_alone_on_its_nodes_and_runs_once_unless_it_is_said() -> None:
    spec = JobSpec(
        "x", "#!/bin/sh", "main", current_working_directory="/tmp", environment=("A=b",), time_limit_minutes=1
    )
    assert (spec.exclusive, spec.requeue) == (True, False)


@pytest.mark.parametrize(
    ("seen", "listed"),
    [
        (job("RUNNING"), True),
        (job("SUSPENDED"), True),
        (job("RUNNING", "CONFIGURING"), True),  # its node is booting for it
        (job("COMPLETED", "COMPLETING"), True),  # its processes may still be there
        (job("PENDING", "COMPLETING"), True),  # requeued, the first try is being cleaned up
        (job("NODE_FAIL", "COMPLETING", "REQUEUED"), True),
        (job("QUANTUM"), True),  # not understood: taken for a job that is there
        (job(), True),
        (job("RUNNING", "REVOKED"), True),
        (job("COMPLETED"), False),
        (job("CANCELLED"), False),
        (job("NODE_FAIL"), False),
        (waiting("PENDING"), False),
        (waiting("PENDING", reason="Resources"), False),
    ],
)
def test_which_jobs_still_have_their_nodes(seen: SlurmJob, listed: bool) -> None:
    assert is_listed(seen) is listed
