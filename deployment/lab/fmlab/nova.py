"""Bring up and take down a real Nova with Keystone, Glance, Placement and Neutron, on loopback, from nothing.

The code of the services is the real one; only Nova's virt driver is a fake with knobs (`nova/py/fmfake_virt.py`) that
says in `DIR/state/nova/events.jsonl` what happens to its machines. Seen limits: about one CPU second a server and no
more than one server a second, so this is for tests of tens of servers, and clients need time-outs of 60 s and more.

    python -m fmlab.nova up DIR --hosts device-1,device-2
    python -m fmlab.nova down DIR [--purge]

Must not know anything of SLURM or of what the machines do once they are ACTIVE (that is `fmlab.metal`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fmlab import nova_parts as parts
from fmlab import nova_seed
from fmlab.cache import file_lock
from fmlab.nova_api import NovaApi
from fmlab.procs import Daemons, LabError, Say, Steps

_START_S = 120.0


@dataclass(frozen=True)
class NovaCloud:
    """A running cloud of the lab.

    Attributes:
        dir: the folder it was started in.
        clouds_yaml: the clouds admin, demo (member), demo-app (a member's application credential) and ops-app (an
            operator's: it may pin hosts).
        compute_url: Nova's API, as in the catalog.
        auth_url: Keystone's.
        hosts: the compute hosts; each is its own hypervisor of the same name, one for each device.
        events: what the virt driver did, JSON lines; holds user-data.
    """

    dir: Path
    clouds_yaml: Path
    compute_url: str
    auth_url: str
    hosts: tuple[str, ...]
    events: Path

    @classmethod
    def of(cls, folder: Path) -> NovaCloud:
        """Return the cloud that was started in a folder.

        Raises:
            LabError: none was.
        """
        folder = folder.resolve()
        state = _state(folder)
        if not (state / "hosts.json").exists():
            raise LabError(f"no Nova was started in {folder}; start one with: python -m fmlab.nova up {folder}")
        layout = parts.Layout(state, Path(), json.loads((state / "ports.json").read_text()))
        return cls(
            dir=folder,
            clouds_yaml=layout.clouds_yaml,
            compute_url=layout.url("nova", "/v2.1"),
            auth_url=layout.url("keystone", "/v3"),
            hosts=_hosts(state),
            events=layout.events,
        )

    def api(self, cloud: str) -> NovaApi:
        """Return raw access as one of the clouds of clouds.yaml; close it after use."""
        return NovaApi(self.clouds_yaml, cloud)


def nova_up(folder: Path, *, hosts: tuple[str, ...] = ("node1", "node2"), say: Say = print) -> NovaCloud:
    """Start a cloud with a compute host for each name; do nothing when it already runs with all of them.

    Hosts of earlier starts in the same folder stay. Servers of earlier starts are there again. A start that fails or is
    interrupted stops what it started.
    """
    folder = folder.resolve()
    daemons = Daemons(folder)
    state = _state(folder)
    with file_lock(folder / "state" / "nova.lock", say=say, what=f"Nova of {folder} in hand"):
        if all(map(daemons.alive, parts.SERVICES)) and state.exists() and set(hosts) <= set(_hosts(state)):
            say("Nova already runs")
            return NovaCloud.of(folder)
        daemons.stop(*parts.SERVICES)
        try:
            _start_all(folder, daemons, hosts, say)
        except BaseException:
            daemons.stop(*parts.SERVICES)
            raise
    cloud = NovaCloud.of(folder)
    say(f"Nova is up: {cloud.compute_url}, {len(cloud.hosts)} hosts, OS_CLIENT_CONFIG_FILE={cloud.clouds_yaml}")
    return cloud


def nova_down(folder: Path, purge: bool = False) -> None:
    """Stop the cloud; with `purge` forget its servers too (the shared virtualenv and seed stay)."""
    folder = folder.resolve()
    daemons = Daemons(folder)
    daemons.stop(*parts.SERVICES)
    if purge:
        for gone in (_state(folder), folder / "state" / "nova-seed"):
            shutil.rmtree(gone, ignore_errors=True)
        for name in parts.SERVICES:
            daemons.log(name).unlink(missing_ok=True)


def _state(folder: Path) -> Path:
    return folder / "state" / "nova"


def _hosts(state: Path) -> tuple[str, ...]:
    file = state / "hosts.json"
    return tuple(json.loads(file.read_text())) if file.exists() else ()


def _start_all(folder: Path, daemons: Daemons, hosts: tuple[str, ...], say: Say) -> None:
    state = _state(folder)
    venv = parts.virtualenv(say)

    def start_seeding(layout: parts.Layout, services: tuple[str, ...]) -> None:
        _start(daemons, layout, services, ())

    source = nova_seed.seed(folder, venv, start_seeding, lambda: daemons.stop(*parts.SERVICES), say)
    if not state.exists():
        nova_seed.copy(source, state)
    parts.prepare(state)
    layout = parts.Layout(state, venv, parts.choose_ports(state))
    parts.write_configs(layout)
    parts.relocate(layout)
    parts.write_clouds(layout)
    everyone = tuple(dict.fromkeys((*_hosts(state), *hosts)))
    (state / "hosts.json").write_text(json.dumps(everyone))
    say(f"keystone, glance, placement, neutron, nova with {len(everyone)} compute hosts")
    _start(daemons, layout, parts.SERVICES, everyone)
    for cloud in ("demo-app", "ops-app"):
        # Neutron answers the first requests after its start with an empty list, or a 500, when they come at once
        with NovaApi(layout.clouds_yaml, cloud) as api:
            api.get("/v2.0/networks", service="network")


def _start(daemons: Daemons, layout: parts.Layout, services: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    """Start services at the same time and wait until each answers."""
    env = layout.env | {
        "FM_NOVA_API_PORT": str(layout.ports["nova"]),
        "FM_NOVA_HOSTS": ",".join(hosts),
        "FM_NOVA_PASTE": str(layout.venv / "etc" / "nova" / "api-paste.ini"),
        "FM_NOVA_NEEDS": f"{layout.url('keystone', '/v3')},{layout.url('placement', '/')}",
    }
    for service in services:
        daemons.start(service, layout.command(service), env=env, cwd=layout.state)
    for service in services:
        url = layout.url(service, "/v3" if service == "keystone" else "/")
        daemons.wait_for(service, partial(_answers, url), _START_S, f"{service} to answer at {url}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (300, 401)  # a choice of versions, or "who are you": it is there
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fmlab.nova", description="A real Nova on loopback.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start it, or see that it runs")
    up.add_argument("--hosts", default="node1,node2", help="compute hosts, one for each device (default %(default)s)")
    down = verbs.add_parser("down", help="stop it")
    down.add_argument("--purge", action="store_true", help="forget its servers too")
    for verb in (up, down):
        verb.add_argument("dir", type=Path)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-made cloud is taken down
    try:
        if args.verb == "up":
            nova_up(args.dir, hosts=tuple(args.hosts.split(",")), say=Steps())
        else:
            nova_down(args.dir, args.purge)
    except LabError as error:
        sys.exit(f"nova: {error}")


if __name__ == "__main__":
    main()
