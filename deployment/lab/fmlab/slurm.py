"""A real SLURM cluster on this machine: slurmctld, slurmrestd, slurmdbd with MariaDB, and slurmds, from nothing.

    python -m fmlab.slurm up DIR [--suite sid|trixie] [--static N] [--dynamic N] [--fake N] [--strict]
    python -m fmlab.slurm down DIR [--purge]

The programs come from Debian packages (`deployment/lab/slurm/install`) into the user's cache. Everything listens on
127.0.0.1; ports are chosen once and kept. DIR/state/slurm holds what must survive, DIR/log the logs, DIR/run the pids;
other labs may share DIR.

Rights are real: `site.fleet_user` is an administrator of SLURM without being root, `site.job_user` an ordinary user,
each with an association; who has none can submit nothing. That takes root, because a job runs as its user.

Must not touch a process or a file that is not this cluster's, nor anything of the system.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fmlab.cache import file_lock
from fmlab.procs import Daemons, LabError, Say, Steps, free_block, port_free, socket_open, stop_processes
from fmlab.slurm_conf import Places, Plan, Ports, dynamic_nodes, static_nodes
from fmlab.slurm_reap import SERVERS, SLURMDS, kill_jobs, programs_of
from fmlab.slurm_site import SlurmSite
from fmlab.slurm_start import Starter, install, version_of, write_files

__all__ = ["SUITES", "SlurmSite", "slurm_down", "slurm_up"]

SUITES = ("sid", "trixie")


def slurm_up(
    dir: Path,
    *,
    suite: str = "sid",
    static: int = 0,
    dynamic: int = 0,
    fake: int = 0,
    strict: bool = False,
    extra: Sequence[str] = (),
    say: Say = print,
) -> SlurmSite:
    """Bring the cluster of a folder up and return it; a running one of the same plan is returned as it is.

    Args:
        dir: its folder, new or left by an earlier run, whose state is then kept.
        suite: Debian suite: "sid" (the newest SLURM, 26.05) or "trixie" (24.11).
        static: nodes of slurm.conf, each with a slurmd.
        dynamic: nodes that register themselves, each with a slurmd.
        fake: nodes of slurm.conf without a slurmd.
        strict: a node whose real CPUs or memory are fewer than configured is not accepted (`SlurmSite.strict`).
        extra: further lines for slurm.conf.
        say: told each step.

    Raises:
        LabError: it cannot be brought up; nothing of it is left running.
    """
    folder = dir.resolve()
    plan = Plan(suite, static, dynamic, fake, strict, tuple(extra))
    _check(plan)
    with file_lock(Places(folder, prefix=Path()).lock, say=say, what=f"the cluster in {folder}"):
        before = SlurmSite.load(folder)
        if before is not None and before.suite != suite:
            raise LabError(f"{folder} holds a cluster of {before.suite}, not {suite}: take another folder, or purge it")
        if before is not None and before.plan == plan and _runs_whole(before):
            return before
        _stop(folder)
        site = _site(folder, plan, before, say)
        site.save()
        try:
            write_files(site)
            Starter(site, say).start()
        except BaseException:
            _stop(folder)
            raise
        return site


def slurm_down(dir: Path, purge: bool = False) -> None:
    """Stop whatever runs of the cluster in this folder, its job steps and jobs too; no cluster there is no error.

    Args:
        dir: its folder.
        purge: forget its state as well; the logs stay.
    """
    folder = dir.resolve()
    if not folder.exists():  # somebody removed it: its processes can still be told by their SLURM_CONF
        _stop(folder)
        return
    places = Places(folder, prefix=Path())
    with file_lock(places.lock, what=f"the cluster in {folder}"):
        _stop(folder)
        if purge:
            shutil.rmtree(places.state, ignore_errors=True)


def _check(plan: Plan) -> None:
    if plan.suite not in SUITES:
        raise LabError(f"no suite {plan.suite!r}: the lab knows {', '.join(SUITES)}")
    if os.geteuid() != 0:
        raise LabError("the SLURM lab runs jobs as several users, so it needs root: run it with sudo or in a container")


def _runs_whole(site: SlurmSite) -> bool:
    nodes = [*static_nodes(site.plan), *dynamic_nodes(site.plan)]
    wanted = {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmrestd", *(f"slurmd-{name}" for name in nodes)}
    daemons = Daemons(site.dir)
    return site.conf.exists() and all(map(daemons.alive, wanted))


def _site(folder: Path, plan: Plan, before: SlurmSite | None, say: Say) -> SlurmSite:
    """Return the cluster to start: its earlier ports where they are still free."""
    prefix = install(plan.suite, say)
    count = Ports.count(plan)
    first = before.ports.ctld if before is not None else 0
    if not first or not all(map(port_free, range(first, first + count))):
        first = free_block(count)
    return SlurmSite(
        dir=folder,
        plan=plan,
        places=Places(folder, prefix),
        ports=Ports.from_block(first),
        version=version_of(prefix),
    )


def _stop(folder: Path) -> None:
    """Stop from the nodes to the database, so that each can still tell the next; then what nobody wrote down."""
    daemons = Daemons(folder)
    places = Places(folder, prefix=Path())
    daemons.stop(*(name for name in daemons.names() if name.startswith("slurmd-")))
    stop_processes(programs_of(places, SLURMDS))
    kill_jobs(places)
    daemons.stop("slurmrestd", "slurmctld", patience_s=20)
    daemons.stop("slurmdbd")
    # MariaDB does not hear SIGTERM while it starts; a database that is not open yet has nothing to lose
    daemons.stop("mariadbd", "munged", patience_s=20 if socket_open(places.mysql_socket) else 0.2)
    stop_processes(programs_of(places, SERVERS))
    shutil.rmtree(places.public, ignore_errors=True)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fmlab.slurm", description="A real SLURM cluster on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help='bring it up; eval "$(...)" gives the shell its commands, address and token')
    up.add_argument("dir", type=Path)
    up.add_argument("--suite", choices=SUITES, default="sid")
    for name in ("static", "dynamic", "fake"):
        up.add_argument(f"--{name}", type=int, default=0, metavar="N", help=f"number of {name} nodes")
    up.add_argument("--strict", action="store_true", help="hold nodes to the CPUs and memory that they really have")
    up.add_argument("--conf", dest="extra", action="append", default=[], metavar="LINE", help="line for slurm.conf")
    down = verbs.add_parser("down", help="stop it")
    down.add_argument("dir", type=Path)
    down.add_argument("--purge", action="store_true", help="forget its state too")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments: dict[str, Any] = vars(_arguments().parse_args(argv))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-made cluster is taken down
    verb = arguments.pop("verb")
    steps = Steps(lambda text: print(text, file=sys.stderr))
    try:
        if verb == "down":
            slurm_down(**arguments)
            return 0
        site = slurm_up(**arguments, say=steps)
    except LabError as error:
        print(f"slurm: {error}", file=sys.stderr)
        return 1
    steps(f"SLURM {site.version} is up in {site.dir}: slurmrestd at {site.url}")
    for name, value in site.environment().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
