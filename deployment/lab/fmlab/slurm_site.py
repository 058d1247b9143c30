"""A SLURM cluster of the lab as its users see it: addresses, programs, tokens, commands.

Must not start or stop anything; `fmlab.slurm` does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fmlab import slurm_conf
from fmlab.procs import LabError
from fmlab.slurm_conf import FLEET_USER, JOB_USER, Places, Plan, Ports


@dataclass(frozen=True)
class SlurmSite:
    """A running cluster.

    Attributes:
        dir: its folder.
        plan: what it was asked to be.
        places: its files.
        ports: its ports on 127.0.0.1.
        version: of SLURM, "26.05.5".
    """

    dir: Path
    plan: Plan
    places: Places
    ports: Ports
    version: str

    fleet_user = FLEET_USER
    job_user = JOB_USER
    gpus = slurm_conf.GPUS

    @property
    def hostname(self) -> str:
        """What `NodeHostname=` of a slurmd on this machine must say."""
        return socket.gethostname().split(".")[0]

    @property
    def suite(self) -> str:
        return self.plan.suite

    @property
    def strict(self) -> bool:
        """Whether a node is held to what it has (no `config_overrides`).

        Seen alike on 26.05.5 and 24.11.5, on a machine of 2 CPUs and 24105 MB:

        - dynamic, `--conf "CPUs=2 RealMemory=900000"`: refused. State UNKNOWN+DRAIN+INVALID_REG+DYNAMIC_NORM, reason
          "Low RealMemory (reported:24105 < 100.00% of configured:900000)": slurmctld's own reason *replaces* the one it
          was born with. REST shows the configured memory, not the real one.
        - dynamic, `--conf "CPUs=16 RealMemory=1000"`: **accepted as 16 CPUs**, IDLE. A dynamic slurmd reports the CPUs
          (and sockets, cores) of its `--conf`; that they are not there is one error line in its own log.
        - dynamic, a `--conf` without CPUs and RealMemory: reports what it has, 2 CPUs and 24105 MB. So a gate on CPUs
          can fail, and means something, only for user-data that does not state them; or when they state too few.
        - dynamic, 7 GPUs of `Gres=gpu:h100:8` (`conf_with_gpus`): refused in both profiles, reason "gres/gpu count
          reported lower than configured (7 < 8)", and gres reads gpu:h100:7.
        - in slurm.conf, CPUs=16: refused, "Low socket*core*thread count, Low CPUs"; too much memory as above.
        """
        return self.plan.strict

    @property
    def url(self) -> str:
        """Slurmrestd's address, without a path."""
        return f"http://127.0.0.1:{self.ports.rest}"

    @property
    def conf(self) -> Path:
        """slurm.conf: SLURM_CONF of every program and slurmd of the cluster."""
        return self.places.conf

    @property
    def bin(self) -> Path:
        return self.places.prefix / "usr" / "bin"

    @property
    def sbin(self) -> Path:
        return self.places.prefix / "usr" / "sbin"

    @property
    def jobs(self) -> Path:
        """A folder where every user may write, for the output of jobs; gone after `slurm_down`."""
        return self.places.jobs

    @property
    def hardware(self) -> str:
        """CPUs= and RealMemory= that a healthy node of this cluster may claim."""
        return slurm_conf.hardware(self.plan)

    @property
    def slurmd_port_base(self) -> int:
        """The first of 64 ports kept for slurmds that others start; test each with `procs.port_free`."""
        return self.ports.slurmd_base + self.plan.static + self.plan.dynamic

    @property
    def process_env(self) -> dict[str, str]:
        """The whole environment of a slurmd or a command of this cluster."""
        return clean_environment(self.places)

    def conf_with_gpus(self, gpus: int) -> Path:
        """Return a slurm.conf beside which gres.conf has fewer GPUs: SLURM_CONF of a slurmd that misses some."""
        other = self.places.public / f"etc-{gpus}-gpus"
        other.mkdir(exist_ok=True)
        for name in ("slurm.conf", "cgroup.conf"):
            shutil.copyfile(self.conf.parent / name, other / name)
        (other / "gres.conf").write_text(slurm_conf.gres_conf(self.places, gpus))
        return other / "slurm.conf"

    def token(self, user: str, ttl_s: float = 86400) -> str:
        """Return a JWT of the user; a negative life makes one that is expired."""
        key = (self.places.keys / "jwt_hs256.key").read_bytes()
        now = int(time.time())
        claims = {"iat": now, "exp": now + int(ttl_s), "sun": user}
        signed = b".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        return (signed + b"." + _base64url(hmac.digest(key, signed, hashlib.sha256))).decode()

    def run(self, *argv: str, user: str = "root", check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Run a command of SLURM (scontrol, sinfo, sbatch, sacctmgr ...) and return what it printed.

        Args:
            argv: the command and its arguments.
            user: who runs it.
            check: whether a failure raises.
            env: variables beside SLURM_CONF.

        Raises:
            LabError: it failed and `check` is set; the text is what it said.
        """
        program = next((p for p in (self.bin / argv[0], self.sbin / argv[0]) if p.exists()), Path(argv[0]))
        done = subprocess.run(
            [*([] if user == "root" else as_user(user)), program, *argv[1:]],
            env={**self.process_env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            cwd="/",
        )
        if check and done.returncode:
            raise LabError(f"{shlex.join(argv)} failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Return what a shell needs to talk to the cluster."""
        return {
            "SLURM_CONF": str(self.conf),
            "SLURMRESTD_URL": self.url,
            "SLURMRESTD_TOKEN": self.token(FLEET_USER),
            "PATH": f"{self.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        }

    def save(self) -> None:
        """Keep what `load` needs."""
        self.places.state.mkdir(parents=True, exist_ok=True)
        facts = {
            "plan": asdict(self.plan),
            "ports": asdict(self.ports),
            "prefix": str(self.places.prefix),
            "version": self.version,
        }
        new = self.places.facts.with_suffix(".new")
        new.write_text(json.dumps(facts, indent=2) + "\n")
        new.rename(self.places.facts)

    @classmethod
    def load(cls, folder: Path) -> SlurmSite | None:
        """Return the cluster that was made in this folder, running or not; None when there never was one."""
        folder = folder.resolve()
        try:
            facts = json.loads(Places(folder, prefix=Path()).facts.read_text())
        except FileNotFoundError:
            return None
        plan = facts["plan"]
        return cls(
            dir=folder,
            plan=Plan(**{**plan, "extra": tuple(plan["extra"])}),
            places=Places(folder, Path(facts["prefix"])),
            ports=Ports(**facts["ports"]),
            version=facts["version"],
        )


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def clean_environment(places: Places) -> dict[str, str]:
    """Return an environment with nothing of the caller's.

    SLURM_JWT must not reach slurmctld or slurmd (they would take it for their AuthType and refuse to start).
    """
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/",
        "LANG": "C.UTF-8",
        "SLURM_CONF": str(places.conf),
    } | ({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {})


def as_user(user: str) -> list[str]:
    """Return the words before a command that make it run as this user, who may read where only root can enter.

    The programs lie in root's cache, and a home is closed; of root's powers only that one is kept.
    """
    entry = pwd.getpwnam(user)
    capability = _reading_capability()
    who = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    return [*who, f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}"]


def _reading_capability() -> str:
    """Name the capability that opens closed folders: the lesser of those that this system grants."""
    status = Path("/proc/self/status").read_text()
    bounding = int(status.split("CapBnd:")[1].split()[0], 16)
    for name, bit in (("dac_read_search", 2), ("dac_override", 1)):
        if bounding >> bit & 1:
            return name
    raise LabError("this container grants neither CAP_DAC_READ_SEARCH nor CAP_DAC_OVERRIDE: the SLURM lab needs one")
