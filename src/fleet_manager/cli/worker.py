"""`fleet-manager worker`: run the Temporal worker of one site."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from fleet_manager.cli.told import told
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings
from fleet_manager.settings.clients.nova import NovaSettings
from fleet_manager.settings.clients.onepassword import OnePasswordSettings
from fleet_manager.settings.clients.slurm import SlurmSettings
from fleet_manager.settings.site import SiteSettings
from fleet_manager.settings.temporal import TemporalSettings
from fleet_manager.temporal.client import connect
from fleet_manager.temporal.worker import open_peers, run, site_activities, site_workers

app = typer.Typer(no_args_is_help=True, help=__doc__)
log = logging.getLogger(__name__)


@app.command("run")
def run_worker(
    watch: Annotated[bool, typer.Option(help="Also poll the watch queue; one process of a site must.")] = True,
) -> None:
    """Serve the site's task queues until SIGTERM. Settings come from FLEET_* in the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("httpx", "httpcore", "keystoneauth", "openstack", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with told():
        asyncio.run(_serve(watch=watch))


async def _serve(*, watch: bool) -> None:
    site = SiteSettings()
    nova = NovaSettings()
    slurm = SlurmSettings()
    hub = FleetManagerSettings()
    client = await connect(TemporalSettings(), identity=f"temporal-worker-{site.id}")
    async with open_peers(hub, slurm, nova, OnePasswordSettings()) as peers:
        facts = await peers.nova.check()
        log.info("nova: microversion %s of %s", facts.microversion, facts.offered)
        if not facts.pin_expected:
            log.warning("this OpenStack credential sees no hypervisors: creating on a device's own machine will fail")
        activities = site_activities(client, peers, site, nova)
        await run(site_workers(client, activities, site.id, watch=watch))
