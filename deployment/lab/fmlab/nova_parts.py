"""What the lab's Nova is made of: its virtualenv, its configuration files, its databases, its five processes.

Keystone, Glance, Placement and Neutron are each project's own WSGI application under cheroot; Nova's conductor,
scheduler, computes and API are threads of one process (`nova/py/nova_allinone.py`). SQLite, no message broker.

Must not decide when to start or stop (that is `fmlab.nova`), and must not hold a port: those are chosen at start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from fmlab.cache import key_of, locked_build
from fmlab.procs import LabError, Say, free_port, port_free

SERVICES = ("keystone", "glance", "placement", "neutron", "nova")
NOVA = Path(__file__).resolve().parent.parent / "nova"
LOCK = NOVA / "requirements.lock"
_TOKEN_TTL_S = 3600
_DATABASES = ("keystone", "glance", "placement", "neutron", "nova_api", "nova_cell0", "nova_cell1")
_CONFIGS: dict[str, Sequence[str]] = {  # file -> the services' users whose own credentials it ends with
    "keystone.conf": (),
    "glance-api.conf": ("glance",),
    "placement.conf": ("placement",),
    "neutron.conf": ("neutron",),
    "nova.conf": ("nova",),
}


@dataclass(frozen=True)
class Layout:
    """Where one cloud keeps its things.

    Attributes:
        state: DIR/state/nova, private (mode 700): keys, databases, user-data.
        venv: the shared virtualenv in the cache.
        ports: service -> port on 127.0.0.1.
    """

    state: Path
    venv: Path
    ports: Mapping[str, int]

    def url(self, service: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.ports[service]}{path}"

    def database(self, name: str) -> Path:
        return self.state / "db" / f"{name}.db"

    def config(self, name: str) -> Path:
        return self.state / "etc" / name

    @property
    def events(self) -> Path:
        """The virt driver's JSON lines; its spawn lines hold user-data (mode 600)."""
        return self.state / "events.jsonl"

    @property
    def machines(self) -> Path:
        return self.state / "machines"

    @property
    def credentials(self) -> Path:
        return self.state / "credentials.json"

    @property
    def clouds_yaml(self) -> Path:
        return self.state / "clouds.yaml"

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of a service: nothing of the caller's but where programs and the home are.

        PYTHONDONTWRITEBYTECODE above all must not get in: without .pyc files a start takes 3 to 5 times as long.
        """
        etc = str(self.state / "etc")
        return {
            "PATH": f"{self.venv}/bin:{os.environ.get('PATH', os.defpath)}",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(NOVA / "py"),
            "PYTHONUNBUFFERED": "1",
            "OS_KEYSTONE_CONFIG_FILES": str(self.config("keystone.conf")),
            "OS_KEYSTONE_CONFIG_DIR": etc,
            "OS_GLANCE_CONFIG_DIR": etc,
            "OS_PLACEMENT_CONFIG_DIR": etc,
            "OS_NEUTRON_CONFIG_DIR": etc,
            "OS_NEUTRON_CONFIG_FILES": str(self.config("neutron.conf")),
            "FM_PORTS": json.dumps(dict(self.ports)),
            "FM_CREDENTIALS": str(self.credentials),
            "FM_FAKE_EVENTS": str(self.events),
            "FM_FAKE_MACHINES": str(self.machines),
        }

    def command(self, service: str) -> list[str | Path]:
        """Return the argv that serves a WSGI service, or nova's all-in-one process."""
        python = self.venv / "bin" / "python"
        if service == "nova":
            return [python, NOVA / "py" / "nova_allinone.py", "--config-file", self.config("nova.conf")]
        threads = "8" if service == "glance" else "16"
        return [python, NOVA / "py" / "serve_wsgi.py", f"{service}.wsgi.api", str(self.ports[service]), threads]


def uv() -> list[str]:
    """Return the command that runs uv: the module of this Python, a program beside it, or one on PATH."""
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise LabError(f"uv is missing: it is in requirements.lock; install that for {sys.executable}")
    return [found]


def python_key() -> str:
    """Name the interpreter that a virtualenv is tied to: another version or another place is another virtualenv."""
    return f"{sys.version} {sys.base_prefix}"


def virtualenv(say: Say) -> Path:
    """Return the virtualenv of Nova and its friends, built in the cache if this lock was never installed here.

    Nova 34, Keystone 30, Glance 33, Placement 16 and Neutron 29 belong together: placement 15 with this oslo.policy
    dies at start (`enforce_scope`), hence one lock for all, with hashes required. About 600 MB and 16 s on 2 cores.
    """

    def build(folder: Path) -> None:
        say("virtualenv of nova, keystone, glance, placement, neutron (once; about 150 MB to download)")
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")}
        python = str(folder / "bin" / "python")
        install = ["pip", "install", "--quiet", "--no-progress", "--compile-bytecode", "--require-hashes"]
        for step in (
            ["venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            [*install, "--python", python, "-r", str(LOCK)],
        ):
            done = subprocess.run([*uv(), *step], env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise LabError(f"uv {step[0]} failed ({done.returncode}):\n{done.stderr[-3000:]}")

    return locked_build("nova-venv", key_of(LOCK, python_key()), build, in_place=True, say=say)


def choose_ports(state: Path) -> dict[str, int]:
    """Keep the ports of the last start where they are still free; else choose others. Written to state/ports.json."""
    file = state / "ports.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    ports = {s: kept[s] if s in kept and port_free(kept[s]) else free_port() for s in SERVICES}
    file.write_text(json.dumps(ports))
    return ports


def prepare(state: Path) -> None:
    """Make the folders of a state, private to this user."""
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o700)
    for name in (
        "etc",
        "db",
        "keys/fernet",
        "keys/credential",
        "images",
        "nova/instances",
        "lock",
        "neutron",
        "machines",
    ):
        (state / name).mkdir(parents=True, exist_ok=True)
    for name in ("keys", "keys/fernet", "keys/credential"):
        (state / name).chmod(0o700)


def write_configs(layout: Layout, token_ttl_s: int = _TOKEN_TTL_S) -> None:
    """Write every configuration file anew from `nova/etc/*.in`: paths and ports are those of this start."""
    values = {"state": layout.state, "venv": layout.venv, "token_ttl": token_ttl_s, **layout.ports}

    def render(template: str, **more: str) -> str:
        return Template((NOVA / "etc" / f"{template}.in").read_text()).substitute(values, **more)

    for name, users in _CONFIGS.items():
        text = render(name) + "".join(render("authtoken", user=user) for user in users)
        if name == "nova.conf":
            text += "".join(render("client", section=s, user=s) for s in ("placement", "neutron", "glance"))
            text += render("client", section="service_user", user="nova") + "send_service_user_token = true\n"
        layout.config(name).write_text(text)


def relocate(layout: Layout) -> None:
    """Say the present ports and folder where the databases have absolute ones: catalog, cells, image locations."""
    kinds = {"identity": ("keystone", "/v3"), "compute": ("nova", "/v2.1"), "image": ("glance", "")}
    kinds |= {"placement": ("placement", ""), "network": ("neutron", "")}
    with sqlite3.connect(layout.database("keystone")) as db:
        for kind, (service, path) in kinds.items():
            by_kind = "UPDATE endpoint SET url = ? WHERE service_id IN (SELECT id FROM service WHERE type = ?)"
            db.execute(by_kind, (layout.url(service, path), kind))
    db.close()
    with sqlite3.connect(layout.database("nova_api")) as db:
        for cell in ("cell0", "cell1"):
            path = f"sqlite:///{layout.database('nova_' + cell)}?timeout=60"
            db.execute("UPDATE cell_mappings SET database_connection = ? WHERE name = ?", (path, cell))
    db.close()
    with sqlite3.connect(layout.database("glance")) as db:
        db.execute("UPDATE image_locations SET value = ? || image_id", (f"file://{layout.state / 'images'}/",))
    db.close()


def write_ahead(layout: Layout) -> None:
    """Make the databases, in WAL mode: readers do not wait for the writer."""
    for name in _DATABASES:
        db = sqlite3.connect(layout.database(name), timeout=60)
        db.execute("PRAGMA journal_mode=WAL")
        db.close()


def checkpoint(layout: Layout) -> None:
    """Fold each write-ahead log into its database, so that the files alone are all of it; the services are stopped."""
    for name in _DATABASES:
        db = sqlite3.connect(layout.database(name), timeout=60)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()


def write_clouds(layout: Layout) -> None:
    """Write clouds.yaml (mode 600) with the clouds admin, demo, demo-app and ops-app."""
    auth_url = layout.url("keystone", "/v3")

    def password(user: str, project: str) -> dict[str, object]:
        auth = {"auth_url": auth_url, "username": user, "password": f"{user}pass", "project_name": project}
        return {
            "region_name": "RegionOne",
            "auth": auth | {"user_domain_id": "default", "project_domain_id": "default"},
        }

    clouds = {"admin": password("admin", "admin"), "demo": password("demo", "demo")}
    for name, secret in json.loads(layout.credentials.read_text()).items():
        auth = {"auth_url": auth_url, **secret}
        clouds[name] = {"auth_type": "v3applicationcredential", "region_name": "RegionOne", "auth": auth}
    with os.fdopen(os.open(layout.clouds_yaml, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"clouds": clouds}, file, indent=2)  # JSON is YAML
        file.write("\n")
