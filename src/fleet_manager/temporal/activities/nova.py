"""Waiting for Nova: until the build is there, on the right machine, switched on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime
from temporalio import activity

from fleet_manager.core.clients.errors import Conflict, Unavailable
from fleet_manager.core.clients.nova.errors import ServerNotFound
from fleet_manager.core.clients.nova.models import NovaClient
from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import BuildState, Done, Server, Stopped, build_state
from fleet_manager.core.domain.slurm_build import refuse_build, words_of_build
from fleet_manager.temporal.activities.errors import Refused
from fleet_manager.temporal.activities.waiting import beat_while
from fleet_manager.temporal.contracts.common import Failure, Payload

log = logging.getLogger(__name__)

UNREAD = "Nova was not read yet"
READINGS = 2
"""Readings in a row that must say done: a server that is deleted while it is built shows ACTIVE for a moment."""


class WaitServerParams(Payload):
    """Which build of which server, on which machine, until when."""

    device: str
    device_id: str
    server_id: str
    build_id: str
    image_id: str
    hypervisor: str
    deadline: AwareDatetime


@dataclass
class NovaActivities:
    """Needs Nova alone.

    Attributes:
        nova: the site's Nova.
        interval: seconds between two looks at a server.
        now: the clock.
    """

    nova: NovaClient
    interval: float
    now: Callable[[], datetime]

    @activity.defn
    async def wait_for_server(self, params: WaitServerParams) -> None:
        """Wait until the build is ACTIVE on the device's own machine, and leave exactly its tags on the server.

        Raises:
            Refused: the build failed, is lost, landed elsewhere, or is not there by the deadline.
        """
        seen = [UNREAD]
        await beat_while(
            self._until_built(params, seen),
            deadline=params.deadline,
            now=self.now,
            words=lambda: seen[0],
            looked=lambda: seen[0] != UNREAD,
            too_late=lambda: Refusal(
                code=Failure.BUILD_FAILED,
                why=f"Server {params.server_id} of device {params.device} is not ready in time: {seen[0]}.",
                way_out=f"Look at it (openstack server show {params.server_id}), then adopt the device again.",
            ),
        )
        await self.nova.settle_tags(params.server_id, params.device_id, params.build_id)

    async def _until_built(self, params: WaitServerParams, seen: list[str]) -> None:
        started, done = False, 0
        while done < READINGS:
            try:
                state = await self._look(params)
            except Unavailable as error:  # waited out: it says nothing about the server
                done = 0
                seen[0] = f"Nova cannot be read now: {error}"
            else:
                seen[0] = words_of_build(state)
                refusal = refuse_build(state, params.device, params.server_id)
                if refusal:
                    raise Refused(refusal)
                done = done + 1 if isinstance(state, Done) else 0
                if isinstance(state, Stopped) and not started:
                    started = await self._start(params.server_id)
            await asyncio.sleep(self.interval)

    async def _look(self, params: WaitServerParams) -> BuildState:
        server: Server | None
        try:
            server = await self.nova.get(params.server_id)
        except ServerNotFound:
            server = None
        return build_state(server, params.build_id, params.image_id, hypervisor_hostname=params.hypervisor)

    async def _start(self, server_id: str) -> bool:
        try:
            await self.nova.start(server_id)
        except Conflict as error:
            log.info("server %s is not started: %s", server_id, error)
            return False
        return True
