"""NodeActor over a fake SLURM: holds of many callers, foreign hands, lost answers, absences, claims."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WithStartWorkflowOperation, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from tests.fakes.site import NODE
from tests.workflows.harness import Bench, until

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, ReasonClass
from fleet_manager.core.domain.slurm_node import NodeFlag
from fleet_manager.temporal.contracts import node_actor as contract
from fleet_manager.temporal.contracts.common import Verb, task_queue
from fleet_manager.temporal.contracts.node_actor import ActorState


def hold(at: Bench, number: int, owner: str = "alice", why: str = "psu swap", **more: Any) -> Hold:
    id_ = f"0190aaaa-0000-7000-8000-{number:012x}"
    since = at.site.now() + timedelta(milliseconds=number)
    return Hold(id=id_, owner=owner, why=why, since=since, **more)


async def update(at: Bench, name: str, request: Any, *, history_limit: int | None = None) -> Any:
    """Send an update to the node's actor, which is started if it is not there."""
    answer = contract.ClaimAnswer if name == contract.UPDATE_CLAIM else ActorState
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        contract.WORKFLOW,
        contract.ActorInput(site=at.site.id, node=NODE, history_limit=history_limit),
        id=contract.workflow_id(at.site.id, NODE),
        task_queue=task_queue(at.site.id),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    return await at.client.execute_update_with_start_workflow(
        name, request, start_workflow_operation=start, result_type=answer
    )


async def place(at: Bench, one: Hold, **more: Any) -> ActorState:
    state: ActorState = await update(at, contract.UPDATE_PLACE_HOLD, contract.PlaceHold(hold=one), **more)
    return state


async def end(at: Bench, one: Hold) -> ActorState:
    state: ActorState = await update(at, contract.UPDATE_END_HOLD, contract.EndHold(hold_id=one.id))
    return state


def claim(number: int, verb: Verb = Verb.ADOPT, **more: Any) -> contract.ClaimRequest:
    return contract.ClaimRequest(
        id=f"0190bbbb-0000-7000-8000-{number:012x}",
        verb=verb,
        workflow_id=f"{verb}/{number}",
        started_by="alice@desk",
        **more,
    )


@pytest.fixture
def node(at: Bench) -> Any:
    """A node in service, as the fake slurmctld has it."""
    at.site.cluster.register(NODE)
    return at.site.cluster.nodes[NODE]


def drained(node: Any) -> bool:
    return NodeFlag.DRAIN in node.flags


async def test_a_hold_drains_the_node_and_its_end_opens_it(at: Bench, node: Any) -> None:
    one = hold(at, 1)
    await place(at, one)
    state = await at.actor()
    assert drained(node)
    assert node.reason == "fm:alice psu swap [fm 000000000001]"
    assert state.projection is not None
    assert state.projection.whose is ReasonClass.OURS
    await end(at, one)
    await at.actor()
    assert not drained(node)


async def test_the_node_opens_when_the_last_of_several_holds_goes(at: Bench, node: Any) -> None:
    first, second = hold(at, 1), hold(at, 2, "bob", "fans")
    await place(at, first)
    await place(at, second)
    await end(at, first)
    await at.actor()
    assert node.reason == "fm:bob fans [fm 000000000002]"
    assert drained(node)
    await end(at, second)
    await at.actor()
    assert not drained(node)


async def test_holds_of_many_callers_at_once_are_all_kept_in_few_writes(at: Bench, node: Any) -> None:
    holds = [hold(at, number, f"owner{number}") for number in range(1, 9)]
    for _ in range(3):  # each sends it three times, as a retry does
        await asyncio.gather(*(place(at, one) for one in holds))
    state = await at.actor()
    assert {one.id for one in state.holds} == {one.id for one in holds}
    writes = [call for call in at.site.slurm.calls if call[0] == "update_node"]
    assert len(writes) <= 2 * len(holds)
    assert state.revision == len(holds)
    await asyncio.gather(*(end(at, one) for one in holds))
    await at.actor()
    assert not drained(node)


async def test_an_ended_hold_cannot_come_back(at: Bench, node: Any) -> None:
    """Case 040: a late event of an ended generation is refused."""
    one = hold(at, 1)
    await place(at, one)
    await end(at, one)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await place(at, one)
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "HoldEnded"
    await at.actor()
    assert not drained(node)


async def test_ending_a_hold_that_is_not_there_is_success(at: Bench, node: Any) -> None:
    assert (await end(at, hold(at, 1))).holds == ()


async def test_somebody_elses_drain_is_never_overwritten_nor_cleared(at: Bench, node: Any) -> None:
    """Case 018: our hold has no place in SLURM then, and goes on the node when theirs goes."""
    at.site.cluster.foreign_update(NODE, "DRAIN", "ADMIN SHUTDOWN", "root")
    one = hold(at, 1)
    await place(at, one)
    state = await at.actor()
    assert node.reason == "ADMIN SHUTDOWN"
    assert [held.id for held in state.holds] == [one.id]
    assert state.projection is not None
    assert state.projection.whose is ReasonClass.FOREIGN

    at.site.cluster.foreign_update(NODE, "UNDRAIN")
    await at.actor_handle.signal(contract.SIGNAL_LOOK)
    await until(lambda: node.reason == "fm:alice psu swap [fm 000000000001]", "our hold on the node")
    assert drained(node)

    await end(at, one)
    await at.actor()
    at.site.cluster.foreign_update(NODE, "DRAIN", "ADMIN AGAIN", "root")
    await end(at, hold(at, 2))
    await at.actor()
    assert node.reason == "ADMIN AGAIN"
    assert drained(node)


async def test_a_drain_without_a_reason_is_somebodys(at: Bench, node: Any) -> None:
    """Case 021."""
    at.site.cluster.foreign_update(NODE, "DRAIN")
    one = hold(at, 1)
    await place(at, one)
    await end(at, one)
    await at.actor()
    assert drained(node)
    assert node.reason == ""


async def test_a_node_that_slurm_does_not_have_yet_is_held_in_the_record(at: Bench) -> None:
    one = hold(at, 1)
    await place(at, one)
    state = await at.actor()
    assert state.projection is not None
    assert not state.projection.seen
    at.site.cluster.register(NODE)
    await at.actor_handle.signal(contract.SIGNAL_LOOK)
    await until(lambda: drained(at.site.cluster.nodes[NODE]), "the hold on the node that came")


async def test_an_answer_of_slurm_that_is_lost_is_read_back(at: Bench, node: Any) -> None:
    at.site.slurm.fail_next("update_node", Unavailable("lost", peer="slurmrestd"), done=True)
    await place(at, hold(at, 1))
    await at.actor()
    assert node.reason == "fm:alice psu swap [fm 000000000001]"


async def test_an_answer_that_is_lost_after_the_drain_hides_nobodys_hold(at: Bench, node: Any) -> None:
    """The worker dies between DRAIN and its reason: the empty reason is known as ours, and our end opens the node."""
    one = hold(at, 1)
    at.site.slurm.fail_next("update_node", Unavailable("lost", peer="slurmrestd"), done=True)
    await place(at, one)
    await end(at, one)
    await at.actor()
    assert not drained(node)


async def test_while_slurm_is_away_the_record_stands_and_says_so(at: Bench, node: Any) -> None:
    at.site.cluster.away = True
    one = hold(at, 1)
    state = await place(at, one)
    assert [held.id for held in state.holds] == [one.id]
    assert state.projected_revision < state.revision
    at.site.cluster.away = False
    await at.actor()
    assert drained(node)


async def test_an_expired_hold_goes_by_itself(at: Bench, node: Any) -> None:
    await place(at, hold(at, 1, expires=at.site.now() + timedelta(seconds=2)))
    await at.actor()
    assert drained(node)
    for _ in range(200):
        if not drained(node):
            break
        await asyncio.sleep(0.05)
    assert not drained(node)
    assert (await at.actor()).holds == ()


async def test_its_record_outlives_continue_as_new(at: Bench, node: Any) -> None:
    first, second = hold(at, 1), hold(at, 2, "bob", "fans")
    await place(at, first, history_limit=20)
    await at.actor()
    run = (await at.actor_handle.describe()).run_id
    await place(at, second)
    for _ in range(100):
        if (await at.actor_handle.describe()).run_id != run:
            break
        await at.actor_handle.signal(contract.SIGNAL_LOOK)
        await asyncio.sleep(0.05)
    assert (await at.actor_handle.describe()).run_id != run
    state = await at.actor()
    assert {held.id for held in state.holds} == {first.id, second.id}
    assert drained(node)


async def test_a_claim_puts_its_gate_up_in_the_same_step(at: Bench, node: Any) -> None:
    answer = await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    state = await at.actor()
    assert answer.granted
    assert state.claim is not None
    assert [one.kind for one in state.holds] == [HoldKind.GATE]
    assert drained(node)


async def test_a_second_claim_is_refused_with_who_has_it(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    again = await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    other = await update(at, contract.UPDATE_CLAIM, claim(2, Verb.RELEASE))
    assert (again.granted, other.granted) == (True, False)
    assert other.state.claim.workflow_id == "adopt/1"
    assert other.state.claim.started_by == "alice@desk"
    assert len((await at.actor()).holds) == 1


async def test_a_claim_given_back_before_anything_was_built_leaves_nothing(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    await update(at, contract.UPDATE_UNCLAIM, contract.ClaimEnd(claim_id=claim(1).id, keep_gate=False))
    state = await at.actor()
    assert (state.claim, state.holds) == (None, ())
    assert not drained(node)


async def test_a_reaped_claim_leaves_its_gate_as_a_hold(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    await update(at, contract.UPDATE_REAP_CLAIM, contract.ClaimEnd(claim_id=claim(1).id, why="its adopt is gone"))
    [left] = (await at.actor()).holds
    assert (left.kind, left.why) == (HoldKind.VERDICT, "its adopt is gone")
    assert drained(node)
    with pytest.raises(WorkflowUpdateFailedError):  # a late retry of the operation that has ended
        await update(at, contract.UPDATE_CLAIM, claim(1))


async def test_a_builds_missing_pass_is_ended_by_a_human_alone(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    await update(at, contract.UPDATE_END_GATE, contract.EndGate(claim_id=claim(1).id, why="it failed"))
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await update(at, contract.UPDATE_END_HOLD, contract.EndHold(hold_id=claim(1).id))
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "NeedsOverride"
    await at.actor()
    assert drained(node)
    await update(at, contract.UPDATE_END_HOLD, contract.EndHold(hold_id=claim(1).id, override=True))
    await at.actor()
    assert not drained(node)


async def test_a_null_update_is_refused_and_harms_nothing(at: Bench, node: Any) -> None:
    await place(at, hold(at, 1))
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await at.actor_handle.execute_update(contract.UPDATE_CLAIM, None)
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "BadInput"
    assert len((await at.actor()).holds) == 1


async def test_an_actor_under_another_id_would_be_a_second_record_and_is_refused(at: Bench) -> None:
    handle = await at.client.start_workflow(
        contract.WORKFLOW,
        contract.ActorInput(site=at.site.id, node=NODE),
        id=f"typed-{at.site.id}",
        task_queue=task_queue(at.site.id),
    )
    with pytest.raises(WorkflowFailureError) as error:
        await handle.result()
    assert contract.workflow_id(at.site.id, NODE) in str(error.value.cause)


async def test_a_gate_is_not_ended_as_a_hold(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    with pytest.raises(WorkflowUpdateFailedError):
        await update(at, contract.UPDATE_END_HOLD, contract.EndHold(hold_id=claim(1).id))
    await at.actor()
    assert drained(node)


async def test_an_open_gate_without_its_reservation_is_shut(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    gate = contract.Gate(build=contract.Build(server_id="s", build_id="b"), reservation=f"fm_{NODE}")
    await update(at, contract.UPDATE_OPEN_GATE, contract.OpenGate(claim_id=claim(1).id, gate=gate))
    state = await at.actor()
    assert drained(node)
    assert state.projection is not None
    assert state.projection.problem == f"the gate stays shut: there is no reservation fm_{NODE}"


async def test_who_lost_the_claim_can_neither_open_nor_end_the_gate(at: Bench, node: Any) -> None:
    await update(at, contract.UPDATE_CLAIM, claim(1, gate_why="burn-in to come"))
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await update(at, contract.UPDATE_END_GATE, contract.EndGate(claim_id=claim(2).id, why="passed"))
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "ClaimLost"


async def test_an_adoption_reaps_the_claim_of_one_that_was_terminated(at: Bench) -> None:
    at.steps.stop_before = "build_server"
    first = await at.start()
    await at.steps.stopped.wait()
    await first.terminate("pulled by an SRE")
    at.steps.go_on.set()
    await until(lambda: at.site.cloud.held, "what it had asked Nova for")
    [made] = at.site.cloud.held
    await until(lambda: at.site.cloud.read(made).status == "ACTIVE", "its server")
    result = await at.adopt()
    assert result.node == NODE
    assert len(at.site.cloud.held) == 1
    assert (await at.actor()).holds == ()


async def test_an_adoption_is_told_who_has_the_node(at: Bench) -> None:
    at.steps.stop_before = "build_server"
    first = await at.start(id="the-first")
    await at.steps.stopped.wait()
    with pytest.raises(WorkflowFailureError) as error:
        await at.adopt()
    at.steps.go_on.set()
    assert isinstance(error.value.cause, ApplicationError)
    assert error.value.cause.type == "ClaimRefused"
    assert "taken by adopt since" in error.value.cause.message
    assert "workflow the-first" in error.value.cause.message
    assert (await first.result()).node == NODE
