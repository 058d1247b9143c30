"""What a lab cluster is made of: its plan, its places, and the texts of its configuration files.

Pure texts and paths; starts nothing and writes nothing. Why each odd line is there stands beside it: all of it was seen
on Slurm 24.11.5 and 26.05.5 as Debian builds them.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

CLUSTER = "lab"
FLEET_USER = "daemon"
"""The fleet's own SLURM user: AdminLevel=Administrator, account `fleet`. Every Debian has it (base-passwd)."""
JOB_USER = "games"
"""An ordinary user of the cluster, account `users`. Every Debian has it (base-passwd)."""
GPUS = 8
SPARE_SLURMD_PORTS = 64


@dataclass(frozen=True)
class Plan:
    """What was asked for; kept in `DIR/state/slurm/site.json` so that a restart is the same cluster.

    Attributes:
        suite: Debian suite ("sid": Slurm 26.05, "trixie": 24.11).
        static: nodes in slurm.conf with a slurmd: gpu01, gpu02, ...
        dynamic: nodes that register themselves (`slurmd -Z`): dyn01, dyn02, ...
        fake: nodes in slurm.conf without a slurmd: fake00001, ...
        strict: no `config_overrides`: what a node really has is what counts.
        extra: further lines of slurm.conf.
    """

    suite: str
    static: int = 0
    dynamic: int = 0
    fake: int = 0
    strict: bool = False
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ports:
    """The cluster's ports on 127.0.0.1, one block."""

    ctld: int
    rest: int
    dbd: int
    slurmd_base: int

    @staticmethod
    def count(plan: Plan) -> int:
        return 3 + plan.static + plan.dynamic + SPARE_SLURMD_PORTS

    @classmethod
    def from_block(cls, first: int) -> Ports:
        return cls(ctld=first, rest=first + 1, dbd=first + 2, slurmd_base=first + 3)


@dataclass(frozen=True)
class Places:
    """The folders of one cluster.

    `folder` may be closed to other users and its path may be long. What jobs, slurmrestd's own user and unix sockets
    need is therefore in `public`, a short path that everybody may enter; it is made at the start and removed at the
    end. Nothing secret and nothing that must be kept is in it.
    """

    folder: Path
    prefix: Path

    @property
    def public(self) -> Path:
        key = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        return Path("/tmp") / f"fm-slurm-{key}"  # noqa: S108  its owner is checked when it is made

    @property
    def state(self) -> Path:
        """What must survive a stop; the folder may be shared with the labs of other services."""
        return self.folder / "state" / "slurm"

    @property
    def keys(self) -> Path:
        """munge.key and jwt_hs256.key: only for the daemons."""
        return self.state / "keys"

    @property
    def facts(self) -> Path:
        """What `SlurmSite.load` reads."""
        return self.state / "site.json"

    @property
    def lock(self) -> Path:
        return self.folder / "state" / "slurm.lock"

    @property
    def conf(self) -> Path:
        return self.public / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.public / "munge" / "socket"

    @property
    def mysql_socket(self) -> Path:
        return self.public / "mysql.sock"

    @property
    def devices(self) -> Path:
        return self.public / "dev"

    @property
    def jobs(self) -> Path:
        return self.public / "jobs"


def static_nodes(plan: Plan) -> list[str]:
    return [f"gpu{number:02d}" for number in range(1, plan.static + 1)]


def dynamic_nodes(plan: Plan) -> list[str]:
    return [f"dyn{number:02d}" for number in range(1, plan.dynamic + 1)]


def hardware(plan: Plan) -> str:
    """Return the CPUs and memory that the lab's healthy nodes are configured with.

    With `config_overrides` SLURM believes what is written. In the strict profile it compares, so the nodes get what
    this machine really has (and every node all of it: jobs of the lab do nothing heavy).
    """
    if not plan.strict:
        return "CPUs=16 RealMemory=4000"
    return f"CPUs={os.cpu_count() or 1} RealMemory=1000"


def slurm_conf(plan: Plan, places: Places, ports: Ports, hostname: str) -> str:
    """Return slurm.conf."""
    gres = f"Gres=gpu:h100:{GPUS}"
    here = f"NodeHostname={hostname} NodeAddr=127.0.0.1"
    node = f"{hardware(plan)} {gres}"
    first, last = ports.slurmd_base, ports.slurmd_base + plan.static - 1
    lines = [
        f"ClusterName={CLUSTER}",
        f"SlurmctldHost={hostname}(127.0.0.1)",
        f"SlurmctldPort={ports.ctld}",
        "SlurmUser=root",
        "SlurmdUser=root",
        # auth/slurm would save munged, but its sockets have fixed places in /run: one cluster a machine
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={places.munge_socket}",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={places.keys}/jwt_hs256.key",
        f"PluginDir={places.prefix}/plugins",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"StateSaveLocation={places.state}/slurmctld",
        f"SlurmdSpoolDir={places.public}/spool/%n",
        f"SlurmctldPidFile={places.public}/slurmctld.pid",
        f"SlurmdPidFile={places.public}/slurmd-%n.pid",
        f"SlurmdLogFile={places.folder}/log/node-%n.log",
        "LogTimeFormat=iso8601_ms,format_stderr",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "RebootProgram=/bin/true",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=200",
        "GresTypes=gpu",
        "MaxNodeCount=20000",
        # real rights
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={ports.dbd}",
        f"AccountingStoragePass={places.munge_socket}",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=associations",
        # quick, for tests
        "ReturnToService=1",
        "SlurmdTimeout=20",
        "KillWait=2",
        "MinJobAge=15",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=5",
    ]
    if not plan.strict:
        lines.append("SlurmdParameters=config_overrides")
    if plan.static:
        lines.append(f"NodeName=gpu[01-{plan.static:02d}] {here} Port=[{first}-{last}] {node} Feature=static,h100")
    if plan.fake:
        lines.append(f"NodeName=fake[00001-{plan.fake:05d}] {here} Port=1 {node} Feature=fake,h100")
    lines += [
        "NodeSet=dynamic Feature=dynamic",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=burnin Nodes=dynamic MaxTime=120 AllowAccounts=fleet State=UP",
        *plan.extra,
    ]
    return "\n".join(lines) + "\n"


def dynamic_conf(plan: Plan, port: int, hostname: str) -> str:
    """Return what a dynamic node of the lab says of itself (`slurmd -Z --conf`)."""
    return (
        f"NodeHostname={hostname} NodeAddr=127.0.0.1 Port={port} {hardware(plan)} "
        f"Gres=gpu:h100:{GPUS} Feature=dynamic,h100"
    )


def gres_conf(places: Places, gpus: int) -> str:
    """Return gres.conf with so many GPUs: links to /dev/null.

    SLURM wants `File=` to be a device (Count= without File= makes the node INVALID_REG) and never opens it without a
    device cgroup.
    """
    if gpus == 0:
        return "AutoDetect=off\n"
    return f"AutoDetect=off\nName=gpu Type=h100 File={places.devices}/gpu[0-{gpus - 1}]\n"


def slurmdbd_conf(places: Places, ports: Ports) -> str:
    """Return slurmdbd.conf (the database's socket goes through MYSQL_UNIX_PORT)."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={places.munge_socket}",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={places.keys}/jwt_hs256.key",
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={ports.dbd}",
        "SlurmUser=root",
        "StorageType=accounting_storage/mysql",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
        f"PluginDir={places.prefix}/plugins",
        f"PidFile={places.public}/slurmdbd.pid",
        "LogTimeFormat=iso8601_ms,format_stderr",
    ]
    return "\n".join(lines) + "\n"
