"""Blocking calls in a few threads of our own, awaited; an answer that is not a success raises.

A call that is cancelled stops being waited for; its thread goes on to the end of the request, so a write may still
happen. The threads are bounded: a Nova that hangs takes them, and no other part of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fleet_manager.core.clients.errors import ClientError
from fleet_manager.core.clients.nova.faults import fault
from fleet_manager.core.clients.nova.sdk import Cloud, Reply, Request, failure
from fleet_manager.settings.clients.nova import NovaSettings

T = TypeVar("T")


class Transport:
    """A cloud behind threads. Opened before use, closed after."""

    def __init__(self, settings: NovaSettings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.max_threads, thread_name_prefix="nova")
        self._cloud: Cloud | None = None

    async def open(self) -> None:
        """Read clouds.yaml; nothing is sent yet."""
        self._cloud = await self._in_thread(lambda: Cloud(self._settings), None)

    def close(self) -> None:
        """Drop what waits and close the connections; a request in flight ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._cloud is not None:
            self._cloud.close()

    async def run(self, call: Callable[[Cloud], T]) -> T:
        """Run a blocking look at the cloud in a thread."""
        cloud = self._opened()
        return await self._in_thread(lambda: call(cloud), None)

    async def call(self, request: Request) -> Reply:
        """Send one request and return its success; raise a `ClientError` for anything else.

        The request stays whole, as no frame of a traceback may hold its body by itself.
        """
        cloud = self._opened()
        reply = await self._in_thread(lambda: cloud.send(request), request)
        if not 200 <= reply.status < 300:
            raise fault(reply, request)
        return reply

    def _opened(self) -> Cloud:
        if self._cloud is None:
            raise RuntimeError("the Nova client is used as `async with OpenStackNova(settings) as nova`")
        return self._cloud

    async def _in_thread(self, call: Callable[[], T], request: Request | None) -> T:
        def guarded() -> T | ClientError:
            # Made here and raised outside: nothing of the SDK's exception stays reachable from ours (see sdk.py).
            try:
                return call()
            except Exception as exc:
                return failure(exc, request)

        outcome = await asyncio.get_running_loop().run_in_executor(self._threads, guarded)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome
