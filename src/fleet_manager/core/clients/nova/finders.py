"""Images, flavors and networks by name or id.

A name that two have is refused with their ids; the answer of a server-side name filter is checked again here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

from fleet_manager.core.clients.errors import NotFound
from fleet_manager.core.clients.nova import wire
from fleet_manager.core.clients.nova.errors import AmbiguousName, FlavorNotFound, ImageNotFound, NetworkNotFound
from fleet_manager.core.clients.nova.models import FlavorRef, ImageRef, NetworkRef
from fleet_manager.core.clients.nova.sdk import Request, decode
from fleet_manager.core.clients.nova.transport import Transport

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


Found = TypeVar("Found", bound=_Identified)


async def find_image(transport: Transport, name_or_id: str) -> ImageRef:
    """Find an active image in Glance; one that is queued, deactivated or hidden is not found."""
    listed = await _image_by_id(transport, name_or_id)
    if not listed:
        listed = await _images_by_name(transport, name_or_id)
    active = [image for image in listed if image.status == "active"]
    if listed and not active:
        words = ", ".join(sorted({image.status for image in listed}))
        raise ImageNotFound(f"image {name_or_id!r} is there and not active ({words})", peer="glance")
    image = _only(active, name_or_id, "image", "glance", ImageNotFound)
    return ImageRef(image.id, image.name or "")


async def _image_by_id(transport: Transport, name_or_id: str) -> list[wire.ListedImage]:
    if not _UUID.fullmatch(name_or_id):
        return []
    try:
        return [decode(await transport.call(Request("GET", f"/images/{name_or_id}", "image")), wire.ListedImage)]
    except NotFound:
        return []


async def _images_by_name(transport: Transport, name: str) -> list[wire.ListedImage]:
    found: list[wire.ListedImage] = []
    marker: str | None = None
    while True:
        query = {"name": name} | ({"marker": marker} if marker else {})
        page = decode(await transport.call(Request("GET", "/images", "image", query)), wire.ImagePage)
        found += [image for image in page.images if image.name == name]
        marker = wire.marker_of(page.next or "")
        if marker is None or not page.images:
            return found


async def find_flavor(transport: Transport, name_or_id: str) -> FlavorRef:
    """Find a flavor by its name or id in the list of those that this project may use."""
    found: list[wire.ListedFlavor] = []
    marker: str | None = None
    while True:
        query = {"marker": marker} if marker else {}
        page = decode(await transport.call(Request("GET", "/flavors/detail", query=query)), wire.FlavorPage)
        found += [flavor for flavor in page.flavors if name_or_id in (flavor.id, flavor.name)]
        marker = wire.next_marker(page.flavors_links)
        if marker is None or not page.flavors:
            break
    flavor = _only(found, name_or_id, "flavor", "nova", FlavorNotFound)
    return FlavorRef(flavor.id, flavor.name, flavor.vcpus, flavor.ram, flavor.disk)


async def find_network(transport: Transport, name_or_id: str) -> NetworkRef:
    """Find a network in Neutron by its id or name."""
    key = "id" if _UUID.fullmatch(name_or_id) else "name"
    reply = await transport.call(Request("GET", "/v2.0/networks", "network", {key: name_or_id}))
    found = [n for n in decode(reply, wire.NetworkPage).networks if name_or_id in (n.id, n.name)]
    network = _only(found, name_or_id, "network", "neutron", NetworkNotFound)
    return NetworkRef(network.id, network.name)


def _only(found: Iterable[Found], wanted: str, what: str, peer: str, missing: type[NotFound]) -> Found:
    by_id = {one.id: one for one in found}
    if not by_id:
        raise missing(f"no {what} {wanted!r}, by name or id, that this project may use", peer=peer)
    if len(by_id) > 1:
        raise AmbiguousName(f"{len(by_id)} {what}s are called {wanted!r}: {', '.join(sorted(by_id))}", peer=peer)
    return next(iter(by_id.values()))
