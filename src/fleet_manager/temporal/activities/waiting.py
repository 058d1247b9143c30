"""How every wait beats: one awaitable, a heartbeat with the words of what is seen, an absolute deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from temporalio import activity

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.temporal.activities.errors import Refused

R = TypeVar("R")

BEAT_SECONDS = 20.0
"""The SDK passes on one beat in about 100 s (heartbeat_timeout 120 s); more often costs nothing."""


async def beat_while(
    waiting: Coroutine[Any, Any, R],
    *,
    deadline: datetime,
    now: Callable[[], datetime],
    words: Callable[[], str],
    too_late: Callable[[], Refusal],
) -> R:
    """Await WAITING, beating; the deadline is absolute, so that it survives a retry on another worker.

    Raises:
        Refused: the deadline passed; TOO_LATE says what was seen last.
    """
    task = asyncio.create_task(waiting)
    try:
        while True:
            left = (deadline - now()).total_seconds()
            done, _ = await asyncio.wait({task}, timeout=max(0.0, min(BEAT_SECONDS, left)))
            if done:
                return task.result()
            if left <= 0:
                raise Refused(too_late())
            activity.heartbeat(words())
    finally:
        task.cancel()
