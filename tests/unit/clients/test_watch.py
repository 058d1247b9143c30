"""The shared watch: one look serves all, the load is bounded, and a look that fails is never an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

import pytest

from fleet_manager.core.clients.errors import AuthRejected, Unavailable
from fleet_manager.core.clients.slurmrest.errors import (
    JobNotFound,
    NodeNotFound,
    NotAnAdministrator,
    SlurmctldUnavailable,
)
from fleet_manager.core.clients.slurmrest.protocol import ChangeMark, NodesReading, SlurmClient
from fleet_manager.core.clients.watch import Lane, Watch
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import SlurmNode, SlurmNodeState

INTERVAL = 0.01
LONG = 30.0
"""An interval that no test waits for: what happens within it happens without a second look."""
AWAY = SlurmctldUnavailable("slurmctld does not answer", peer="slurmrestd")


class Reader:
    """A server of words by key that counts what it is asked, and does what `script` says before it answers."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.singles: list[str] = []
        self.lists = 0
        self.in_flight = self.most_in_flight = 0
        self.failures: list[Exception] = []
        self.unchanged = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def one(self, key: str) -> str | None:
        self.singles.append(key)
        value = self.values.get(key)  # what it was when the reading began
        await self._answer()
        return value

    async def all(self) -> Mapping[str, str] | None:
        self.lists += 1
        values = dict(self.values)
        await self._answer()
        return None if self.unchanged else values

    async def _answer(self) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.in_flight -= 1

    def lane(self, *, interval: float = INTERVAL, singles: int = 8, lists: asyncio.Lock | None = None) -> Lane:
        return Lane(self.one, self.all, lists=lists or asyncio.Lock(), interval=interval, singles=singles)


def is_(word: str) -> Callable[[str | None], bool | None]:
    return lambda value: True if value == word else None


def anything(value: str | None) -> str:
    return value or "(none)"


@asynccontextmanager
async def waiting(*waits: object) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Start the waits as tasks; end those that are left when the test is through."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[arg-type]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not fact():  # noqa: ASYNC110 - facts of a reader, not events
            await asyncio.sleep(0.001)


# -- what a waiter gets


async def test_a_wait_gives_what_the_decision_gave() -> None:
    assert await Reader({"a": "up"}).lane().wait("a", lambda value: f"it is {value}") == "it is up"


@pytest.mark.parametrize("result", [False, 0, "", ()])
async def test_a_result_that_is_false_is_a_result(result: object) -> None:
    assert await Reader({"a": "up"}).lane().wait("a", lambda _: result) == result


async def test_a_thing_that_the_server_does_not_have_is_none() -> None:
    assert await Reader().lane().wait("a", anything) == "(none)"


async def test_a_thing_that_is_not_in_the_list_is_none() -> None:
    reader = Reader({"a": "up"})
    assert await asyncio.gather(*(reader.lane(singles=0).wait(key, anything) for key in "ab")) == ["up", "(none)"]


async def test_a_wait_goes_on_until_the_thing_is_as_wanted() -> None:
    reader = Reader({"a": "down"})
    async with waiting(reader.lane().wait("a", is_("up"))) as (task,):
        await until(lambda: len(reader.singles) >= 3)
        assert not task.done()
        reader.values["a"] = "up"
        assert await task is True


async def test_one_look_serves_every_waiter_of_a_thing() -> None:
    reader = Reader({"a": "up"})
    lane = reader.lane(interval=LONG)
    assert await asyncio.gather(*(lane.wait("a", anything) for _ in range(100))) == ["up"] * 100
    assert reader.singles == ["a"]


async def test_each_waiter_decides_for_himself() -> None:
    reader = Reader({"a": "down"})
    lane = reader.lane()
    async with waiting(lane.wait("a", is_("down")), lane.wait("a", is_("up"))) as (now, later):
        assert await now is True
        assert not later.done()
        reader.values["a"] = "up"
        assert await later is True


async def test_what_a_decision_raises_reaches_only_its_own_waiter() -> None:
    reader = Reader({"a": "up"})
    lane = reader.lane()

    def broken(value: str | None) -> bool:
        raise LookupError(f"cannot decide about {value}")

    async with waiting(lane.wait("a", broken), lane.wait("a", anything)) as (bad, good):
        assert await good == "up"
        with pytest.raises(LookupError, match="cannot decide about up"):
            await bad
    assert lane.waiting == 0
    assert await lane.wait("a", anything) == "up"  # the loop lives on


async def test_nobody_is_told_what_was_read_before_he_came() -> None:
    """Else a wait that follows our own write could end on a reading from before the write."""
    for singles in (8, 0):
        reader = Reader({"a": "drained"})
        lane = reader.lane(singles=singles)
        async with waiting(lane.wait("a", is_("never"))):
            await until(lambda r=reader: r.in_flight == 0 and (r.singles or r.lists))
            reader.gate.clear()
            await until(lambda r=reader: r.in_flight == 1)  # a reading of "drained" is under way
            reader.values["a"] = "idle"
            async with waiting(lane.wait("a", anything)) as (late,):
                await asyncio.sleep(0)
                reader.gate.set()
                assert await late == "idle"


# -- who comes and who leaves


async def test_a_waiter_that_comes_is_looked_for_without_waiting_for_the_interval() -> None:
    reader = Reader({"a": "up", "b": "up"})
    lane = reader.lane(interval=LONG)
    async with waiting(lane.wait("a", is_("never"))), asyncio.timeout(5):
        await until(lambda: reader.singles == ["a"])
        assert await lane.wait("b", anything) == "up"
        assert await lane.wait("b", anything) == "up"
    assert reader.singles == ["a", "b", "b"]


async def test_a_waiter_that_comes_is_looked_for_alone_while_many_wait() -> None:
    reader = Reader({f"n{n}": "down" for n in range(100)} | {"late": "up"})
    lane = reader.lane(interval=LONG)
    async with waiting(*(lane.wait(f"n{n}", is_("up")) for n in range(100))), asyncio.timeout(5):
        await until(lambda: reader.lists == 1)
        assert await lane.wait("late", anything) == "up"
    assert (reader.lists, reader.singles) == (1, ["late"])


async def test_a_waiter_that_is_cancelled_leaves_and_the_others_stay() -> None:
    reader = Reader({"a": "down"})
    lane = reader.lane()
    async with waiting(lane.wait("a", is_("up")), lane.wait("a", is_("up"))) as (one, other):
        await until(lambda: reader.singles)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert lane.waiting == 1
        reader.values["a"] = "up"
        assert await other is True
    assert lane.waiting == 0


async def test_a_waiter_that_is_cancelled_during_a_look_does_no_harm() -> None:
    reader = Reader({"a": "up"})
    lane = reader.lane()
    reader.gate.clear()
    async with waiting(lane.wait("a", anything), lane.wait("a", anything)) as (one, other):
        await until(lambda: reader.in_flight == 1)
        one.cancel()
        await until(one.done)
        reader.gate.set()
        assert await other == "up"


async def test_nothing_is_asked_for_a_waiter_that_left_before_he_was_looked_for() -> None:
    reader = Reader({key: "up" for key in "abc"})
    lane = reader.lane(interval=LONG)
    reader.gate.clear()
    async with waiting(lane.wait("a", anything)) as (first,), asyncio.timeout(5):
        await until(lambda: reader.in_flight == 1)
        async with waiting(lane.wait("b", anything)):
            await asyncio.sleep(0)
        reader.gate.set()
        assert await first == "up"
        assert await lane.wait("c", anything) == "up"
    assert reader.singles == ["a", "c"]


async def test_nothing_is_asked_while_nobody_waits() -> None:
    reader = Reader({"a": "up"})
    lane = reader.lane()
    await lane.wait("a", anything)
    await asyncio.sleep(INTERVAL * 5)
    assert reader.singles == ["a"]
    await lane.wait("a", anything)
    assert reader.singles == ["a", "a"]


async def test_a_timeout_around_a_wait_ends_it() -> None:
    lane = Reader({"a": "down"}).lane()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(INTERVAL * 3):
            await lane.wait("a", is_("up"))
    assert lane.waiting == 0


# -- the load


async def test_few_things_are_read_one_by_one() -> None:
    reader = Reader({f"n{n}": "up" for n in range(8)})
    lane = reader.lane(singles=8)
    await asyncio.gather(*(lane.wait(f"n{n}", anything) for n in range(8)))
    assert (sorted(reader.singles), reader.lists) == ([f"n{n}" for n in range(8)], 0)


@pytest.mark.parametrize("count", [9, 1000])
async def test_beyond_the_limit_one_list_serves_all(count: int) -> None:
    reader = Reader({f"n{n}": "up" for n in range(count)})
    lane = reader.lane(singles=8, interval=LONG)
    await asyncio.gather(*(lane.wait(f"n{n}", anything) for n in range(count)))
    assert (reader.singles, reader.lists) == ([], 1)


async def test_many_waiters_of_few_things_need_no_list() -> None:
    reader = Reader({"a": "up", "b": "up"})
    lane = reader.lane(singles=2, interval=LONG)
    await asyncio.gather(*(lane.wait("ab"[n % 2], anything) for n in range(100)))
    assert (sorted(reader.singles), reader.lists) == (["a", "b"], 0)


async def test_when_only_few_are_left_lists_end() -> None:
    reader = Reader({f"n{n}": "up" for n in range(20)} | {"slow": "down"})
    lane = reader.lane()
    async with waiting(lane.wait("slow", is_("up"))) as (slow,):
        await asyncio.gather(*(lane.wait(f"n{n}", anything) for n in range(20)))
        lists = reader.lists
        reader.singles.clear()
        await until(lambda: len(reader.singles) >= 3)
        assert set(reader.singles) == {"slow"}
        assert reader.lists == lists
        reader.values["slow"] = "up"
        assert await slow is True


@pytest.mark.parametrize("count", [1, 8, 9, 300])
async def test_what_stands_costs_one_look_an_interval_whatever_waits(count: int) -> None:
    reader = Reader()
    lane = reader.lane(interval=0.05)
    started = time.monotonic()
    async with waiting(*(lane.wait(f"n{n}", is_("up")) for n in range(count))):
        await asyncio.sleep(0.25)
        looks = (time.monotonic() - started) / 0.05 + 1
        assert reader.lists <= (looks if count > 8 else 0)
        assert len(reader.singles) <= (0 if count > 8 else looks * count)


async def test_people_who_come_and_go_all_the_while_cost_no_more_lists() -> None:
    reader = Reader({f"n{n}": "down" for n in range(30)})
    lane = reader.lane(interval=0.05)
    started = time.monotonic()
    async with waiting(*(lane.wait(f"n{n}", is_("up")) for n in range(30))):
        comers = []
        for n in range(200):
            comers.append(asyncio.ensure_future(lane.wait(f"late{n}", anything)))
            await asyncio.sleep(0.001)
        async with waiting(*comers) as tasks:
            assert await asyncio.gather(*tasks) == ["(none)"] * 200
    intervals = (time.monotonic() - started) / 0.05 + 1
    assert reader.lists <= intervals
    assert len(reader.singles) <= intervals * 8


async def test_waits_that_end_at_once_cost_no_more_lists_one_after_the_other() -> None:
    reader = Reader({f"n{n}": "up" for n in range(20)})
    lane = reader.lane(interval=0.05)
    started = time.monotonic()
    for _ in range(4):
        await asyncio.gather(*(lane.wait(f"n{n}", anything) for n in range(20)))
    assert reader.lists <= (time.monotonic() - started) / 0.05 + 1


async def test_one_lane_never_has_two_requests_in_flight() -> None:
    reader = Reader()
    lane = reader.lane(interval=0.001)
    async with waiting(*(lane.wait(f"n{n}", is_("up")) for n in range(5))) as few:
        await until(lambda: len(reader.singles) >= 20)
        async with waiting(*(lane.wait(f"m{n}", is_("up")) for n in range(50))):
            await until(lambda: reader.lists >= 5)
        assert not any(task.done() for task in few)
    assert reader.most_in_flight == 1


async def test_never_two_lists_are_in_flight_across_both_lanes() -> None:
    lists = asyncio.Lock()
    reader = Reader()
    nodes, jobs = (reader.lane(singles=0, interval=0.001, lists=lists) for _ in range(2))
    async with waiting(nodes.wait("a", is_("up")), jobs.wait("7", is_("up"))):
        await until(lambda: reader.lists >= 20)
    assert reader.most_in_flight == 1


async def test_a_list_that_did_not_change_is_used_again() -> None:
    reader = Reader({"a": "down", "b": "down"})
    lane = reader.lane(singles=0)
    async with waiting(lane.wait("b", is_("up"))):
        await until(lambda: reader.lists >= 2)
        reader.unchanged = True
        reader.values.clear()
        assert await lane.wait("a", anything) == "down"


# -- trouble


@pytest.mark.parametrize("singles", [8, 0])
async def test_a_server_that_is_away_is_waited_out_and_told(singles: int) -> None:
    reader = Reader({"a": "up"})
    reader.failures = [AWAY] * 3
    trouble: list[str] = []
    seen: list[str] = []

    def decide(value: str | None) -> str | None:
        seen.extend(trouble)
        return value

    lane = reader.lane(singles=singles)
    async with waiting(lane.wait("a", decide, trouble)) as (task,):
        await until(lambda: trouble or task.done())
        assert trouble == ["slurmrestd: slurmctld does not answer"]
        assert await task == "up"
    assert trouble == []
    assert seen == []  # when the look is good, what is decided upon is not troubled any more


@pytest.mark.parametrize("singles", [8, 0])
async def test_a_look_that_failed_is_never_an_answer(singles: int) -> None:
    """Not None, not gone, not the last value: the decision is not asked at all (rule 1)."""
    reader = Reader({"a": "up"})
    asked: list[str | None] = []

    def decide(value: str | None) -> None:
        asked.append(value)

    lane = reader.lane(singles=singles)
    async with waiting(lane.wait("a", decide)):
        await until(lambda: asked)
        reader.failures = [AWAY] * 1000
        await until(lambda: len(reader.failures) < 1000)
        asked.clear()
        await until(lambda: len(reader.failures) < 995)
        assert asked == []
        reader.failures.clear()
        await until(lambda: asked)
        assert set(asked) == {"up"}


@pytest.mark.parametrize("singles", [8, 0])
@pytest.mark.parametrize(
    "error", [NotAnAdministrator("expired", peer="slurmrestd"), AuthRejected("no", peer="x"), ValueError("odd")]
)
async def test_a_final_no_and_a_fault_of_our_own_end_the_wait(singles: int, error: Exception) -> None:
    reader = Reader({"a": "up"})
    reader.failures = [error]
    trouble: list[str] = []
    with pytest.raises(type(error)) as caught:
        await reader.lane(singles=singles).wait("a", anything, trouble)
    assert caught.value is error
    assert trouble == [str(error)]


async def test_a_final_no_to_a_list_ends_every_wait() -> None:
    reader = Reader()
    reader.failures = [NotAnAdministrator("expired", peer="slurmrestd")]
    lane = reader.lane(singles=0)
    ends = await asyncio.gather(*(lane.wait(f"n{n}", anything) for n in range(20)), return_exceptions=True)
    assert {type(end) for end in ends} == {NotAnAdministrator}
    assert lane.waiting == 0
    assert await lane.wait("a", anything) == "(none)"


async def test_a_final_no_does_not_trip_over_a_waiter_that_was_cancelled_meanwhile() -> None:
    reader = Reader()
    reader.gate.clear()
    reader.failures = [NotAnAdministrator("expired", peer="slurmrestd")]
    lane = reader.lane(interval=LONG)
    async with waiting(lane.wait("a", anything), lane.wait("a", anything)) as (one, other), asyncio.timeout(5):
        await until(lambda: reader.in_flight == 1)
        one.cancel()
        await until(one.done)
        reader.gate.set()
        with pytest.raises(NotAnAdministrator):
            await other
        assert await lane.wait("a", anything) == "(none)"


async def test_one_things_final_no_is_not_anothers() -> None:
    reader = Reader({"b": "up"})
    reader.failures = [NotAnAdministrator("expired", peer="slurmrestd")]
    lane = reader.lane()
    bad, good = await asyncio.gather(lane.wait("a", anything), lane.wait("b", anything), return_exceptions=True)
    assert isinstance(bad, NotAnAdministrator)
    assert good == "up"


# -- a site's watch


def node(name: str, text: str = "IDLE") -> SlurmNode:
    return SlurmNode(name=name, state=SlurmNodeState.from_words(text.split("+")))


def job(job_id: int, state: str = "RUNNING") -> SlurmJob:
    return SlurmJob(id=job_id, name="x", states=frozenset({state}))


class Site:
    """What of a SlurmClient a watch uses, over two dictionaries; says each call in `asked`."""

    def __init__(self, *, tells_changes: bool = True) -> None:
        self.nodes: dict[str, SlurmNode] = {}
        self.jobs: dict[int, SlurmJob] = {}
        self.mark = 1000
        self.asked: list[object] = []
        self.away = False
        self.can_tell_changes = tells_changes

    async def tells_changes(self) -> bool:
        return self.can_tell_changes

    async def read_node(self, name: str) -> SlurmNode:
        self._ask(name)
        if name not in self.nodes:
            raise NodeNotFound(f"no node {name}", peer="slurmrestd")
        return self.nodes[name]

    async def read_nodes(self) -> NodesReading:
        self._ask("nodes")
        return NodesReading(tuple(self.nodes.values()), ChangeMark(self.mark) if self.can_tell_changes else None)

    async def read_nodes_if_changed(self, since: ChangeMark) -> NodesReading | None:
        self._ask(("nodes since", since))
        return None if since == self.mark else NodesReading(tuple(self.nodes.values()), ChangeMark(self.mark))

    async def job(self, job_id: int) -> SlurmJob:
        self._ask(job_id)
        if job_id not in self.jobs:
            raise JobNotFound(f"no job {job_id}", peer="slurmrestd")
        return self.jobs[job_id]

    async def read_jobs(self) -> tuple[SlurmJob, ...]:
        self._ask("jobs")
        return tuple(self.jobs.values())

    def _ask(self, what: object) -> None:
        self.asked.append(what)
        if self.away:
            raise Unavailable("away", peer="slurmrestd")

    def watch(self, *, singles: int = 8, interval: float = INTERVAL) -> Watch:
        return Watch(cast(SlurmClient, self), interval=interval, singles=singles)


def state_of(seen: SlurmNode | None) -> str:
    return str(seen.state) if seen else "(none)"


@pytest.mark.parametrize("singles", [8, 0])
async def test_a_watch_finds_nodes_and_jobs_and_says_none_where_slurm_has_none(singles: int) -> None:
    site = Site()
    site.nodes["gpu-001"] = node("gpu-001", "IDLE+DRAIN")
    site.jobs[7] = job(7)
    watch = site.watch(singles=singles)
    assert await watch.nodes.wait("gpu-001", state_of) == "IDLE+DRAIN"
    assert await watch.nodes.wait("gpu-002", state_of) == "(none)"
    assert await watch.jobs.wait(7, lambda seen: seen and seen.id) == 7
    assert await watch.jobs.wait(8, lambda seen: seen is None) is True


@pytest.mark.parametrize("singles", [8, 0])
async def test_a_watch_tells_cases_apart(singles: int) -> None:
    site = Site()
    site.nodes["A001"] = node("A001")
    assert await site.watch(singles=singles).nodes.wait("a001", state_of) == "(none)"  # case 027


@pytest.mark.parametrize("singles", [8, 0])
async def test_a_slurm_that_cannot_be_read_is_not_a_slurm_without_the_node(singles: int) -> None:
    site = Site()
    site.away = True
    trouble: list[str] = []
    watch = site.watch(singles=singles)
    async with waiting(watch.nodes.wait("gpu-001", state_of, trouble)) as (task,):
        await until(lambda: len(site.asked) >= 3)
        assert not task.done()
        assert trouble == ["slurmrestd: away"]
        site.away = False
        site.nodes["gpu-001"] = node("gpu-001")
        assert await task == "IDLE"


async def test_where_the_server_tells_changes_a_list_is_asked_for_only_what_is_new() -> None:
    site = Site()
    site.nodes["gpu-001"] = node("gpu-001", "IDLE+DRAIN")
    watch = site.watch(singles=0)

    def idle(seen: SlurmNode | None) -> str | None:
        return "IDLE" if seen and seen.state.schedulable else None

    async with waiting(watch.nodes.wait("gpu-001", idle)) as (task,):
        await until(lambda: len(site.asked) >= 4)
        assert site.asked[:3] == ["nodes", ("nodes since", 1000), ("nodes since", 1000)]
        site.nodes["gpu-001"] = node("gpu-001")
        site.mark = 1001
        assert await task == "IDLE"
    assert await watch.nodes.wait("gpu-001", state_of) == "IDLE"
    assert site.asked[-1] == ("nodes since", 1001)


async def test_a_list_that_failed_is_asked_for_with_the_mark_of_the_last_good_one() -> None:
    site = Site()
    site.nodes["gpu-001"] = node("gpu-001", "IDLE+DRAIN")
    watch = site.watch(singles=0)
    await watch.nodes.wait("gpu-001", state_of)
    site.away = True
    async with waiting(watch.nodes.wait("gpu-001", state_of)) as (task,):
        await until(lambda: len(site.asked) >= 3)
        site.away = False
        site.nodes["gpu-001"], site.mark = node("gpu-001"), 1001
        assert await task == "IDLE"
    assert set(site.asked[1:]) == {("nodes since", 1000)}


async def test_where_the_server_cannot_tell_changes_whole_lists_are_read() -> None:
    site = Site(tells_changes=False)
    watch = site.watch(singles=0)
    async with waiting(watch.nodes.wait("gpu-001", lambda seen: seen and True)):
        await until(lambda: len(site.asked) >= 4)
    assert set(site.asked) == {"nodes"}


async def test_a_server_that_can_tell_changes_no_more_is_not_asked_for_them() -> None:
    """slurmctld was taken back to an older release while we waited."""
    site = Site()
    watch = site.watch(singles=0)
    async with waiting(watch.nodes.wait("gpu-001", lambda seen: seen and True)):
        await until(lambda: ("nodes since", 1000) in site.asked)
        site.can_tell_changes = False
        site.asked.clear()
        await until(lambda: len(site.asked) >= 4)
    assert set(site.asked[1:]) == {"nodes"}


async def test_nodes_and_jobs_share_the_right_to_one_list() -> None:
    site = Site()
    most = now = 0

    async def slow(answer: object) -> object:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return answer

    site.read_nodes = lambda: slow(NodesReading(()))  # type: ignore[method-assign,assignment,return-value]
    site.read_jobs = lambda: slow(())  # type: ignore[method-assign,assignment,return-value]
    watch = site.watch(singles=0, interval=0.001)
    async with waiting(
        watch.nodes.wait("gpu-001", lambda seen: seen and True), watch.jobs.wait(7, lambda seen: seen and True)
    ):
        await asyncio.sleep(0.05)
    assert most == 1
