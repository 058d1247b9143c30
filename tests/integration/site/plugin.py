"""The session's whole site, as a pytest plugin: SLURM 26.05, Nova with metal, Temporal, hub, and the worker process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

import fmlab
from fleet_manager.temporal.contracts import adopt, node_actor
from fleet_manager.temporal.contracts.common import task_queue
from fmlab import proof
from fmlab.configs import ensure_config
from fmlab.hub import HPC
from fmlab.procs import guarded
from fmlab.site import ROLE, SITE, Site, device, site_down, site_up, user_data

LAB = Path(next(iter(fmlab.__path__))).parent
DEVICES = 16
OTHER_ROLES = ("no-image", "no-such-image", "no-row", "small-flavor", "changing")


@dataclass(frozen=True)
class Failed:
    """How an adoption failed: what a caller and the UI see."""

    type: str
    message: str


@dataclass(frozen=True)
class RunningSite:
    """The site, and what tests do with it. Each test takes devices of its own: `gpu-001` and so on."""

    site: Site
    client: Client

    async def start(self, name: str, **more: Any) -> WorkflowHandle[Any, adopt.AdoptResult]:
        """Start an adoption as the CLI does."""
        return await self.client.start_workflow(
            adopt.WORKFLOW,
            adopt.AdoptInput(site=SITE, device=name, **more),
            id=adopt.workflow_id(SITE, name),
            task_queue=task_queue(SITE),
            result_type=adopt.AdoptResult,
        )

    async def adopt(self, name: str, **more: Any) -> adopt.AdoptResult:
        return await (await self.start(name, **more)).result()

    async def fail(self, name: str, **more: Any) -> Failed:
        """Adopt what must not pass, and return how it failed."""
        with pytest.raises(WorkflowFailureError) as error:
            await self.adopt(name, **more)
        cause = error.value.cause
        assert isinstance(cause, ApplicationError)
        return Failed(cause.type or "", cause.message)

    async def actor(self, node: str) -> node_actor.ActorState:
        handle = self.client.get_workflow_handle(node_actor.workflow_id(SITE, node))
        state: node_actor.ActorState = await handle.query(node_actor.QUERY_VIEW, result_type=node_actor.ActorState)
        return state

    async def until_phase(self, handle: WorkflowHandle[Any, Any], phase: adopt.AdoptPhase) -> adopt.AdoptProgress:
        """Wait until the adoption is in a phase."""
        for _ in range(600):
            seen: adopt.AdoptProgress = await handle.query(adopt.QUERY_PROGRESS, result_type=adopt.AdoptProgress)
            if seen.phase == phase:
                return seen
            await asyncio.sleep(0.1)
        pytest.fail(f"the adoption never came to {phase}")

    def node(self, name: str) -> dict[str, Any]:
        return proof.slurm_node(self.site.slurm, name)

    def servers(self, name: str) -> list[dict[str, Any]]:
        with self.site.nova.api("admin") as nova:
            return [one for one in nova.servers() if one["name"] == name]

    def config(self, role: str, **more: Any) -> None:
        """Write a role's bootstrap configuration, as HPC does."""
        values = {"image": "slurm-node-b", "user_data": user_data("2"), **more}
        ensure_config(self.site.hub.client_env(HPC), SITE, role=role, **values)

    def user_job(self, *more: str) -> int:
        """Submit a job of an ordinary user for a whole node of the partition."""
        slurm = self.site.slurm
        out = slurm.run(
            *("sbatch", "--parsable", f"--uid={slurm.job_user}", "-p", "main", "-N", "1", "--gres=gpu:8"),
            *("--exclusive", "-D", str(slurm.jobs), "-o", f"{slurm.jobs}/user-%j.out", *more, "--wrap", "date"),
        )
        return int(out)

    def make_server(self, name: str, device_id: str, *, image: str, flavor: str = "gpu-h100") -> str:
        """Make a server by hand on the device's machine, as of an earlier life."""
        number = int(name.rpartition("-")[2])
        with self.site.nova.api("ops-app") as nova:
            body = {
                "name": name,
                "imageRef": nova.id_of("image", "/v2/images", image),
                "flavorRef": nova.id_of("compute", "/flavors", flavor),
                "networks": "none",
                "user_data": user_data("1"),
                "metadata": {"fm_build": "of-an-earlier-life"},
                "tags": [f"fm-device-{device_id}"],
                "hypervisor_hostname": device(number)["hypervisor_hostname"],
            }
            answer = nova.request("POST", "/servers", {"server": body})
            made: str = answer.raise_for_status().json()["server"]["id"]
        return made


def _site(folder: Path) -> Iterator[Site]:
    roles = {n + DEVICES - len(OTHER_ROLES) + 1: role for n, role in enumerate(OTHER_ROLES)}
    devices = [{**device(n, roles.get(n, ROLE)), "id": f"dev-{n:03d}"} for n in range(1, DEVICES + 1)]
    clean_up = [sys.executable, "-m", "fmlab.site", "down", str(folder)]
    with guarded(clean_up, env={**os.environ, "PYTHONPATH": str(LAB)}):
        try:
            yield site_up(folder, devices=devices)
        finally:
            site_down(folder)


@pytest.fixture(scope="session")
def lab_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site itself; its logs stay where pytest keeps the files of its last runs."""
    yield from _site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
async def running_site(lab_site: Site) -> RunningSite:
    """The site with a Temporal client, and the role's configuration written."""
    client = await Client.connect(
        lab_site.temporal.address, namespace=proof.NAMESPACE, data_converter=pydantic_data_converter
    )
    site = RunningSite(lab_site, client)
    await asyncio.to_thread(site.config, ROLE)
    return site
