"""The hub's database: one engine, transactions that read what they decide on, migrations at start.

SQLite is the embedded default, Postgres where an address is given; both pass the same tests. No error or log of this
module holds a statement's parameters: they hold user-data.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

MIGRATION_LOCK = 0x666D_6875_62
"""Postgres advisory lock of the migrations, so that two hubs that start at once run them once ("fmhub")."""

_log = logging.getLogger(__name__)


class Database:
    """An engine and its sessions.

    Example:
        async with database.read() as session: ...
        async with database.write() as session: ...   # committed at the end, rolled back on an error
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self._reads = async_sessionmaker(self._engine, expire_on_commit=False)
        writes = self._engine.execution_options(fm_begin="BEGIN IMMEDIATE")
        self._writes = async_sessionmaker(writes, expire_on_commit=False)

    async def close(self) -> None:
        await self._engine.dispose()

    async def migrate(self) -> None:
        """Bring the schema to the newest revision; safe to repeat and to run twice at once."""
        _make_folder(self._engine)
        async with self._engine.execution_options(fm_begin="BEGIN IMMEDIATE").connect() as connection:
            async with connection.begin():
                if self._engine.dialect.name == "postgresql":
                    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
                await connection.run_sync(upgrade)

    async def ping(self) -> None:
        """Ask the database for one row; raises what the driver raises."""
        async with self._engine.connect() as connection:
            await connection.execute(text("SELECT 1"))

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        async with self._reads() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """Open a transaction for read, decide, write: on SQLite it is the only writer from its first statement on."""
        async with self._writes() as session, session.begin():
            yield session


def upgrade(connection: Connection) -> None:
    """Run the migrations on an open connection, in its transaction."""
    with as_file(files("fleet_manager.hub") / "migrations") as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _engine(url: str) -> AsyncEngine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = create_async_engine(parsed, hide_parameters=True, connect_args={"timeout": 15})
        event.listen(engine.sync_engine, "connect", _sqlite_connect)
        event.listen(engine.sync_engine, "begin", _sqlite_begin)
        return engine
    return create_async_engine(parsed, hide_parameters=True, pool_pre_ping=True, pool_size=10, max_overflow=10)


def _sqlite_connect(connection: Any, _: object) -> None:
    """Let us begin transactions ourselves: the driver's own begin comes only at the first write."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("fm_begin", "BEGIN"))


def _make_folder(engine: AsyncEngine) -> None:
    name = engine.url.database
    if engine.dialect.name == "sqlite" and name and name != ":memory:":
        Path(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(name).touch(mode=0o600)
