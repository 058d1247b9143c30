"""How a workflow of ours fails: with the cause's own type and sentence, not with "activity task failed"."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError, CancelledError, FailureError, is_cancelled_exception


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


def refuse_if_cancelled() -> None:
    """Raise when the workflow was cancelled while a step that writes was under way.

    Such a step is waited for (WAIT_CANCELLATION_COMPLETED), so that nothing of it lands after the clean-up; if it
    ends well the SDK says nothing of the cancel.
    """
    if workflow.cancellation_reason() is not None:
        raise CancelledError("cancelled by hand")
