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

SOON = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
"""For peers that answer in seconds and come back in minutes."""

LATER = RetryPolicy(
    initial_interval=timedelta(seconds=5), backoff_coefficient=2.0, maximum_interval=timedelta(minutes=2)
)
"""For Nova: after a time-out of POST a server may appear late, so it is looked for after a while (nova-api.md 5)."""


def _step(start_to_close: timedelta, retry: RetryPolicy = SOON, patience: timedelta = PATIENCE) -> Options:
    return {
        "start_to_close_timeout": start_to_close,
        "schedule_to_close_timeout": patience,
        "retry_policy": retry,
        "cancellation_type": FINISH_FIRST,
    }


SLURM_API = _step(timedelta(minutes=5))
"""A call takes 9 to 20 s when slurmctld is away, and a step makes several."""
HUB_API = _step(timedelta(minutes=2))
NOVA_ACTION = _step(timedelta(minutes=10), LATER)
ACTOR: Options = {**_step(timedelta(minutes=10)), "heartbeat_timeout": timedelta(seconds=60)}
"""An update answers at once; its projection may wait for slurmctld."""
PROJECTION = _step(timedelta(minutes=3), patience=timedelta(minutes=3))
"""Short, so that the actor comes back to a newer record; it projects again until SLURM shows it."""
WAIT: Options = {
    "heartbeat_timeout": timedelta(seconds=120),
    "retry_policy": SOON,
}
"""A wait carries its own deadline in its parameters, so that it survives the worker; the caller adds the time-out."""


def wait_until(seconds_left: float) -> Options:
    """Return a wait's options: it ends itself at its deadline; Temporal's own bounds only catch what cannot.

    While no worker is there the deadline may pass: the wait still gets its look when one comes back.
    """
    bound = timedelta(seconds=max(seconds_left, 0)) + timedelta(minutes=5)
    return {**WAIT, "start_to_close_timeout": bound, "schedule_to_close_timeout": bound + PATIENCE}
