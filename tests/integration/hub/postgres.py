"""The session's real Postgres: the fixture `new_postgres_database`.

It is Debian's, started by the session on a free port and loopback only, as user `postgres` when we are root (Postgres
refuses root), and taken down with the session. Where it is missing it is installed if that can be done, else the
tests fail with the way to get it; they never skip.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from fmlab.procs import free_port, guarded

HOW = (
    "Postgres is not installed and could not be installed from here. As root: apt-get update && apt-get install -y "
    "postgresql (Debian); or put initdb and pg_ctl on PATH. These tests do not skip."
)


@pytest.fixture(scope="session")
def postgres_port() -> Iterator[int]:
    """Run a Postgres for the session."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="fm-postgres-"))
    as_user = _as_user(folder)
    data, port = folder / "data", free_port()
    stop = [*as_user, str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop"]
    options = (
        f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off "
        "-c full_page_writes=off -c synchronous_commit=off -c max_connections=60 -c shared_buffers=16MB"
    )
    start = ["pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "-t", "60", "start"]
    with guarded(["sh", "-c", '"$@"; rm -rf "$0"', str(folder), *stop]):
        _run([*as_user, str(binaries / "initdb"), "-D", str(data), "-U", "fleet", "-A", "trust", "--no-sync"])
        _run([*as_user, str(binaries / start[0]), *start[1:]])
        yield port


@pytest.fixture(scope="session")
def new_postgres_database(postgres_port: int) -> Iterator[Callable[[], str]]:
    """Makes new, empty databases; each call returns the address of one, and all go with the server."""
    with psycopg.connect(f"postgresql://fleet@127.0.0.1:{postgres_port}/postgres", autocommit=True) as connection:

        def new() -> str:
            name = f"hub_{uuid4().hex[:12]}"
            connection.execute(f"CREATE DATABASE {name}".encode())
            return f"postgresql://fleet@127.0.0.1:{postgres_port}/{name}"

        yield new


def _as_user(folder: Path) -> list[str]:
    if os.geteuid() != 0:
        return []
    shutil.chown(folder, "postgres", "postgres")
    return ["runuser", "-u", "postgres", "--"]


def _binaries() -> Path:
    """Return the folder of initdb and pg_ctl, the newest of several."""
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with suppress(subprocess.CalledProcessError):
            _install()
        found = _look()
    if found is None:
        pytest.fail(HOW, pytrace=False)
    return found


def _look() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return debian[-1].parent if debian else Path(on_path).parent if on_path else None


def _install() -> None:
    """Install the server without the cluster that Debian would make and start on its own."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-q"], env=quiet)
    _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql-common"], env=quiet)
    conf = Path("/etc/postgresql-common/createcluster.conf")
    conf.write_text("create_main_cluster = false\n" + (conf.read_text() if conf.exists() else ""))
    _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql"], env=quiet)


def _run(argv: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(argv, check=True, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
