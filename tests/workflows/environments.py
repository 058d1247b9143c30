"""The Temporal servers of the workflow tests, as a pytest plugin: time-skipping, and a real dev server.

Both, by default: the time-skipping one lets things pass that hang on a real server, and a real one waits in real time.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from fleet_manager.temporal import search_attributes

BIN = Path(sys.executable).parent
KINDS = ("time-skipping", "local")


@pytest.fixture(scope="session")
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """The time-skipping server, with our search attributes."""
    environment = await WorkflowEnvironment.start_time_skipping(
        data_converter=pydantic_data_converter,
        test_server_existing_path=str(BIN / "temporal-test-server"),
    )
    async with environment:
        kinds = {key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for key in search_attributes.ALL}
        await environment.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=environment.client.namespace, search_attributes=kinds)
        )
        yield environment


@pytest.fixture(scope="session")
async def dev_server() -> AsyncIterator[WorkflowEnvironment]:
    """A real dev server in memory, with our search attributes."""
    environment = await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        dev_server_existing_path=str(BIN / "temporal"),
        search_attributes=search_attributes.ALL,
        dev_server_log_level="error",
    )
    async with environment:
        yield environment


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `temporal_kind` on each server; the one on the real server is marked `temporal`."""
    chosen_there = any("temporal_kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "temporal_kind" in metafunc.fixturenames and not chosen_there:
        chosen = metafunc.config.getoption("--workflow-environment")
        kinds = [kind for kind in KINDS if chosen in ("both", kind)]
        marks = {"local": [pytest.mark.temporal]}
        metafunc.parametrize("temporal_kind", [pytest.param(kind, marks=marks.get(kind, [])) for kind in kinds])


@pytest.fixture
def temporal(temporal_kind: str, request: pytest.FixtureRequest) -> WorkflowEnvironment:
    """One of the two servers."""
    name = "time_skipping" if temporal_kind == "time-skipping" else "dev_server"
    environment: WorkflowEnvironment = request.getfixturevalue(name)
    return environment
