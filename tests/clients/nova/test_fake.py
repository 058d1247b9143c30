"""The fake Nova keeps the client's contract, and its knobs do what they say."""

import pytest
from tests.clients.nova.contract import NovaContract, World
from tests.fakes.nova import HOSTS, FakeCloud

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.nova.errors import BuildFailed, LandedElsewhere, NovaBusy, build_error
from fleet_manager.core.clients.nova.models import NovaClient, RebuildSpec
from fleet_manager.core.domain.server import (
    BUILD_KEY,
    Building,
    Done,
    Failed,
    ServerStatus,
    Stopped,
    build_state,
    device_tag,
)


@pytest.fixture
def fake() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
def cloud(fake: FakeCloud) -> World:
    operator: NovaClient = fake.nova()
    return World(operator, fake.nova(operator=False), HOSTS, pause_s=0)


class TestFakeNova(NovaContract):
    """The contract."""


async def test_a_build_takes_the_readings_it_is_told(fake: FakeCloud, cloud: World) -> None:
    fake.build_polls = 4
    spec = await cloud.spec()
    created = await cloud.create(spec)
    states = [
        build_state(await cloud.operator.get(created.id), spec.metadata[BUILD_KEY], spec.image_id) for _ in range(4)
    ]
    assert [type(state) for state in states] == [Building, Building, Building, Done]


async def test_a_failing_build_ends_with_its_fault(fake: FakeCloud, cloud: World) -> None:
    fake.fail_builds = "Build of instance aborted: burnt"
    spec = await cloud.spec()
    state, server = await cloud.end_of((await cloud.create(spec)).id, spec)
    assert state == Failed("Build of instance aborted: burnt")
    assert isinstance(build_error(state, server.id), BuildFailed)


async def test_a_server_can_land_elsewhere(fake: FakeCloud, cloud: World) -> None:
    fake.lands_on = HOSTS[7]
    spec = await cloud.spec(hypervisor_hostname=HOSTS[0])
    state, server = await cloud.end_of((await cloud.create(spec)).id, spec, hypervisor_hostname=HOSTS[0])
    error = build_error(state, server.id)
    assert isinstance(error, LandedElsewhere)
    assert f"is on {HOSTS[7]} instead of {HOSTS[0]}" in str(error)


async def test_a_create_whose_answer_is_lost_left_a_server_that_the_tag_finds(fake: FakeCloud, cloud: World) -> None:
    fake.lost_answers.append("create")
    spec = await cloud.spec(device="gpu-001")
    with pytest.raises(Unavailable):
        await cloud.create(spec)
    found = await cloud.operator.find_one_by_tag(device_tag("gpu-001"))
    assert found is not None
    assert found.build_id == spec.metadata[BUILD_KEY]


async def test_a_planted_error_comes_once_and_before_the_work(fake: FakeCloud, cloud: World) -> None:
    fake.errors["create"].append(NovaBusy("asked to come back later"))
    spec = await cloud.spec()
    with pytest.raises(NovaBusy):
        await cloud.create(spec)
    assert fake.held == {}
    await cloud.create(spec)
    assert fake.calls.count("create") == 2


async def test_a_rebuild_from_shutoff_ends_stopped_until_it_is_started(fake: FakeCloud, cloud: World) -> None:
    spec = await cloud.spec()
    server = await cloud.built(spec)
    fake.change(server.id, status=ServerStatus.SHUTOFF)
    rebuild = RebuildSpec(
        server_id=server.id, image_id=spec.image_id, user_data_b64="", tags=frozenset(), metadata={BUILD_KEY: "b-2"}
    )
    await cloud.operator.rebuild(rebuild)
    assert (await cloud.end_of(server.id, rebuild))[0] == Stopped()
    await cloud.operator.start(server.id)
    assert (await cloud.end_of(server.id, rebuild))[0] == Done()
