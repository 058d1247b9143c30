"""A Nova in memory that keeps the client's Protocol, for the tests of what stands on it.

It passes the same contract as the real one (`tests/clients/nova/contract.py`), and does what a real one will not do on
demand: build slowly, fail, have no room, put a server elsewhere, lose the answer of a write that it carried out.

A server moves one step each time it is read, so a test needs no clock: `build_polls` readings until it is built.
"""

import uuid
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fleet_manager.core.clients.errors import BadRequest, ClientError, Conflict, Unavailable
from fleet_manager.core.clients.nova.errors import (
    AmbiguousName,
    CannotRebuild,
    DuplicateServers,
    FlavorNotFound,
    HostNotFound,
    ImageNotFound,
    NetworkNotFound,
    PinForbidden,
    ServerNotFound,
)
from fleet_manager.core.clients.nova.models import FlavorRef, ImageRef, NetworkRef, NovaFacts, RebuildSpec, ServerSpec
from fleet_manager.core.domain.server import (
    BUILD_TAG_PREFIX,
    USER_DATA_MAX,
    PowerState,
    Server,
    ServerStatus,
    build_tag,
    device_tag,
    is_gone,
    rebuild_refusal,
    user_data_sha256,
)

IMAGES = (ImageRef(str(uuid.UUID(int=0xA)), "slurm-node-a"), ImageRef(str(uuid.UUID(int=0xB)), "slurm-node-b"))
FLAVORS = (
    FlavorRef("f-gpu", "gpu-h100", 16, 65_536, 100),
    FlavorRef("f-small", "small", 1, 512, 1),
    FlavorRef("f-large", "large", 4, 4096, 10),
    FlavorRef("f-toobig", "toobig", 5000, 512, 1),
)
NETWORKS = (NetworkRef(str(uuid.UUID(int=0x4E)), "shared-net"),)
HOSTS = tuple(f"device-{n}" for n in range(1, 9))
NO_VALID_HOST = "No valid host was found."
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Held:
    """A server: what is seen of it now, and what the next readings will see. None: gone."""

    now: Server | None
    user_data_b64: str
    coming: list[Server | None] = field(default_factory=list)


@dataclass
class FakeCloud:
    """The state behind the fakes of one cloud, and its knobs.

    Attributes:
        build_polls: readings that still show a server in the making, from 1 on.
        fail_builds: fault message that every build ends with, None when they work.
        no_capacity: whether there is no room, as for the flavor "toobig".
        lands_on: machine that servers land on whatever they were pinned to.
        errors: raised by the next calls of a method, one each, before it does anything.
        lost_answers: methods whose next call does its work and then raises Unavailable; each is used up.
        calls: what was called, in order.
    """

    build_polls: int = 3
    fail_builds: str | None = None
    no_capacity: bool = False
    lands_on: str | None = None
    images: list[ImageRef] = field(default_factory=lambda: list(IMAGES))
    flavors: list[FlavorRef] = field(default_factory=lambda: list(FLAVORS))
    networks: list[NetworkRef] = field(default_factory=lambda: list(NETWORKS))
    hosts: tuple[str, ...] = HOSTS
    errors: dict[str, list[ClientError]] = field(default_factory=lambda: defaultdict(list))
    lost_answers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    _ticks: int = 0

    def nova(self, *, operator: bool = True) -> "FakeNova":
        """Return a client of this cloud, with an operator's credential or a member's."""
        return FakeNova(self, operator=operator)

    def now(self) -> datetime:
        """Return a time later than every one before."""
        self._ticks += 1
        return EPOCH + timedelta(seconds=self._ticks)

    def user_data(self, server_id: str) -> str:
        """Return the user-data (base64) that a server was last built with."""
        return self.held[server_id].user_data_b64

    def change(self, server_id: str, **fields: object) -> None:
        """Change what is seen of a server at once, as somebody else's hand would."""
        held = self.held[server_id]
        assert held.now is not None
        held.now = replace(held.now, **fields)  # type: ignore[arg-type]

    def read(self, server_id: str) -> Server | None:
        """Return the server as it is seen now, one step on."""
        held = self.held.get(server_id)
        if held is None:
            return None
        if held.coming:
            held.now = held.coming.pop(0)
        return held.now

    def plan_build(self, server: Server, working: ServerStatus, host: str, end: ServerStatus) -> list[Server | None]:
        """Return the steps of a build or rebuild, and its end."""
        steps = ("scheduling", None, "spawning")
        seen: list[Server | None] = [
            replace(
                server, status=working, task_state=steps[min(n, 2)] if working is ServerStatus.BUILD else "rebuilding"
            )
            for n in range(1, self.build_polls)
        ]
        return [*seen, self._built(server, host, end)]

    def _built(self, server: Server, host: str, end: ServerStatus) -> Server:
        message = NO_VALID_HOST if self.no_capacity or server.flavor_name == "toobig" else self.fail_builds
        if message is not None:
            return replace(
                server,
                status=ServerStatus.ERROR,
                task_state=None,
                fault_code=500,
                fault_message=message,
                updated_at=self.now(),
            )
        at = self.now()
        return replace(
            server,
            status=end,
            task_state=None,
            hypervisor_hostname=host,
            host=host,
            power_state=PowerState.RUNNING if end is ServerStatus.ACTIVE else PowerState.SHUTDOWN,
            fault_code=None,
            fault_message="",
            updated_at=at,
            launched_at=at,
        )


class FakeNova:
    """Keeps `NovaClient`'s promises on a `FakeCloud`."""

    def __init__(self, cloud: FakeCloud | None = None, *, operator: bool = True) -> None:
        self.cloud = cloud or FakeCloud()
        self.operator = operator

    async def check(self) -> NovaFacts:
        self._begin("check")
        roles = ("admin", "member") if self.operator else ("member",)
        return NovaFacts("2.74", "2.104", "project", roles, self.operator)

    async def find_image(self, name_or_id: str) -> ImageRef:
        self._begin("find_image")
        found = [image for image in self.cloud.images if name_or_id in (image.id, image.name)]
        if not found:
            raise ImageNotFound(f"no image {name_or_id!r}", peer="glance")
        if len(found) > 1:
            raise _ambiguous("image", name_or_id, [image.id for image in found])
        return found[0]

    async def find_flavor(self, name_or_id: str) -> FlavorRef:
        self._begin("find_flavor")
        found = [flavor for flavor in self.cloud.flavors if name_or_id in (flavor.id, flavor.name)]
        if not found:
            raise FlavorNotFound(f"no flavor {name_or_id!r}", peer="nova")
        if len(found) > 1:
            raise _ambiguous("flavor", name_or_id, [flavor.id for flavor in found])
        return found[0]

    async def find_network(self, name_or_id: str) -> NetworkRef:
        self._begin("find_network")
        found = [network for network in self.cloud.networks if name_or_id in (network.id, network.name)]
        if not found:
            raise NetworkNotFound(f"no network {name_or_id!r}", peer="neutron")
        if len(found) > 1:
            raise _ambiguous("network", name_or_id, [network.id for network in found])
        return found[0]

    async def find_by_tag(self, tag: str) -> list[Server]:
        self._begin("find_by_tag")
        return self._tagged(tag)

    async def find_one_by_tag(self, tag: str) -> Server | None:
        self._begin("find_one_by_tag")
        found = self._tagged(tag)
        if len(found) > 1:
            raise DuplicateServers(tag, (server.id for server in found))
        return found[0] if found else None

    async def get(self, server_id: str) -> Server:
        self._begin("get")
        return self._get(server_id)

    async def create(self, spec: ServerSpec) -> Server:
        self._begin("create")
        self._admit(spec)
        flavor = next((flavor for flavor in self.cloud.flavors if flavor.id == spec.flavor_id), None)
        if flavor is None:
            raise FlavorNotFound("Nova does not find the flavor", peer="nova", status=400)
        at = self.cloud.now()
        server = Server(
            id=str(uuid.uuid4()),
            name=spec.name,
            status=ServerStatus.BUILD,
            task_state="scheduling",
            image_id=spec.image_id,
            flavor_name=flavor.name,
            flavor_vcpus=flavor.vcpus,
            flavor_ram_mib=flavor.ram_mib,
            tags=spec.tags,
            metadata=dict(spec.metadata),
            user_data_sha256=user_data_sha256(spec.user_data_b64),
            created_at=at,
            updated_at=at,
        )
        host = self.cloud.lands_on or spec.hypervisor_hostname or self.cloud.hosts[0]
        coming = self.cloud.plan_build(server, ServerStatus.BUILD, host, ServerStatus.ACTIVE)
        self.cloud.held[server.id] = Held(server, spec.user_data_b64, coming)
        self._end("create")
        return self._shown(server)

    async def rebuild(self, spec: RebuildSpec) -> Server:
        self._begin("rebuild")
        server = self._get(spec.server_id)
        if refusal := rebuild_refusal(server):
            raise CannotRebuild(f"server {server.id} cannot be rebuilt: {refusal}", peer="nova")
        self._admit_image(spec.image_id)
        _admit_user_data(spec.user_data_b64)
        held = self.cloud.held[server.id]
        assert held.now is not None
        started = replace(
            held.now,
            status=ServerStatus.REBUILD,
            task_state="rebuilding",
            image_id=spec.image_id,
            tags=held.now.tags if held.now.status is ServerStatus.ERROR else held.now.tags | spec.tags,
            metadata={**held.now.metadata, **spec.metadata},
            user_data_sha256=user_data_sha256(spec.user_data_b64),
            updated_at=self.cloud.now(),
        )
        end = ServerStatus.SHUTOFF if held.now.status is ServerStatus.SHUTOFF else ServerStatus.ACTIVE
        coming = self.cloud.plan_build(started, ServerStatus.REBUILD, held.now.hypervisor_hostname or "", end)
        self.cloud.held[server.id] = Held(started, spec.user_data_b64, coming)
        self._end("rebuild")
        return self._shown(started)

    async def settle_tags(self, server_id: str, device_id: str, build_id: str) -> Server:
        self._begin("settle_tags")
        server = self._get(server_id)
        wanted = {device_tag(device_id), build_tag(build_id)}
        tags = frozenset(tag for tag in server.tags if not tag.startswith(BUILD_TAG_PREFIX)) | wanted
        if tags != server.tags:
            if server.status in (ServerStatus.ERROR, ServerStatus.BUILD):
                raise Conflict(f"no update tag while the server is in vm_state {server.status.lower()}", peer="nova")
            self.cloud.change(server_id, tags=tags)
        return replace(server, tags=tags)

    async def delete(self, server_id: str) -> None:
        self._begin("delete")
        _check_id(server_id)
        held = self.cloud.held.get(server_id)
        if held is not None and held.now is not None and held.now.task_state != "deleting":
            if held.now.locked:
                raise Conflict("the server is locked", peer="nova", status=409)
            leaving = replace(held.now, task_state="deleting")
            gone = replace(held.now, status=ServerStatus.DELETED, task_state=None)
            held.now, held.coming = leaving, [gone, None]
        self._end("delete")

    async def start(self, server_id: str) -> None:
        self._begin("start")
        server = self._get(server_id)
        if server.status is not ServerStatus.SHUTOFF:
            raise Conflict(f"no start while the server is in vm_state {server.status.lower()}", peer="nova", status=409)
        self.cloud.change(server_id, status=ServerStatus.ACTIVE, power_state=PowerState.RUNNING)
        self._end("start")

    async def console_log(self, server_id: str, lines: int) -> str:
        self._begin("console_log")
        self._get(server_id)
        return "\n".join(f"line {n}" for n in range(lines))

    def _begin(self, method: str) -> None:
        self.cloud.calls.append(method)
        if waiting := self.cloud.errors[method]:
            raise waiting.pop(0)

    def _end(self, method: str) -> None:
        if method in self.cloud.lost_answers:
            self.cloud.lost_answers.remove(method)
            raise Unavailable("no connection: the answer was lost", peer="nova", method=method)

    def _get(self, server_id: str) -> Server:
        _check_id(server_id)
        server = self.cloud.read(server_id)
        if server is None:
            raise ServerNotFound(f"no server {server_id}", peer="nova", status=404)
        return self._shown(server)

    def _tagged(self, tag: str) -> list[Server]:
        seen = [self.cloud.read(server_id) for server_id in sorted(self.cloud.held)]
        return [self._shown(server) for server in seen if server and not is_gone(server) and tag in server.tags]

    def _shown(self, server: Server) -> Server:
        """Show a member what a member sees."""
        if self.operator:
            return server
        return replace(server, hypervisor_hostname=None, host=None, user_data_sha256=None)

    def _admit(self, spec: ServerSpec) -> None:
        if spec.hypervisor_hostname is not None and not self.operator:
            raise PinForbidden(
                "this credential may not choose the machine (policy compute:servers:create:requested_destination): it "
                "needs an operator's",
                peer="nova",
                status=403,
            )
        _admit_user_data(spec.user_data_b64)
        if spec.hypervisor_hostname is not None and spec.hypervisor_hostname not in self.cloud.hosts:
            raise HostNotFound(f"Nova knows no machine {spec.hypervisor_hostname}", peer="nova", status=400)
        self._admit_image(spec.image_id)

    def _admit_image(self, image_id: str) -> None:
        if image_id not in {image.id for image in self.cloud.images}:
            raise ImageNotFound("Nova does not find the image", peer="nova", status=400)


def _admit_user_data(user_data_b64: str) -> None:
    refused = len(user_data_b64) > USER_DATA_MAX
    try:
        user_data_sha256(user_data_b64)
    except ValueError:
        refused = True
    if refused:
        raise BadRequest(
            "Nova refuses the user-data: it takes base64 of at most 65,535 characters", peer="nova", status=400
        )


def _check_id(server_id: str) -> None:
    if not server_id.replace("-", "").replace("_", "").isalnum():
        raise BadRequest(f"{server_id!r} is not a server id", peer="nova")


def _ambiguous(what: str, name: str, ids: list[str]) -> AmbiguousName:
    return AmbiguousName(f"{len(ids)} {what}s are called {name!r}: {', '.join(sorted(ids))}", peer="nova")
