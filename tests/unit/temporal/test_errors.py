"""What a history keeps of an error: type, finality, one cut sentence, and nothing of the library below."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.api.failure.v1 import Failure as FailureProto
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    RetryState,
    TimeoutError,
    TimeoutType,
)
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from fleet_manager.core.clients.errors import (
    MAX_TEXT,
    AuthRejected,
    ClientError,
    Conflict,
    Forbidden,
    NotFound,
    Unavailable,
    UnavailableTimeout,
)
from fleet_manager.core.clients.nova.errors import DuplicateServers, NoCapacity, NovaBusy
from fleet_manager.core.clients.slurmrest.errors import NodeNotFound, SlurmctldUnavailable, SubmitUnknown
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.temporal.activities.errors import ErrorMapping, Refused, as_application_error
from fleet_manager.temporal.workflows.outcome import failure_of

SECRET = "s3cr3t-user-data"
REFUSAL = Refusal(code="NodeInUse", why="Node gpu-001 is in use: 1 job(s) on it (41).", way_out="Drain it first.")


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (Unavailable("x", peer="hub"), False),
        (UnavailableTimeout("x", peer="hub"), False),
        (SlurmctldUnavailable("x", peer="slurmrestd"), False),
        (SubmitUnknown("x", peer="slurmrestd"), False),
        (NoCapacity("x", peer="nova"), False),
        (NovaBusy("x"), False),
        (NotFound("x", peer="hub"), True),
        (NodeNotFound("x", peer="slurmrestd"), True),
        (Conflict("x", peer="hub"), True),
        (AuthRejected("x", peer="hub"), True),
        (Forbidden("x", peer="nova"), True),
        (DuplicateServers("fm-device-1", ["s-1", "s-2"]), True),
    ],
)
def test_a_clients_error_keeps_its_class_as_type_and_whether_it_is_final(error: ClientError, final: bool) -> None:
    mapped = as_application_error(error)
    assert mapped.type == type(error).__name__
    assert mapped.non_retryable is final
    assert mapped.message == str(error)


def test_a_refusal_is_final_and_keeps_its_code_cause_and_way_out() -> None:
    mapped = as_application_error(Refused(REFUSAL))
    assert mapped.type == "NodeInUse"
    assert mapped.non_retryable
    assert mapped.message == "Node gpu-001 is in use: 1 job(s) on it (41). Drain it first."
    assert str(Refused(REFUSAL)) == mapped.message


def test_a_refusal_without_a_way_out_has_no_blank_at_its_end() -> None:
    assert Refusal(code="X", why="No.").sentence() == "No."


def test_a_peer_that_says_when_to_come_back_is_asked_then() -> None:
    mapped = as_application_error(NovaBusy("busy", retry_after=timedelta(seconds=7)))
    assert mapped.next_retry_delay == timedelta(seconds=7)
    assert as_application_error(NovaBusy("busy")).next_retry_delay is None
    assert as_application_error(Unavailable("away", peer="hub")).next_retry_delay is None


def test_what_was_not_foreseen_is_retried_under_its_own_name() -> None:
    mapped = as_application_error(KeyError("gpu-001"))
    assert mapped.type == "KeyError"
    assert not mapped.non_retryable  # a fault of ours: a mended worker goes on
    assert mapped.message == "KeyError: 'gpu-001'"


@pytest.mark.parametrize("error", [ValueError("x" * 10**6), Unavailable("x" * 10**6, peer="hub")])
def test_a_long_text_is_cut(error: Exception) -> None:
    mapped = as_application_error(error)
    assert MAX_TEXT <= len(mapped.message) <= MAX_TEXT + 50


def test_an_application_error_is_handed_on_as_it_is() -> None:
    given = ApplicationError("no", type="ClaimRefused", non_retryable=True)
    assert as_application_error(given) is given


# -- around an activity


class Activity(ActivityInboundInterceptor):
    """An activity that does what the test says."""

    def __init__(self, body: Callable[[], Awaitable[object]]) -> None:
        self._body = body

    async def execute_activity(self, input: ExecuteActivityInput) -> object:
        return await self._body()


async def run(body: Callable[[], Awaitable[object]]) -> object:
    mapping = ErrorMapping().intercept_activity(Activity(body))
    nothing = ExecuteActivityInput(fn=body, args=[], executor=None, headers={})
    return await ActivityEnvironment().run(mapping.execute_activity, nothing)


async def failed(error: Exception, cause: Exception | None = None) -> ApplicationError:
    async def body() -> object:
        try:
            raise cause or LookupError(SECRET)
        except Exception as below:
            raise error from below

    with pytest.raises(ApplicationError) as caught:
        await run(body)
    return caught.value


def history(error: BaseException) -> str:
    """Return all that would be written to a history."""
    proto = FailureProto()
    converter = pydantic_data_converter
    converter.failure_converter.to_failure(error, converter.payload_converter, proto)
    return str(proto)


async def test_what_an_activity_returns_is_handed_on() -> None:
    async def body() -> object:
        return 42

    assert await run(body) == 42


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SlurmctldUnavailable("slurmctld does not answer", peer="slurmrestd"), "SlurmctldUnavailable"),
        (NodeNotFound("no node", peer="slurmrestd"), "NodeNotFound"),
        (Refused(REFUSAL), "NodeInUse"),
        (ValueError("odd"), "ValueError"),
    ],
)
async def test_no_cause_reaches_the_history(error: Exception, kind: str) -> None:
    mapped = await failed(error, RuntimeError(f"body of the answer: {SECRET}"))
    assert mapped.type == kind
    kept = history(mapped)
    assert SECRET not in kept
    assert "RuntimeError" not in kept
    assert "cause {" not in kept


async def test_an_application_error_of_an_activity_keeps_type_and_finality() -> None:
    mapped = await failed(ApplicationError("no", type="GateNotOpen", non_retryable=True))
    assert (mapped.type, mapped.non_retryable, mapped.message) == ("GateNotOpen", True, "no")


@pytest.mark.parametrize("error", [CancelledError("by hand"), asyncio.CancelledError()])
async def test_a_cancel_stays_a_cancel(error: BaseException) -> None:
    async def body() -> object:
        raise error

    with pytest.raises(type(error)) as caught:
        await run(body)
    assert caught.value is error


async def test_a_foreseen_failure_is_logged_in_one_line_and_an_unforeseen_one_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fleet_manager")
    await failed(Unavailable("away", peer="hub"))
    (line,) = caplog.records
    assert (line.levelname, line.exc_info) == ("WARNING", None)
    assert "hub: away" in line.getMessage()
    caplog.clear()
    await failed(ValueError("odd"))
    (line,) = caplog.records
    assert line.levelname == "ERROR"
    assert line.exc_info


# -- out of a workflow


def activity_error(cause: BaseException | None) -> ActivityError:
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=5,
        started_event_id=6,
        identity="worker",
        activity_type="build_server",
        activity_id="1",
        retry_state=RetryState.NON_RETRYABLE_FAILURE,
    )
    error.__cause__ = cause
    return error


def child_error(cause: BaseException) -> ChildWorkflowError:
    error = ChildWorkflowError(
        "Child Workflow execution failed",
        namespace="default",
        workflow_id="burn-in/lab/gpu-001",
        run_id="r",
        workflow_type="BurnInNode",
        initiated_event_id=5,
        started_event_id=6,
        retry_state=None,
    )
    error.__cause__ = cause
    return error


def time_out(cause: BaseException | None = None) -> TimeoutError:
    error = TimeoutError(
        "activity ScheduleToClose timeout", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[]
    )
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (activity_error(ApplicationError("no", type="NodeInUse", non_retryable=True)), "NodeInUse", "no"),
        (activity_error(ApplicationError("away", type="Unavailable")), "Unavailable", "away"),
        (child_error(activity_error(ApplicationError("no", type="NodeInUse"))), "NodeInUse", "no"),
        (activity_error(time_out()), "TimeoutError", "activity ScheduleToClose timeout"),
        (activity_error(time_out(ApplicationError("away", type="Unavailable"))), "Unavailable", "away"),
        (ApplicationError("no", type="WrongSite"), "WrongSite", "no"),
        (activity_error(CancelledError("c")), "Cancelled", "cancelled by hand"),
        (CancelledError("c"), "Cancelled", "cancelled by hand"),
        (asyncio.CancelledError(), "Cancelled", "cancelled by hand"),
        (activity_error(None), "ActivityError", "Activity task failed"),
    ],
)
def test_a_workflow_fails_with_the_innermost_cause_and_for_good(error: BaseException, kind: str, words: str) -> None:
    failure = failure_of(error)
    assert (failure.type, failure.message, failure.non_retryable) == (kind, words, True)
