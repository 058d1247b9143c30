"""One machine of the lab's data hall: it boots what its server's user-data says, and stops when the power goes.

A machine has a folder of its own, DIR/state/metal/machines/SERVER (mode 700): `root/`, where write_files writes (never
this computer's /etc), and `machine.json`, what is known of it without any secret. Its slurmd is a daemon of DIR with a
pid file, so a restarted metal finds it again, and there is never a second one for a server.

Must not talk to Nova: it is told.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fmlab import cloud_init
from fmlab.cloud_init import CloudConfig, NotUnderstood
from fmlab.hall import Hall, Record
from fmlab.procs import Daemons, LabError, send, stop_processes
from fmlab.slurm_site import SlurmSite
from fmlab.slurmd import Hardware, Options, command, misbehave
from fmlab.steps import steps_of
from fmlab.switches import Switches
from fmlab.systemd import environment_file, split_words

# slurmctld takes no notice of a reboot that ends in the second of its last word from the node
_RESTART_S = 3.0
_REBUILD_S = 2.5  # at least, between a machine's end and its next start: see _start_slurmd
_LOOK_FOR_JOBS_S = 0.5  # while a switch wants a reboot under a job: it takes a walk over /proc
_START = (("systemctl", "start", "slurmd"), ("systemctl", "restart", "slurmd"))
_ENABLE = (("systemctl", "enable", "--now", "slurmd"), ("systemctl", "--now", "enable", "slurmd"))


class Machine:
    """One server's machine."""

    def __init__(self, hall: Hall, record: Record) -> None:
        self._hall = hall
        self._daemons = Daemons(hall.folder)
        self._folder = hall.machines / record.server
        self.record = record
        self._next_look = 0.0

    @property
    def _daemon(self) -> str:
        return f"machine-{re.sub(r'[^A-Za-z0-9_.-]', '_', self.record.name)}-{self.record.server[:8]}"

    @property
    def running(self) -> bool:
        return self._daemons.alive(self._daemon)

    # ---- what the hall does to it

    def boot(self, server: Mapping[str, Any], switches: Switches) -> None:
        """Boot a new build: an empty disk, then what cloud-init does at the first boot.

        Args:
            server: as Nova shows it to an administrator.
            switches: what is wrong with the machine.
        """
        self.power_off()
        shutil.rmtree(self._folder / "root", ignore_errors=True)
        flavor = server["flavor"]
        self._save(
            Record(
                server=server["id"],
                name=server["name"],
                generation=server["OS-SRV-USG:launched_at"],
                cpus=flavor["vcpus"],
                memory_mib=flavor["ram"],
            )
        )
        if switches.never_boots:
            self._note("never-boots", "a switch says so")
        elif not server.get("OS-EXT-SRV-ATTR:user_data"):
            self._note("bare", "the server has no user-data")
        else:
            self._try(lambda: self._first_boot(server, switches))

    def power_on(self, switches: Switches) -> None:
        """Start again from the disk as it is: a service that was enabled starts."""
        if switches.never_boots:
            self._note("never-boots", "a switch says so")
        elif self.record.enabled:
            self._start_later(max(_RESTART_S, switches.boots_late))
        else:
            self._note("bare", "no service is enabled on its disk")

    def power_off(self) -> None:
        """Cut the power: slurmd, the job steps and the jobs end at once."""
        process = self._daemons.process(self._daemon)
        if process is not None:
            send(process, signal.SIGKILL)
        self._daemons.stop(self._daemon)  # what else was in its session, and the pid file
        if self.record.node:
            while steps := steps_of(self._hall.slurm, self.record.node):
                stop_processes(steps, patience_s=0)
            self._hall.smi.forget(self.record.node)
        if process is not None:
            self._hall.remember("stops", self.record.name, str(time.time()))
            self._say("is off")
        if self._folder.exists():
            self._save(replace(self.record, state="off", due=0.0))

    def scrap(self) -> None:
        """Take the machine away: the server is gone."""
        self.power_off()
        shutil.rmtree(self._folder, ignore_errors=True)

    def tick(self, switches: Switches) -> None:
        """Do what is due: a late boot, a reboot under a job."""
        if self.record.state == "late" and time.time() >= self.record.due:
            self._try(lambda: self._launch(switches))
        if self.record.state != "running" or not switches.reboots_in_burn_in or self.record.rebooted:
            return
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_FOR_JOBS_S
        if steps_of(self._hall.slurm, self.record.node):
            self._say("reboots under a job")
            self.power_off()
            self._start_later(_RESTART_S)
            self._save(replace(self.record, rebooted=True))

    def show_gpus(self, switches: Switches) -> None:
        """Let the machine's nvidia-smi say what is in it; it has one while it runs."""
        if self.record.state == "running":
            healthy = not switches.fails_burn_in
            # a burn-in of a second would be over before anybody could pull the plug
            slow = switches.reboots_in_burn_in and not self.record.rebooted
            self._hall.smi.describe(self.record.node, _gpus(self._hall.slurm, switches), healthy, slow=slow)

    # ---- what it does

    def _first_boot(self, server: Mapping[str, Any], switches: Switches) -> None:
        data = cloud_init.decode(server["OS-EXT-SRV-ATTR:user_data"])
        config = cloud_init.read(data, cloud_init.instance_data(server))
        starts = [_check(words) for words in config.commands]
        write_files(self._folder / "root", config)
        self._save(replace(self.record, enabled="enable" in starts))
        if starts:
            self._start_slurmd(switches)
        else:
            self._note("bare", "its user-data starts nothing")

    def _start_slurmd(self, switches: Switches) -> None:
        # slurmctld takes a new instance id and extra only with a boot time after its last word from the node
        # (node_mgr.c), in whole seconds: a machine that is back within one, which no real one is, keeps the old ones
        off = float(self._hall.recall("stops").get(self.record.name, "0"))
        wait = max(switches.boots_late, off + _REBUILD_S - time.time())
        if wait > 0:
            self._start_later(wait)
        else:
            self._launch(switches)

    def _start_later(self, seconds: float) -> None:
        self._save(replace(self.record, state="late", due=time.time() + seconds))
        self._say(f"its slurmd starts in {seconds:g} s")

    def _launch(self, switches: Switches) -> None:
        hall, slurm = self._hall, self._hall.slurm
        told = Options.of(split_words(self._environment().get("SLURMD_OPTIONS", "")))
        options = misbehave(told, switches, hall.recall("builds").get(self.record.name, ""))
        if not switches.old_build:
            hall.remember("builds", self.record.name, told.extra)
        hardware = Hardware(
            hostname=slurm.hostname,
            port=hall.port(options.node) if options.dynamic else 0,
            cpus=self.record.cpus,
            memory_mib=self.record.memory_mib - switches.less_memory,
            gpus=_gpus(slurm, switches),
        )
        conf = slurm.conf if hardware.gpus == slurm.gpus else slurm.conf_with_gpus(hardware.gpus)
        shutil.rmtree(slurm.places.public / "spool" / options.node, ignore_errors=True)
        (slurm.places.public / "spool" / options.node).mkdir(parents=True)
        env = slurm.process_env | {"SLURM_CONF": str(conf)}
        self._daemons.start(self._daemon, command(options, hardware, slurm.sbin), env=env)
        self._save(replace(self.record, state="running", node=options.node, due=0.0))
        self.show_gpus(switches)
        self._say(f"starts the slurmd of node {options.node}")

    def _environment(self) -> dict[str, str]:
        file = self._folder / "root" / "etc" / "default" / "slurmd"
        if not file.exists():
            raise NotUnderstood("nothing wrote /etc/default/slurmd, so its slurmd has no options")
        return environment_file(file.read_text())

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (NotUnderstood, LabError) as error:
            self._note("refused", str(error))

    # ---- what is known of it

    def _note(self, state: str, why: str) -> None:
        self._save(replace(self.record, state=state, why=why))
        self._say(f"ERROR: does not boot: {why}" if state == "refused" else f"{state}: {why}")

    def _save(self, record: Record) -> None:
        self.record = record
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        new = self._folder / "machine.json.new"
        new.write_text(json.dumps(asdict(record), indent=2) + "\n")
        new.rename(self._folder / "machine.json")

    def _say(self, text: str) -> None:
        self._hall.say(f"{self.record.name} ({self.record.server}) {text}")


def write_files(root: Path, config: CloudConfig) -> None:
    """Write the files of a cloud-config below a root folder.

    Raises:
        NotUnderstood: one cannot be written there (its folder is a file, for example).
    """
    for file in config.files:
        path = root / file.path.relative_to("/")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if file.append else os.O_TRUNC)
            with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
                out.write(file.content)
            path.chmod(file.mode)
        except OSError as error:
            raise NotUnderstood(f"write_files: {file.path}: {error.strerror}") from None


def _check(words: tuple[str, ...]) -> str:
    """Return "start" or "enable" for the commands of runcmd that are known."""
    plain = tuple(word.removesuffix(".service") for word in words)
    if plain in _START:
        return "start"
    if plain in _ENABLE:
        return "enable"
    raise NotUnderstood(
        f"runcmd: a command of {len(words)} words that is not `systemctl enable --now slurmd` or the like"
    )


def _gpus(slurm: SlurmSite, switches: Switches) -> int:
    for wrong in (switches.gpus, switches.gpus_counted):
        if wrong is not None:
            return wrong
    return slurm.gpus
