"""Make the state that every new cloud of the lab starts from: databases, users, flavors, images, a network.

That takes half a minute of CPU (database migrations, password hashes), so it is done once and kept in the cache. The
seed is a stopped cloud without compute hosts; the copy is told its ports and its folder by `nova_parts.relocate`.

Must not leave a process: what seeds runs under the caller's folder, where the caller's `nova_down` finds it.
"""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fmlab import nova_parts as parts
from fmlab.cache import key_of, locked_build
from fmlab.procs import LabError, Say

Start = Callable[[parts.Layout, tuple[str, ...]], None]
Stop = Callable[[], None]


def seed(folder: Path, venv: Path, start: Start, stop: Stop, say: Say) -> Path:
    """Return the seed's state folder in the cache; make it first if it was never made from these sources.

    Args:
        folder: the cloud's folder; the work is done in DIR/state/nova-seed.
        venv: the virtualenv of the services.
        start: starts these services under `folder` and waits until they answer.
        stop: stops them all.
        say: told what takes long.
    """

    def build(final: Path) -> None:
        work = folder / "state" / "nova-seed"
        shutil.rmtree(work, ignore_errors=True)
        try:
            _make(work, venv, start, say)
        finally:
            stop()
        parts.checkpoint(parts.Layout(work, venv, {}))
        for name in ("db", "keys", "images", "nova", "credentials.json"):
            source = work / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, final / name)
        final.chmod(0o700)
        shutil.rmtree(work)

    made_by = [Path(__file__), parts.NOVA / "py" / "seed.py", parts.NOVA / "py" / "neutron_schema.py"]
    configs = sorted((parts.NOVA / "etc").glob("*.in"))
    key = key_of(parts.LOCK, parts.python_key(), *made_by, *configs)
    return locked_build("nova-seed", key, build, say=say)


def copy(source: Path, state: Path) -> None:
    """Copy the seed to a state folder that does not exist yet; a rename is the last step."""
    new = state.with_name(f".{state.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(source, new)
    (new / ".complete").unlink()
    new.rename(state)


def _make(work: Path, venv: Path, start: Start, say: Say) -> None:
    parts.prepare(work)
    layout = parts.Layout(work, venv, parts.choose_ports(work))
    parts.write_configs(layout)
    # a second start of nova-compute insists on this file, even if the fake driver makes node ids of its own
    (work / "nova" / "compute_id").write_text(f"{uuid.uuid4()}\n")
    say("databases (once)")
    parts.write_ahead(layout)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: job(layout), (_keystone, _nova, _glance, _neutron)))
    say("users, services, endpoints, flavors, images, network (once)")
    start(layout, ("keystone",))
    _run(layout, "python", parts.NOVA / "py" / "seed.py", "identity")
    start(layout, ("glance", "placement", "neutron", "nova"))
    _run(layout, "python", parts.NOVA / "py" / "seed.py", "resources")


def _run(layout: parts.Layout, program: str, *arguments: str | Path) -> None:
    argv = [str(layout.venv / "bin" / program), *map(str, arguments)]
    done = subprocess.run(argv, env=layout.env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{program} {arguments[-1]} failed ({done.returncode}):\n{(done.stderr or done.stdout)[-3000:]}")


def _keystone(layout: parts.Layout) -> None:
    config = ("--config-file", layout.config("keystone.conf"))
    owner = ("--keystone-user", getpass.getuser(), "--keystone-group", grp.getgrgid(os.getgid()).gr_name)
    _run(layout, "keystone-manage", *config, "db_sync")
    _run(layout, "keystone-manage", *config, "fernet_setup", *owner)
    _run(layout, "keystone-manage", *config, "credential_setup", *owner)
    urls = [
        x
        for kind in ("public", "internal", "admin")
        for x in (f"--bootstrap-{kind}-url", layout.url("keystone", "/v3"))
    ]
    # the password is a lab's own and public; keystone-manage reads it from its arguments
    region = ("--bootstrap-region-id", "RegionOne")
    _run(layout, "keystone-manage", *config, "bootstrap", "--bootstrap-password", "adminpass", *region, *urls)


def _glance(layout: parts.Layout) -> None:
    _run(layout, "glance-manage", "--config-file", layout.config("glance-api.conf"), "db_sync")


def _neutron(layout: parts.Layout) -> None:
    url = f"sqlite:///{layout.database('neutron')}?timeout=60"
    _run(layout, "python", parts.NOVA / "py" / "neutron_schema.py", url)


def _nova(layout: parts.Layout) -> None:
    def manage(*arguments: str) -> None:
        _run(layout, "nova-manage", "--config-file", layout.config("nova.conf"), *arguments)

    def cell(name: str) -> tuple[str, str]:
        return "--database_connection", f"sqlite:///{layout.database(f'nova_{name}')}?timeout=60"

    manage("api_db", "sync")
    manage("cell_v2", "map_cell0", *cell("cell0"))
    manage("cell_v2", "create_cell", "--name", "cell1", "--transport-url", "fake://", *cell("cell1"))
    manage("db", "sync")
