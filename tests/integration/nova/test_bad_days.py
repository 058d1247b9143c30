"""The client and a real Nova on a bad day: lost answers, stale tokens, failed builds, a secret in a refused request."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.nova.contract import World, new_id, user_data
from tests.clients.nova.leaks import SECRET, everything, leaks
from tests.integration.nova.lossy import lossy_proxy

from fleet_manager.core.clients.errors import BadRequest, Conflict, Unavailable
from fleet_manager.core.clients.nova.client import OpenStackNova
from fleet_manager.core.clients.nova.errors import CannotRebuild
from fleet_manager.core.clients.nova.models import RebuildSpec, ServerSpec
from fleet_manager.core.domain.server import BUILD_KEY, Done, Failed, ServerStatus, Stopped, build_tag, device_tag
from fleet_manager.settings.clients.nova import NovaSettings
from fmlab.nova import NovaCloud
from fmlab.nova_api import NovaApi

pytestmark = [pytest.mark.nova]
pytest_plugins = ["tests.integration.nova_cloud"]


@pytest.fixture
async def world(nova_cloud: NovaCloud) -> AsyncIterator[World]:
    def nova(name: str) -> OpenStackNova:
        return OpenStackNova(NovaSettings(cloud=name, config_file=nova_cloud.clouds_yaml))

    async with nova("ops-app") as operator, nova("demo-app") as member:
        world = World(operator, member, nova_cloud.hosts, pause_s=0.1)
        yield world
        await world.tidy()


@pytest.fixture
def api(nova_cloud: NovaCloud) -> Iterator[NovaApi]:
    """A member's bare hands, for what the client has no call for."""
    with NovaApi(nova_cloud.clouds_yaml, "demo-app") as api:
        yield api


def second(spec: ServerSpec, server_id: str, image_id: str | None = None, **metadata: str) -> RebuildSpec:
    build = new_id("b")
    return RebuildSpec(
        server_id=server_id,
        image_id=image_id or spec.image_id,
        user_data_b64=user_data(build),
        tags=frozenset({build_tag(build)}),
        metadata={BUILD_KEY: build, **metadata},
    )


@pytest.mark.parametrize("how", ["503", "cut"])
async def test_a_create_whose_answer_is_lost_is_found_by_its_tag_and_made_once(
    world: World, nova_cloud: NovaCloud, tmp_path: Path, how: str
) -> None:
    spec = await world.spec(hypervisor_hostname=world.hosts[3])
    with lossy_proxy(nova_cloud.compute_url) as lossy:
        behind = NovaSettings(cloud="ops-app", config_file=lossy.clouds_yaml(nova_cloud.clouds_yaml, tmp_path))
        async with OpenStackNova(behind) as nova:
            lossy.lose.append(how)
            with pytest.raises(Unavailable):
                await nova.create(spec)
            assert lossy.lost == 1
            found = await nova.find_one_by_tag(build_tag(spec.metadata[BUILD_KEY]))
    assert found is not None
    world.made.append(found.id)
    assert (await world.end_of(found.id, spec, hypervisor_hostname=world.hosts[3]))[0] == Done()


async def test_a_create_that_is_cancelled_may_have_happened_and_the_tag_finds_it(
    world: World, nova_cloud: NovaCloud, tmp_path: Path
) -> None:
    spec = await world.spec()
    with lossy_proxy(nova_cloud.compute_url) as lossy:
        behind = NovaSettings(cloud="ops-app", config_file=lossy.clouds_yaml(nova_cloud.clouds_yaml, tmp_path))
        async with OpenStackNova(behind) as nova:
            lossy.lose.append("hold")
            call = asyncio.create_task(nova.create(spec))
            assert await asyncio.to_thread(lossy.reached.wait, 60)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            found = await nova.find_one_by_tag(build_tag(spec.metadata[BUILD_KEY]))
            lossy.release.set()
    assert found is not None
    world.made.append(found.id)
    assert found.build_id == spec.metadata[BUILD_KEY]


async def test_a_revoked_token_costs_one_new_token_and_no_server(world: World, nova_cloud: NovaCloud) -> None:
    spec = await world.spec()
    await world.operator.find_by_tag("fm-device-none")  # Nova has seen the token, and keeps it
    operator = world.operator
    assert isinstance(operator, OpenStackNova)
    token = await operator._transport.run(lambda cloud: cloud._session.get_token())
    with NovaApi(nova_cloud.clouds_yaml, "admin") as admin:
        admin.get("/flavors")
        answer = admin._http.delete(
            f"{nova_cloud.auth_url}/auth/tokens", headers={"X-Auth-Token": admin._token, "X-Subject-Token": token}
        )
        assert answer.status_code == 204
    created = await world.create(spec)
    assert (await world.end_of(created.id, spec))[0] == Done()
    assert len(await world.operator.find_by_tag(build_tag(spec.metadata[BUILD_KEY]))) == 1


async def test_user_data_that_nova_refuses_and_quotes_is_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    everything(caplog)
    long = (SECRET * 4000)[:65_536]
    server = await world.built(await world.spec())
    spec = await world.spec(user_data_b64=long)
    with pytest.raises(BadRequest, match="refuses the user-data") as created:
        await world.create(spec)
    with pytest.raises(BadRequest, match="refuses the user-data") as rebuilt:
        await world.operator.rebuild(replace(second(spec, server.id), user_data_b64=long))
    for caught in (created, rebuilt):
        assert caught.value.request_id.startswith("req-")
        assert SECRET not in leaks(caught.value)
    assert SECRET not in caplog.text + repr(spec)


async def test_a_failed_build_says_what_the_machine_said(world: World) -> None:
    spec = await world.spec()
    spec = replace(spec, metadata={**spec.metadata, "fm:build_abort": "image checksum mismatch"})
    state, _ = await world.end_of((await world.create(spec)).id, spec)
    assert isinstance(state, Failed)
    assert not state.capacity
    assert "image checksum mismatch" in state.reason


async def test_a_failed_rebuild_is_rebuilt_from_error_and_its_tags_follow(world: World) -> None:
    device = new_id("d")
    spec = await world.spec(device=device)
    server = await world.built(spec)
    failing = second(spec, server.id, **{"fm:rebuild_fail": "ipmi timeout"})
    await world.operator.rebuild(failing)
    state, broken = await world.end_of(server.id, failing)
    assert state == Failed("Failed to deploy instance: ipmi timeout")
    assert broken.status is ServerStatus.ERROR

    again = second(spec, server.id, **{"fm:rebuild_fail": ""})
    with pytest.raises(Conflict, match="vm_state error"):
        await world.operator.settle_tags(server.id, device, again.metadata[BUILD_KEY])
    await world.operator.rebuild(again)  # Nova takes no tag now, and the device's still finds it
    found = await world.operator.find_one_by_tag(device_tag(device))
    assert found is not None
    assert found.build_id == again.metadata[BUILD_KEY]


async def test_a_rebuild_of_a_stopped_server_ends_stopped_and_is_started(world: World, api: NovaApi) -> None:
    spec = await world.spec()
    server = await world.built(spec)
    assert api.request("POST", f"/servers/{server.id}/action", {"os-stop": None}).status_code == 202
    await world.until(server.id, ServerStatus.SHUTOFF)
    rebuild = second(spec, server.id)
    await world.operator.rebuild(rebuild)
    states = []
    while Stopped() not in states:
        states.append((await world.end_of(server.id, rebuild))[0])
    await world.operator.start(server.id)
    assert (await world.end_of(server.id, rebuild))[0] == Done()


async def test_a_locked_server_is_left_alone_by_an_operator_too(world: World, api: NovaApi) -> None:
    spec = await world.spec()
    server = await world.built(spec)
    assert api.request("POST", f"/servers/{server.id}/action", {"lock": None}).status_code == 202
    with pytest.raises(CannotRebuild, match="it is locked"):
        await world.operator.rebuild(second(spec, server.id))
    with pytest.raises(Conflict, match="the server is locked"):
        await world.member.delete(server.id)
    after = await world.operator.get(server.id)
    assert (after.tags, after.metadata) == (server.tags, server.metadata)
    assert api.request("POST", f"/servers/{server.id}/action", {"unlock": None}).status_code == 202


async def test_of_rebuilds_sent_at_once_the_reading_says_which_was_taken(world: World) -> None:
    spec = await world.spec()
    server = await world.built(spec)
    rivals = [second(spec, server.id) for _ in range(4)]
    results = await asyncio.gather(*(world.operator.rebuild(rival) for rival in rivals), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(result, Conflict | Unavailable) for result in refused)
    winner = (await world.operator.get(server.id)).build_id
    [taken] = [rival for rival in rivals if rival.metadata[BUILD_KEY] == winner]
    assert (await world.end_of(server.id, taken))[0] == Done()
