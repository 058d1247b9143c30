"""AdoptNode over the real activities and a fake site: every ending, a cancel and a failure at every step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from tests.fakes.site import NODE, FakeSite, user_data
from tests.workflows.harness import Bench, until

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.slurmrest.errors import SubmitUnknown
from fleet_manager.core.domain.server import ServerStatus
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag
from fleet_manager.temporal.contracts import node_actor
from fleet_manager.temporal.contracts.adopt import AdoptOutcome
from fleet_manager.temporal.contracts.common import task_queue

BEFORE_TOUCH = ("claim_node",)
AFTER_TOUCH = (
    "build_server",
    "wait_for_server",
    "wait_registered",
    "settle_node",
    "reserve_node",
    "open_gate",
    "submit_burn_in",
    "wait_for_job",
)
CONCLUSION = ("end_gate", "unreserve_node", "record_build", "unclaim_node", "wait_in_service")


USERS_JOB = JobSpec(
    name="users",
    script="#!/bin/bash\n",
    partition="main",
    current_working_directory="/tmp",
    environment=("PATH=/bin",),
    time_limit_minutes=5,
    required_nodes=(NODE,),
)


def node_flags(site: FakeSite) -> set[NodeFlag]:
    return set(site.cluster.nodes[NODE].flags)


def in_service(site: FakeSite) -> bool:
    node = site.cluster.nodes[NODE]
    return node.base is NodeBase.IDLE and not node.flags - {NodeFlag.DYNAMIC_NORM} and not site.cluster.resv


def nothing_open(site: FakeSite) -> None:
    """What must hold after any bad end: no reservation, no job of ours, and a node that is there is drained."""
    assert site.cluster.resv == {}
    assert all(job.over for job in site.cluster.all_jobs.values())
    if NODE in site.cluster.nodes:
        assert NodeFlag.DRAIN in node_flags(site)


async def test_a_device_without_a_server_is_created_proven_and_put_into_service(at: Bench) -> None:
    result = await at.adopt()
    [held] = at.site.cloud.held.values()
    assert held.now is not None
    assert (result.outcome, result.way, result.server_id) == (AdoptOutcome.IN_SERVICE, "create", held.now.id)
    assert held.now.hypervisor_hostname == "hv-001"
    assert held.now.metadata["fm_build"] == result.build_id
    assert in_service(at.site)
    assert at.site.cluster.nodes[NODE].features == ("dynamic", "h100")
    assert at.site.hub.devices[0].build.model_dump() == {
        "server_id": result.server_id,
        "build_id": result.build_id,
        "config_revision": 1,
    }
    state = await at.actor()
    assert (state.holds, state.claim, state.gate) == ((), None, None)
    assert state.proof is not None
    assert state.proof.job_ids == result.job_ids


async def test_a_users_job_starts_only_after_the_verdict(at: Bench) -> None:
    """A user's job waits for the node from before its rebuild; it is the burn-in's turn first."""
    await at.adopt()
    at.steps.stop_before = "end_gate"
    at.site.configs.configs[0] = at.site.config(user_data=user_data("2"), revision=2)
    handle = await at.start()
    await at.steps.stopped.wait()
    job = await at.site.slurm.as_user("alice").submit(USERS_JOB)
    assert at.site.cluster.all_jobs[job.job_id].pending
    at.steps.go_on.set()
    result = await handle.result()
    await at.site.slurm.job(job.job_id)
    users, ours = at.site.cluster.all_jobs[job.job_id].record, at.site.cluster.all_jobs[result.job_ids[0]].record
    assert users.start_time is not None
    assert ours.end_time is not None
    assert users.start_time >= ours.end_time
    assert result.way == "rebuild"


async def test_asked_again_it_touches_nothing_and_returns_the_first_build(at: Bench) -> None:
    first = await at.adopt()
    before, writes = await at.actor(), list(at.site.slurm.calls)
    again = await at.adopt()
    assert again.outcome is AdoptOutcome.ALREADY_IN_SERVICE
    assert (again.build_id, again.server_id) == (first.build_id, first.server_id)
    assert await at.actor() == before
    assert not [call for call in at.site.slurm.calls[len(writes) :] if call[0] in ("update_node", "submit")]


async def test_forced_it_builds_anew_in_place(at: Bench) -> None:
    first = await at.adopt()
    again = await at.adopt(force_rebuild=True)
    assert (again.way, again.server_id) == ("rebuild", first.server_id)
    assert again.build_id != first.build_id
    assert in_service(at.site)


async def test_a_node_that_came_back_down_is_resumed_under_the_reservation_only(at: Bench) -> None:
    await at.adopt()
    at.steps.stop_before = "wait_registered"
    handle = await at.start(force_rebuild=True)
    await at.steps.stopped.wait()
    at.site.cluster.time_out(NODE)
    at.site.cluster.nodes[NODE].alive = True
    at.site.cluster.nodes[NODE].flags.discard(NodeFlag.NOT_RESPONDING)
    at.steps.go_on.set()
    result = await handle.result()
    assert result.outcome is AdoptOutcome.IN_SERVICE
    resumes = [
        n for n, call in enumerate(at.site.slurm.calls) if call[0] == "update_node" and call[2].state == "RESUME"
    ]
    reserved = [n for n, call in enumerate(at.site.slurm.calls) if call[0] == "create_reservation"]
    assert len(resumes) == 1
    assert resumes[0] > reserved[-1]


async def test_seven_of_eight_gpus_are_refused_at_once(at: Bench) -> None:
    at.site.nova.found_gres = "gpu:h100:7"
    failed = await at.fail()
    assert failed.type == "IncompleteMachine"
    assert "7 of 8 GPUs" in failed.message
    assert "submit_burn_in" not in at.steps.seen
    nothing_open(at.site)
    [hold] = (await at.actor()).holds
    assert hold.kind is HoldKind.VERDICT


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [(22, "BurnInFailed", "nvidia-smi fails on the node"), (1, "BurnInFailed", "exit code 1")],
)
async def test_a_burn_in_that_says_no_leaves_the_node_held(at: Bench, code: int, kind: str, says: str) -> None:
    at.site.burn_in = lambda _: (timedelta(0), code)
    failed = await at.fail()
    assert failed.type == kind
    assert says in failed.message
    nothing_open(at.site)
    assert at.site.cluster.nodes[NODE].reason.startswith("fm:adopt Burn-in of node gpu-001 did not pass")


async def test_a_job_that_never_starts_is_told_as_that_and_cancelled(at: Bench) -> None:
    at.site.settings = at.site.settings.model_copy(update={"start_patience": timedelta(seconds=0.3)})
    async with _again(at) as one:
        one.steps.stop_before = "submit_burn_in"
        handle = await one.start()
        await one.steps.stopped.wait()
        one.site.cluster.nodes[NODE].flags.add(NodeFlag.FAIL)
        one.steps.go_on.set()
        with pytest.raises(WorkflowFailureError) as error:
            await handle.result()
        assert isinstance(error.value.cause, ApplicationError)
        assert error.value.cause.type == "BurnInNeverStarted"
        nothing_open(one.site)


async def test_a_node_that_dies_under_the_burn_in_is_infrastructure(at: Bench) -> None:
    at.site.burn_in = lambda _: (timedelta(hours=1), 0)
    handle = await at.start()
    await until(lambda: any(job.running for job in at.site.cluster.all_jobs.values()), "the burn-in to run")
    at.site.cluster.time_out(NODE)
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "BurnInInfrastructure"
    assert "NODE_FAIL" in error.value.cause.message
    nothing_open(at.site)


async def test_a_build_that_never_registers_is_refused_with_what_is_there(at: Bench) -> None:
    at.site.nova.boots = False
    at.site.settings = at.site.settings.model_copy(update={"boot_patience": timedelta(seconds=0.3)})
    async with _again(at) as one:
        failed = await one.fail()
        assert failed.type == "NotRegistered"
        assert "SLURM has no node gpu-001 yet" in failed.message
        assert "openstack console log show" in failed.message
        [hold] = (await one.actor()).holds
        assert hold.kind is HoldKind.VERDICT


async def test_no_room_is_said_as_that_and_the_node_is_not_called_broken(at: Bench) -> None:
    """Case 034."""
    at.site.cloud.no_capacity = True
    failed = await at.fail()
    assert failed.type == "NoCapacity"
    assert "not broken" in failed.message


async def test_a_server_that_landed_elsewhere_is_refused(at: Bench) -> None:
    at.site.cloud.lands_on = "hv-666"
    failed = await at.fail()
    assert failed.type == "LandedElsewhere"
    assert "hv-666" in failed.message
    assert "hv-001" in failed.message


async def test_a_members_credential_is_refused_with_what_it_needs(at: Bench) -> None:
    at.site.nova.operator = False
    failed = await at.fail()
    assert failed.type == "PinForbidden"
    assert "operator" in failed.message
    assert at.site.cloud.held == {}


async def test_two_servers_are_both_named_and_none_is_touched(at: Bench) -> None:
    """Case 030."""
    await at.adopt()
    [first] = at.site.cloud.held
    held = at.site.cloud.held[first]
    assert held.now is not None
    at.site.cloud.held["srv-2"] = replace(held, now=replace(held.now, id="srv-2"))
    failed = await at.fail(force_rebuild=True)
    assert failed.type == "DuplicateServers"
    assert first in failed.message
    assert "srv-2" in failed.message
    assert in_service(at.site)


async def test_somebody_elses_drain_is_refused_and_untouched(at: Bench) -> None:
    at.site.cluster.register(NODE)
    at.site.cluster.foreign_update(NODE, "DRAIN", "ADMIN SHUTDOWN", "root")
    failed = await at.fail()
    assert failed.type == "NodeHeld"
    assert "ADMIN SHUTDOWN" in failed.message
    assert at.site.cluster.nodes[NODE].reason == "ADMIN SHUTDOWN"
    assert at.site.cloud.held == {}


async def test_a_drain_that_came_meanwhile_stays_when_the_burn_in_has_passed(at: Bench) -> None:
    at.steps.stop_before = "wait_for_job"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.site.cluster.foreign_update(NODE, "DRAIN", "bob: fans", "root")
    at.steps.go_on.set()
    result = await handle.result()
    assert result.outcome is AdoptOutcome.PASSED_BUT_HELD
    assert "bob: fans" in result.held_by[0]
    assert at.site.cluster.nodes[NODE].reason == "bob: fans"
    assert at.site.cluster.resv == {}


async def test_a_hold_of_ours_that_came_meanwhile_is_drained_before_the_reservation_goes(at: Bench) -> None:
    at.steps.stop_before = "end_gate"
    handle = await at.start()
    await at.steps.stopped.wait()
    hold = Hold(id="0190aaaa-0000-7000-8000-00000000beef", owner="alice", why="fans", since=datetime.now(UTC))
    await at.actor_handle.execute_update(node_actor.UPDATE_PLACE_HOLD, node_actor.PlaceHold(hold=hold))
    at.steps.go_on.set()
    result = await handle.result()
    calls = [call[0] if call[0] != "update_node" else call[2].state for call in at.site.slurm.calls]
    assert result.held_by == ("alice: fans",)
    assert calls.index("delete_reservation") > len(calls) - 1 - calls[::-1].index("DRAIN")
    assert at.site.cluster.nodes[NODE].reason == "fm:alice fans [fm 00000000beef]"


@pytest.mark.parametrize("step", [*BEFORE_TOUCH, *AFTER_TOUCH])
async def test_a_cancel_at_a_step_leaves_the_node_held_or_untouched(at: Bench, step: str) -> None:
    at.steps.stop_before = step
    handle = await at.start()
    await at.steps.stopped.wait()
    await at.cancel(handle)
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, CancelledError)
    nothing_open(at.site)
    state = await at.actor()
    assert state.claim is None
    assert [hold.kind for hold in state.holds] == ([] if step in BEFORE_TOUCH else [HoldKind.VERDICT])


async def test_a_cancel_before_anything_was_built_opens_no_node_that_was_not_open(at: Bench) -> None:
    """A node of an earlier life, born drained and never proven, with a user's job waiting for it."""
    at.site.cluster.register(NODE, drained="fm:born new build", instance_id="", extra="fm_build=of-an-earlier-life")
    job = await at.site.slurm.as_user("alice").submit(USERS_JOB)
    at.steps.stop_before = "build_server"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.steps.fail["build_server"] = ApplicationError("no", "refused at once", type="Refused", non_retryable=True)
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    state = await at.actor()
    assert NodeFlag.DRAIN in node_flags(at.site)
    assert [hold.kind for hold in state.holds] == [HoldKind.VERDICT]
    assert at.site.cluster.all_jobs[job.job_id].pending


async def test_a_refusal_of_the_build_gives_a_node_in_service_back_as_it_was(at: Bench) -> None:
    first = await at.adopt()
    at.steps.stop_before = "build_server"
    handle = await at.start(force_rebuild=True)
    await at.steps.stopped.wait()
    at.site.cloud.change(first.server_id, locked=True)
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "RebuildRefused"
    state = await at.actor()
    assert (state.holds, state.claim) == ((), None)
    assert state.proof is not None
    assert in_service(at.site)


async def test_a_build_that_was_replaced_after_its_burn_in_is_not_opened(at: Bench) -> None:
    at.steps.stop_before = "end_gate"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.site.cluster.nodes[NODE].extra = "fm_build=somebody-elses-build"
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "BuildReplaced"
    nothing_open(at.site)
    state = await at.actor()
    assert [hold.kind for hold in state.holds] == [HoldKind.VERDICT]
    assert state.proof is None


async def test_a_users_job_that_got_in_before_the_reservation_is_named_and_left_alone(at: Bench) -> None:
    at.steps.stop_before = "reserve_node"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.site.cluster.foreign_update(NODE, "UNDRAIN")
    at.site.burn_in = lambda _: (timedelta(hours=1), 0)
    job = await at.site.slurm.as_user("alice").submit(USERS_JOB)
    await at.site.slurm.job(job.job_id)
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "NodeReached"
    assert at.site.cluster.all_jobs[job.job_id].running
    assert at.site.cluster.resv == {}
    await until(lambda: NodeFlag.DRAIN in node_flags(at.site), "DRAIN to be put back")


async def test_a_drain_that_was_taken_off_before_the_reservation_is_put_back(at: Bench) -> None:
    at.steps.stop_before = "reserve_node"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.site.cluster.foreign_update(NODE, "UNDRAIN")
    at.steps.go_on.set()
    assert (await handle.result()).outcome is AdoptOutcome.IN_SERVICE
    assert at.steps.seen.count("reserve_node") == 2


async def test_a_drain_taken_off_while_giving_up_is_put_back_before_the_reservation_goes(at: Bench) -> None:
    at.site.burn_in = lambda _: (timedelta(0), 22)
    at.steps.stop_before = "unreserve_node"
    handle = await at.start()
    await at.steps.stopped.wait()
    at.site.cluster.foreign_update(NODE, "UNDRAIN")
    at.steps.go_on.set()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    nothing_open(at.site)


async def test_a_hold_that_cannot_be_placed_leaves_the_reservation_where_it_is(at: Bench) -> None:
    at.site.burn_in = lambda _: (timedelta(0), 22)
    at.steps.fail["end_gate"] = ApplicationError("lost", type="ClaimLost", non_retryable=True)
    failed = await at.fail()
    assert "could not be held" in failed.message
    assert f"fm_{NODE}" in at.site.cluster.resv


@pytest.mark.parametrize("step", ["record_build", "unclaim_node"])
async def test_what_fails_after_the_node_is_in_service_is_a_note(at: Bench, step: str) -> None:
    at.steps.fail[step] = ApplicationError("the moon is full", type="Moon", non_retryable=True)
    result = await at.adopt()
    assert result.outcome is AdoptOutcome.IN_SERVICE
    assert "the moon is full" in result.notes[0]
    assert in_service(at.site)


async def test_whether_a_passed_node_takes_jobs_may_be_unknown_and_is_said_as_that(at: Bench) -> None:
    at.steps.fail["wait_in_service"] = ApplicationError("the moon is full", type="Moon", non_retryable=True)
    result = await at.adopt()
    assert (result.outcome, result.held_by) == (AdoptOutcome.PASSED_BUT_HELD, ("the moon is full",))
    assert in_service(at.site)


@pytest.mark.parametrize("step", CONCLUSION)
async def test_after_the_pass_a_cancel_comes_too_late(at: Bench, step: str) -> None:
    at.steps.stop_before = step
    handle = await at.start()
    await at.steps.stopped.wait()
    await at.cancel(handle)
    at.steps.go_on.set()
    result = await handle.result()
    assert result.outcome is AdoptOutcome.IN_SERVICE
    assert in_service(at.site)


@pytest.mark.parametrize("step", [*BEFORE_TOUCH, *AFTER_TOUCH])
async def test_a_failure_at_a_step_leaves_the_node_held_or_untouched_with_its_cause(at: Bench, step: str) -> None:
    at.steps.fail[step] = ApplicationError("the moon is full", type="Moon", non_retryable=True)
    failed = await at.fail()
    assert (failed.type, failed.message) == ("Moon", "the moon is full")
    nothing_open(at.site)
    state = await at.actor() if step != "claim_node" else None
    if state:
        assert state.claim is None
        assert [hold.why for hold in state.holds] == ["the moon is full"]
    for server_id in at.site.cloud.held:  # what Nova was asked for is made all the same
        while (await at.site.nova.get(server_id)).status is not ServerStatus.ACTIVE:
            pass
    again = await at.adopt(force_rebuild=True)
    assert again.outcome is AdoptOutcome.IN_SERVICE
    assert (await at.actor()).holds == ()


@pytest.mark.parametrize("step", [*BEFORE_TOUCH, *AFTER_TOUCH, *CONCLUSION])
async def test_an_answer_that_is_lost_is_found_again(at: Bench, step: str) -> None:
    """The worker dies after the work and before its answer: one server, one burn-in, in service."""
    at.steps.lose_answer.add(step)
    result = await at.adopt()
    assert result.outcome is AdoptOutcome.IN_SERVICE
    assert len(at.site.cloud.held) == 1
    assert [call for call in at.site.cloud.calls if call in ("create", "rebuild")] == ["create"]
    assert len(at.site.cluster.all_jobs) == 1
    assert in_service(at.site)


async def test_lost_answers_of_the_peers_themselves_make_nothing_twice(at: Bench) -> None:
    at.site.cloud.lost_answers.append("create")
    at.site.slurm.fail_next("create_reservation", Unavailable("lost", peer="slurmrestd"), done=True)
    at.site.slurm.fail_next("submit", SubmitUnknown("lost", peer="slurmrestd"), done=True)
    at.site.slurm.fail_next("update_node", Unavailable("lost", peer="slurmrestd"), done=True)
    at.site.slurm.fail_next("delete_reservation", Unavailable("lost", peer="slurmrestd"), done=True)
    result = await at.adopt()
    assert (result.outcome, result.way) == (AdoptOutcome.IN_SERVICE, "create")
    assert len(at.site.cloud.held) == 1
    assert len(at.site.cluster.all_jobs) == 1
    assert in_service(at.site)


async def test_a_node_of_another_name_on_the_devices_server_is_not_built_over(at: Bench) -> None:
    first = await at.adopt()
    node = at.site.cluster.nodes.pop(NODE)
    node.name = "rack7-n3"
    at.site.cluster.nodes["rack7-n3"] = node
    failed = await at.fail(force_rebuild=True)
    assert failed.type == "AmbiguousNode"
    assert "rack7-n3" in failed.message
    assert at.site.cloud.calls.count("rebuild") == 0
    assert first.server_id in at.site.cloud.held


async def test_a_null_input_fails_at_once_with_what_is_missing(at: Bench) -> None:
    handle = await at.client.start_workflow(
        "AdoptNode", None, id=f"null-{at.site.id}", task_queue=task_queue(at.site.id)
    )
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "BadInput"
    assert "site, device" in error.value.cause.message


async def test_a_site_whose_slurm_cannot_gate_is_refused_before_anything(at: Bench) -> None:
    at.site.cluster.newest = False
    failed = await at.fail()
    assert failed.type == "SiteCannotGate"
    assert at.site.cloud.held == {}


async def test_slurm_that_cannot_be_read_stops_it_before_anything_is_touched(at: Bench) -> None:
    """Case 020: away is not "no such node"."""
    at.site.cluster.away = True
    handle = await at.start()
    await until(lambda: at.steps.seen.count("survey_device") >= 2, "the survey to be tried again")
    assert at.site.cloud.held == {}
    at.site.cluster.away = False
    assert (await handle.result()).outcome is AdoptOutcome.IN_SERVICE


def _again(at: Bench):  # type: ignore[no-untyped-def]
    """Return another bench on the same site, under another id, as its settings were changed."""
    from tests.workflows.harness import bench

    fresh = FakeSite(now=at.site.now)
    fresh.settings = at.site.settings.model_copy(update={"id": fresh.id})
    fresh.nova.boots = at.site.nova.boots
    return bench(at.client, fresh)
