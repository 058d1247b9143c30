"""Start the daemons of one lab cluster, in the order in which they need each other.

Must be called with the cluster's lock held and nothing of it running; `fmlab.slurm` sees to both.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import subprocess
import time
from pathlib import Path

from fmlab import slurm_conf
from fmlab.cache import key_of, locked_build
from fmlab.procs import Daemons, LabError, Say, port_open, socket_open, tail, wait_for
from fmlab.slurm_conf import FLEET_USER, JOB_USER, Places
from fmlab.slurm_site import SlurmSite, as_user

_INSTALL = Path(__file__).resolve().parent.parent / "slurm" / "install"
_MARIADB = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=8M",
    "--innodb-lock-wait-timeout=900",
    "--innodb-snapshot-isolation=OFF",  # on by default since MariaDB 11.6; with it a write conflict ends slurmdbd
    # a lab's database may be lost with the machine, not with the process: written at each commit, never waiting for the
    # disk
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--skip-innodb-doublewrite",
)


def install(suite: str, say: Say) -> Path:
    """Return the prefix with the programs of a suite, downloading them first if need be (20 MB, 5 to 12 s)."""

    def build(prefix: Path) -> None:
        say(f"downloading SLURM of Debian {suite}")
        done = subprocess.run([_INSTALL, suite, prefix], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = done.stdout.strip()
        if done.returncode:
            raise LabError(f"SLURM of Debian {suite} could not be installed:\n{said}")
        if said:
            say(said)

    return locked_build(f"slurm-{suite}", key_of(_INSTALL, suite), build, in_place=True, say=say)


def version_of(prefix: Path) -> str:
    """Return the version of the SLURM in a prefix, "26.05.5"."""
    said = subprocess.run([prefix / "usr/sbin/slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+\.\d+", said)
    if found is None:
        raise LabError(f"slurmctld -V says {said!r}, which names no version")
    return found.group()


def _database(prefix: Path, say: Say) -> Path:
    """Return a fresh database's folder, to be copied: making one takes MariaDB longer than all the rest.

    `slurm_acct_db` is in it: slurmdbd can make it, and then fails on its next query ("Number of columns in result").
    """

    def build(folder: Path) -> None:
        common = ["--no-defaults", f"--basedir={prefix}/usr", f"--datadir={folder}/data", "--user=root", *_MARIADB]
        make = [str(prefix / "usr/bin/mariadb-install-db"), *common, "--skip-test-db"]
        _run([*make, "--auth-root-authentication-method=normal"])
        _run([str(prefix / "usr/sbin/mariadbd"), *common, "--bootstrap"], "create database slurm_acct_db;\n")

    return locked_build(f"{prefix.name}-db", key_of(*_MARIADB), build, say=say) / "data"


def _run(command: list[str], stdin: str = "") -> None:
    done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise LabError(f"{Path(command[0]).name} failed ({done.returncode}):\n{done.stdout.strip()}")


def make_public(places: Places) -> None:
    """Make the folder that everybody may enter, and refuse one that somebody else has put there."""
    places.public.mkdir(mode=0o755, exist_ok=True)
    found = places.public.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise LabError(f"{places.public} is not a folder of ours: remove it, then try again")
    places.public.chmod(0o755)


def write_files(site: SlurmSite) -> None:
    """Write configuration, keys and GPU devices; keys that are there are kept."""
    places = site.places
    make_public(places)
    for folder in (places.keys, places.state / "slurmctld", places.state / "munge", site.dir / "log", places.jobs):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in (places.conf.parent, places.munge_socket.parent, places.devices, places.public / "spool"):
        folder.mkdir(mode=0o755, exist_ok=True)
    places.keys.chmod(0o700)
    places.jobs.chmod(0o1777)
    for name in ("munge.key", "jwt_hs256.key"):
        _write_once(places.keys / name, secrets.token_bytes(64))
    for number in range(site.gpus):
        device = places.devices / f"gpu{number}"
        if not device.is_symlink():
            device.symlink_to("/dev/null")
    places.conf.write_text(slurm_conf.slurm_conf(site.plan, places, site.ports, site.hostname))
    (places.conf.parent / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (places.conf.parent / "gres.conf").write_text(slurm_conf.gres_conf(places, site.gpus))
    for name in ("slurm.conf", "cgroup.conf", "gres.conf"):
        (places.conf.parent / name).chmod(0o644)
    database = places.conf.parent / "slurmdbd.conf"  # slurmdbd looks for it beside slurm.conf
    database.write_text(slurm_conf.slurmdbd_conf(places, site.ports))
    database.chmod(0o600)


def _write_once(path: Path, data: bytes) -> None:
    if path.exists():
        return
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(data)
    new.rename(path)


class Starter:
    """Starts one cluster's daemons."""

    def __init__(self, site: SlurmSite, say: Say) -> None:
        self.site = site
        self.say = say
        self.daemons = Daemons(site.dir)
        self.env = site.process_env
        self.began = time.time()

    def start(self) -> None:
        """Start everything and wait until all nodes have registered and slurmrestd answers."""
        self._munged()
        self._mariadbd()
        self._wait_socket("munged", self.site.places.munge_socket)
        self._slurmrestd()
        self._wait_socket("mariadbd", self.site.places.mysql_socket)
        self._slurmdbd()
        self._accounts()
        self._slurmctld()
        self._slurmds()
        self._wait_registered()
        self._wait_port("slurmrestd", self.site.ports.rest)

    def _wait_port(self, name: str, port: int) -> None:
        self.daemons.wait_for(name, lambda: port_open(port), 60, f"{name} to listen on port {port}")

    def _wait_socket(self, name: str, path: Path) -> None:
        self.daemons.wait_for(name, lambda: socket_open(path), 60, f"{name} to listen on {path}")

    def _munged(self) -> None:
        places = self.site.places
        command: list[str | Path] = [
            self.site.sbin / "munged",
            "--foreground",
            "--force",
            f"--socket={places.munge_socket}",
        ]
        command += [f"--key-file={places.keys}/munge.key", f"--pid-file={places.public}/munge/pid"]
        command += [f"--log-file={self.site.dir}/log/munged-own.log", f"--seed-file={places.state}/munge/seed"]
        self.daemons.start("munged", command, env=self.env)

    def _mariadbd(self) -> None:
        places = self.site.places
        data = places.state / "mysql"
        if not data.exists():
            new = places.state / "mysql.new"
            shutil.rmtree(new, ignore_errors=True)
            shutil.copytree(_database(places.prefix, self.say), new)
            new.rename(data)
        command: list[str | Path] = [
            self.site.sbin / "mariadbd",
            "--no-defaults",
            "--skip-networking",
            f"--basedir={places.prefix}/usr",
        ]
        command += [*_MARIADB, f"--datadir={data}", "--user=root", f"--socket={places.mysql_socket}"]
        command += [f"--pid-file={places.public}/mysql.pid", f"--plugin-dir={places.state}"]
        self.daemons.start("mariadbd", command, env=self.env)

    def _slurmdbd(self) -> None:
        env = self.env | {"MYSQL_UNIX_PORT": str(self.site.places.mysql_socket)}
        self.daemons.start("slurmdbd", [self.site.sbin / "slurmdbd", "-D"], env=env)
        self._wait_port("slurmdbd", self.site.ports.dbd)

    def _slurmctld(self) -> None:
        """Start slurmctld from whatever state there is.

        One that is killed in its first seconds leaves half a state, which is fatal without -i. And the cluster's id in
        its state must be the database's, or it is fatal too; the check is against sharing a state, which nobody does.
        """
        (self.site.places.state / "slurmctld" / "clustername").unlink(missing_ok=True)
        self.daemons.start("slurmctld", [self.site.sbin / "slurmctld", "-D", "-i"], env=self.env)
        self._wait_port("slurmctld", self.site.ports.ctld)

    def _slurmrestd(self) -> None:
        """Start slurmrestd, which refuses root and SlurmUser: as nobody, who may read where only root can enter.

        SLURM_JWT=daemon makes auth/jwt its only way in; without it every token gives 401. The plugins are named because
        Debian's default set differs between the versions.
        """
        plugins = "openapi/slurmctld,openapi/slurmdbd"
        if (self.site.places.prefix / "plugins" / "openapi_util.so").exists():
            plugins += ",openapi/util"
        command: list[str | Path] = [*as_user("nobody")]
        command += [self.site.sbin / "slurmrestd", "-a", "rest_auth/jwt", "-s", plugins, "-f", self.site.conf]
        command += [f"127.0.0.1:{self.site.ports.rest}"]
        self.daemons.start("slurmrestd", command, env=self.env | {"SLURM_JWT": "daemon"})

    def _slurmds(self) -> None:
        plan, ports = self.site.plan, self.site.ports
        slurmd: list[str | Path] = [self.site.sbin / "slurmd", "-D", "-d", self.site.sbin / "slurmstepd", "-N"]
        for name in slurm_conf.static_nodes(plan):
            self.daemons.start(f"slurmd-{name}", [*slurmd, name], env=self.env)
        for number, name in enumerate(slurm_conf.dynamic_nodes(plan)):
            conf = slurm_conf.dynamic_conf(plan, ports.slurmd_base + plan.static + number, self.site.hostname)
            self.daemons.start(f"slurmd-{name}", [*slurmd, name, "-Z", "--conf", conf], env=self.env)

    def _wait_registered(self) -> None:
        nodes = {*slurm_conf.static_nodes(self.site.plan), *slurm_conf.dynamic_nodes(self.site.plan)}
        if not nodes:
            return
        needed = ["slurmctld", *(f"slurmd-{name}" for name in sorted(nodes))]
        wait_for(
            lambda: nodes <= self._registered(),
            60,
            f"the slurmds of {', '.join(sorted(nodes))} to register",
            log=self.daemons.log("slurmctld"),
            hopeless=lambda: "".join(
                f"{name} ended{tail(self.daemons.log(name))}\n" for name in needed if not self.daemons.alive(name)
            ),
            poll_s=0.05,
        )

    def _registered(self) -> set[str]:
        """List the nodes whose slurmd answers and is of this start (a kept state shows the last one's as idle)."""
        found = set()
        said = self.site.run("scontrol", "-o", "show", "nodes", check=False, env={"SLURM_TIME_FORMAT": "%s"})
        for line in said.splitlines():
            facts = dict(fact.split("=", 1) for fact in line.split() if "=" in fact)
            started = facts.get("SlurmdStartTime", "")
            silent = re.search(r"\*|NOT_RESPONDING|UNKNOWN", facts.get("State", "UNKNOWN"))
            if not silent and started.isdigit() and int(started) >= int(self.began):
                found.add(facts["NodeName"])
        return found

    def _accounts(self) -> None:
        """Give the fleet's user and the ordinary user their accounts and rights; what is there is left as it is."""
        wanted = {"fleet": FLEET_USER, "users": JOB_USER}
        said = self.site.run(
            "sacctmgr", "-nP", "list", "associations", f"cluster={slurm_conf.CLUSTER}", "format=account,user"
        )
        there = {tuple(line.split("|")) for line in said.splitlines()}
        levels = self.site.run("sacctmgr", "-nP", "list", "user", "format=user,adminlevel").split()
        if there >= {pair for pair in wanted.items()} and f"{FLEET_USER}|Administrator" in levels:
            return
        cluster = f"cluster={slurm_conf.CLUSTER}"
        commands = [f"add cluster {slurm_conf.CLUSTER}"]
        for account, user in wanted.items():
            commands += [f"add account {account} {cluster} description={account} organization=lab"]
            commands += [f"add user {user} account={account} {cluster}"]
        commands += [f"modify user where name={FLEET_USER} set adminlevel=Administrator"]
        for command in commands:
            self.site.run("sacctmgr", "-i", *command.split(), check=False)
