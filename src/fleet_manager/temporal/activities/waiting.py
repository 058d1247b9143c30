"""How every wait beats: one awaitable, a heartbeat with the words of what is seen, an absolute deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import activity

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.temporal.activities.errors import Refused

R = TypeVar("R")

ONE_LOOK = timedelta(seconds=60)
LOOK_SECONDS = 0.1
BEAT_SECONDS = 20.0
"""The SDK passes on one beat in about 100 s (heartbeat_timeout 120 s); more often costs nothing."""


async def beat_while(
    waiting: Coroutine[Any, Any, R],
    *,
    deadline: datetime,
    now: Callable[[], datetime],
    words: Callable[[], str],
    looked: Callable[[], bool],
    too_late: Callable[[], Refusal],
) -> R:
    """Await WAITING, beating; the deadline is absolute, so that it survives a retry on another worker.

    A deadline that passed while no worker was there is no verdict: one look is granted first (`looked`).

    Raises:
        Refused: the deadline passed; TOO_LATE says what was seen last.
    """
    task = asyncio.create_task(waiting)
    floor = now() + ONE_LOOK
    try:
        while True:
            left = ((deadline if looked() else max(deadline, floor)) - now()).total_seconds()
            left = left if looked() or left <= 0 else min(left, LOOK_SECONDS)
            done, _ = await asyncio.wait({task}, timeout=max(0.0, min(BEAT_SECONDS, left)))
            if done:
                return task.result()
            if (looked() or now() >= floor) and now() >= deadline:
                raise Refused(too_late())
            activity.heartbeat(words())
    finally:
        task.cancel()
