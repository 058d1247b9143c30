"""One watch per process: whatever waits for a node or a job waits here, and the load on slurmctld stays bounded.

Each lane (nodes, jobs) looks once an interval for everybody: single requests for a few keys, one list for many, the
list only if it changed where the server can tell that soundly. The two lanes share one lock for lists, so that never
two lists are in flight (slurm-api.md 10). A look that fails is told to the waiters' `trouble` and tried again: it is
never taken for "gone", "drained" or "ended".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fleet_manager.core.clients.errors import ClientError
from fleet_manager.core.clients.slurmrest.errors import JobNotFound, NodeNotFound
from fleet_manager.core.clients.slurmrest.protocol import ChangeMark, SlurmClient
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import SlurmNode

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


@dataclass(eq=False)
class _Waiter(Generic[V]):
    decide: Callable[[V | None], bool]
    done: asyncio.Future[None]
    trouble: list[str] = field(default_factory=list)


class Lane(Generic[K, V]):
    """The waiters of one kind of thing, and the one loop that looks for all of them.

    An interval costs at most one look for everybody (one list, or up to SINGLES single requests), and up to SINGLES
    single requests more for keys whose waiter came since: whoever comes is looked for at once, and no list is read
    sooner because somebody came. A waiter is told only what was read after it came.

    Args:
        read_one: returns the thing, None if the server says that there is none.
        read_all: returns everything by key, None if nothing changed since the last call.
        lists: the lock that every list of this process is read under.
        interval: seconds between two looks.
        singles: up to how many keys are read one by one; a list costs more than that only beyond it.
    """

    def __init__(
        self,
        read_one: Callable[[K], Awaitable[V | None]],
        read_all: Callable[[], Awaitable[Mapping[K, V] | None]],
        *,
        lists: asyncio.Lock,
        interval: float,
        singles: int,
    ) -> None:
        self._read_one, self._read_all = read_one, read_all
        self._lists, self._interval, self._singles = lists, interval, singles
        self._waiters: dict[K, list[_Waiter[V]]] = {}
        self._newcomers: dict[K, None] = {}
        self._came = asyncio.Event()
        self._last: Mapping[K, V] = {}
        self._loop: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())

    async def wait(self, key: K, decide: Callable[[V | None], R | None], trouble: list[str] | None = None) -> R:
        """Wait until DECIDE gives something for the thing as it was just read, and return that.

        Args:
            key: what is waited for.
            decide: gets the thing, or None when the server has none; returns None to go on waiting. What it raises
                ends the wait.
            trouble: gets the words of the last look that failed, and is emptied by one that did not.

        Raises:
            Rejected: the server's final no (a dead token, a missing right); Unavailable is waited out.
        """
        found: list[R] = []

        def test(value: V | None) -> bool:
            result = decide(value)
            if result is not None:
                found.append(result)
            return result is not None

        waiter = _Waiter[V](test, asyncio.get_running_loop().create_future(), trouble if trouble is not None else [])
        self._waiters.setdefault(key, []).append(waiter)
        self._newcomers[key] = None
        self._came.set()
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._look_while_waited_for())
        try:
            await waiter.done
        finally:
            self._leave(key, waiter)
        return found[0]

    def _leave(self, key: K, waiter: _Waiter[V]) -> None:
        waiters = self._waiters.get(key, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(key, None)

    async def _look_while_waited_for(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._waiters:
            await self._look()
            await self._look_for_newcomers(until=clock() + self._interval)

    async def _look_for_newcomers(self, until: float) -> None:
        """Sleep until UNTIL; look for the first few who come meanwhile, each alone. The others are in the next look."""
        for _ in range(self._singles):
            if not await self._somebody_came(until):
                return
            key = next(iter(self._newcomers))
            del self._newcomers[key]
            await self._look_for_one(key)
        await asyncio.sleep(until - asyncio.get_running_loop().time())

    async def _somebody_came(self, until: float) -> bool:
        while not self._newcomers:
            self._came.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._came.wait()
            except TimeoutError:
                return False
        return asyncio.get_running_loop().time() < until

    async def _look(self) -> None:
        self._newcomers.clear()
        if len(self._waiters) > self._singles:
            await self._look_for_all()
            return
        for key in list(self._waiters):
            await self._look_for_one(key)

    async def _look_for_all(self) -> None:
        async with self._lists:
            self._newcomers.clear()
            asking = {key: waiters[:] for key, waiters in self._waiters.items()}
            try:
                everything = await self._read_all()
            except Exception as error:
                for waiters in asking.values():
                    _tell_trouble(waiters, error)
                return
        if everything is not None:
            self._last = everything
        for key, waiters in asking.items():
            _tell(waiters, self._last.get(key))

    async def _look_for_one(self, key: K) -> None:
        asking = self._waiters.get(key, [])[:]
        if not asking:
            return
        try:
            value = await self._read_one(key)
        except Exception as error:
            _tell_trouble(asking, error)
        else:
            _tell(asking, value)


def _tell(waiters: list[_Waiter[V]], value: V | None) -> None:
    for waiter in waiters:
        waiter.trouble.clear()
        if waiter.done.done():
            continue
        try:
            if waiter.decide(value):
                waiter.done.set_result(None)
        except Exception as error:  # what the waiter's own decision raises is the waiter's
            waiter.done.set_exception(error)


def _tell_trouble(waiters: list[_Waiter[V]], error: Exception) -> None:
    """Tell a failed look: Unavailable is waited out, a final no or a fault of our own ends the wait."""
    for waiter in waiters:
        waiter.trouble[:] = [str(error)]
        if not (isinstance(error, ClientError) and error.retryable) and not waiter.done.done():
            waiter.done.set_exception(error)


class Watch:
    """The lanes of one site's SLURM."""

    def __init__(self, slurm: SlurmClient, *, interval: float, singles: int = 8) -> None:
        self._slurm = slurm
        self._mark: ChangeMark | None = None
        lists = asyncio.Lock()
        self.nodes: Lane[str, SlurmNode] = Lane(
            self._node, self._nodes, lists=lists, interval=interval, singles=singles
        )
        self.jobs: Lane[int, SlurmJob] = Lane(self._job, self._jobs, lists=lists, interval=interval, singles=singles)

    async def _node(self, name: str) -> SlurmNode | None:
        try:
            return await self._slurm.read_node(name)
        except NodeNotFound:
            return None

    async def _nodes(self) -> Mapping[str, SlurmNode] | None:
        if self._mark is not None and await self._slurm.tells_changes():
            reading = await self._slurm.read_nodes_if_changed(self._mark)
            if reading is None:
                return None
        else:
            reading = await self._slurm.read_nodes()
        self._mark = reading.mark
        return {node.name: node for node in reading.nodes}

    async def _job(self, job_id: int) -> SlurmJob | None:
        try:
            return await self._slurm.job(job_id)
        except JobNotFound:
            return None

    async def _jobs(self) -> Mapping[int, SlurmJob]:
        return {job.id: job for job in await self._slurm.read_jobs()}
