"""The hub of a lab site: its clients' keys, its roster, its sites and devices, and the hub itself.

The clients are the ones of production: the site's Temporal worker, its agent, and a person of HPC who writes the
bootstrap configurations. Their private keys are files of mode 0600 in DIR/state/keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmlab.procs import Daemons, LabError, Say, free_port, port_free, port_open

NAME = "hub"
HPC = "hpc"
"""A person's login: may write bootstrap configurations at every site."""


@dataclass(frozen=True)
class HubSite:
    """A running hub.

    Attributes:
        url: its address, which is its issuer too.
        keys: folder of the clients' private keys, CLIENT.pem.
        site: id of the lab's site.
    """

    url: str
    keys: Path
    site: str

    @property
    def worker(self) -> str:
        return f"temporal-worker-{self.site}"

    @property
    def agent(self) -> str:
        return f"slurm-agent-{self.site}"

    def client_env(self, client: str) -> dict[str, str]:
        """Return FLEET_MANAGER__* of one of the clients."""
        return {
            "FLEET_MANAGER__URL": self.url,
            "FLEET_MANAGER__CLIENT_ID": client,
            "FLEET_MANAGER__PRIVATE_KEY_FILE": str(self.keys / f"{client}.pem"),
        }


def hub_up(
    folder: Path,
    *,
    site: str,
    devices: Sequence[Mapping[str, Any]],
    database_url: str | None = None,
    say: Say = print,
) -> HubSite:
    """Start the hub of a folder, or return the one that runs; seed its site and devices.

    Args:
        folder: where its state is.
        site: the one site's id.
        devices: as in the hub's seed file, without `site`.
        database_url: Postgres, where there is one; None is SQLite.
        say: told each step.
    """
    folder = folder.resolve()
    daemons = Daemons(folder)
    state = folder / "state"
    keys = state / "keys"
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    port = _port(state, running=daemons.alive(NAME))
    hub = HubSite(f"http://127.0.0.1:{port}", keys, site)
    env = _environment(state, port, database_url)
    _write_roster(hub, state / "roster.json", env)
    seed = {"sites": [{"id": site}], "devices": [{**device, "site": site} for device in devices]}
    (state / "seed.json").write_text(json.dumps(seed, indent=2))
    _hub_command(env, "seed", str(state / "seed.json"))
    if not daemons.alive(NAME):
        daemons.start(NAME, [sys.executable, "-m", "fleet_manager.hub", "serve"], env=env)
    daemons.wait_for(NAME, lambda: port_open(port), 60, "the hub to listen")
    say(f"hub is up: {hub.url}")
    return hub


def hub_down(folder: Path) -> None:
    """Stop it."""
    Daemons(folder.resolve()).stop(NAME)


def _port(state: Path, *, running: bool) -> int:
    file = state / "hub-port"
    kept = int(file.read_text()) if file.exists() else 0
    if kept and (running or port_free(kept)):
        return kept
    port = free_port()
    file.write_text(str(port))
    return port


def _environment(state: Path, port: int, database_url: str | None) -> dict[str, str]:
    env = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "FLEET_HUB__PORT": str(port),
        "FLEET_HUB__STATE_DIR": str(state / "hub"),
        "FLEET_HUB__ROSTER_PATH": str(state / "roster.json"),
    }
    return env | ({"FLEET_HUB__DATABASE_URL": database_url} if database_url else {})


def _write_roster(hub: HubSite, roster: Path, env: Mapping[str, str]) -> None:
    scopes = {
        hub.worker: (hub.site, ["device:read", "device:update", "slurm-bootstrap-config:read"]),
        hub.agent: (hub.site, ["device:read", "device:update", "device-condition:create"]),
        HPC: (
            "*",
            [
                "device:read",
                *(f"slurm-bootstrap-config:{verb}" for verb in ("read", "create", "update")),
            ],
        ),
    }
    clients = [
        {"client_id": name, "site": site, "scopes": allowed, "keys": [_public_key(hub.keys, name, env)]}
        for name, (site, allowed) in scopes.items()
    ]
    new = roster.with_suffix(".new")
    new.write_text(json.dumps({"clients": clients}, indent=2))
    new.rename(roster)


def _public_key(keys: Path, client: str, env: Mapping[str, str]) -> Any:
    public = keys / f"{client}.jwk"
    if not public.exists():
        (keys / f"{client}.pem").unlink(missing_ok=True)
        public.write_text(_hub_command(env, "make-key", str(keys / f"{client}.pem")))
    return json.loads(public.read_text())


def _hub_command(env: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleet_manager.hub", *arguments],
        env=dict(env),
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
    )
    if done.returncode:
        raise LabError(f"the hub's {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
