"""What every SLURM does, as far as our rules stand on it: one test body for the fake, 26.05 and 24.11.

A difference between the versions is written here, on `world.newest`, and nowhere else. The nodes are those of the lab:
gpu01 and gpu02 (static), dyn01 and dyn02 (dynamic), each with 8 GPUs; `main` has all of them, `burnin` the dynamic two.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

import pytest

from fleet_manager.core.clients.errors import BadRequest, Forbidden
from fleet_manager.core.clients.slurmrest.errors import (
    InvalidTransition,
    JobNotFound,
    NodeBusy,
    NodeNotFound,
    NotAnAdministrator,
    NotSupportedHere,
    ReservationBusy,
    ReservationExists,
    ReservationNotFound,
    SubmitRefused,
)
from fleet_manager.core.clients.slurmrest.protocol import ChangeMark, NodeStateWord, NodeUpdate, SlurmClient
from fleet_manager.core.domain.slurm_job import JobEnd, JobPhase, JobSpec, SlurmJob, is_listed, judge
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag, SlurmNode

T = TypeVar("T")

DRAIN, UNDRAIN, RESUME = NodeStateWord.DRAIN, NodeStateWord.UNDRAIN, NodeStateWord.RESUME
NODE, OTHER, DYNAMIC = "gpu02", "gpu01", "dyn02"
COUNT = itertools.count()


class World(Protocol):
    """One SLURM and two of its users."""

    fleet: SlurmClient
    """As an administrator of SLURM who is not root."""
    user: SlurmClient
    """As an ordinary user."""
    fleet_user: str
    job_user: str
    newest: bool
    """Whether it is 26.05; else 24.11."""
    version: str
    jobs_folder: str

    async def foreign_update(self, node: str, state: str, reason: str) -> None:
        """Let another administrator set a state, with a reason if it is not empty."""
        ...

    async def machine(self, name: str, *, instance_id: str, extra: str) -> None:
        """Let a dynamic node register itself, born drained with the reason "born held"."""
        ...

    async def remove_machine(self, name: str) -> None: ...


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], bool], what: str, seconds: float = 30) -> T:
    """Read until it is good; SLURM's scheduler takes some seconds for its turns."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        found = await read()
        if good(found):
            return found
        assert asyncio.get_running_loop().time() < end, f"{what} not in {seconds} s: {found}"
        await asyncio.sleep(0.1)


def a_name(word: str) -> str:
    return f"ct-{word}-{os.getpid()}-{next(COUNT)}"


class SlurmContract:
    """To be subclassed with a fixture `world`."""

    @pytest.fixture(autouse=True)
    async def _leave_it_as_it_was(self, world: World) -> AsyncIterator[None]:
        yield
        for job in await world.fleet.jobs():
            if job.name.startswith("ct-") and judge(job).phase is not JobPhase.ENDED:
                await world.fleet.cancel(job.id)
        if world.newest:
            for one in await world.fleet.reservations():
                if one.name.startswith("ct-"):
                    await eventually(lambda name=one.name: self._dropped(world, name), bool, "the reservation to go")
        for name in (NODE, OTHER, DYNAMIC):
            node = await world.fleet.read_node(name)
            if node.state.down:
                await world.foreign_update(name, "RESUME", "")
            elif node.state.drain:
                await world.foreign_update(name, "UNDRAIN", "")
            await self._when(world, name, lambda node: node.state.schedulable and not node.state.busy)

    async def _dropped(self, world: World, name: str) -> bool:
        try:
            await world.fleet.delete_reservation(name)
        except ReservationBusy:
            return False
        return True

    def _spec(self, world: World, script: str = "true", node: str = NODE, **more: object) -> JobSpec:
        fields: dict[str, object] = {
            "name": a_name("job"),
            "script": f"#!/bin/bash\n{script}\n",
            "partition": "main",
            "current_working_directory": "/tmp",
            "environment": ("PATH=/usr/bin:/bin",),
            "time_limit_minutes": 5,
            "required_nodes": (node,),
            "tres_per_node": "gres/gpu:8",
            "standard_output": f"{world.jobs_folder}/%j.out",
        }
        return JobSpec(**{**fields, **more})  # type: ignore[arg-type]

    async def _when(self, world: World, name: str, good: Callable[[SlurmNode], bool]) -> SlurmNode:
        return await eventually(lambda: world.fleet.read_node(name), good, f"{name}")

    async def _job(self, world: World, job_id: int, phase: JobPhase) -> SlurmJob:
        """Wait for a phase, in slurmctld or, once that has forgotten the job, in slurmdbd."""

        async def read() -> SlurmJob:
            try:
                return await world.fleet.job(job_id)
            except JobNotFound:
                record = await world.fleet.job_record(job_id)
                assert record is not None
                return record

        return await eventually(read, lambda job: judge(job).phase is phase, f"job {job_id} {phase}")

    async def _drain(self, world: World, reason: str | None, node: str = NODE) -> SlurmNode:
        await world.fleet.update_node(node, NodeUpdate(DRAIN, reason))
        return await world.fleet.read_node(node)

    # What is there

    async def test_slurmctld_answers(self, world: World) -> None:
        (ping,) = await world.fleet.ping()
        assert (ping.responding, ping.primary) == (True, True)

    async def test_it_tells_its_release(self, world: World) -> None:
        assert str(await world.fleet.version()) == world.version

    async def test_what_it_can_do_goes_with_its_release(self, world: World) -> None:
        can = await world.fleet.capabilities()
        assert can.api_version == ("v0.0.45" if world.newest else "v0.0.42")
        assert (can.reservations_writable, can.conf, can.sound_304) == (world.newest,) * 3
        assert (can.cancel_tells, can.job_records) == (True, True)

    async def test_a_node_has_its_hardware(self, world: World) -> None:
        node = await world.fleet.node(NODE)
        assert (node.name, node.gres, node.cpus, node.memory_mib) == (NODE, "gpu:h100:8", 16, 4000)
        assert node.state.schedulable
        assert "main" in node.partitions

    async def test_the_list_has_every_node_in_the_same_words(self, world: World) -> None:
        nodes = {node.name: node for node in await world.fleet.nodes()}
        assert {"gpu01", "gpu02", "dyn01", "dyn02"} <= nodes.keys()
        assert nodes[DYNAMIC].state.dynamic
        assert not nodes[NODE].state.dynamic
        assert nodes[NODE].features == ("static", "h100")

    async def test_an_unknown_node_is_not_found(self, world: World) -> None:
        """Case 001."""
        for name in ("nonesuch", f"{NODE}.example.org", f"{NODE}."):
            with pytest.raises(NodeNotFound):
                await world.fleet.node(name)

    async def test_a_name_in_another_case_is_found_and_told_in_slurms_spelling(self, world: World) -> None:
        """Case 027."""
        assert (await world.fleet.node(NODE.upper())).name == NODE
        with pytest.raises(NodeNotFound):
            await world.fleet.read_node(NODE.upper())

    async def test_partitions_have_their_nodes(self, world: World) -> None:
        partitions = {one.name: one for one in await world.fleet.partitions()}
        assert {"gpu01", "gpu02", "dyn01", "dyn02"} <= set(partitions["main"].nodes)
        assert {"dyn01", "dyn02"} <= set(partitions["burnin"].nodes)
        assert NODE not in partitions["burnin"].nodes
        assert (partitions["main"].node_sets, partitions["burnin"].node_sets) == ("ALL", "dynamic")
        assert (partitions["main"].state, partitions["burnin"].max_time_minutes) == ("UP", 120)

    async def test_the_configuration_is_told_by_the_newest(self, world: World) -> None:
        if not world.newest:
            with pytest.raises(NotSupportedHere):
                await world.fleet.config()
            return
        config = await world.fleet.config()
        assert config.min_job_age == timedelta(seconds=15)
        assert config.return_to_service == 1

    # One node is one node

    async def test_a_write_to_what_is_several_nodes_changes_none(self, world: World) -> None:
        update = NodeUpdate(DRAIN, "ct: must not be seen")
        for name in ("ALL", "gpu[01-02]", "gpu01,gpu02"):
            with pytest.raises(BadRequest):
                await world.fleet.update_node(name, update)
            with pytest.raises(BadRequest):
                await world.fleet.delete_node(name)
        for write in (world.fleet.update_node("dynamic", update), world.fleet.delete_node("dynamic")):
            with pytest.raises(NodeNotFound):  # the name of a NodeSet
                await write
        assert not [node for node in await world.fleet.nodes() if node.state.drain]

    async def test_an_update_of_an_unknown_node_is_not_found(self, world: World) -> None:
        with pytest.raises(NodeNotFound):
            await world.fleet.update_node("nonesuch", NodeUpdate(DRAIN, "why"))

    async def test_an_update_of_nothing_is_refused(self, world: World) -> None:
        for update in (NodeUpdate(), NodeUpdate(DRAIN, "")):
            with pytest.raises(BadRequest):
                await world.fleet.update_node(NODE, update)

    # Drains

    async def test_a_drain_has_its_reason_and_its_author(self, world: World) -> None:
        before = datetime.now(UTC)
        node = await self._drain(world, "fm:ct why")
        assert (node.hold_reason, node.reason_set_by) == ("fm:ct why", world.fleet_user)
        assert node.reason_changed_at is not None
        assert abs(node.reason_changed_at - before) < timedelta(seconds=5)
        assert node.drained(jobs=0)
        assert not node.state.schedulable

    async def test_a_second_drain_overwrites_the_reason(self, world: World) -> None:
        await self._drain(world, "one")
        assert (await self._drain(world, "two")).reason == "two"

    async def test_a_drain_without_a_reason_keeps_the_one_that_is_there(self, world: World) -> None:
        await world.foreign_update(NODE, "DRAIN", "somebody else's")
        node = await self._drain(world, None)
        assert node.reason == "somebody else's"

    async def test_a_drain_may_have_no_reason_at_all(self, world: World) -> None:
        """Case 021."""
        node = await self._drain(world, None)
        assert node.hold_reason == ""

    async def test_an_undrain_takes_off_everybodys_drain(self, world: World) -> None:
        await world.foreign_update(NODE, "DRAIN", "somebody else's")
        await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        node = await self._when(world, NODE, lambda node: node.state.schedulable)
        assert node.hold_reason is None

    async def test_an_undrain_clears_the_reason(self, world: World) -> None:
        """24.11 does so only with slurmdbd, as here; without it the old reason stays on the free node."""
        await self._drain(world, "fm:ct why")
        await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        assert (await world.fleet.read_node(NODE)).reason == ""

    async def test_an_undrained_node_is_schedulable_soon_and_not_at_once(self, world: World) -> None:
        """UNDRAIN makes it NOT_RESPONDING for 0.1 to 1 s, as RESUME does: wait for it, do not just look."""
        await self._drain(world, "fm:ct why")
        await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        await self._when(world, NODE, lambda node: node.state.schedulable)

    async def test_an_undrain_of_a_free_node_is_taken(self, world: World) -> None:
        for _ in range(2):
            await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        assert not (await world.fleet.read_node(NODE)).state.drain

    async def test_an_undrain_does_not_lift_down_and_a_resume_does(self, world: World) -> None:
        """Case 012."""
        await world.foreign_update(NODE, "DOWN", "somebody else's")
        await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        assert (await world.fleet.read_node(NODE)).state.base is NodeBase.DOWN
        await world.fleet.update_node(NODE, NodeUpdate(RESUME))
        await self._when(world, NODE, lambda node: node.state.schedulable)

    async def test_a_resume_takes_a_drain_off(self, world: World) -> None:
        await self._drain(world, "fm:ct why")
        await world.fleet.update_node(NODE, NodeUpdate(RESUME))
        await self._when(world, NODE, lambda node: node.state.schedulable)

    async def test_a_resume_of_a_free_node_is_refused(self, world: World) -> None:
        """Case 011."""
        with pytest.raises(InvalidTransition):
            await world.fleet.update_node(NODE, NodeUpdate(RESUME))

    async def test_comment_extra_and_features_are_set_and_read_back(self, world: World) -> None:
        update = NodeUpdate(
            features=("static", "h100", "ct"), active_features=("static", "h100"), comment="c", extra="fm_build=7 x=y"
        )
        await world.fleet.update_node(NODE, update)
        node = await world.fleet.read_node(NODE)
        await world.fleet.update_node(NODE, NodeUpdate(features=("static", "h100"), active_features=("static", "h100")))
        assert (node.comment, node.extra) == ("c", "fm_build=7 x=y")
        assert (node.features, node.active_features) == (("static", "h100", "ct"), ("static", "h100"))
        assert (await world.fleet.read_node(NODE)).features == ("static", "h100")

    async def test_an_ordinary_user_may_read_and_not_write(self, world: World) -> None:
        assert (await world.user.node(NODE)).name == NODE
        for write in (
            world.user.update_node(NODE, NodeUpdate(DRAIN, "why")),
            world.user.delete_node(DYNAMIC),
        ):
            with pytest.raises(NotAnAdministrator):
                await write
        assert not (await world.fleet.read_node(NODE)).state.drain

    # Jobs

    async def test_a_job_runs_and_passes(self, world: World) -> None:
        submitted = await world.fleet.submit(spec := self._spec(world))
        assert (submitted.refused, submitted.job_id > 0) == ((), True)
        job = await self._job(world, submitted.job_id, JobPhase.ENDED)
        assert judge(job).end is JobEnd.PASSED
        assert (job.name, job.user, job.partition, job.nodes) == (spec.name, world.fleet_user, "main", (NODE,))
        record = await eventually(
            lambda: world.fleet.job_record(job.id),
            lambda found: found is not None and judge(found).phase is JobPhase.ENDED,
            "the record",
        )
        assert record is not None
        assert judge(record).end is JobEnd.PASSED
        assert (record.name, record.user, record.nodes) == (spec.name, world.fleet_user, (NODE,))

    async def test_a_job_that_fails_tells_its_code(self, world: World) -> None:
        submitted = await world.fleet.submit(self._spec(world, "exit 3"))
        job = await self._job(world, submitted.job_id, JobPhase.ENDED)
        assert (judge(job).end, job.return_code) == (JobEnd.FAILED, 3)

    async def test_a_job_that_cannot_be_is_refused(self, world: World) -> None:
        for wrong in (
            {"partition": "nonesuch"},
            {"node": "nonesuch"},
            {"reservation": "nonesuch"},
            {"tres_per_node": "gres/gpu:9"},
        ):
            with pytest.raises(SubmitRefused):
                await world.fleet.submit(self._spec(world, **wrong))  # type: ignore[arg-type]

    async def test_an_unknown_job_is_not_found_and_has_no_record(self, world: World) -> None:
        """Case 004."""
        with pytest.raises(JobNotFound):
            await world.fleet.job(60_000_000)
        assert await world.fleet.job_record(60_000_000) is None
        assert await world.fleet.cancel(60_000_000) is False

    async def test_a_job_on_a_drained_node_is_taken_and_waits(self, world: World) -> None:
        """Case 042."""
        await self._drain(world, "fm:ct why")
        submitted = await world.fleet.submit(self._spec(world))
        assert submitted.warnings
        assert submitted.refused == ()
        job = await world.fleet.job(submitted.job_id)
        assert (judge(job).phase, job.state_reason, job.nodes) == (JobPhase.PENDING, "ReqNodeNotAvail", ())
        await world.fleet.update_node(NODE, NodeUpdate(UNDRAIN))
        await self._job(world, submitted.job_id, JobPhase.ENDED)

    async def test_a_drain_lets_a_job_run_on_and_is_done_when_it_is_gone(self, world: World) -> None:
        submitted = await world.user.submit(self._spec(world, "sleep 300"))
        await self._job(world, submitted.job_id, JobPhase.RUNNING)
        draining = await self._drain(world, "fm:ct why")
        (job,) = [job for job in await world.fleet.jobs_on_node(NODE) if is_listed(job)]
        assert (job.id, job.user) == (submitted.job_id, world.job_user)
        assert draining.draining
        assert not draining.drained(jobs=1)
        assert await world.fleet.cancel(job.id) is True
        node = await self._when(world, NODE, lambda node: node.drained(jobs=0))
        assert node.hold_reason == "fm:ct why"
        assert judge(await world.fleet.job(job.id)).end is JobEnd.CANCELLED
        assert await world.fleet.cancel(job.id) is False

    async def test_nobody_cancels_anothers_job(self, world: World) -> None:
        submitted = await world.fleet.submit(self._spec(world, "sleep 300"))
        with pytest.raises(Forbidden):
            await world.user.cancel(submitted.job_id)
        assert judge(await world.fleet.job(submitted.job_id)).phase in (JobPhase.PENDING, JobPhase.RUNNING)

    async def test_a_lost_submit_is_found_by_its_name(self, world: World) -> None:
        submitted = await world.fleet.submit(spec := self._spec(world))
        (found,) = await world.fleet.jobs_named(spec.name)
        assert found.id == submitted.job_id
        assert await world.fleet.jobs_named(spec.name, world.fleet_user) != ()
        assert await world.fleet.jobs_named(spec.name, world.job_user) == ()

    # Machines come and go

    async def test_a_machine_is_born_drained_says_its_build_and_can_be_deleted(self, world: World) -> None:
        name = a_name("metal")
        await world.machine(name, instance_id="4711", extra="fm_build=b1")
        node = await self._when(world, name, lambda node: node.state.drain)
        assert (node.state.base, node.hold_reason) == (NodeBase.IDLE, "born held")
        assert (node.instance_id, node.extra, node.state.dynamic) == ("4711", "fm_build=b1", True)
        await world.remove_machine(name)
        await world.fleet.delete_node(name)
        with pytest.raises(NodeNotFound):
            await world.fleet.read_node(name)
        with pytest.raises(NodeNotFound):
            await world.fleet.delete_node(name)

    async def test_a_static_node_cannot_be_deleted(self, world: World) -> None:
        with pytest.raises(InvalidTransition):
            await world.fleet.delete_node(OTHER)
        assert (await world.fleet.read_node(OTHER)).name == OTHER

    async def test_a_node_with_a_job_cannot_be_deleted(self, world: World) -> None:
        submitted = await world.fleet.submit(self._spec(world, "sleep 300", node=DYNAMIC))
        await self._job(world, submitted.job_id, JobPhase.RUNNING)
        with pytest.raises(NodeBusy):
            await world.fleet.delete_node(DYNAMIC)
        assert (await world.fleet.read_node(DYNAMIC)).name == DYNAMIC

    # Reservations

    async def test_an_unknown_reservation_is_not_found(self, world: World) -> None:
        with pytest.raises(ReservationNotFound):
            await world.fleet.reservation("ct-nonesuch")
        assert [one for one in await world.fleet.reservations() if one.name == "ct-nonesuch"] == []

    async def _reserve(self, world: World, node: str = NODE) -> str:
        name = a_name("resv")
        await world.fleet.create_reservation(name, nodes=(node,), users=(world.fleet_user,))
        return name

    async def test_the_oldest_has_no_way_of_writing_reservations(self, world: World) -> None:
        if world.newest:
            return
        with pytest.raises(NotSupportedHere):
            await self._reserve(world)
        with pytest.raises(NotSupportedHere):
            await world.fleet.delete_reservation("ct-nonesuch")

    async def test_a_reservation_without_end_stands_on_its_node(self, world: World) -> None:
        if not world.newest:
            return
        name = await self._reserve(world)
        one = await world.fleet.reservation(name)
        assert (one.nodes, one.users, one.end) == ((NODE,), (world.fleet_user,), None)
        assert one.flags >= {"MAINT", "IGNORE_JOBS"}
        assert one.start is not None
        assert one.active(datetime.now(UTC) + timedelta(seconds=1))
        node = await self._when(world, NODE, lambda node: NodeFlag.MAINTENANCE in node.state.flags)
        assert not node.state.schedulable
        assert not node.state.drain
        await world.fleet.delete_reservation(name)
        await self._when(world, NODE, lambda node: node.state.schedulable)

    async def test_what_is_wrong_with_a_reservation_has_its_type(self, world: World) -> None:
        if not world.newest:
            return
        name = await self._reserve(world)
        fleet, users = world.fleet, (world.fleet_user,)
        with pytest.raises(ReservationExists):
            await fleet.create_reservation(name, nodes=(OTHER,), users=users)
        with pytest.raises(BadRequest):
            await fleet.create_reservation(a_name("resv"), nodes=(OTHER,), users=("nosuchuser",))
        with pytest.raises(NodeNotFound):
            await fleet.create_reservation(a_name("resv"), nodes=("nonesuch",), users=users)
        with pytest.raises(ReservationNotFound):
            await fleet.delete_reservation("ct-nonesuch")
        with pytest.raises(NotAnAdministrator):
            await world.user.create_reservation(a_name("resv"), nodes=(OTHER,), users=users)
        with pytest.raises(NotAnAdministrator):
            await world.user.delete_reservation(name)
        assert (await fleet.reservation(name)).nodes == (NODE,)

    async def test_a_reservation_lets_only_its_users_jobs_in(self, world: World) -> None:
        """The gate: a user's job waits from registration to verdict."""
        if not world.newest:
            return
        name = await self._reserve(world)
        waiting = await world.user.submit(self._spec(world))
        with pytest.raises(SubmitRefused):
            await world.user.submit(self._spec(world, reservation=name))
        inside = await world.fleet.submit(self._spec(world, "sleep 300", reservation=name))
        await self._job(world, inside.job_id, JobPhase.RUNNING)
        assert judge(await world.fleet.job(waiting.job_id)).phase is JobPhase.PENDING
        with pytest.raises(ReservationBusy):
            await world.fleet.delete_reservation(name)
        await world.fleet.cancel(inside.job_id)
        await eventually(lambda: self._dropped(world, name), bool, "the reservation to go")
        assert judge(await self._job(world, waiting.job_id, JobPhase.ENDED)).end is JobEnd.PASSED

    async def test_a_drain_stops_jobs_inside_a_reservation_too_and_outlives_it(self, world: World) -> None:
        if not world.newest:
            return
        name = await self._reserve(world)
        await self._drain(world, "fm:ct why")
        inside = await world.fleet.submit(self._spec(world, reservation=name))
        waiting = await world.user.submit(self._spec(world))
        with pytest.raises(ReservationBusy):  # a pending job names it too
            await world.fleet.delete_reservation(name)
        await asyncio.sleep(2.5)  # a scheduler's turn
        assert judge(await world.fleet.job(inside.job_id)).phase is JobPhase.PENDING
        await world.fleet.cancel(inside.job_id)
        await eventually(lambda: self._dropped(world, name), bool, "the reservation to go")
        assert (await world.fleet.read_node(NODE)).hold_reason == "fm:ct why"
        await asyncio.sleep(2.5)
        assert judge(await world.fleet.job(waiting.job_id)).phase is JobPhase.PENDING

    async def test_a_down_node_in_a_reservation_is_resumed_without_a_gap(self, world: World) -> None:
        """The one place for RESUME (design 4.4)."""
        if not world.newest:
            return
        await self._reserve(world)
        await self._when(world, NODE, lambda node: NodeFlag.MAINTENANCE in node.state.flags)
        await world.foreign_update(NODE, "DOWN", "away")
        await world.fleet.update_node(NODE, NodeUpdate(RESUME))
        node = await self._when(world, NODE, lambda node: node.state.base is NodeBase.IDLE and node.state.responding)
        assert NodeFlag.MAINTENANCE in node.state.flags
        with pytest.raises(InvalidTransition):
            await world.fleet.update_node(NODE, NodeUpdate(RESUME))

    # Changes

    async def test_the_oldest_does_not_tell_changes(self, world: World) -> None:
        if world.newest:
            return
        assert await world.fleet.tells_changes() is False
        assert (await world.fleet.read_nodes()).mark is None
        with pytest.raises(NotSupportedHere):
            await world.fleet.read_nodes_if_changed(ChangeMark(1))

    async def test_the_newest_tells_that_nothing_changed_and_that_something_did(self, world: World) -> None:
        if not world.newest:
            return
        assert await world.fleet.tells_changes() is True

        async def quiet() -> ChangeMark | None:
            reading = await world.fleet.read_nodes()
            assert reading.mark is not None
            await asyncio.sleep(1.1)  # a change in the same second is told again
            return reading.mark if await world.fleet.read_nodes_if_changed(reading.mark) is None else None

        mark = await eventually(quiet, lambda found: found is not None, "a second without changes")
        assert mark is not None
        await self._drain(world, "fm:ct change")
        reading = await world.fleet.read_nodes_if_changed(mark)
        assert reading is not None
        assert {node.name: node.hold_reason for node in reading.nodes}[NODE] == "fm:ct change"
