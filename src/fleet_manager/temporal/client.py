"""Connecting to Temporal, and making a namespace fit for us. The pydantic converter is on every client of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    RegisterNamespaceRequest,
)
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from fleet_manager.settings.temporal import TemporalSettings
from fleet_manager.temporal import search_attributes

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

NAMESPACE_LOOK_SECONDS = 0.5
NAMESPACE_LOOKS = 120
"""A minute: the namespace cache of a Temporal server is refreshed every 2 to 10 s."""


async def connect(settings: TemporalSettings, *, identity: str | None = None) -> Client:
    """Connect. Raises RuntimeError of the SDK when nobody answers at the address."""
    return await Client.connect(
        settings.address, namespace=settings.namespace, data_converter=pydantic_data_converter, identity=identity
    )


async def is_served(client: Client, queue: str) -> bool:
    """Say whether a worker polls this queue for workflows (it polls at least once a minute, the server keeps five)."""
    seen = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    return bool(seen.pollers)


async def prepare_namespace(settings: TemporalSettings) -> list[str]:
    """Make namespace and search attributes if they are not there; return what was made. Safe to repeat."""
    client = await connect(settings)
    made: list[str] = []
    if await _register(client, settings):
        made.append(f"namespace {settings.namespace}")
    for name in await _add_search_attributes(client, settings.namespace):
        made.append(f"search attribute {name}")
    # so that whoever starts a workflow next does not meet a frontend that does not know the namespace yet
    await _once_known(lambda: client.count_workflows(f"{search_attributes.SITE.name} = 'nowhere'"))
    return made


async def _register(client: Client, settings: TemporalSettings) -> bool:
    service = client.workflow_service
    try:
        await service.describe_namespace(DescribeNamespaceRequest(namespace=settings.namespace))
        return False
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    retention = Duration()
    retention.FromTimedelta(timedelta(days=settings.retention_days))
    request = RegisterNamespaceRequest(
        namespace=settings.namespace,
        description="Fleet Manager SLURM satellite",
        workflow_execution_retention_period=retention,
    )
    return await _unless_there(service.register_namespace(request))


async def _unless_there(call: Awaitable[object]) -> bool:
    """Return whether the call made it; False when somebody else did meanwhile."""
    try:
        await call
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return False
        raise
    return True


async def _once_known(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make a call about a namespace that was just made: each part of the server learns of it in its own time."""
    for _ in range(NAMESPACE_LOOKS):
        try:
            return await call()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        await asyncio.sleep(NAMESPACE_LOOK_SECONDS)
    return await call()


async def _add_search_attributes(client: Client, namespace: str) -> list[str]:
    operator = client.operator_service
    known = await _once_known(
        lambda: operator.list_search_attributes(ListSearchAttributesRequest(namespace=namespace), retry=True)
    )
    missing = [key.name for key in search_attributes.ALL if key.name not in known.custom_attributes]
    if missing:
        kinds = dict.fromkeys(missing, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
        await operator.add_search_attributes(
            AddSearchAttributesRequest(namespace=namespace, search_attributes=kinds), retry=True
        )
    return missing
