"""What every `NovaClient` keeps: the same body of tests for the real cloud and for the fake."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fleet_manager.core.clients.errors import BadRequest, Conflict
from fleet_manager.core.clients.nova.errors import (
    CannotRebuild,
    DuplicateServers,
    FlavorNotFound,
    HostNotFound,
    ImageNotFound,
    NetworkNotFound,
    NoCapacity,
    PinForbidden,
    ServerNotFound,
    build_error,
)
from fleet_manager.core.clients.nova.models import NovaClient, RebuildSpec, ServerSpec
from fleet_manager.core.domain.server import (
    BUILD_KEY,
    DEVICE_KEY,
    USER_DATA_KEY,
    Building,
    BuildState,
    Done,
    Elsewhere,
    Failed,
    NotThisBuild,
    Server,
    ServerStatus,
    build_state,
    build_tag,
    device_tag,
    is_gone,
    is_settled,
    user_data_sha256,
)


def user_data(text: str) -> str:
    return base64.b64encode(f"#cloud-config\nhostname: {text}\n".encode()).decode()


def new_id(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:12]}"


@dataclass
class World:
    """A cloud with the lab's images, flavors and hosts, seen by an operator and by a member of one project."""

    operator: NovaClient
    member: NovaClient
    hosts: tuple[str, ...]
    pause_s: float
    made: list[str] = field(default_factory=list)

    async def spec(self, *, flavor: str = "small", build: str = "", device: str = "", **more: object) -> ServerSpec:
        build, device = build or new_id("b"), device or new_id("d")
        data = user_data(build)
        fields: dict[str, object] = {
            "name": device,
            "image_id": (await self.operator.find_image("slurm-node-a")).id,
            "flavor_id": (await self.operator.find_flavor(flavor)).id,
            "user_data_b64": data,
            "tags": frozenset({device_tag(device), build_tag(build)}),
            "metadata": {DEVICE_KEY: device, BUILD_KEY: build, USER_DATA_KEY: user_data_sha256(data)},
            "networks": ((await self.operator.find_network("shared-net")).id,),
        }
        return ServerSpec(**(fields | more))  # type: ignore[arg-type]

    async def create(self, spec: ServerSpec, nova: NovaClient | None = None) -> Server:
        server = await (nova or self.operator).create(spec)
        self.made.append(server.id)
        return server

    async def end_of(self, server_id: str, spec: ServerSpec | RebuildSpec, **pin: str) -> tuple[BuildState, Server]:
        """Wait for the build that the spec's metadata names, to its end."""
        while True:
            server = await self.operator.get(server_id)
            state = build_state(server, spec.metadata[BUILD_KEY], spec.image_id, **pin)
            if not isinstance(state, Building):
                return state, server
            await asyncio.sleep(self.pause_s)

    async def built(self, spec: ServerSpec) -> Server:
        created = await self.create(spec)
        state, server = await self.end_of(created.id, spec)
        assert state == Done()
        return server

    async def until(self, server_id: str, status: ServerStatus) -> None:
        """Wait until the server is settled in a status."""
        while True:
            server = await self.operator.get(server_id)
            if server.status is status and is_settled(server):
                return
            await asyncio.sleep(self.pause_s)

    async def gone(self, server_id: str) -> None:
        """Wait until Nova itself says that the server is gone."""
        while True:
            try:
                await self.operator.get(server_id)
            except ServerNotFound:
                return
            await asyncio.sleep(self.pause_s)

    async def tidy(self) -> None:
        for server_id in self.made:
            await self.operator.delete(server_id)


class NovaContract:
    """Inherited by a `Test...` class whose module has the fixture `cloud`."""

    @pytest.fixture
    async def world(self, cloud: World) -> AsyncIterator[World]:
        yield cloud
        await cloud.tidy()
        cloud.made.clear()

    async def test_an_operator_is_expected_to_pin_and_a_member_is_not(self, world: World) -> None:
        operator, member = await world.operator.check(), await world.member.check()
        assert (operator.pin_expected, member.pin_expected) == (True, False)
        assert operator.microversion == "2.74"
        assert "admin" in operator.roles
        assert "admin" not in member.roles

    async def test_an_image_is_found_by_name_and_by_id(self, world: World) -> None:
        image = await world.member.find_image("slurm-node-a")
        assert image.name == "slurm-node-a"
        assert await world.member.find_image(image.id) == image

    async def test_a_flavor_is_found_by_name_and_by_id_with_its_size(self, world: World) -> None:
        flavor = await world.member.find_flavor("small")
        assert (flavor.name, flavor.vcpus, flavor.ram_mib, flavor.disk_gib) == ("small", 1, 512, 1)
        assert await world.member.find_flavor(flavor.id) == flavor

    async def test_a_network_is_found_by_name_and_by_id(self, world: World) -> None:
        network = await world.member.find_network("shared-net")
        assert await world.member.find_network(network.id) == network

    async def test_what_is_not_found_is_named(self, world: World) -> None:
        with pytest.raises(ImageNotFound, match="'slurm-node-z'"):
            await world.member.find_image("slurm-node-z")
        with pytest.raises(ImageNotFound, match="11111111-1111-1111-1111-111111111111"):
            await world.member.find_image("11111111-1111-1111-1111-111111111111")
        with pytest.raises(FlavorNotFound, match="'gpu-z'"):
            await world.member.find_flavor("gpu-z")
        with pytest.raises(NetworkNotFound, match="'net-z'"):
            await world.member.find_network("net-z")

    async def test_a_created_server_is_found_by_both_tags_at_once_and_ends_on_its_machine(self, world: World) -> None:
        spec = await world.spec(hypervisor_hostname=world.hosts[1])
        created = await world.create(spec)
        for tag in spec.tags:
            found = await world.operator.find_one_by_tag(tag)
            assert found is not None
            assert found.id == created.id
        state, server = await world.end_of(created.id, spec, hypervisor_hostname=world.hosts[1])
        assert state == Done()
        assert server.status is ServerStatus.ACTIVE
        assert server.tags == spec.tags
        assert dict(server.metadata) == dict(spec.metadata)
        assert (server.name, server.image_id, server.flavor_name) == (spec.name, spec.image_id, "small")
        assert (server.flavor_vcpus, server.flavor_ram_mib) == (1, 512)
        assert server.user_data_sha256 == spec.metadata[USER_DATA_KEY]
        assert server.launched_at is not None

    async def test_a_server_on_another_machine_is_told_apart(self, world: World) -> None:
        spec = await world.spec(hypervisor_hostname=world.hosts[1])
        server = await world.built(spec)
        state = build_state(server, spec.metadata[BUILD_KEY], spec.image_id, hypervisor_hostname=world.hosts[2])
        assert state == Elsewhere(wanted=world.hosts[2], found=world.hosts[1])

    async def test_a_member_is_not_shown_machine_and_user_data(self, world: World) -> None:
        spec = await world.spec()
        created = await world.built(spec)
        server = await world.member.get(created.id)
        assert (server.hypervisor_hostname, server.host, server.user_data_sha256) == (None, None, None)
        assert server.known_user_data_sha256 == spec.metadata[USER_DATA_KEY]
        state = build_state(server, spec.metadata[BUILD_KEY], spec.image_id, hypervisor_hostname=world.hosts[0])
        assert state == Elsewhere(wanted=world.hosts[0], found=None)

    async def test_a_members_pin_is_forbidden_and_makes_nothing(self, world: World) -> None:
        spec = await world.spec(hypervisor_hostname=world.hosts[1])
        with pytest.raises(PinForbidden, match=r"may not choose the machine .* needs an operator's"):
            await world.create(spec, world.member)
        for tag in spec.tags:
            assert await world.operator.find_one_by_tag(tag) is None

    async def test_an_unknown_machine_is_named(self, world: World) -> None:
        with pytest.raises(HostNotFound, match="mars"):
            await world.create(await world.spec(hypervisor_hostname="mars"))

    async def test_two_servers_of_one_tag_are_both_named_and_both_kept(self, world: World) -> None:
        device = new_id("d")
        first = await world.create(await world.spec(device=device))
        second = await world.create(await world.spec(device=device))
        with pytest.raises(DuplicateServers) as caught:
            await world.operator.find_one_by_tag(device_tag(device))
        assert caught.value.server_ids == tuple(sorted((first.id, second.id)))
        assert first.id in str(caught.value)
        assert second.id in str(caught.value)
        assert {s.id for s in await world.operator.find_by_tag(device_tag(device))} == {first.id, second.id}

    async def test_nobody_has_an_unused_tag(self, world: World) -> None:
        assert await world.operator.find_by_tag(build_tag(new_id("b"))) == []
        assert await world.operator.find_one_by_tag(build_tag(new_id("b"))) is None

    async def test_a_rebuild_keeps_the_server_and_changes_image_user_data_and_marker(self, world: World) -> None:
        spec = await world.spec(
            metadata={"owner": "team", BUILD_KEY: "b-old"}, tags=frozenset({"fm-build-b-old", "team"})
        )
        before = await world.built(spec)
        device, build = new_id("d"), new_id("b")
        rebuild = RebuildSpec(
            server_id=before.id,
            image_id=(await world.operator.find_image("slurm-node-b")).id,
            user_data_b64=user_data("second"),
            tags=frozenset({device_tag(device), build_tag(build)}),
            metadata={BUILD_KEY: build},
        )
        started = await world.operator.rebuild(rebuild)
        assert started.tags == spec.tags | rebuild.tags
        assert isinstance(build_state(started, "b-old", spec.image_id), NotThisBuild)
        with pytest.raises(CannotRebuild, match="busy"):
            await world.operator.rebuild(rebuild)

        state, after = await world.end_of(before.id, rebuild)
        assert state == Done()
        assert (after.id, after.name, after.created_at) == (before.id, before.name, before.created_at)
        assert after.image_id == rebuild.image_id != before.image_id
        assert after.user_data_sha256 == user_data_sha256(rebuild.user_data_b64) != before.user_data_sha256
        assert dict(after.metadata) == {"owner": "team", BUILD_KEY: build}
        assert after.hypervisor_hostname == before.hypervisor_hostname

        settled = await world.operator.settle_tags(before.id, device, build)
        assert settled.tags == {"team", device_tag(device), build_tag(build)}
        assert (await world.operator.settle_tags(before.id, device, build)).tags == settled.tags

    async def test_no_room_is_told_apart_from_a_broken_node_and_cannot_be_rebuilt(self, world: World) -> None:
        spec = await world.spec(flavor="toobig")
        created = await world.create(spec)
        state, server = await world.end_of(created.id, spec)
        assert state == Failed("No valid host was found.", capacity=True)
        assert isinstance(build_error(state, server.id), NoCapacity)
        with pytest.raises(CannotRebuild, match="it never ran"):
            await world.operator.rebuild(
                RebuildSpec(server_id=server.id, image_id=spec.image_id, user_data_b64="", tags=spec.tags)
            )
        with pytest.raises(Conflict, match="vm_state error"):
            await world.operator.settle_tags(server.id, new_id("d"), new_id("b"))

    async def test_a_server_is_deleted_twice_without_complaint_and_then_gone(self, world: World) -> None:
        server = await world.built(await world.spec())
        await world.operator.delete(server.id)
        await world.operator.delete(server.id)
        await world.gone(server.id)
        await world.operator.delete(server.id)
        assert [s for s in await world.operator.find_by_tag(next(iter(server.tags))) if not is_gone(s)] == []

    async def test_an_unknown_server_is_not_found_and_no_id_is_refused(self, world: World) -> None:
        with pytest.raises(ServerNotFound):
            await world.operator.get("11111111-1111-1111-1111-111111111111")
        for wrong in ("", "a/b", "../flavors"):
            with pytest.raises(BadRequest, match="not a server id"):
                await world.operator.get(wrong)
            with pytest.raises(BadRequest, match="not a server id"):
                await world.operator.delete(wrong)

    async def test_only_a_stopped_server_is_started_and_a_console_is_cut(self, world: World) -> None:
        server = await world.built(await world.spec())
        with pytest.raises(Conflict, match="vm_state active"):
            await world.operator.start(server.id)
        assert await world.operator.console_log(server.id, 10)

    async def test_bad_user_data_is_refused_and_makes_nothing(self, world: World) -> None:
        for bad in ("not base64!", "A" * 65_536):
            spec = await world.spec(user_data_b64=bad)
            with pytest.raises(BadRequest, match="refuses the user-data"):
                await world.create(spec)
            assert await world.operator.find_by_tag(next(iter(spec.tags))) == []
