"""What the fake SLURM's world can do beside its clients: machines, other people, slurmctld's own hand, faults."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm_cluster import FakeCluster

from fleet_manager.core.clients.slurmrest.errors import (
    AmbiguousNode,
    InvalidTransition,
    JobNotFound,
    NodeNotFound,
    SlurmctldUnavailable,
    SubmitUnknown,
)
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobEnd, JobPhase, JobSpec, judge
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag

DRAIN = NodeUpdate(NodeStateWord.DRAIN, "fm:why")
UNDRAIN = NodeUpdate(NodeStateWord.UNDRAIN)
RESUME = NodeUpdate(NodeStateWord.RESUME)


class Time:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def slurm(time: Time) -> FakeSlurm:
    cluster = FakeCluster(now=time)
    cluster.add_static("gpu01")
    cluster.register("dyn01")
    return FakeSlurm(cluster)


def spec(script: str = "sleep 600", **more: object) -> JobSpec:
    fields = {"name": "j", "script": f"#!/bin/bash\n{script}\n", "partition": "main", "environment": ("A=b",)}
    fields |= {"current_working_directory": "/tmp", "time_limit_minutes": 30, "required_nodes": ("gpu01",)}
    return JobSpec(**{**fields, **more})  # type: ignore[arg-type]


async def test_without_accounting_24_11_leaves_the_reason_on_a_free_node(time: Time) -> None:
    cluster = FakeCluster(newest=False, accounting=False, now=time)
    cluster.add_static("gpu01")
    slurm = FakeSlurm(cluster)
    await slurm.update_node("gpu01", DRAIN)
    await slurm.update_node("gpu01", UNDRAIN)
    node = await slurm.read_node("gpu01")
    assert (node.reason, node.hold_reason) == ("fm:why", None)


async def test_an_undrained_node_does_not_respond_for_a_moment(slurm: FakeSlurm, time: Time) -> None:
    await slurm.update_node("gpu01", DRAIN)
    await slurm.update_node("gpu01", UNDRAIN)
    assert not (await slurm.read_node("gpu01")).state.schedulable
    time.now += timedelta(seconds=1)
    assert (await slurm.read_node("gpu01")).state.schedulable


async def test_time_passes_only_by_the_clock(slurm: FakeSlurm, time: Time) -> None:
    job_id = (await slurm.submit(spec())).job_id
    assert judge(await slurm.job(job_id)).phase is JobPhase.RUNNING
    time.now += timedelta(minutes=10)
    assert judge(await slurm.job(job_id)).end is JobEnd.PASSED
    time.now += timedelta(seconds=16)
    with pytest.raises(JobNotFound):
        await slurm.job(job_id)
    record = await slurm.job_record(job_id)
    assert record is not None
    assert judge(record).end is JobEnd.PASSED


async def test_a_job_over_its_limit_has_code_0_in_its_record_and_has_failed(slurm: FakeSlurm, time: Time) -> None:
    job_id = (await slurm.submit(spec("sleep 9999"))).job_id
    time.now += timedelta(minutes=30)
    assert judge(await slurm.job(job_id)).end is JobEnd.FAILED
    record = await slurm.job_record(job_id)
    assert record is not None
    assert (record.return_code, judge(record).end) == (0, JobEnd.FAILED)


async def test_a_dead_slurmd_kills_its_job_and_writes_into_the_reason(slurm: FakeSlurm) -> None:
    job_id = (await slurm.submit(spec())).job_id
    await slurm.update_node("gpu01", DRAIN)
    slurm.cluster.lose("gpu01")
    assert (await slurm.read_node("gpu01")).state.dead
    slurm.cluster.time_out("gpu01")
    node = await slurm.read_node("gpu01")
    assert (node.state.base, node.reason) == (NodeBase.DOWN, "fm:why : Not responding")
    assert judge(await slurm.job(job_id)).end is JobEnd.INFRASTRUCTURE
    slurm.cluster.register("gpu01")
    node = await slurm.read_node("gpu01")
    assert (node.state.base, node.state.drain) == (NodeBase.DOWN, True)


async def test_an_undrained_node_that_was_away_comes_back_idle(slurm: FakeSlurm) -> None:
    slurm.cluster.time_out("gpu01")
    slurm.cluster.register("gpu01")
    assert (await slurm.read_node("gpu01")).state.schedulable


async def test_an_undrained_node_that_rebooted_comes_back_down(slurm: FakeSlurm) -> None:
    slurm.cluster.register("gpu01", rebooted=True)
    node = await slurm.read_node("gpu01")
    assert (node.state.base, node.reason) == (NodeBase.DOWN, "Node unexpectedly rebooted")


async def test_slurmctld_appends_to_a_reason(slurm: FakeSlurm, time: Time) -> None:
    await slurm.update_node("gpu01", DRAIN)
    time.now += timedelta(minutes=1)
    slurm.cluster.append_reason("gpu01", "Not responding")
    node = await slurm.read_node("gpu01")
    assert (node.reason, node.reason_changed_at) == ("fm:why : Not responding", time.now)


async def test_a_missing_gpu_replaces_the_reason_and_forbids_a_resume(slurm: FakeSlurm) -> None:
    slurm.cluster.register("dyn02", drained="born held", found_gres="gpu:h100:7")
    node = await slurm.read_node("dyn02")
    assert (node.reason, node.gres) == ("gres/gpu count reported lower than configured (7 < 8)", "gpu:h100:7")
    assert {NodeFlag.INVALID_REG, NodeFlag.DRAIN} <= node.state.flags
    with pytest.raises(InvalidTransition):
        await slurm.update_node("dyn02", RESUME)


async def test_a_known_machine_keeps_its_drain_and_features_over_a_new_registration(slurm: FakeSlurm) -> None:
    await slurm.update_node("dyn01", DRAIN)
    slurm.cluster.register("dyn01", features=("other",), instance_id="i-2", extra="fm_build=b2")
    node = await slurm.read_node("dyn01")
    assert (node.hold_reason, node.features) == ("fm:why", ("dynamic",))
    assert (node.instance_id, node.extra) == ("i-2", "fm_build=b2")


async def test_a_deleted_machine_comes_back_without_its_drain_and_outside_its_reservation(slurm: FakeSlurm) -> None:
    await slurm.create_reservation("fm-dyn01", nodes=("dyn01",), users=("fleet",))
    await slurm.update_node("dyn01", DRAIN)
    await slurm.delete_node("dyn01")
    slurm.cluster.register("dyn01")
    assert (await slurm.read_node("dyn01")).state.schedulable


async def test_a_reservation_that_runs_out_kills_its_burn_in_and_lets_users_in(slurm: FakeSlurm, time: Time) -> None:
    await slurm.create_reservation("fm", nodes=("gpu01",), users=("fleet",), duration=timedelta(minutes=1))
    inside = (await slurm.submit(spec(reservation="fm"))).job_id
    waiting = (await slurm.as_user("alice").submit(spec())).job_id
    time.now += timedelta(minutes=2)
    assert (await slurm.job(inside)).states == {"TIMEOUT"}
    assert judge(await slurm.job(waiting)).phase is JobPhase.RUNNING


async def test_a_future_node_is_in_neither_reading(slurm: FakeSlurm) -> None:
    await slurm.update_node("gpu01", NodeUpdate(NodeStateWord.FUTURE))
    with pytest.raises(NodeNotFound):
        await slurm.read_node("gpu01")
    assert {node.name for node in await slurm.nodes()} == {"dyn01"}


async def test_two_nodes_that_differ_in_case_only_are_ambiguous(slurm: FakeSlurm) -> None:
    """Case 027."""
    slurm.cluster.register("a001")
    slurm.cluster.register("A001")
    assert (await slurm.node("a001")).name == "a001"
    slurm.cluster.register("Bb1")
    slurm.cluster.register("bB1")
    with pytest.raises(AmbiguousNode):
        await slurm.node("bb1")


async def test_slurmctld_away_answers_nothing(slurm: FakeSlurm) -> None:
    slurm.cluster.away = True
    (ping,) = await slurm.ping()
    assert not ping.responding
    for call in (slurm.read_node("gpu01"), slurm.read_nodes(), slurm.jobs(), slurm.submit(spec())):
        with pytest.raises(SlurmctldUnavailable):
            await call


async def test_an_answer_that_is_lost_is_of_a_call_that_was_carried_out(slurm: FakeSlurm) -> None:
    slurm.fail_next("submit", SubmitUnknown("no answer", peer="slurmrestd"), done=True)
    with pytest.raises(SubmitUnknown):
        await slurm.submit(spec(name="lost"))
    assert len(await slurm.jobs_named("lost")) == 1


async def test_a_fault_of_a_call_that_was_not_carried_out_changes_nothing(slurm: FakeSlurm) -> None:
    slurm.fail_next("update_node", SlurmctldUnavailable("away", peer="slurmrestd"))
    with pytest.raises(SlurmctldUnavailable):
        await slurm.update_node("gpu01", DRAIN)
    assert not (await slurm.read_node("gpu01")).state.drain
    await slurm.update_node("gpu01", DRAIN)
    assert [call[0] for call in slurm.calls] == ["update_node", "read_node", "update_node"]
