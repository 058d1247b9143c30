"""The lab's data hall: what Nova's servers would do if they were machines.

A daemon (`fmlab.metal_daemon`). When Nova says that a server is ACTIVE, or was rebuilt, its machine boots as cloud-init
would boot it (`fmlab.machine`); when the server is deleted, stopped or gone, the machine loses its power.

    python -m fmlab.metal up DIR --slurm DIR --nova DIR
    python -m fmlab.metal switch DIR NAME [KIND ...]      what is wrong with a machine; see fmlab.switches
    python -m fmlab.metal list DIR
    python -m fmlab.metal down DIR

State is in DIR/state/metal, `nvidia-smi` in DIR/state/metal/bin.

Must not log user-data, and must not be asked by production code: it is hardware.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from fmlab.hall import Hall, Record
from fmlab.machine import Machine
from fmlab.metal_daemon import Metal
from fmlab.nova import NovaCloud
from fmlab.nvidia_smi import NvidiaSmi
from fmlab.procs import Daemons, LabError, Say
from fmlab.slurm_site import SlurmSite
from fmlab.switches import parse, switch


@dataclass(frozen=True)
class MetalSite:
    """A running data hall.

    Attributes:
        dir: the folder it was started in.
        bin: the folder with nvidia-smi, which every user can enter.
    """

    dir: Path
    bin: Path

    def switch(self, name: str, *kinds: str) -> None:
        """Set what is wrong with the machine of a server, e.g. "gpus=7", from its next boot on; none mends it."""
        metal_switch(self.dir, name, *kinds)

    def machine(self, name: str) -> Record | None:
        """Return what is known of the machine of a server name; None when there is none.

        Raises:
            LabError: several servers have that name.
        """
        found = [record for record in _records(self.dir) if record.name == name]
        if len(found) > 1:
            raise LabError(f"{len(found)} machines are named {name}: {[record.server for record in found]}")
        return found[0] if found else None


def metal_up(folder: Path, *, slurm: SlurmSite, nova: NovaCloud, say: Say = print) -> MetalSite:
    """Start the data hall of a SLURM and a Nova, and return when it has looked at every server once.

    One that runs for the same two is left as it is; one for others is replaced. Machines that run are found again.
    """
    folder = folder.resolve()
    daemons = Daemons(folder)
    state = folder / "state" / "metal"
    state.mkdir(parents=True, exist_ok=True)
    config, wanted = state / "metal.json", json.dumps({"slurm": str(slurm.dir), "nova": str(nova.dir)})
    if not daemons.alive("metal") or not config.exists() or config.read_text() != wanted:
        daemons.stop("metal")
        config.write_text(wanted)
        (state / "ready").unlink(missing_ok=True)
        # nothing of the caller's environment: whatever a machine starts inherits from here
        env = {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        daemons.start("metal", [sys.executable, "-m", "fmlab.metal", "run", folder], env=env)
    try:
        daemons.wait_for("metal", (state / "ready").exists, 60, "the metal to see every server once")
    except BaseException:
        metal_down(folder)
        raise
    say("metal is up")
    return MetalSite(folder, _smi(slurm).bin)


def metal_down(folder: Path, purge: bool = False) -> None:
    """Stop the data hall and every machine in it; with `purge` forget them."""
    folder = folder.resolve()
    daemons = Daemons(folder)
    daemons.stop("metal")
    state = folder / "state" / "metal"
    hall = _hall(folder, say=lambda _: None)
    if hall is not None:
        for record in hall.records():
            Machine(hall, record).power_off()
        shutil.rmtree(hall.smi.bin.parent, ignore_errors=True)
    daemons.stop(*(name for name in daemons.names() if name.startswith("machine-")))  # its SLURM's folder is gone
    if purge:
        shutil.rmtree(state, ignore_errors=True)


def metal_switch(folder: Path, name: str, *kinds: str) -> None:
    """Set what is wrong with the machine of a server name; see `fmlab.switches`.

    What acts at once has acted when this returns.
    """
    switch(folder, name, *kinds)
    hall = _hall(folder, say=lambda _: None)
    if hall is not None:
        for record in hall.records():
            if record.name == name:
                Machine(hall, record).show_gpus(parse(list(kinds)))


def _smi(slurm: SlurmSite) -> NvidiaSmi:
    return NvidiaSmi(slurm.places.public / "metal")


def _hall(folder: Path, say: Say) -> Hall | None:
    file = folder / "state" / "metal" / "metal.json"
    slurm = SlurmSite.load(Path(json.loads(file.read_text())["slurm"])) if file.exists() else None
    return None if slurm is None else Hall(folder, slurm, _smi(slurm), say)


def _records(folder: Path) -> list[Record]:
    hall = _hall(folder, say=lambda _: None)
    if hall is None:
        raise LabError(f"no metal was started in {folder}")
    return hall.records()


def _run(folder: Path) -> None:
    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    hall = _hall(folder, say)
    if hall is None:
        raise LabError(f"no metal was started in {folder}")
    hall.machines.mkdir(parents=True, exist_ok=True)
    hall.machines.chmod(0o700)
    hall.smi.install()
    link = hall.state / "bin"
    link.unlink(missing_ok=True)
    link.symlink_to(hall.smi.bin)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    cloud = NovaCloud.of(Path(json.loads((hall.state / "metal.json").read_text())["nova"]))
    Metal(hall, cloud).run(stop)


def _slurm(folder: Path) -> SlurmSite:
    found = SlurmSite.load(folder)
    if found is None:
        raise LabError(f"no SLURM was started in {folder}")
    return found


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m fmlab.metal", description="The machines of the lab's servers.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start the data hall")
    verbs.add_parser("run", help="be the daemon (up starts it)")
    verbs.add_parser("down", help="stop it and every machine").add_argument("--purge", action="store_true")
    verbs.add_parser("list", help="list the machines")
    wrong = verbs.add_parser("switch", help="make a machine misbehave at its next boot, or mend it")
    for verb in verbs.choices.values():
        verb.add_argument("dir", type=Path)
    for site in ("slurm", "nova"):
        up.add_argument(f"--{site}", type=Path, help="its folder (default: DIR)")
    wrong.add_argument("name", help="of the server")
    wrong.add_argument("kinds", nargs="*", help="see fmlab.switches; none mends the machine")
    args = parser.parse_args()
    folder = args.dir.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a half-started hall is taken down
    try:
        if args.verb == "up":
            metal_up(folder, slurm=_slurm(args.slurm or folder), nova=NovaCloud.of(args.nova or folder))
        elif args.verb == "run":
            _run(folder)
        elif args.verb == "down":
            metal_down(folder, args.purge)
        elif args.verb == "switch":
            metal_switch(folder, args.name, *args.kinds)
        else:
            for record in _records(folder):
                print(f"{record.name:20} {record.state:12} node {record.node or '-':20} {record.server} {record.why}")
    except (LabError, ValueError) as error:
        sys.exit(f"metal: {error}")


if __name__ == "__main__":
    main()
