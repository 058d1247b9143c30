"""What the client makes of a real SLURM in trouble: dead tokens, an slurmctld that hangs or is gone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.clients.slurmrest.contract import eventually
from tests.integration.slurm.test_contract import client_of

from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.core.clients.slurmrest.errors import (
    SlurmctldTimeout,
    SlurmctldUnavailable,
    SlurmTokenRejected,
    SubmitUnknown,
)
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.settings.clients.slurm import SlurmSettings
from fmlab.procs import Daemons
from fmlab.slurm import SlurmSite, slurm_down, slurm_up

pytestmark = pytest.mark.slurm

JOB = JobSpec("ft-job", "#!/bin/bash\ntrue\n", "main", "/tmp", ("PATH=/usr/bin:/bin",), 5, ("gpu01",))


async def test_a_dead_token_is_told_by_everything_that_is_asked(each_slurm: SlurmSite) -> None:
    async with client_of(each_slurm, each_slurm.fleet_user, ttl_s=-60) as client:
        for call in (
            client.read_node("gpu01"),
            client.read_nodes(),
            client.jobs(),
            client.job(1),
            client.submit(JOB),
            client.cancel(1),
            client.partitions(),
            client.reservations(),
        ):
            with pytest.raises(SlurmTokenRejected):
                await call
        (ping,) = await client.ping()
        assert ping.responding is False


async def test_a_token_that_was_renewed_in_its_file_is_taken_up(each_slurm: SlurmSite, tmp_path: Path) -> None:
    place = tmp_path / "jwt"
    place.write_text(each_slurm.token(each_slurm.fleet_user, ttl_s=-60))
    settings = SlurmSettings(url=each_slurm.url, jwt_op_item=f"file://{place}")  # type: ignore[arg-type]
    async with SlurmRestClient(settings) as client:
        await client.capabilities()
        place.write_text(each_slurm.token(each_slurm.fleet_user))
        nodes = await asyncio.gather(*(client.read_node("gpu01") for _ in range(20)))
        assert {node.name for node in nodes} == {"gpu01"}
        left = client.token.seconds_to_expiry()
        assert left is not None
        assert 86_000 < left <= 86_400


@asynccontextmanager
async def hanging(site: SlurmSite) -> AsyncIterator[None]:
    """Stop slurmctld in its tracks; its port stays open and nobody answers."""
    process = Daemons(site.dir).process("slurmctld")
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def own_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SlurmSite]]:
    """Clusters whose slurmctld a test may stop."""
    folders: list[Path] = []

    def up(suite: str) -> SlurmSite:
        folders.append(tmp_path_factory.mktemp(f"own-{suite}"))
        return slurm_up(folders[-1], suite=suite, static=2)

    try:
        yield up
    finally:
        for folder in folders:
            slurm_down(folder, purge=True)


@pytest.mark.parametrize("suite", ["sid", "trixie"])
async def test_what_timed_out_at_slurmctld_may_be_carried_out_later_and_is_told_so(
    own_slurm: Callable[[str], SlurmSite], suite: str
) -> None:
    """A 504 on a write is not "not done": the job runs and the node is drained once slurmctld goes on."""
    site = own_slurm(suite)
    async with client_of(site, site.fleet_user) as client:
        await client.read_node("gpu02")
        proved = client.prove_one_node
        client.prove_one_node = _taken_as_proved  # type: ignore[method-assign]  # the proof would not get through
        async with hanging(site):
            submit, drain, read, ping = await asyncio.gather(
                client.submit(JOB),
                client.update_node("gpu02", NodeUpdate(NodeStateWord.DRAIN, "ft: late")),
                client.read_node("gpu01"),
                client.ping(),
                return_exceptions=True,
            )
        client.prove_one_node = proved  # type: ignore[method-assign]
        assert (type(submit), type(drain), type(read)) == (SubmitUnknown, SlurmctldTimeout, SlurmctldTimeout)
        assert isinstance(ping, tuple)
        assert ping[0].responding is False
        (job,) = await eventually(lambda: client.jobs_named(JOB.name), bool, "the job that timed out")
        assert job.user == site.fleet_user
        node = await eventually(lambda: client.read_node("gpu02"), lambda node: node.state.drain, "the late drain")
        assert node.hold_reason == "ft: late"


async def _taken_as_proved(name: str) -> None:
    return None


async def test_without_slurmctld_everything_is_unavailable_and_nothing_empty(
    own_slurm: Callable[[str], SlurmSite],
) -> None:
    site = own_slurm("sid")
    async with client_of(site, site.fleet_user) as client:
        await client.capabilities()
        await asyncio.to_thread(Daemons(site.dir).stop, "slurmctld")
        asked = (
            client.read_node("gpu01"),
            client.read_nodes(),
            client.jobs_on_node("gpu01"),
            client.submit(JOB),
            client.cancel(1),
            client.reservations(),
            client.partitions(),
        )
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(one) for one in found} == {SlurmctldUnavailable}
        (ping,) = await client.ping()
        assert ping.responding is False
