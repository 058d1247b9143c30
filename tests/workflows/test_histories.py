"""Records the histories that `tests/replay` holds the code to (`make histories`); else it only runs the branches."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from tests.fakes.site import NODE
from tests.workflows.harness import Bench
from tests.workflows.test_node_actor import end, hold, place

from fleet_manager.temporal.contracts import node_actor as contract

FOLDER = Path(__file__).parents[1] / "replay" / "histories"

pytestmark = pytest.mark.parametrize("temporal_kind", [pytest.param("local", marks=pytest.mark.temporal)])


async def keep(request: pytest.FixtureRequest, handle: WorkflowHandle[Any, Any], name: str) -> int:
    """Write the history if asked to; return how many events it has."""
    history = await handle.fetch_history()
    if request.config.getoption("--record-histories"):
        clean = scrubbed(history.to_json_dict())
        (FOLDER / f"{name}.json").write_text(json.dumps(clean, indent=1, sort_keys=True) + "\n")
    return len(history.events)


def scrubbed(value: Any) -> Any:
    """Take out what names the machine that it was recorded on; a replay does not look at it."""
    if isinstance(value, dict):
        named = {"stackTrace": "", "identity": "recorded"}
        return {key: named.get(key, scrubbed(inner)) for key, inner in value.items()}
    return [scrubbed(inner) for inner in value] if isinstance(value, list) else value


async def test_an_adoption_by_create_and_its_actor(at: Bench, request: pytest.FixtureRequest) -> None:
    handle = await at.start()
    await handle.result()
    assert await keep(request, handle, "adopt-create") <= 120
    await at.actor()
    assert await keep(request, at.actor_handle, "actor-of-an-adoption") <= 120


async def test_an_adoption_by_rebuild(at: Bench, request: pytest.FixtureRequest) -> None:
    await at.adopt()
    handle = await at.start(force_rebuild=True)
    await handle.result()
    assert await keep(request, handle, "adopt-rebuild") <= 120


async def test_an_adoption_that_finds_everything_done(at: Bench, request: pytest.FixtureRequest) -> None:
    await at.adopt()
    handle = await at.start()
    await handle.result()
    assert await keep(request, handle, "adopt-already") <= 30


async def test_an_adoption_whose_burn_in_fails(at: Bench, request: pytest.FixtureRequest) -> None:
    at.site.burn_in = lambda _: (timedelta(0), 22)
    handle = await at.start()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await keep(request, handle, "adopt-burn-in-failed") <= 120


async def test_an_adoption_that_is_refused(at: Bench, request: pytest.FixtureRequest) -> None:
    at.site.configs.configs[0] = at.site.config(image=None)
    handle = await at.start()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await keep(request, handle, "adopt-refused") <= 20


@pytest.mark.parametrize("step", ["claim_node", "build_server", "wait_registered", "wait_for_job", "unreserve_node"])
async def test_an_adoption_that_is_cancelled(at: Bench, request: pytest.FixtureRequest, step: str) -> None:
    at.steps.stop_before = step
    handle = await at.start()
    await at.steps.stopped.wait()
    await at.cancel(handle)
    at.steps.go_on.set()
    if step == "unreserve_node":
        await handle.result()
    else:
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert await keep(request, handle, f"adopt-cancelled-at-{step.replace('_', '-')}") <= 120


async def test_an_actor_of_holds(at: Bench, request: pytest.FixtureRequest) -> None:
    at.site.cluster.register(NODE)
    for number in range(1, 4):
        await place(at, hold(at, number))
    for number in range(1, 4):
        await end(at, hold(at, number))
    await at.actor_handle.signal(contract.SIGNAL_LOOK)
    await at.actor()
    assert await keep(request, at.actor_handle, "actor-of-holds") <= 120
