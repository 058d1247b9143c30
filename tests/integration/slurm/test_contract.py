"""The real SLURM, the newest and the oldest that we serve, keeps the client's contract."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.clients.slurmrest.contract import SlurmContract

from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.settings.clients.slurm import SlurmSettings
from fmlab.procs import Daemons, free_port
from fmlab.slurm import SlurmSite

pytestmark = pytest.mark.slurm


def client_of(site: SlurmSite, user: str, ttl_s: float = 86400) -> SlurmRestClient:
    """Return a client whose token comes from the environment, as in the lab."""
    name = f"CT_TOKEN_{site.suite}_{user}_{int(ttl_s < 0)}"
    os.environ[name] = site.token(user, ttl_s)
    return SlurmRestClient(SlurmSettings(url=site.url, jwt_op_item=f"env://{name}"))  # type: ignore[arg-type]


@dataclass
class RealWorld:
    """A cluster of the lab."""

    site: SlurmSite
    fleet: SlurmRestClient
    user: SlurmRestClient
    machines: set[str] = field(default_factory=set)

    @property
    def fleet_user(self) -> str:
        return self.site.fleet_user

    @property
    def job_user(self) -> str:
        return self.site.job_user

    @property
    def newest(self) -> bool:
        return self.site.suite == "sid"

    @property
    def version(self) -> str:
        return self.site.version

    @property
    def jobs_folder(self) -> str:
        return str(self.site.jobs)

    async def foreign_update(self, node: str, state: str, reason: str) -> None:
        words = ["scontrol", "update", f"nodename={node}", f"state={state}", *([f"reason={reason}"] if reason else [])]
        await asyncio.to_thread(self.site.run, *words)

    async def machine(self, name: str, *, instance_id: str, extra: str) -> None:
        site = self.site
        said = f"NodeHostname={site.hostname} NodeAddr=127.0.0.1 Port={free_port()} {site.hardware} Gres=gpu:h100:8"
        command = [str(site.sbin / "slurmd"), "-D", "-d", str(site.sbin / "slurmstepd"), "-N", name, "-Z", "-b"]
        command += ["--instance-id", instance_id, "--extra", extra]
        command += ["--conf", f'{said} Feature=dynamic State=DRAIN Reason="born held"']
        self.machines.add(name)
        Daemons(site.dir).start(f"slurmd-{name}", command, env=site.process_env)
        for _ in range(300):
            if name in await asyncio.to_thread(site.run, "sinfo", "-h", "-N", "-o", "%N"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} did not register")

    async def remove_machine(self, name: str) -> None:
        await asyncio.to_thread(Daemons(self.site.dir).stop, f"slurmd-{name}")
        self.machines.discard(name)


async def _world(site: SlurmSite) -> AsyncIterator[RealWorld]:
    async with client_of(site, site.fleet_user) as fleet, client_of(site, site.job_user) as user:
        world = RealWorld(site, fleet, user)
        try:
            yield world
        finally:
            for name in set(world.machines):
                await world.remove_machine(name)


@pytest.fixture(scope="session")
async def newest_world(slurm_newest: SlurmSite) -> AsyncIterator[RealWorld]:
    async for world in _world(slurm_newest):
        yield world


@pytest.fixture(scope="session")
async def oldest_world(slurm_oldest: SlurmSite) -> AsyncIterator[RealWorld]:
    async for world in _world(slurm_oldest):
        yield world


class TestNewest(SlurmContract):
    """The contract on 26.05."""

    @pytest.fixture
    def world(self, newest_world: RealWorld) -> RealWorld:
        return newest_world


class TestOldest(SlurmContract):
    """The contract on 24.11."""

    @pytest.fixture
    def world(self, oldest_world: RealWorld) -> RealWorld:
        return oldest_world
