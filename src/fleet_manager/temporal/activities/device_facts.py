"""Reading what an adoption decides upon: the device, its node, its servers, its configuration. Writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fleet_manager.core.clients.errors import NotFound
from fleet_manager.core.clients.nova.errors import FlavorNotFound, ImageNotFound, ServerNotFound
from fleet_manager.core.clients.nova.models import FlavorRef, ImageRef, NovaClient
from fleet_manager.core.clients.slurmrest.errors import NodeNotFound
from fleet_manager.core.clients.slurmrest.protocol import SlurmClient
from fleet_manager.core.domain.device import Device
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import Server, device_tag
from fleet_manager.core.domain.slurm_adoption import Seen, known_ids
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig
from fleet_manager.core.domain.slurm_build import Wanted, refuse_config
from fleet_manager.core.domain.slurm_holds import Ownership
from fleet_manager.core.domain.slurm_job import is_listed
from fleet_manager.core.domain.slurm_node import SlurmNode
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.errors import Refused
from fleet_manager.temporal.contracts.common import Failure
from fleet_manager.temporal.contracts.node_actor import ActorState

log = logging.getLogger(__name__)


class Devices(Protocol):
    """What of the hub's client is used here."""

    async def get_device(self, site: str, id_or_name: str) -> Device: ...


class Configs(Protocol):
    """What of the bootstrap configuration's client is used here."""

    async def get(self, site: str, role: str) -> SlurmBootstrapConfig: ...


class Actors(Protocol):
    """What of the actors is read here."""

    async def view(self, site: str, node: str) -> ActorState | None: ...


@dataclass
class DeviceFacts:
    """Reads hub, SLURM, Nova and the node's actor."""

    slurm: SlurmClient
    nova: NovaClient
    devices: Devices
    configs: Configs
    actors: Actors
    site: SiteSettings
    now: Callable[[], datetime]

    async def device(self, site: str, id_or_name: str) -> Device:
        """Return the hub's device. Raises NotFound."""
        return await self.devices.get_device(site, id_or_name)

    async def seen(self, device: Device) -> tuple[Seen, ActorState | None]:
        """Return everything that the survey judges, and the record of the node's actor, None if it has none."""
        name = device.node_name
        state = await self.actors.view(device.site, name)
        try:
            node: SlurmNode | None = await self.slurm.node(name)
        except NodeNotFound:
            node = None
        servers = await self._servers(device)
        jobs = await self.slurm.jobs_on_node(node.name) if node else ()
        holds = state.holds if state else ()
        proven = bool(node and state and state.proof and state.proof.build.proven_by(node))
        seen = Seen(
            device_id=device.id,
            device=device.name,
            node_name=name,
            hypervisor=device.hypervisor_hostname,
            node=node,
            jobs=tuple(job for job in jobs if is_listed(job)),
            servers=servers,
            elsewhere=await self._elsewhere(servers) if node is None else (),
            holds=holds,
            ownership=Ownership(
                known_ids=known_ids(holds, state.ended if state else ()),
                birth_reason=None if proven else self.site.birth_reason,
                slurm_users=self.site.slurm_users,
                slurm_user=self.site.slurm_user,
            ),
            reservations=await self.slurm.reservations(),
            now=self.now(),
        )
        return seen, state

    async def _elsewhere(self, servers: tuple[Server, ...]) -> tuple[str, ...]:
        """Return the nodes of any name that run on these servers: "no such node" may only mean another name."""
        if not servers:
            return ()
        ids = {server.id for server in servers}
        return tuple(node.name for node in await self.slurm.nodes() if node.instance_id in ids)

    async def _servers(self, device: Device) -> tuple[Server, ...]:
        """Return the servers of the device: by its tag, and the one that the hub names, wherever tags fail."""
        found = {server.id: server for server in await self.nova.find_by_tag(device_tag(device.id))}
        if device.server_id and device.server_id not in found:
            try:
                named = await self.nova.get(device.server_id)
            except ServerNotFound:
                log.info("device %s: the hub's server %s is gone", device.name, device.server_id)
            else:
                found[named.id] = named
        return tuple(found.values())

    async def wanted(self, device: Device) -> tuple[SlurmBootstrapConfig, Wanted, FlavorRef]:
        """Return the role's configuration and what it means in Nova.

        Raises:
            Refused: it is missing, incomplete, or names what Nova does not have.
        """
        try:
            config = await self.configs.get(device.site, device.role)
        except NotFound:
            raise Refused(
                Refusal(
                    code=Failure.CONFIG_MISSING,
                    why=f"Site {device.site} has no SLURM bootstrap configuration for role {device.role}.",
                    way_out=f"Make one: POST /api/v1/sites/{device.site}/slurm-bootstrap-configs/",
                )
            ) from None
        refusal = refuse_config(config, self.site.birth_reason)
        if refusal:
            raise Refused(refusal)
        image, flavor = await self._image(config), await self._flavor(config)
        wanted = Wanted(
            image_id=image.id, image=image.name, flavor=flavor.name, user_data_sha256=config.user_data_sha256
        )
        return config, wanted, flavor

    async def _image(self, config: SlurmBootstrapConfig) -> ImageRef:
        try:
            return await self.nova.find_image(config.image or "")
        except ImageNotFound:
            raise Refused(_unknown("UnknownImage", "image", config.image, config)) from None

    async def _flavor(self, config: SlurmBootstrapConfig) -> FlavorRef:
        try:
            return await self.nova.find_flavor(config.flavor or "")
        except FlavorNotFound:
            raise Refused(_unknown("UnknownFlavor", "flavor", config.flavor, config)) from None


def _unknown(code: str, field: str, value: str | None, config: SlurmBootstrapConfig) -> Refusal:
    return Refusal(
        code=code,
        why=f"The configuration of role {config.device_role} at site {config.site} names {field} {value!r}, "
        "which Nova does not have (or this credential cannot see).",
        way_out=f"Correct it: PATCH /api/v1/sites/{config.site}/slurm-bootstrap-configs/{config.device_role} "
        f'{{"{field}": ...}}',
    )
