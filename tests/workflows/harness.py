"""Running the real workflows and activities on a fake site: a worker for each test, with a hand on each step."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker
from tests.fakes.site import DEVICE, NODE, FakeSite

from fleet_manager.temporal.contracts import adopt, node_actor
from fleet_manager.temporal.contracts.common import task_queue
from fleet_manager.temporal.worker import site_activities, site_workers


class Steps(Interceptor):
    """Stops at activities, or lets them fail: before they do anything, or with their answer lost."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.stop_before: str | None = None
        self.fail: dict[str, ApplicationError] = {}
        self.lose_answer: set[str] = set()
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Step(next, self)


class _Step(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, steps: Steps) -> None:
        super().__init__(next)
        self._steps = steps

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        steps, name = self._steps, activity.info().activity_type
        steps.seen.append(name)
        if steps.stop_before == name:
            steps.stop_before = None
            steps.stopped.set()
            await steps.go_on.wait()
        if name in steps.fail:
            raise steps.fail.pop(name)
        result = await super().execute_activity(input)
        if name in steps.lose_answer:
            steps.lose_answer.remove(name)
            raise ApplicationError("the worker died before it could answer", type="WorkerDied")
        return result


@dataclass
class Bench:
    """A fake site with its worker, and what tests do with it."""

    client: Client
    site: FakeSite
    steps: Steps
    handles: list[WorkflowHandle[Any, Any]] = field(default_factory=list)

    async def start(self, id: str | None = None, **more: Any) -> WorkflowHandle[Any, adopt.AdoptResult]:
        handle = await self.client.start_workflow(
            adopt.WORKFLOW,
            adopt.AdoptInput(site=self.site.id, device=DEVICE, **more),
            id=id or f"{adopt.workflow_id(self.site.id, NODE)}-{uuid.uuid4().hex[:6]}",
            task_queue=task_queue(self.site.id),
            result_type=adopt.AdoptResult,
        )
        self.handles.append(handle)
        return handle

    async def adopt(self, **more: Any) -> adopt.AdoptResult:
        return await (await self.start(**more)).result()

    async def fail(self, **more: Any) -> ApplicationError:
        with pytest.raises(WorkflowFailureError) as error:
            await self.adopt(**more)
        assert isinstance(error.value.cause, ApplicationError)
        return error.value.cause

    async def cancel(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Cancel, and return once the workflow has heard of it.

        Nothing may end in the same moment: the time-skipping server refuses the cancel of an activity that has just
        ended, and hangs then ("ACTIVITY_UNKNOWN"); a real one takes it.
        """
        await handle.cancel()
        for _ in range(400):
            kinds = [event.event_type async for event in handle.fetch_history_events()]
            heard = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
            if heard in kinds and EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in kinds[kinds.index(heard) :]:
                return
            await asyncio.sleep(0.02)
        pytest.fail("the workflow did not hear of its cancel")

    @property
    def actor_handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(node_actor.workflow_id(self.site.id, NODE))

    async def actor(self) -> node_actor.ActorState:
        """Return the actor's record once it is projected."""
        for _ in range(400):
            state: node_actor.ActorState = await self.actor_handle.query(
                node_actor.QUERY_VIEW, result_type=node_actor.ActorState
            )
            if state.projected_revision == state.revision:
                return state
            await asyncio.sleep(0.02)
        pytest.fail(f"the actor did not project: {state}")


@asynccontextmanager
async def bench(client: Client, site: FakeSite) -> AsyncIterator[Bench]:
    """Run the site's workers; the actors that a test leaves are terminated."""
    steps = Steps()
    activities = site_activities(client, site.peers, site.settings, site.nova_settings, now=site.now)
    workers = site_workers(client, activities, site.id, interceptors=[steps])
    one = Bench(client, site, steps)
    async with _running(workers):
        try:
            yield one
        finally:
            steps.go_on.set()
            await _end(one)


@asynccontextmanager
async def _running(workers: list[Worker]) -> AsyncIterator[None]:
    async with workers[0], workers[1]:
        yield


async def _end(one: Bench) -> None:
    for handle in [*one.handles, one.actor_handle]:
        try:
            await handle.terminate("the test is over")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it ended by itself, or never began
                raise


async def until(fact: Callable[[], object], what: str) -> None:
    """Wait for a fact of the fakes."""
    for _ in range(500):
        if fact():
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"waited in vain for {what}")
