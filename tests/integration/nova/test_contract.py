"""The real Nova keeps the client's contract."""

from collections.abc import AsyncIterator

import pytest
from tests.clients.nova.contract import NovaContract, World

from fleet_manager.core.clients.nova.client import OpenStackNova
from fleet_manager.settings.clients.nova import NovaSettings
from fmlab.nova import NovaCloud

pytestmark = [pytest.mark.nova]
pytest_plugins = ["tests.integration.nova_cloud"]


@pytest.fixture(scope="session")
async def cloud(nova_cloud: NovaCloud) -> AsyncIterator[World]:
    def nova(name: str) -> OpenStackNova:
        return OpenStackNova(NovaSettings(cloud=name, config_file=nova_cloud.clouds_yaml))

    async with nova("ops-app") as operator, nova("demo-app") as member:
        yield World(operator, member, nova_cloud.hosts, pause_s=0.1)


class TestRealNova(NovaContract):
    """The contract."""
