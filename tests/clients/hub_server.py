"""The session's real hub behind uvicorn on loopback: a pytest plugin with the fixture `hub_server`."""

import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import uvicorn
from tests.clients.hub_support import HubServer
from tests.integration.hub.support import SITES, FakeClock, Lab

from fleet_manager.hub.app import create_app
from fleet_manager.hub.database import Database
from fleet_manager.hub.seed import seed


@pytest.fixture(scope="session")
def hub_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    """Serve a hub in a thread; tests give what they make names of their own."""
    lab, clock = Lab.make(tmp_path_factory.mktemp("hub-server")), FakeClock()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        settings = lab.settings(port=listener.getsockname()[1], access_token_ttl=timedelta(minutes=5))
        config = uvicorn.Config(create_app(settings, now=clock), log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="hub")
        thread.start()
        try:
            _wait_until_started(server, thread)
            yield HubServer(settings.issuer_id, lab, clock)
        finally:
            server.should_exit = True
            thread.join(timeout=30)


@pytest.fixture
async def seeded(hub_server: HubServer) -> HubServer:
    """The same with the seeded sites and devices in their first state."""
    database = Database(hub_server.lab.settings(port=1).sqlalchemy_url)
    await seed(database, SITES, hub_server.clock())
    await database.close()
    return hub_server


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 60
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            pytest.fail("the hub did not start; its log is above", pytrace=False)
        time.sleep(0.01)
