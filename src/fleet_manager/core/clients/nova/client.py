"""Nova, asynchronously, through openstacksdk's configuration and keystoneauth's sessions in a few threads.

    async with OpenStackNova(NovaSettings(cloud="ops-app")) as nova:
        facts = await nova.check()
        server = await nova.find_one_by_tag(device_tag("gpu-001"))

What a method promises is written once, in `models.NovaClient`. It must not decide what to do with a server (that is
`domain.server` and the adoption's), must not repeat a write, and must let no body of Nova's out.
"""

from __future__ import annotations

import re
from typing import Self

from fleet_manager.core.clients.errors import BadRequest, Forbidden, IncompatibleServer, NotFound, Unavailable
from fleet_manager.core.clients.nova import finders, wire
from fleet_manager.core.clients.nova.errors import PEER, CannotRebuild, DuplicateServers, ServerNotFound
from fleet_manager.core.clients.nova.models import FlavorRef, ImageRef, NetworkRef, NovaFacts, RebuildSpec, ServerSpec
from fleet_manager.core.clients.nova.sdk import Request, decode
from fleet_manager.core.clients.nova.transport import Transport
from fleet_manager.core.domain.server import (
    BUILD_TAG_PREFIX,
    Server,
    ServerStatus,
    build_tag,
    device_tag,
    rebuild_refusal,
)
from fleet_manager.settings.clients.nova import NovaSettings

CONSOLE_LINES = 1000
CONSOLE_MAX = 65_536
"""Lines asked for at most, and characters of a console log that are kept."""

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


class OpenStackNova:
    """`NovaClient` over a real cloud. One a process; entered before use."""

    def __init__(self, settings: NovaSettings) -> None:
        self._microversion = settings.microversion
        self._transport = Transport(settings)
        self._call = self._transport.call

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()

    async def check(self) -> NovaFacts:
        identity = await self._transport.run(lambda cloud: cloud.identity())
        offered = await self._transport.run(lambda cloud: cloud.offered_microversion())
        if _version(offered) < _version(self._microversion):
            raise IncompatibleServer(
                f"microversion {self._microversion} is wanted and this Nova offers {offered or 'none'}",
                peer=PEER,
                method="check",
            )
        pin_expected = await self._sees_hypervisors()
        return NovaFacts(self._microversion, offered, identity.project_id, identity.roles, pin_expected)

    async def _sees_hypervisors(self) -> bool:
        try:
            await self._call(Request("GET", "/os-hypervisors", query={"limit": "1"}))
        except Forbidden:
            return False
        return True

    async def find_image(self, name_or_id: str) -> ImageRef:
        return await finders.find_image(self._transport, name_or_id)

    async def find_flavor(self, name_or_id: str) -> FlavorRef:
        return await finders.find_flavor(self._transport, name_or_id)

    async def find_network(self, name_or_id: str) -> NetworkRef:
        return await finders.find_network(self._transport, name_or_id)

    async def find_by_tag(self, tag: str) -> list[Server]:
        found: dict[str, Server] = {}
        marker: str | None = None
        while True:
            # Never the metadata filter: Nova ignores it for a member and answers with every server (nova-api.md 2).
            query = {"tags": tag} | ({"marker": marker} if marker else {})
            page = decode(await self._call(Request("GET", "/servers/detail", query=query)), wire.ServerPage)
            found |= {server.id: server for server in wire.tagged(page.servers, tag)}
            marker = wire.next_marker(page.servers_links)
            if marker is None or not page.servers:
                return [found[server_id] for server_id in sorted(found)]

    async def find_one_by_tag(self, tag: str) -> Server | None:
        found = await self.find_by_tag(tag)
        if len(found) > 1:
            raise DuplicateServers(tag, (server.id for server in found))
        return found[0] if found else None

    async def get(self, server_id: str) -> Server:
        reply = await self._call(Request("GET", _path(server_id)))
        return wire.server_of(decode(reply, wire.OneServer).server)

    async def create(self, spec: ServerSpec) -> Server:
        reply = await self._call(Request("POST", "/servers", body=wire.create_body(spec)))
        server_id = decode(reply, wire.Created).server.id
        try:
            return await self.get(server_id)
        except ServerNotFound as gone:
            raise Unavailable(
                f"server {server_id} was accepted and is not shown",
                peer=PEER,
                method="POST",
                request_id=reply.request_id,
            ) from gone

    async def rebuild(self, spec: RebuildSpec) -> Server:
        server = await self.get(spec.server_id)
        if refusal := rebuild_refusal(server):
            raise CannotRebuild(f"server {server.id} cannot be rebuilt: {refusal}", peer=PEER)
        if server.status is not ServerStatus.ERROR:  # Nova takes no tags there
            for tag in sorted(spec.tags - server.tags):
                await self._put_tag(server.id, tag)
        await self._call(Request("POST", f"{_path(server.id)}/action", body=wire.rebuild_body(spec, server)))
        return await self.get(server.id)

    async def settle_tags(self, server_id: str, device_id: str, build_id: str) -> Server:
        server = await self.get(server_id)
        wanted = {device_tag(device_id), build_tag(build_id)}
        old = {tag for tag in server.tags if tag.startswith(BUILD_TAG_PREFIX)} - wanted
        for tag in sorted(wanted - server.tags):
            await self._put_tag(server_id, tag)
        for tag in sorted(old):
            await self._drop_tag(server_id, tag)
        return await self.get(server_id)

    async def delete(self, server_id: str) -> None:
        try:
            await self._call(Request("DELETE", _path(server_id)))
        except ServerNotFound:
            return

    async def start(self, server_id: str) -> None:
        await self._call(Request("POST", f"{_path(server_id)}/action", body={"os-start": None}))

    async def console_log(self, server_id: str, lines: int) -> str:
        order = {"os-getConsoleOutput": {"length": max(1, min(lines, CONSOLE_LINES))}}
        reply = await self._call(Request("POST", f"{_path(server_id)}/action", body=order))
        return decode(reply, wire.ConsoleOutput).output[-CONSOLE_MAX:]

    async def _put_tag(self, server_id: str, tag: str) -> None:
        # One tag at a time: replacing the list would lose a tag that somebody adds meanwhile.
        await self._call(Request("PUT", f"{_path(server_id)}/tags/{tag}"))

    async def _drop_tag(self, server_id: str, tag: str) -> None:
        try:
            await self._call(Request("DELETE", f"{_path(server_id)}/tags/{tag}"))
        except NotFound:
            return  # the tag, or the server with it


def _path(server_id: str) -> str:
    """Return a server's path. An empty id would list every server, one with a slash would name another call."""
    if not _ID.fullmatch(server_id):
        raise BadRequest(f"{server_id!r} is not a server id", peer=PEER)
    return f"/servers/{server_id}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")) if text else ()
