"""The hub's API on SQLite and on Postgres: every test that takes `api` runs on both."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.hub.postgres import new_postgres_database, postgres_port
from tests.integration.hub.support import Api, FakeClock, Lab, running, start_over

__all__ = [
    "new_postgres_database",
    "postgres_port",
]  # a conftest below the top may not name plugins, so it imports them


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
async def app_on_backend(
    backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Api]:
    url = None if backend == "sqlite" else request.getfixturevalue("new_postgres_database")()
    lab = Lab.make(tmp_path_factory.mktemp(f"hub-{backend}"))
    async with running(lab, FakeClock(), database_url=url) as api:
        yield api


@pytest.fixture
async def api(app_on_backend: Api) -> Api:
    """The API with the seeded sites and nothing else."""
    await start_over(app_on_backend)
    return app_on_backend
