"""How a workflow of ours fails: with the cause's own type and sentence, not with "activity task failed"."""

from __future__ import annotations

from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from fleet_manager.temporal.activities.errors import REFUSED_AT_ONCE
    from fleet_manager.temporal.contracts.common import Failure

T = TypeVar("T")


def failure_of(error: BaseException) -> ApplicationError:
    """Return the innermost cause as what the workflow fails with."""
    if is_cancelled_exception(error):
        return ApplicationError("cancelled by hand", type="Cancelled", non_retryable=True)
    cause: BaseException = error
    while isinstance(cause, FailureError) and not isinstance(cause, ApplicationError) and cause.cause:
        cause = cause.cause
    if isinstance(cause, ApplicationError):
        return ApplicationError(cause.message, type=cause.type, non_retryable=True)
    if isinstance(cause, CancelledError):
        return ApplicationError("cancelled by hand", type="Cancelled", non_retryable=True)
    return ApplicationError(str(cause), type=type(cause).__name__, non_retryable=True)


def refused_at_once(error: ActivityError) -> bool:
    """Say whether an activity did nothing: the domain refused in its first attempt."""
    cause = error.cause
    return isinstance(cause, ApplicationError) and REFUSED_AT_ONCE in cause.details


def refuse_if_cancelled() -> None:
    """Raise when the workflow was cancelled while a step that writes was under way.

    Such a step is waited for (WAIT_CANCELLATION_COMPLETED), so that nothing of it lands after the clean-up; if it
    ends well the SDK says nothing of the cancel.
    """
    if workflow.cancellation_reason() is not None:
        raise CancelledError("cancelled by hand")


def given(value: T | None, kind: type[T]) -> T:
    """Return an input or a message, or refuse `null` and nothing at all, which the UI sends as easily."""
    if value is None:
        fields = ", ".join(getattr(kind, "model_fields", ()))
        raise ApplicationError(
            f"{kind.__name__} is missing: give a JSON object with {fields}", type=Failure.BAD_INPUT, non_retryable=True
        )
    return value
