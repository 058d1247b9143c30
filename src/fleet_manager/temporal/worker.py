"""The worker of one site: its workflows and short activities on one queue, its waits on the watch queue.

The watch queue must be polled by one process of a site, so that one watch serves all waits: start further workers with
`watch=False`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, Worker

from fleet_manager.core.clients.fleet_manager import FleetManager, FleetManagerClient
from fleet_manager.core.clients.nova.client import OpenStackNova
from fleet_manager.core.clients.nova.models import NovaClient
from fleet_manager.core.clients.oauth import PrivateKeyJwtAuth
from fleet_manager.core.clients.onepassword import process_client
from fleet_manager.core.clients.slurm_bootstrap_config import SlurmBootstrapConfigClient, SlurmBootstrapConfigReader
from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.core.clients.slurmrest.protocol import SlurmClient
from fleet_manager.core.clients.watch import Watch
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings
from fleet_manager.settings.clients.nova import NovaSettings
from fleet_manager.settings.clients.onepassword import OnePasswordSettings
from fleet_manager.settings.clients.slurm import SlurmSettings
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.adoption import AdoptionActivities
from fleet_manager.temporal.activities.burn_in import BurnInActivities
from fleet_manager.temporal.activities.device_facts import DeviceFacts
from fleet_manager.temporal.activities.errors import ErrorMapping
from fleet_manager.temporal.activities.hub import HubActivities
from fleet_manager.temporal.activities.node_actor import NodeActorActivities
from fleet_manager.temporal.activities.nova import NovaActivities
from fleet_manager.temporal.activities.projection import ProjectionActivities
from fleet_manager.temporal.activities.slurm import SlurmActivities
from fleet_manager.temporal.contracts.common import task_queue, watch_queue
from fleet_manager.temporal.workflows.adopt import AdoptWorkflow
from fleet_manager.temporal.workflows.node_actor import NodeActor

log = logging.getLogger(__name__)

WORKFLOWS: Sequence[type] = (AdoptWorkflow, NodeActor)

WORKER_SCOPES = ("device:read", "device:update", "slurm-bootstrap-config:read")
"""What the roster must grant `temporal-worker-<site>`."""

GRACE = timedelta(seconds=20)
"""What a stopping worker gives its activities; a pod's grace must be longer."""

MAX_WAITS = 6000
"""Waits at once on the watch queue: a whole site of 5,000 nodes drains at once."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Peers:
    """Everything that the activities talk to."""

    slurm: SlurmClient
    nova: NovaClient
    hub: FleetManager
    configs: SlurmBootstrapConfigReader


@asynccontextmanager
async def open_peers(
    hub: FleetManagerSettings, slurm: SlurmSettings, nova: NovaSettings, onepassword: OnePasswordSettings
) -> AsyncIterator[Peers]:
    """Connect to the site's peers, and close them after."""
    async with AsyncExitStack() as stack:
        auth = PrivateKeyJwtAuth.from_settings(hub, WORKER_SCOPES)
        devices, configs = FleetManagerClient(hub, auth=auth), SlurmBootstrapConfigClient(hub, auth=auth)
        site_slurm, site_nova = (
            SlurmRestClient(slurm, resolve=process_client(onepassword.service_account_token).resolve),
            OpenStackNova(nova),
        )
        await stack.enter_async_context(devices)
        await stack.enter_async_context(configs)
        await stack.enter_async_context(site_slurm)
        await stack.enter_async_context(site_nova)
        yield Peers(slurm=site_slurm, nova=site_nova, hub=devices, configs=configs)


@dataclass(frozen=True)
class SiteActivities:
    """The activities of a site, by queue."""

    short: Sequence[Callable[..., Any]]
    waits: Sequence[Callable[..., Any]]


def site_activities(
    client: Client,
    peers: Peers,
    site: SiteSettings,
    nova: NovaSettings,
    now: Callable[[], datetime] = utc_now,
) -> SiteActivities:
    """Make the activities, with the one watch of this process."""
    interval = site.watch_interval.total_seconds()
    watch = Watch(peers.slurm, interval=interval)
    actors = NodeActorActivities(client)
    facts = DeviceFacts(
        slurm=peers.slurm,
        nova=peers.nova,
        devices=peers.hub,
        configs=peers.configs,
        actors=actors,
        site=site,
        now=now,
    )
    adoption = AdoptionActivities(facts=facts, nova=peers.nova, site=site, servers=nova)
    projection = ProjectionActivities(
        slurm=peers.slurm,
        slurm_user=site.slurm_user,
        birth_reason=site.birth_reason,
        slurm_users=site.slurm_users,
        now=now,
    )
    node = SlurmActivities(slurm=peers.slurm, watch=watch, actors=actors, site=site, now=now)
    burn_in = BurnInActivities(slurm=peers.slurm, watch=watch, site=site, now=now)
    server = NovaActivities(nova=peers.nova, interval=interval, now=now)
    return SiteActivities(
        short=(
            actors.claim_node,
            actors.open_gate,
            actors.end_gate,
            actors.unclaim_node,
            adoption.survey_device,
            adoption.build_server,
            projection.project_holds,
            node.settle_node,
            node.reserve_node,
            node.unreserve_node,
            burn_in.submit_burn_in,
            HubActivities(peers.hub).record_build,
        ),
        waits=(node.wait_registered, node.wait_in_service, server.wait_for_server, burn_in.wait_for_job),
    )


def site_workers(
    client: Client,
    activities: SiteActivities,
    site: str,
    *,
    watch: bool = True,
    interceptors: Sequence[Interceptor] = (),
) -> list[Worker]:
    """Return the workers of a site, not started: main queue, and the watch queue where this process has it."""
    workers = [
        Worker(
            client,
            task_queue=task_queue(site),
            workflows=WORKFLOWS,
            activities=activities.short,
            interceptors=[ErrorMapping(), *interceptors],
            max_concurrent_activities=100,
            graceful_shutdown_timeout=GRACE,
        )
    ]
    if watch:
        workers.append(
            Worker(
                client,
                task_queue=watch_queue(site),
                activities=activities.waits,
                interceptors=[ErrorMapping(), *interceptors],
                max_concurrent_activities=MAX_WAITS,
                graceful_shutdown_timeout=GRACE,
                max_heartbeat_throttle_interval=timedelta(seconds=100),
            )
        )
    return workers


async def run(workers: Sequence[Worker]) -> None:
    """Run until SIGTERM or SIGINT, then let the activities end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
            log.info("worker on %s", worker.task_queue)
        await stop.wait()
        log.info("stopping")
