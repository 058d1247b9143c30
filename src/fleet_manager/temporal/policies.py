"""Retry policies and time-outs by name, each with its reason. Bounded by time, never by a count of attempts.

Whether an error is final is said by the error itself (`activities.errors`), so no policy lists types.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType


class Options(TypedDict, total=False):
    """What `execute_activity` takes of a policy."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy
    cancellation_type: ActivityCancellationType


FINISH_FIRST = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
"""A step that writes is not left in mid-air by a cancel: what it does would land after the clean-up."""

PATIENCE = timedelta(hours=12)
"""How long an operation waits for a peer that is away. A site's outage lasts hours and is no reason to leave a node
half way; the details say all the while what is waited for."""

SLURM_API: Options = {
    "start_to_close_timeout": timedelta(
        minutes=5
    ),  # a call takes 9 to 20 s when slurmctld is away; a step makes several
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
    ),
    "cancellation_type": FINISH_FIRST,
}
HUB_API: Options = {
    "start_to_close_timeout": timedelta(minutes=2),
    "schedule_to_close_timeout": PATIENCE,
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
    ),
    "cancellation_type": FINISH_FIRST,
}
PROJECTION: Options = {
    "start_to_close_timeout": timedelta(minutes=3),
    # short, so that the actor comes back to a newer record; it projects again until SLURM shows it
    "schedule_to_close_timeout": timedelta(minutes=3),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
    ),
}
ACTOR: Options = {
    "start_to_close_timeout": timedelta(minutes=10),  # an update answers at once; the projection may wait for slurmctld
    "schedule_to_close_timeout": PATIENCE,
    "heartbeat_timeout": timedelta(seconds=60),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
    ),
    "cancellation_type": FINISH_FIRST,
}
NOVA_ACTION: Options = {
    "start_to_close_timeout": timedelta(minutes=10),
    "schedule_to_close_timeout": PATIENCE,
    # after a time-out of POST a server may appear late: look for it after a while, not at once (nova-api.md 5)
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=5), backoff_coefficient=2.0, maximum_interval=timedelta(minutes=2)
    ),
    "cancellation_type": FINISH_FIRST,
}
WAIT: Options = {
    "heartbeat_timeout": timedelta(seconds=120),
    "retry_policy": RetryPolicy(
        initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
    ),
}
"""A wait carries its own deadline in its parameters, so that it survives the worker; the caller adds the time-out."""


def wait_until(seconds_left: float) -> Options:
    """Return a wait's options: it ends itself at its deadline, Temporal five minutes later if it cannot."""
    bound = timedelta(seconds=max(seconds_left, 0)) + timedelta(minutes=5)
    return {**WAIT, "start_to_close_timeout": bound, "schedule_to_close_timeout": bound}
