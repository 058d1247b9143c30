"""Migrations and seeding, on both databases."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, select
from tests.integration.hub.support import SITES

from fleet_manager.hub.database import Database
from fleet_manager.hub.seed import SeedError, SeedFile, read_file, seed
from fleet_manager.hub.tables import Base, DeviceRow
from fleet_manager.settings.hub import HubSettings

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    given = None if backend == "sqlite" else request.getfixturevalue("new_postgres_database")()
    return HubSettings(database_url=given, state_dir=tmp_path / "state").sqlalchemy_url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    await database.migrate()
    yield database
    await database.close()


async def test_two_hubs_that_start_at_once_migrate_once(url: str) -> None:
    hubs = [Database(url) for _ in range(3)]
    await asyncio.gather(*(hub.migrate() for hub in hubs))
    await hubs[0].migrate()
    await hubs[0].ping()
    for hub in hubs:
        await hub.close()


async def test_the_migrations_make_exactly_the_tables_of_the_code(database: Database) -> None:
    def differences(connection: Connection) -> list[Any]:
        return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))

    async with database.write() as session:
        found = await (await session.connection()).run_sync(differences)
    assert found == []


async def devices(database: Database) -> dict[str, DeviceRow]:
    async with database.read() as session:
        return {f"{row.site}/{row.name}": row for row in await session.scalars(select(DeviceRow))}


async def test_seeding_twice_changes_nothing_the_second_time(database: Database) -> None:
    first = await seed(database, SITES, NOW)
    before = {name: (row.id, row.revision) for name, row in (await devices(database)).items()}
    second = await seed(database, SITES, NOW)
    assert first == {"site created": 2, "device created": 4}
    assert second == {"device unchanged": 4}
    assert {name: (row.id, row.revision) for name, row in (await devices(database)).items()} == before


async def test_a_seed_changes_what_the_file_owns_and_leaves_the_build(database: Database) -> None:
    file = {"sites": [{"id": "a"}], "devices": [{"site": "a", "name": "n1", "role": "old", "server_id": "srv-1"}]}
    await seed(database, SeedFile.model_validate(file), NOW)
    file["devices"] = [{"site": "a", "name": "N1", "role": "new", "server_id": "srv-2"}]
    assert await seed(database, SeedFile.model_validate(file), NOW) == {"device updated": 1}
    [row] = (await devices(database)).values()
    assert (row.name, row.role, row.server_id, row.revision, row.updated_by) == ("N1", "new", "srv-1", 2, "seed")


@pytest.mark.parametrize(
    "second,word",
    [
        ({"name": "n2", "role": "r", "slurm_node": "N1"}, "SLURM node name"),
        ({"name": "n2", "role": "r", "id": "dev-1"}, "share an id"),
        ({"name": "n1", "role": "r", "id": "dev-2"}, "never changes"),
        ({"name": "n2", "role": "r", "site": "b"}, "neither known nor in the file"),
    ],
)
async def test_a_seed_that_breaks_a_rule_writes_nothing(database: Database, second: dict[str, str], word: str) -> None:
    first = {"site": "a", "name": "n1", "role": "r", "id": "dev-1"}
    file = {"sites": [{"id": "a"}], "devices": [first, {"site": "a", **second}]}
    with pytest.raises(SeedError, match=word):
        await seed(database, SeedFile.model_validate(file), NOW)
    assert await devices(database) == {}


@pytest.mark.parametrize(
    "text,word",
    [
        ("{", "is not JSON: line 1"),
        ('{"sites": [{"id": "Not A Label"}]}', "sites.0.id"),
        ('{"devices": [{"site": "a", "name": "n", "role": "r", "rack": 1}]}', "devices.0.rack"),
    ],
)
def test_a_seed_file_out_of_form_is_refused_with_the_place(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "seed.json"
    path.write_text(text)
    with pytest.raises(SeedError, match=word):
        read_file(path)


def test_a_seed_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SeedError, match=r"cannot read .*none\.json"):
        read_file(tmp_path / "none.json")


def test_a_seed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "seed.json"
    path.write_text(json.dumps({"sites": [{"id": "a"}]}))
    assert read_file(path).sites[0].id == "a"
