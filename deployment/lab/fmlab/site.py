"""A whole site in a box: SLURM, Nova with its metal, Temporal, the hub and the site's worker, all real, on loopback.

    python -m fmlab.site up DIR       start it, or see that it runs; prints addresses and what to try next
    python -m fmlab.site down DIR     stop every process of it; --purge forgets its state too

State is in DIR/state, logs in DIR/log, pids in DIR/run; DIR/state/env is to be sourced by a shell.
"""

from __future__ import annotations

import argparse
import base64
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmlab.hub import HPC, HubSite, hub_down, hub_up
from fmlab.metal import MetalSite, metal_down, metal_up
from fmlab.nova import NovaCloud, nova_down, nova_up
from fmlab.procs import Daemons, LabError, Say, Steps
from fmlab.slurm import SlurmSite, slurm_down, slurm_up
from fmlab.temporal import TemporalSite, temporal_down, temporal_up

SITE = "lab"
ROLE = "gpu-h100"
WORKER = "worker"
SECRET = "a-secret-that-must-not-be-seen-"
"""Part of the lab's user-data: whoever finds it in a log, a history or an argv has found a leak."""

USER_DATA = f"""\
## template: jinja
#cloud-config
write_files:
  - path: /etc/default/slurmd
    permissions: "0600"
    content: |
      SLURMD_OPTIONS="-Z -N {{{{ ds.meta_data.name }}}} --instance-id {{{{ ds.meta_data.uuid }}}} \
--extra fm_build={{{{ ds.meta_data.meta.fm_build }}}} \
--conf 'Gres=gpu:h100:8 Feature=dynamic,h100 State=DRAIN Reason=\\"fm:born new build\\"'"
  - path: /etc/fleet/site.key
    permissions: "0600"
    content: |
      {SECRET}%s
runcmd:
  - [systemctl, enable, --now, slurmd]
"""


def user_data(mark: str = "1") -> str:
    """Return base64 user-data of a compute node of the lab; another mark is another text."""
    return base64.b64encode((USER_DATA % mark).encode()).decode()


def device(number: int, role: str = ROLE) -> dict[str, Any]:
    """Return a device of the lab as the hub's seed file has it; each has its own hypervisor."""
    return {"name": f"gpu-{number:03d}", "role": role, "hypervisor_hostname": f"hv-{number:03d}"}


@dataclass(frozen=True)
class Site:
    """Everything that runs."""

    dir: Path
    slurm: SlurmSite
    nova: NovaCloud
    metal: MetalSite
    temporal: TemporalSite
    hub: HubSite

    @property
    def env(self) -> dict[str, str]:
        """FLEET_* of the site's worker: what production's chart would set."""
        return {
            "FLEET_SITE__ID": SITE,
            "FLEET_SITE__SLURM_USER": self.slurm.fleet_user,
            "FLEET_SITE__BURN_IN_PARTITION": "main",
            "FLEET_SITE__BURN_IN_PATH": f"{self.metal.bin}:/usr/bin:/bin",
            "FLEET_SITE__BURN_IN_DIRECTORY": str(self.slurm.jobs),
            "FLEET_SITE__RESERVED_MEMORY_MIB": "500",
            "FLEET_SITE__WATCH_INTERVAL": "PT1S",
            "FLEET_TEMPORAL__ADDRESS": self.temporal.address,
            "FLEET_TEMPORAL__UI_URL": self.temporal.ui_url,
            "FLEET_SLURM__URL": self.slurm.url,
            "FLEET_SLURM__JWT_OP_ITEM": f"file://{self.dir}/state/slurm.jwt",
            "FLEET_NOVA__CLOUD": "ops-app",
            "FLEET_NOVA__CONFIG_FILE": str(self.nova.clouds_yaml),
            "FLEET_NOVA__NETWORKS": '["shared-net"]',
            **self.hub.client_env(self.hub.worker),
        }


def site_up(
    folder: Path,
    *,
    devices: Sequence[Mapping[str, Any]] = (device(1), device(2), device(3)),
    suite: str = "sid",
    strict: bool = False,
    database_url: str | None = None,
    worker: bool = True,
    step: Say | None = None,
) -> Site:
    """Bring up everything and return it; what runs already stays.

    Args:
        folder: its folder.
        devices: what the hub knows, see `device`.
        suite: of SLURM.
        strict: see `slurm_up`.
        database_url: the hub's Postgres; None is SQLite.
        worker: whether the site's Temporal worker is started too.
        step: told each step.

    Raises:
        LabError: a part did not come up. What was started is stopped again, unless something ran before.
    """
    folder = folder.resolve()
    step = step or Steps()
    ran = _refuse_another(folder, suite)
    (folder / "state").mkdir(parents=True, exist_ok=True)
    try:
        site = _servers(folder, devices, suite, database_url, step, strict=strict)
        _write_secrets(site)
        _command(site, "-m", "fleet_manager.cli.main", "temporal", "bootstrap")
        step("Temporal's namespace and search attributes are there")
        if worker:
            start_worker(site)
            step("the site's worker runs")
    except BaseException:
        if not ran:
            site_down(folder)
        raise
    return site


def _refuse_another(folder: Path, suite: str) -> bool:
    """Refuse a folder of another SLURM before anything is touched; say whether something runs there."""
    before = SlurmSite.load(folder)
    if before is not None and before.suite != suite:
        raise LabError(
            f"{folder} holds a site with SLURM of {before.suite}, not {suite}: take another folder (make lab-up "
            "LAB_DIR=.lab/other) or forget this one (make lab-down LAB_ARGS=--purge)"
        )
    daemons = Daemons(folder)
    return any(map(daemons.alive, daemons.names()))


def _servers(
    folder: Path,
    devices: Sequence[Mapping[str, Any]],
    suite: str,
    database_url: str | None,
    step: Say,
    *,
    strict: bool,
) -> Site:
    """Start the servers side by side: they do not need each other, only the metal needs two of them."""
    hosts = tuple(str(one["hypervisor_hostname"]) for one in devices)
    with ThreadPoolExecutor() as pool:
        nova = pool.submit(nova_up, folder, hosts=hosts, say=step)
        slurm = pool.submit(slurm_up, folder, suite=suite, strict=strict, say=step)
        temporal = pool.submit(temporal_up, folder, say=step)
        hub = pool.submit(hub_up, folder, site=SITE, devices=devices, database_url=database_url, say=step)
        cluster = slurm.result()
        step(f"SLURM {cluster.version} is up: {cluster.url}")
        cloud = nova.result()
        metal = metal_up(folder, slurm=cluster, nova=cloud, say=step)
        return Site(folder, cluster, cloud, metal, temporal.result(), hub.result())


def _write_secrets(site: Site) -> None:
    token = site.dir / "state" / "slurm.jwt"
    token.touch(mode=0o600)
    token.write_text(site.slurm.token(site.slurm.fleet_user, ttl_s=7 * 86400))
    env = site.dir / "state" / "env"
    env.touch(mode=0o600)
    bins = f"{Path(sys.executable).parent}:{site.slurm.bin}"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(site.env.items())]
    lines += [
        f"export SLURM_CONF={shlex.quote(str(site.slurm.conf))}",
        f"export OS_CLIENT_CONFIG_FILE={shlex.quote(str(site.nova.clouds_yaml))}",
        f"export PATH={shlex.quote(bins)}:$PATH",
    ]
    env.write_text("\n".join(lines) + "\n")


def start_worker(site: Site) -> None:
    """Start the site's worker, in the production code's own way; one that runs is left."""
    daemons = Daemons(site.dir)
    if daemons.alive(WORKER):
        return
    daemons.start(
        WORKER,
        [sys.executable, "-m", "fleet_manager.cli.main", "worker", "run"],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(site.dir / "state"), **site.env},
    )
    log = daemons.log(WORKER)
    daemons.wait_for(WORKER, lambda: f"worker on fleet-slurm/{SITE}/watch" in log.read_text(), 60, "the worker to poll")


def stop_worker(folder: Path) -> None:
    """Stop the site's worker."""
    Daemons(folder.resolve()).stop(WORKER, patience_s=30)


def _command(site: Site, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", **site.env},
        capture_output=True,
        text=True,
        cwd="/",
        timeout=120,
    )
    if done.returncode:
        raise LabError(f"{' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def site_down(folder: Path, purge: bool = False) -> None:
    """Stop every process of the site, whatever state it is in; with `purge` remove the folder."""
    folder = folder.resolve()
    stop_worker(folder)
    metal_down(folder)
    slurm_down(folder)
    nova_down(folder)
    hub_down(folder)
    temporal_down(folder)
    if purge:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(site: Site) -> None:
    env = site.dir / "state" / "env"
    print(f"""
  Temporal UI   {site.temporal.ui_url}
  hub           {site.hub.url}/openapi.json
  slurmrestd    {site.slurm.url}
  Nova          {site.nova.compute_url}
  clouds.yaml   {site.nova.clouds_yaml} (clouds admin, demo, demo-app, ops-app)
  logs          {site.dir}/log

To try next:
  . {env}
  fleet-manager devices list
  fleet-manager adopt gpu-001
  sinfo -N -o '%N %T %f %E'
and `make lab-down` when you have done.""")


def write_first_config(site: Site) -> None:
    """Give the lab's device role its bootstrap configuration, as a person of HPC would."""
    from fmlab.configs import ensure_config

    ensure_config(site.hub.client_env(HPC), SITE, role=ROLE, image="slurm-node-b", user_data=user_data())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m fmlab.site", description="A whole site in a box.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start it, or see that it runs")
    up.add_argument("--suite", choices=("sid", "trixie"), default="sid")
    up.add_argument("--devices", type=int, default=3)
    up.add_argument("--strict", action="store_true")
    up.add_argument("--database-url", help="the hub's Postgres; without it SQLite")
    down = verbs.add_parser("down", help="stop it")
    down.add_argument("--purge", action="store_true", help="remove DIR too")
    for verb in (up, down):
        verb.add_argument("dir", type=Path)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-made site is taken down
    try:
        if args.verb == "down":
            site_down(args.dir, purge=args.purge)
            print("the site is down")
            return 0
        site = site_up(
            args.dir,
            devices=[device(number) for number in range(1, args.devices + 1)],
            suite=args.suite,
            strict=args.strict,
            database_url=args.database_url,
        )
        write_first_config(site)
        _tell(site)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
