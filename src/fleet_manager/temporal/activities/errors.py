"""How an error of ours becomes a failure in a history: its type is the class's name, the class says if it is final.

Nothing of the library below goes along: causes are cut off, since a peer's body may carry secrets and a history keeps
everything (limit 2 MiB a payload).
"""

from __future__ import annotations

import logging
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from fleet_manager.core.clients.errors import MAX_TEXT, ClientError
from fleet_manager.core.domain.refusal import Refusal

log = logging.getLogger(__name__)

MAX_SENTENCE = 2000
"""Characters of a refusal: it may name many holds, and a failure travels through a history."""


class Refused(Exception):
    """A domain's no, on its way out of an activity. Final: a changed fact or a human is needed."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.sentence())


REFUSED_AT_ONCE = "refused at once"
"""Detail of a failure: the domain said no in the first attempt, so that nothing at all was done."""


def as_application_error(error: Exception, attempt: int | None = None) -> ApplicationError:
    """Map any error of an activity to what the history keeps of it; ATTEMPT is the one that failed, if known."""
    if isinstance(error, ApplicationError):
        error.__cause__ = None
        error.__suppress_context__ = True
        return error
    if isinstance(error, Refused):
        refusal = error.refusal
        details = (REFUSED_AT_ONCE,) if attempt == 1 else ()
        return ApplicationError(refusal.sentence()[:MAX_SENTENCE], *details, type=refusal.code, non_retryable=True)
    if isinstance(error, ClientError):
        return ApplicationError(
            str(error),
            type=type(error).__name__,
            non_retryable=not error.retryable,
            next_retry_delay=getattr(error, "retry_after", None),  # a peer that says when it can be asked again
        )
    return ApplicationError(f"{type(error).__name__}: {str(error)[:MAX_TEXT]}", type=type(error).__name__)


class ErrorMapping(Interceptor):
    """Puts `as_application_error` around every activity of a worker."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Mapping(next)


class _Mapping(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except CancelledError:
            raise
        except (ClientError, Refused, ApplicationError) as error:
            log.warning("%s: %s", activity.info().activity_type, error)
            raise as_application_error(error, activity.info().attempt) from None
        except Exception as error:
            log.exception("activity %s failed in a way that is not foreseen", activity.info().activity_type)
            raise as_application_error(error) from None
