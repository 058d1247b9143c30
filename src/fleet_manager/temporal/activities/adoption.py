"""The two steps of an adoption that look at every peer: the survey, and the build.

User-data is read from the hub here, there and then, and handed to Nova; it never leaves this process otherwise.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from fleet_manager.core.clients.nova.models import FlavorRef, Networks, NovaClient, RebuildSpec, ServerSpec
from fleet_manager.core.domain.device import Device
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import (
    ATTEMPT_KEY,
    BUILD_KEY,
    CONFIG_REVISION_KEY,
    DEVICE_KEY,
    USER_DATA_KEY,
    Server,
    build_tag,
    device_tag,
)
from fleet_manager.core.domain.slurm_adoption import cannot_gate, survey
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig
from fleet_manager.core.domain.slurm_build import NODE_KEY, BuildPlan, Wanted, Way, plan_build, way_of_attempt
from fleet_manager.core.domain.slurm_node import SlurmNode
from fleet_manager.settings.clients.nova import NovaSettings
from fleet_manager.settings.site import SiteSettings
from fleet_manager.temporal.activities.device_facts import DeviceFacts
from fleet_manager.temporal.activities.errors import Refused
from fleet_manager.temporal.contracts.common import Failure, Payload, task_queue
from fleet_manager.temporal.contracts.node_actor import ActorState, Proof

log = logging.getLogger(__name__)


class SurveyParams(Payload):
    """Which device, for which operation."""

    site: str
    device: str
    claim_id: str
    force_rebuild: bool = False


class Patience(Payload):
    """How long each wait may take, from the site's settings."""

    build: timedelta
    boot: timedelta
    start: timedelta


class SurveyReport(Payload):
    """Nothing stands against the adoption; or it is done already (`already`)."""

    device_id: str
    device: str
    node: str
    hypervisor: str
    patience: Patience
    already: Proof | None = None


class BuildParams(Payload):
    """Which device is to be built as what."""

    site: str
    device: str
    node: str
    claim_id: str
    build_id: str
    force_rebuild: bool = False


class BuildReport(Payload):
    """What was asked of Nova, and what the machine must be."""

    server_id: str
    build_id: str
    """Of an earlier adoption when the server was left as it is."""
    way: Way
    why: str
    image_id: str
    config_revision: int
    gres: str
    features: tuple[str, ...]
    flavor_vcpus: int
    flavor_ram_mib: int


@dataclass
class AdoptionActivities:
    """Reads hub, SLURM, Nova and the node's actor; writes Nova alone."""

    facts: DeviceFacts
    nova: NovaClient
    site: SiteSettings
    servers: NovaSettings

    @activity.defn
    async def survey_device(self, params: SurveyParams) -> SurveyReport:
        """Look whether the device can be adopted, before anything is touched.

        Raises:
            Refused: with the cause and the way out.
        """
        if params.site != self.site.id:
            raise Refused(_other_site(params.site, self.site.id))
        device = await self.facts.device(params.site, params.device)
        capabilities = await self.facts.slurm.capabilities()
        if not capabilities.reservations_writable:
            raise Refused(cannot_gate(str(capabilities.slurm_version)))
        seen, state = await self.facts.seen(device)
        refusal = survey(seen, claim_id=params.claim_id, force_rebuild=params.force_rebuild)
        if refusal:
            raise Refused(refusal)
        config, wanted, _ = await self.facts.wanted(device)
        server = seen.servers[0] if seen.servers else None
        plan = plan_build(wanted, server, "", force_rebuild=params.force_rebuild)
        if isinstance(plan, Refusal):
            raise Refused(plan)
        site = self.site
        return SurveyReport(
            device_id=device.id,
            device=device.name,
            node=device.node_name,
            hypervisor=seen.hypervisor or "",
            patience=Patience(build=site.build_patience, boot=site.boot_patience, start=site.start_patience),
            already=_already(plan, seen.node, server, state, config),
        )

    @activity.defn
    async def build_server(self, params: BuildParams) -> BuildReport:
        """Create, rebuild or leave the device's server. Asked again, it finds what the last try made.

        The node must be held by now: what is not drained, or still has a job, is not built upon.

        Raises:
            Refused: the configuration, the server or the node says no; nothing was touched.
        """
        device = await self.facts.device(params.site, params.device)
        seen, _ = await self.facts.seen(device)
        refusal = survey(seen, claim_id=params.claim_id, force_rebuild=params.force_rebuild) or _not_held(seen.node)
        if refusal:
            raise Refused(refusal)
        config, wanted, flavor = await self.facts.wanted(device)
        server = seen.servers[0] if seen.servers else None
        plan = plan_build(wanted, server, params.build_id, force_rebuild=params.force_rebuild)
        if isinstance(plan, Refusal):
            raise Refused(plan)
        log.info("device %s: %s, because %s", device.name, plan.way, plan.why)
        built = await self._build(plan, params, device, server, config, wanted, flavor)
        way = way_of_attempt(built.metadata.get(ATTEMPT_KEY)) if built.build_id == params.build_id else plan.way
        return BuildReport(
            server_id=built.id,
            build_id=built.build_id if plan.way is Way.LEAVE and built.build_id else params.build_id,
            way=way or plan.way,
            why=plan.why,
            image_id=wanted.image_id,
            config_revision=config.revision,
            gres=config.gres,
            features=config.features,
            flavor_vcpus=flavor.vcpus,
            flavor_ram_mib=flavor.ram_mib,
        )

    async def _build(
        self,
        plan: BuildPlan,
        params: BuildParams,
        device: Device,
        server: Server | None,
        config: SlurmBootstrapConfig,
        wanted: Wanted,
        flavor: FlavorRef,
    ) -> Server:
        if server is not None and plan.way is Way.LEAVE:
            return server
        tags = frozenset({device_tag(device.id), build_tag(params.build_id)})
        metadata = {
            DEVICE_KEY: device.id,
            NODE_KEY: params.node,
            BUILD_KEY: params.build_id,
            CONFIG_REVISION_KEY: str(config.revision),
            USER_DATA_KEY: wanted.user_data_sha256,
            ATTEMPT_KEY: f"{plan.way}-{activity.info().attempt}",
        }
        if server is not None:
            return await self.nova.rebuild(
                RebuildSpec(
                    server_id=server.id,
                    image_id=wanted.image_id,
                    user_data_b64=config.user_data.reveal(),
                    tags=tags,
                    metadata=metadata,
                )
            )
        return await self.nova.create(
            ServerSpec(
                name=params.node,
                image_id=wanted.image_id,
                flavor_id=flavor.id,
                user_data_b64=config.user_data.reveal(),
                tags=tags,
                metadata=metadata,
                networks=await self._networks(),
                hypervisor_hostname=device.hypervisor_hostname,
                availability_zone=self.servers.availability_zone,
                key_name=self.servers.key_name,
                config_drive=self.servers.config_drive,
            )
        )

    async def _networks(self) -> Networks:
        if isinstance(self.servers.networks, str):
            return self.servers.networks
        return tuple([(await self.nova.find_network(name)).id for name in self.servers.networks])


def _other_site(site: str, served: str) -> Refusal:
    """Return the refusal of an input that came to the wrong worker: in the UI any queue can be typed.

    Decided here and not in the workflow, whose own task queue reads otherwise in a replay.
    """
    return Refusal(
        code=Failure.WRONG_SITE,
        why=f"The input names site {site}, this worker serves {served}.",
        way_out=f"Start it on task queue {task_queue(site)}, or correct the site.",
    )


def _not_held(node: SlurmNode | None) -> Refusal | None:
    if node is None or node.state.drain:
        return None
    return Refusal(
        code="NodeNotHeld",
        why=f"Node {node.name} is {node.state}, not drained, so it is not built upon.",
        way_out="Somebody undrained it meanwhile; adopt it again.",
    )


def _already(
    plan: BuildPlan,
    node: SlurmNode | None,
    server: Server | None,
    state: ActorState | None,
    config: SlurmBootstrapConfig,
) -> Proof | None:
    """Return the proof when the node is in service on the very build that the configuration asks for."""
    if plan.way is not Way.LEAVE or node is None or server is None or state is None or state.proof is None:
        return None
    proof = state.proof
    same = proof.build.server_id == server.id and proof.build.build_id == server.build_id
    in_service = node.state.schedulable and not state.holds and state.claim is None
    return proof if same and in_service and proof.build.proven_by(node) else None
