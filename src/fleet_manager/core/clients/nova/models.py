"""What callers give to the Nova client and get from it, and the Protocol that the client and its fake keep.

No openstacksdk here, and nothing whose `repr` shows user-data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fleet_manager.core.domain.server import Server

Networks = Literal["none", "auto"] | tuple[str, ...]
"""Network ids, or Nova's words."""


@dataclass(frozen=True)
class ImageRef:
    """An active image."""

    id: str
    name: str


@dataclass(frozen=True)
class FlavorRef:
    """A flavor and its size."""

    id: str
    name: str
    vcpus: int
    ram_mib: int
    disk_gib: int


@dataclass(frozen=True)
class NetworkRef:
    """A network."""

    id: str
    name: str


@dataclass(frozen=True)
class NovaFacts:
    """What a look at the start shows of cloud and credential.

    Attributes:
        microversion: the one that is sent.
        offered: the highest of this Nova.
        project_id: the credential's project, "" where the auth plugin knows none.
        roles: its role names, sorted; empty where the plugin knows none.
        pin_expected: whether it is shown hypervisors, which Nova's default policy ties to the same right as pinning a
            server. A hint: the policy of the pin itself cannot be asked without a create, and a cloud may have
            changed either. False also means that a landing cannot be read back.
    """

    microversion: str
    offered: str
    project_id: str
    roles: tuple[str, ...]
    pin_expected: bool


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """A server to create. `tags` holds the device's and the build's, so that a retry finds it.

    `hypervisor_hostname` pins it to a machine (needs an operator's credential); `availability_zone` then must not name
    a host too.
    """

    name: str
    image_id: str
    flavor_id: str
    user_data_b64: str = field(repr=False)
    tags: frozenset[str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    networks: Networks = "auto"
    hypervisor_hostname: str | None = None
    availability_zone: str | None = None
    key_name: str | None = None
    config_drive: bool = False


@dataclass(frozen=True, kw_only=True)
class RebuildSpec:
    """A rebuild of a server in place.

    Attributes:
        tags: put on the server before the rebuild is sent, beside those it has.
        metadata: laid over what the server has (Nova's rebuild replaces all of it).
    """

    server_id: str
    image_id: str
    user_data_b64: str = field(repr=False)
    tags: frozenset[str]
    metadata: Mapping[str, str] = field(default_factory=dict)


class NovaClient(Protocol):
    """Nova, Glance and Neutron as far as the satellite uses them. Every method raises `ClientError`s only.

    No write is repeated here. After Unavailable, Conflict, or a cancelled call, a write may have happened all the same:
    find the server again (`find_one_by_tag`, `get`), ask `domain.server.build_state`, then decide.
    """

    async def check(self) -> NovaFacts:
        """Prove credential and microversion; IncompatibleServer names the wanted and the offered version."""
        ...

    async def find_image(self, name_or_id: str) -> ImageRef:
        """Find an active image; ImageNotFound, AmbiguousName."""
        ...

    async def find_flavor(self, name_or_id: str) -> FlavorRef:
        """Find a flavor; FlavorNotFound, AmbiguousName."""
        ...

    async def find_network(self, name_or_id: str) -> NetworkRef:
        """Find a network; NetworkNotFound, AmbiguousName."""
        ...

    async def find_by_tag(self, tag: str) -> list[Server]:
        """List all servers of the project that have the tag, gone ones left out, by id.

        Empty means that Nova answered and none has it. A Nova with a cell down leaves that cell's servers out of a
        filtered list without a word (compute guide, "Handling cell failures"): before a create, also `get` a server id
        that is known from elsewhere.
        """
        ...

    async def find_one_by_tag(self, tag: str) -> Server | None:
        """Return the one server that has the tag; DuplicateServers when there are more."""
        ...

    async def get(self, server_id: str) -> Server:
        """Read a server; ServerNotFound only when Nova itself says so."""
        ...

    async def create(self, spec: ServerSpec) -> Server:
        """Ask for a server and read it back.

        PinForbidden, QuotaExceeded, ImageNotFound, FlavorNotFound, HostNotFound, BadRequest: nothing was made.
        Anything Unavailable: look by tag, after a little while.
        """
        ...

    async def rebuild(self, spec: RebuildSpec) -> Server:
        """Read the server, refuse what cannot be rebuilt, tag it, ask for the rebuild and read it back.

        The order keeps the server findable at every moment: its device tag never moves; the new build's tag goes on
        before the rebuild is sent, so whoever looks for that build finds the server whatever happened to the call; the
        metadata's `fm_build` changes with the image in one transaction of Nova's and says whether it was taken; the
        old build's tag goes last, by `settle_tags`, when the new build is done. Nova takes no tags on a server in
        ERROR (409), so there they too are left to `settle_tags`, and the device tag finds it meanwhile.

        CannotRebuild: nothing was touched. After Conflict, Unavailable (ten at once gave nine 500s and up to two
        rebuilds) or a time-out: read the server and compare before sending again.
        """
        ...

    async def settle_tags(self, server_id: str, device_id: str, build_id: str) -> Server:
        """Leave exactly this device's and this build's tag of ours on the server; others' tags stay. Safe to repeat."""
        ...

    async def delete(self, server_id: str) -> None:
        """Ask for its deletion; gone already is success. Gone is: `get` raises ServerNotFound or shows DELETED."""
        ...

    async def start(self, server_id: str) -> None:
        """Switch on a server that is SHUTOFF; Conflict when it is not."""
        ...

    async def console_log(self, server_id: str, lines: int) -> str:
        """Return the last lines of its console, at most 64 KiB. For a human's eyes: it may show secrets."""
        ...
