"""Nova's, Glance's and Neutron's JSON, as far as it is read, and its way into domain models.

Decoded by msgspec straight from bytes, so what is not named here (adminPass, the echo of user-data in a rebuild) is
never built. Fields that a cloud may leave out (a policy, a cell that is down) have defaults that are never "done".
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from msgspec import UNSET, Struct, UnsetType, field

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.nova.errors import PEER
from fleet_manager.core.clients.nova.models import RebuildSpec, ServerSpec
from fleet_manager.core.domain.server import PowerState, Server, ServerStatus, clean_fault, user_data_sha256

NOT_SHOWN = "not shown"
"""The task_state of a server whose cell is down: Nova leaves the field out (2.69), and absent is not None."""


class Link(Struct):
    rel: str
    href: str


class WireImage(Struct):
    id: str


class WireFlavor(Struct):
    original_name: str = ""
    vcpus: int = 0
    ram: int = 0


class WireFault(Struct):
    code: int = 0
    message: str = ""


class WireServer(Struct):
    id: str
    status: str
    name: str = ""
    image: WireImage | str | None = None
    flavor: WireFlavor = field(default_factory=WireFlavor)
    tags: list[str] | UnsetType = UNSET
    metadata: dict[str, str] = field(default_factory=dict)
    fault: WireFault | None = None
    created: datetime | None = None
    updated: datetime | None = None
    locked: bool = False
    task_state: str | UnsetType | None = field(default=UNSET, name="OS-EXT-STS:task_state")
    power_state: int | None = field(default=None, name="OS-EXT-STS:power_state")
    launched_at: datetime | None = field(default=None, name="OS-SRV-USG:launched_at")
    hypervisor_hostname: str | None = field(default=None, name="OS-EXT-SRV-ATTR:hypervisor_hostname")
    host: str | None = field(default=None, name="OS-EXT-SRV-ATTR:host")
    user_data: str | None = field(default=None, name="OS-EXT-SRV-ATTR:user_data")


class OneServer(Struct):
    server: WireServer


class ServerPage(Struct):
    servers: list[WireServer]
    servers_links: list[Link] = []


class CreatedId(Struct):
    id: str


class Created(Struct):
    server: CreatedId


class ListedFlavor(Struct):
    id: str
    name: str
    vcpus: int
    ram: int
    disk: int


class FlavorPage(Struct):
    flavors: list[ListedFlavor]
    flavors_links: list[Link] = []


class ListedImage(Struct):
    id: str
    name: str | None
    status: str


class ImagePage(Struct):
    images: list[ListedImage]
    next: str | None = None


class ListedNetwork(Struct):
    id: str
    name: str


class NetworkPage(Struct):
    networks: list[ListedNetwork]


class ConsoleOutput(Struct):
    output: str = ""


def server_of(raw: WireServer) -> Server:
    """Build the domain's server from Nova's."""
    volume_booted = raw.image == ""  # Nova's mark of a boot from volume; a cell that is down shows None
    return Server(
        id=raw.id,
        name=raw.name,
        status=ServerStatus.of(raw.status),
        task_state=NOT_SHOWN if raw.task_state is UNSET else raw.task_state,
        image_id=raw.image.id if isinstance(raw.image, WireImage) else None,
        flavor_name=raw.flavor.original_name,
        flavor_vcpus=raw.flavor.vcpus,
        flavor_ram_mib=raw.flavor.ram,
        tags=frozenset() if raw.tags is UNSET else frozenset(raw.tags),
        metadata=MappingProxyType(raw.metadata),
        hypervisor_hostname=raw.hypervisor_hostname,
        host=raw.host,
        user_data_sha256=_hash(raw.user_data),
        power_state=PowerState.of(raw.power_state),
        fault_code=raw.fault.code if raw.fault else None,
        fault_message=clean_fault(raw.fault.message) if raw.fault else "",
        created_at=_utc(raw.created),
        updated_at=_utc(raw.updated),
        launched_at=_utc(raw.launched_at),
        volume_booted=volume_booted,
        locked=raw.locked,
    )


def tagged(servers: list[WireServer], tag: str) -> list[Server]:
    """Keep the servers that have the tag, whatever filter Nova applied, without the gone ones.

    A server shown without tags (its cell is down) may be the one that is looked for: Unavailable.
    """
    for raw in servers:
        if raw.tags is UNSET:
            raise Unavailable(f"Nova shows server {raw.id} without its tags: a cell may be down", peer=PEER)
    found = [server_of(raw) for raw in servers if not isinstance(raw.tags, UnsetType) and tag in raw.tags]
    return [server for server in found if server.status is not ServerStatus.DELETED]


def next_marker(links: list[Link]) -> str | None:
    """Return the marker of the next page, None on the last one."""
    return next((marker_of(link.href) for link in links if link.rel == "next"), None)


def marker_of(href: str) -> str | None:
    """Return the marker in a link. Nothing else of it is used: behind a proxy its host may be wrong."""
    markers = parse_qs(urlsplit(href).query).get("marker")
    return markers[0] if markers else None


def _utc(moment: datetime | None) -> datetime | None:
    """Nova's times are UTC; launched_at does not say so."""
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _hash(user_data: str | None) -> str | None:
    if user_data is None:
        return None
    try:
        return user_data_sha256(user_data)
    except ValueError:
        return None


def create_body(spec: ServerSpec) -> dict[str, object]:
    """Build the body of a create: tags in it, so that there is no moment in which the server is there without them."""
    fields: dict[str, object] = {
        "name": spec.name,
        "imageRef": spec.image_id,
        "flavorRef": spec.flavor_id,
        "user_data": spec.user_data_b64,
        "tags": sorted(spec.tags),
        "metadata": dict(spec.metadata),
        "networks": spec.networks if isinstance(spec.networks, str) else [{"uuid": uuid} for uuid in spec.networks],
        "hypervisor_hostname": spec.hypervisor_hostname,
        "availability_zone": spec.availability_zone,
        "key_name": spec.key_name,
        "config_drive": spec.config_drive or None,
    }
    return {"server": {key: value for key, value in fields.items() if value is not None}}


def rebuild_body(spec: RebuildSpec, server: Server) -> dict[str, object]:
    """Build the body of a rebuild: its metadata replaces all, so what the server has is laid under it."""
    return {
        "rebuild": {
            "imageRef": spec.image_id,
            "user_data": spec.user_data_b64,
            "metadata": {**server.metadata, **spec.metadata},
        }
    }
