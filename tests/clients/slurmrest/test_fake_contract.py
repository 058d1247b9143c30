"""The fake SLURM keeps the contract of the real ones, so that a test on it says something about them."""

from dataclasses import dataclass

import pytest
from tests.clients.slurmrest.contract import SlurmContract
from tests.fakes.slurm import FakeSlurm
from tests.fakes.slurm_cluster import FakeCluster

from fleet_manager.core.clients.slurmrest.protocol import SlurmClient


@dataclass
class FakeWorld:
    """A fake cluster and two of its users."""

    fleet: FakeSlurm
    user: FakeSlurm
    fleet_user = "fleet"
    job_user = "alice"
    jobs_folder = "/tmp"

    @property
    def newest(self) -> bool:
        return self.fleet.cluster.newest

    @property
    def version(self) -> str:
        return str(self.fleet.cluster.version)

    async def foreign_update(self, node: str, state: str, reason: str) -> None:
        self.fleet.cluster.foreign_update(node, state, reason)

    async def machine(self, name: str, *, instance_id: str, extra: str) -> None:
        self.fleet.cluster.register(name, drained="born held", instance_id=instance_id, extra=extra)

    async def remove_machine(self, name: str) -> None:
        self.fleet.cluster.lose(name)


def a_world(newest: bool) -> FakeWorld:
    cluster = FakeCluster(newest=newest)
    cluster.add_static("gpu01", "gpu02")
    for name in ("dyn01", "dyn02"):
        cluster.register(name)
    fleet: SlurmClient = FakeSlurm(cluster)
    assert isinstance(fleet, FakeSlurm)
    return FakeWorld(fleet, fleet.as_user("alice"))


class TestFakeNewest(SlurmContract):
    """The contract on the fake 26.05."""

    @pytest.fixture
    def world(self) -> FakeWorld:
        return a_world(newest=True)


class TestFakeOldest(SlurmContract):
    """The contract on the fake 24.11."""

    @pytest.fixture
    def world(self) -> FakeWorld:
        return a_world(newest=False)
