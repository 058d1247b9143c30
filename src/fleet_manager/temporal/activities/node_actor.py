"""Short activities by which a workflow talks to its node's actor: update-with-start, then wait for SLURM to show it.

They hold Temporal's client, since a workflow cannot update another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from temporalio import activity
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from fleet_manager.temporal.contracts import node_actor as contract
from fleet_manager.temporal.contracts.common import Contract, Failure, Payload, Verb, task_queue
from fleet_manager.temporal.contracts.node_actor import ActorState, Claim

Answer = TypeVar("Answer", bound=Payload)

LOOK_SECONDS = 0.25
MAX_LOOK_SECONDS = 3.0


class ClaimParams(Payload):
    """Which node is wanted, for what."""

    site: str
    node: str
    claim_id: str
    """The caller's first run id: it survives a reset, a run id does not."""
    verb: Verb
    gate_why: str | None = None


class GateParams(Payload):
    """Open the node's gate for a build, under a reservation."""

    site: str
    node: str
    claim_id: str
    gate: contract.Gate


class VerdictParams(Payload):
    """End the gate."""

    site: str
    node: str
    claim_id: str
    why: str
    proof: contract.Proof | None = None


class UnclaimParams(Payload):
    """Give the node back."""

    site: str
    node: str
    claim_id: str
    why: str = "the operation ended without a verdict"
    keep_gate: bool = True


@dataclass
class NodeActorActivities:
    """Talks to the actors.

    Attributes:
        client: Temporal, with the pydantic converter.
    """

    client: Client

    @activity.defn
    async def claim_node(self, params: ClaimParams) -> ActorState:
        """Take the node for the calling workflow, put its gate up, and return once SLURM shows it (or has no node).

        Raises:
            ClaimRefused: another operation has it; the sentence says which, since when, started by whom.
        """
        mine = await self._request(params)
        for _ in range(3):
            answer = await self._update(params.site, params.node, contract.UPDATE_CLAIM, mine, contract.ClaimAnswer)
            if answer.granted:
                return await self._shown(params.site, params.node, answer.state.revision)
            claim = answer.state.claim
            if claim is None or not await self._closed(claim):
                break
            await self._update(
                params.site,
                params.node,
                contract.UPDATE_REAP_CLAIM,
                contract.ClaimEnd(claim_id=claim.id, why=f"its {claim.verb} ended without a verdict"),
                ActorState,
            )
        raise _refused(params.node, answer.state.claim)

    @activity.defn
    async def open_gate(self, params: GateParams) -> ActorState:
        """Open the gate and return once the node is open under the reservation.

        Raises:
            GateNotOpen: SLURM does not show it open, with why; the node stays drained then.
        """
        request = contract.OpenGate(claim_id=params.claim_id, gate=params.gate)
        state = await self._update(params.site, params.node, contract.UPDATE_OPEN_GATE, request, ActorState)
        state = await self._shown(params.site, params.node, state.revision)
        shown = state.projection
        if shown is None or not shown.seen or shown.problem or shown.drained:
            why = shown.problem or f"it is {shown.state}" if shown else "nothing was written"
            raise ApplicationError(
                f"node {params.node} cannot be opened for its burn-in: {why}",
                type=Failure.GATE_NOT_OPEN,
                non_retryable=True,
            )
        return state

    @activity.defn
    async def end_gate(self, params: VerdictParams) -> ActorState:
        """End the gate by the verdict and return once SLURM shows what is left: DRAIN if any hold is."""
        request = contract.EndGate(claim_id=params.claim_id, why=params.why, proof=params.proof)
        state = await self._update(params.site, params.node, contract.UPDATE_END_GATE, request, ActorState)
        return await self._shown(params.site, params.node, state.revision)

    @activity.defn
    async def unclaim_node(self, params: UnclaimParams) -> ActorState:
        """Give the node back and return once SLURM shows what is left."""
        request = contract.ClaimEnd(claim_id=params.claim_id, why=params.why, keep_gate=params.keep_gate)
        state = await self._update(params.site, params.node, contract.UPDATE_UNCLAIM, request, ActorState)
        return await self._shown(params.site, params.node, state.revision, settled=True)

    async def view(self, site: str, node: str) -> ActorState | None:
        """Return the actor's record, None when the node never had one. No activity: others of this process read it."""
        handle = self.client.get_workflow_handle(contract.workflow_id(site, node))
        try:
            state: ActorState = await handle.query(contract.QUERY_VIEW, result_type=ActorState)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return state

    async def look(self, site: str, node: str) -> None:
        """Ask the actor to project again: what SLURM shows is not what the record says."""
        await self.client.get_workflow_handle(contract.workflow_id(site, node)).signal(contract.SIGNAL_LOOK)

    async def _request(self, params: ClaimParams) -> contract.ClaimRequest:
        return contract.ClaimRequest(
            id=params.claim_id,
            verb=params.verb,
            workflow_id=_workflow_id(),
            started_by=await self._started_by(),
            gate_why=params.gate_why,
        )

    async def _started_by(self) -> str:
        """Return the identity that started the calling workflow: the first event has it, nothing else does."""
        handle = self.client.get_workflow_handle(_workflow_id())
        async for event in handle.fetch_history_events(page_size=1):
            return event.workflow_execution_started_event_attributes.identity or "unknown"
        return "unknown"

    async def _update(self, site: str, node: str, name: str, request: Contract, answer: type[Answer]) -> Answer:
        start: WithStartWorkflowOperation[object, None] = WithStartWorkflowOperation(
            contract.WORKFLOW,
            contract.ActorInput(site=site, node=node),
            id=contract.workflow_id(site, node),
            task_queue=task_queue(site),
            # the actor lives as long as the node: whoever comes joins the one that is there
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"the record of holds, claim and gate of node {node}",
        )
        try:
            result: Answer = await self.client.execute_update_with_start_workflow(
                name, request, start_workflow_operation=start, result_type=answer
            )
        except WorkflowUpdateFailedError as error:
            raise error.cause from None  # the actor's own refusal, an ApplicationError
        return result

    async def _shown(self, site: str, node: str, revision: int, *, settled: bool = False) -> ActorState:
        """Wait until the actor has projected that revision (or all there is). Queries add nothing to its history."""
        handle = self.client.get_workflow_handle(contract.workflow_id(site, node))
        pause = LOOK_SECONDS
        while True:
            state: ActorState = await handle.query(contract.QUERY_VIEW, result_type=ActorState)
            if state.projected_revision >= (state.revision if settled else revision):
                return state
            activity.heartbeat(state.trouble or "the actor is writing SLURM")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MAX_LOOK_SECONDS)

    async def _closed(self, claim: Claim) -> bool:
        """Say whether the claim's holder has ended, however it ended. Not to be read is not closed."""
        try:
            seen = await self.client.get_workflow_handle(claim.workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return True
            raise
        first = seen.raw_description.workflow_execution_info.first_run_id or seen.run_id
        return first != claim.id or seen.status is not WorkflowExecutionStatus.RUNNING


def _workflow_id() -> str:
    workflow_id = activity.info().workflow_id
    assert workflow_id, "these activities are called by workflows"  # noqa: S101 - standalone activities have none
    return workflow_id


def _refused(node: str, claim: Claim | None) -> ApplicationError:
    if claim is None:
        text = f"node {node} could not be taken: others take it all the while; try again"
    else:
        text = (
            f"node {node} is taken by {claim.verb} since {claim.since:%Y-%m-%d %H:%M:%S} UTC, started by "
            f"{claim.started_by}: workflow {claim.workflow_id}. Wait for it, or cancel it, then try again."
        )
    return ApplicationError(text, type=Failure.CLAIM_REFUSED, non_retryable=True)
