"""`NodeActor`, the one writer of a node's holds, claim and gate (ADR 0001).

Handlers only record and answer; `run` projects the newest record into SLURM, as often as there is something new. It
lives as long as the node does and continues as new when its history grows; its state is its input then.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, gate_why_left, live
    from fleet_manager.core.domain.slurm_projection import OpenNode, Projection, gate_of
    from fleet_manager.temporal import policies, search_attributes
    from fleet_manager.temporal.activities.projection import ProjectionActivities
    from fleet_manager.temporal.contracts import node_actor as contract
    from fleet_manager.temporal.contracts.common import Failure, Verb
    from fleet_manager.temporal.contracts.node_actor import ActorState, Claim
    from fleet_manager.temporal.workflows.headlines import actor_details
    from fleet_manager.temporal.workflows.outcome import given

RETRY_PROJECTION = timedelta(seconds=15)
"""How long after a projection that could not be finished the next one begins, if nothing new comes before."""


@workflow.defn(name=contract.WORKFLOW)
class NodeActor:
    """See `contracts.node_actor`. It is never cancelled or terminated by us; its record would be lost."""

    @workflow.init
    def __init__(self, params: contract.ActorInput | None = None) -> None:
        params = params or contract.ActorInput(site="missing", node="missing")  # refused by `run`
        self._site, self._node = params.site, params.node
        self._state = params.state
        self._look = params.state.revision > params.state.projected_revision

    @workflow.run
    async def run(self, params: contract.ActorInput | None = None) -> None:
        """Project whatever is recorded, for ever."""
        params = given(params, contract.ActorInput)
        if workflow.info().workflow_id != contract.workflow_id(self._site, self._node):
            raise ApplicationError(
                f"the actor of node {self._node} has the id {contract.workflow_id(self._site, self._node)} and is "
                "started by whoever needs it; a second one under another id would be a second record",
                type=Failure.BAD_INPUT,
                non_retryable=True,
            )
        workflow.upsert_search_attributes(
            [
                search_attributes.SITE.value_set(self._site),
                search_attributes.NODE.value_set(self._node),
                search_attributes.VERB.value_set(Verb.ACTOR),
            ]
        )
        while not self._history_is_long(params.history_limit):
            workflow.set_current_details(actor_details(self._node, self._state))
            await self._something_to_do()
            self._drop_expired()
            if self._look or self._state.projected_revision < self._state.revision:
                await self._project()
        await workflow.wait_condition(workflow.all_handlers_finished)
        state = self._state
        if self._look:  # what was to be looked at is looked at by the next run
            state = state.model_copy(update={"projected_revision": min(state.projected_revision, state.revision - 1)})
        workflow.continue_as_new(
            contract.ActorInput(site=self._site, node=self._node, state=state, history_limit=params.history_limit)
        )

    # -- what the run does

    def _history_is_long(self, limit: int | None) -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() or bool(limit and info.get_current_history_length() >= limit)

    async def _something_to_do(self) -> None:
        expiries = [hold.expires for hold in self._state.holds if hold.expires]
        timeout = min(expiries) - workflow.now() if expiries else None
        if timeout is not None and timeout <= timedelta():
            return
        try:
            await workflow.wait_condition(
                lambda: self._look or self._state.projected_revision < self._state.revision,
                timeout=timeout,
                timeout_summary="the next hold expires",
            )
        except TimeoutError:
            return

    def _drop_expired(self) -> None:
        left = live(self._state.holds, workflow.now())
        gone = [hold for hold in self._state.holds if hold not in left]
        if gone:
            self._record(holds=left, ended=self._with_ended(*gone))

    async def _project(self) -> None:
        self._look = False
        revision = self._state.revision
        try:
            projection = await self._show(self._state.before)
            if projection.to_drain:  # it stands in the record now: whatever dies next, the DRAIN is known as ours
                self._state = self._state.model_copy(update={"before": projection.to_drain})
                self._note_open()
                projection = await self._show(self._state.before)
        except ActivityError as error:
            await self._try_again_later(revision, str(error.cause or error))
            return
        self._state = self._state.model_copy(
            update={
                "projected_revision": revision,
                "projection": projection,
                "before": None,
                "reopening": False,
                "trouble": "",
            }
        )
        self._note_gate(projection)
        self._drop_gate(projection)

    def _note_open(self) -> None:
        """Remember for which gate the node was found open: it may be taken down again without a verdict."""
        gate = gate_of(self._state.holds)
        if gate and len(self._state.holds) == 1:
            self._state = self._state.model_copy(update={"opened_before": gate.id})

    def _note_gate(self, projection: Projection) -> None:
        gate = self._state.gate
        if gate and not gate.opened and projection.seen and not projection.drained and not projection.problem:
            self._state = self._state.model_copy(update={"gate": gate.model_copy(update={"opened": True})})

    def _drop_gate(self, projection: Projection) -> None:
        """Take a gate down for which nothing was built, if the node was open before it or is not there at all."""
        id_ = self._state.dropping
        if id_ is None:
            return
        holds = self._state.holds
        if self._state.opened_before == id_ or not projection.seen:
            gone = tuple(hold for hold in holds if hold.id == id_)
            left = tuple(hold for hold in holds if hold.id != id_)
            self._record(holds=left, dropping=None, reopening=True, ended=self._with_ended(*gone))
        else:
            left = gate_why_left(holds, id_, "not in service before, and no burn-in of ours has passed")
            self._record(holds=left, dropping=None)

    async def _show(self, before: OpenNode | None) -> Projection:
        params = contract.ProjectParams(
            site=self._site,
            node=self._node,
            holds=self._state.holds,
            ended=self._state.ended,
            gate=self._state.gate,
            before_verdict=any(hold.kind is not HoldKind.DRAIN for hold in self._state.holds),
            before=before,
            proven=self._state.proof.build if self._state.proof and not self._state.reopening else None,
        )
        return await workflow.execute_activity_method(
            ProjectionActivities.project_holds,
            params,
            summary=f"{'drain the node for' if before else 'show'} {len(params.holds)} hold(s) in SLURM",
            **policies.PROJECTION,
        )

    async def _try_again_later(self, revision: int, trouble: str) -> None:
        self._state = self._state.model_copy(update={"trouble": trouble})
        workflow.set_current_details(actor_details(self._node, self._state))
        try:
            await workflow.wait_condition(lambda: self._state.revision > revision, timeout=RETRY_PROJECTION)
        except TimeoutError:
            self._look = True

    def _record(self, **changes: object) -> None:
        self._state = self._state.model_copy(update={**changes, "revision": self._state.revision + 1})

    def _with_ended(self, *holds: Hold) -> tuple[str, ...]:
        new = tuple(hold.id for hold in holds if hold.id not in self._state.ended)
        return (self._state.ended + new)[-contract.MAX_ENDED :]

    # -- what callers do

    @workflow.query(name=contract.QUERY_VIEW)
    def view(self) -> ActorState:
        return self._state

    @workflow.signal(name=contract.SIGNAL_LOOK)
    def look(self) -> None:
        self._look = True

    @workflow.update(name=contract.UPDATE_CLAIM)
    def claim(self, request: contract.ClaimRequest | None) -> contract.ClaimAnswer:
        request = given(request, contract.ClaimRequest)
        held = self._state.claim
        if held and held.id != request.id:
            return contract.ClaimAnswer(granted=False, state=self._state)
        if request.id in self._state.ended:
            raise ApplicationError(
                f"operation {request.id} has ended already", type=Failure.CLAIM_LOST, non_retryable=True
            )
        holds = self._state.holds
        if request.gate_why and all(hold.id != request.id for hold in holds):
            gate = Hold(
                id=request.id,
                owner=request.owner,
                why=request.gate_why,
                since=workflow.now(),
                kind=HoldKind.GATE,
            )
            holds = (*holds, gate)
        if not held or holds != self._state.holds:
            claim = held or Claim(
                id=request.id,
                verb=request.verb,
                workflow_id=request.workflow_id,
                started_by=request.started_by,
                since=workflow.now(),
            )
            self._record(claim=claim, holds=holds)
        return contract.ClaimAnswer(granted=True, state=self._state)

    @workflow.update(name=contract.UPDATE_UNCLAIM)
    def unclaim(self, request: contract.ClaimEnd | None) -> ActorState:
        request = given(request, contract.ClaimEnd)
        return self._end_claim(request)

    @workflow.update(name=contract.UPDATE_REAP_CLAIM)
    def reap_claim(self, request: contract.ClaimEnd | None) -> ActorState:
        """Like `unclaim`, by somebody who has seen that the holder is closed. Its gate stays as a hold."""
        request = given(request, contract.ClaimEnd)
        return self._end_claim(request)

    def _end_claim(self, request: contract.ClaimEnd) -> ActorState:
        held = self._state.claim
        if held and held.id == request.claim_id:
            holds = self._state.holds
            gate = next((hold for hold in holds if hold.id == held.id and hold.kind is HoldKind.GATE), None)
            ended = (*self._state.ended, held.id)[-contract.MAX_ENDED :]
            dropping = gate.id if gate and not request.keep_gate else None
            if gate and request.keep_gate:
                holds = gate_why_left(holds, gate.id, request.why)
            self._record(claim=None, gate=None, holds=holds, ended=ended, dropping=dropping)
        return self._state

    @workflow.update(name=contract.UPDATE_OPEN_GATE)
    def open_gate(self, request: contract.OpenGate | None) -> ActorState:
        request = given(request, contract.OpenGate)
        self._must_have(request.claim_id)
        known = self._state.gate
        if not known or (known.build, known.reservation) != (request.gate.build, request.gate.reservation):
            self._record(gate=request.gate)
        return self._state

    @workflow.update(name=contract.UPDATE_END_GATE)
    def end_gate(self, request: contract.EndGate | None) -> ActorState:
        request = given(request, contract.EndGate)
        self._must_have(request.claim_id)
        gates = tuple(hold for hold in self._state.holds if hold.kind is not HoldKind.DRAIN)
        if request.proof:
            if gates or self._state.gate:
                kept = tuple(hold for hold in self._state.holds if hold.kind is HoldKind.DRAIN)
                self._record(holds=kept, gate=None, proof=request.proof, ended=self._with_ended(*gates))
            return self._state
        holds = gate_why_left(self._state.holds, request.claim_id, request.why)
        if all(hold.id != request.claim_id for hold in holds):  # a verdict that is taken back
            back = Hold(
                id=request.claim_id, owner="adopt", why=request.why, since=workflow.now(), kind=HoldKind.VERDICT
            )
            holds = (*holds, back)
        older = tuple(hold for hold in gates if hold.id != request.claim_id)
        if holds != self._state.holds or self._state.gate:
            self._record(
                holds=tuple(hold for hold in holds if hold not in older),
                gate=None,
                proof=None,
                ended=tuple(one for one in self._with_ended(*older) if one != request.claim_id),
            )
        return self._state

    @workflow.update(name=contract.UPDATE_PLACE_HOLD)
    def place_hold(self, request: contract.PlaceHold | None) -> ActorState:
        request = given(request, contract.PlaceHold)
        hold = request.hold
        if hold.id in self._state.ended:
            raise ApplicationError(
                f"hold {hold.id} has ended already; a new drain is a new hold",
                type=Failure.HOLD_ENDED,
                non_retryable=True,
            )
        if all(known.id != hold.id for known in self._state.holds):
            self._record(holds=(*self._state.holds, hold))
        return self._state

    @workflow.update(name=contract.UPDATE_END_HOLD)
    def end_hold(self, request: contract.EndHold | None) -> ActorState:
        request = given(request, contract.EndHold)
        found = next((hold for hold in self._state.holds if hold.id == request.hold_id), None)
        if found and found.kind is HoldKind.GATE:
            raise ApplicationError(
                f"{found.id} is the gate of a running operation; it ends with its verdict",
                type=Failure.GATE_NOT_OPEN,
                non_retryable=True,
            )
        if found and found.kind is HoldKind.VERDICT and not request.override:
            raise ApplicationError(
                f"{found.id} stands for a build without a pass ({found.why}); adopt the node, or end it with override",
                type=Failure.NEEDS_OVERRIDE,
                non_retryable=True,
            )
        if found:
            left = tuple(hold for hold in self._state.holds if hold is not found)
            self._record(holds=left, ended=self._with_ended(found))
        return self._state

    def _must_have(self, claim_id: str) -> None:
        if not self._state.claim or self._state.claim.id != claim_id:
            raise ApplicationError(
                f"operation {claim_id} does not have node {self._node} any more",
                type=Failure.CLAIM_LOST,
                non_retryable=True,
            )
