"""A served hub's clients, and a network that notes what is sent."""

from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.integration.hub.support import FakeClock, Lab

from fleet_manager.core.clients.fleet_manager import FleetManagerClient
from fleet_manager.core.clients.oauth import PrivateKeyJwtAuth, TokenSource
from fleet_manager.core.clients.slurm_bootstrap_config import SlurmBootstrapConfigClient
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings


@dataclass
class Recorder(httpx.AsyncBaseTransport):
    """The network, with a note of each request; `refuse_next` makes the API answer 401 without asking it."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list, repr=False)
    refuse_next: int = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append((request.method, request.url.path))
        self.bodies.append(await request.aread())
        if self.refuse_next and request.url.path.startswith("/api/"):
            self.refuse_next -= 1
            return httpx.Response(401, json={"detail": "made up"}, headers={"Content-Type": "application/problem+json"})
        async with httpx.AsyncHTTPTransport(verify=False) as network:
            response = await network.handle_async_request(request)
            content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)

    def count(self, path: str) -> int:
        return sum(sent == path for _, sent in self.sent)


@dataclass
class HubServer:
    """A hub that serves, its clients' keys, and its clock; the clock of the clients is the same."""

    url: str
    lab: Lab
    clock: FakeClock

    def settings(self, client_id: str, **changes: Any) -> FleetManagerSettings:
        values = {"url": self.url, "client_id": client_id, "private_key_file": self.lab.key_file(client_id)}
        return FleetManagerSettings(**{**values, **changes})

    def source(self, client_id: str, transport: httpx.AsyncBaseTransport | None = None, **changes: Any) -> TokenSource:
        return TokenSource(self.settings(client_id, **changes), clock=self.clock, transport=transport)

    def devices(self, client_id: str, **changes: Any) -> FleetManagerClient:
        auth = PrivateKeyJwtAuth(self.source(client_id, **changes))
        return FleetManagerClient(self.settings(client_id, **changes), auth=auth)

    def configs(self, client_id: str, **changes: Any) -> SlurmBootstrapConfigClient:
        auth = PrivateKeyJwtAuth(self.source(client_id, **changes))
        return SlurmBootstrapConfigClient(self.settings(client_id, **changes), auth=auth)
