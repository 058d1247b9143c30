"""A SLURM, a Nova and the metal between them, for the tests of the metal."""

import base64
import os
import re
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

import fmlab
from fmlab.hall import Record
from fmlab.metal import MetalSite, metal_down, metal_up
from fmlab.nova import NovaCloud
from fmlab.nova_api import NovaApi
from fmlab.procs import Daemons, Process, free_port, guarded, wait_for
from fmlab.slurm import SlurmSite, slurm_down, slurm_up

SECRET = "a-secret-of-the-site"
REASON = "fm:born new build"
STATIC = "st01"  # a node of slurm.conf without a slurmd of the lab's own
USER_DATA = r"""## template: jinja
#cloud-config
write_files:
  - path: /etc/default/slurmd
    permissions: "0600"
    content: |
      SLURMD_OPTIONS="-Z -N {{ ds.meta_data.name }} --instance-id {{ ds.meta_data.uuid }} --extra fm_build={{ ds.meta_data.meta.fm_build }} --conf 'Gres=gpu:h100:8 Feature=dynamic,h100 State=DRAIN Reason=\"@REASON@\"'"
  - path: /etc/fleet/site.key
    permissions: "0600"
    content: |
      @SECRET@
runcmd:
  - [systemctl, enable, --now, slurmd]
""".replace("@REASON@", REASON).replace("@SECRET@", SECRET)  # noqa: E501  one line, as the image wants it

Facts = dict[str, str]


class DataHall:
    """Makes servers, and tells what became of their nodes."""

    def __init__(self, slurm: SlurmSite, nova: NovaCloud, metal: MetalSite) -> None:
        self.slurm = slurm
        self.nova = nova
        self.metal = metal
        self.ops: NovaApi = nova.api("ops-app")
        self.daemons = Daemons(metal.dir)
        self._hosts = 0
        self._ids = {
            "imageRef": self.ops.id_of("image", "/v2/images", "slurm-node-a"),
            "flavorRef": self.ops.id_of("compute", "/flavors", "gpu-h100"),
        }
        self._network = self.ops.id_of("network", "/v2.0/networks", "shared-net")
        self.servers: list[str] = []
        self.nodes: list[str] = []

    def create(self, *switches: str, name: str = "", user_data: str = USER_DATA, build: str = "b1") -> str:
        """Create a server on some host and return its name, which is its node's too."""
        name = name or f"n{uuid.uuid4().hex[:6]}"
        if switches:
            self.metal.switch(name, *switches)
        self._hosts += 1
        body = {
            "name": name,
            **self._ids,
            "networks": [{"uuid": self._network}],
            "hypervisor_hostname": self.nova.hosts[self._hosts % len(self.nova.hosts)],
            "metadata": {"fm_build": build},
            "user_data": base64.b64encode(user_data.encode()).decode(),
        }
        answer = self.ops.request("POST", "/servers", {"server": body})
        assert answer.status_code == 202
        self.servers.append(answer.json()["server"]["id"])
        self.nodes.append(name)
        return name

    def act(self, server: str, **order: Any) -> None:
        assert self.ops.request("POST", f"/servers/{server}/action", order).status_code == 202

    def rebuild(self, name: str, build: str) -> None:
        order = {"imageRef": self._ids["imageRef"], "metadata": {"fm_build": build}}
        self.act(self.record(name).server, rebuild=order)

    def delete(self, server: str) -> None:
        self.ops.request("DELETE", f"/servers/{server}")

    def record(self, name: str) -> Record:
        record = self.metal.machine(name)
        assert record is not None
        return record

    def process(self, name: str) -> Process | None:
        return self.daemons.process(f"machine-{name}-{self.record(name).server[:8]}")

    def node(self, name: str) -> Facts:
        """Return the node as scontrol shows it; nothing when there is none."""
        said = self.slurm.run("scontrol", "-o", "show", "node", name, check=False)
        return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", said.strip()))

    def wait_node(self, name: str, what: str, fact: Callable[[Facts], object], seconds: float = 40) -> Facts:
        wait_for(lambda: fact(self.node(name)), seconds, f"{name}: {what}", log=self.daemons.log("metal"), poll_s=0.1)
        return self.node(name)

    def registered(self, name: str, build: str = "b1") -> Facts:
        """Wait until this build of the node has registered."""
        return self.wait_node(name, f"{build} to register", lambda n: n.get("Extra") == f"fm_build={build}")

    def wait_state(self, name: str, state: str) -> Record:
        def reached() -> bool:
            record = self.metal.machine(name)
            return record is not None and record.state == state

        wait_for(reached, 40, f"machine {name} to be {state}", log=self.daemons.log("metal"), poll_s=0.05)
        return self.record(name)

    def submit(self, node: str, script: str) -> str:
        """Submit a job of the fleet's user that takes all of the node's GPUs; return its id."""
        job = {
            "partition": "burnin",
            "required_nodes": [node],
            "tres_per_node": "gres/gpu:8",
            "environment": [f"PATH={self.metal.bin}:/usr/bin:/bin"],
            "current_working_directory": "/tmp",
            "standard_output": f"{self.slurm.jobs}/%j.out",
        }
        answer = httpx.post(
            f"{self.slurm.url}/slurm/v0.0.42/job/submit",
            json={"script": f"#!/bin/sh\n{script}\n", "job": job},
            headers={"X-SLURM-USER-TOKEN": self.slurm.token(self.slurm.fleet_user)},
            timeout=30,
        )
        return str(answer.raise_for_status().json()["job_id"])

    def job(self, job_id: str) -> Facts:
        said = self.slurm.run("scontrol", "-o", "show", "job", job_id)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def job_ended(self, job_id: str) -> Facts:
        ended = {"COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"}
        wait_for(lambda: self.job(job_id)["JobState"] in ended, 40, f"job {job_id} to end", poll_s=0.1)
        return self.job(job_id)

    def output(self, job_id: str) -> str:
        return (self.slurm.jobs / f"{job_id}.out").read_text()

    def clear(self) -> None:
        """Delete the servers and nodes of a test."""
        for server in self.servers:
            self.delete(server)
        for server in self.servers:
            gone = self.metal.dir / "state" / "metal" / "machines" / server
            wait_for(lambda s=server, g=gone: self.ops.server(s) is None and not g.exists(), 40, f"{server} to go")
        for name in self.nodes:
            self.metal.switch(name)
            if name != STATIC:
                self.slurm.run("scontrol", "delete", f"nodename={name}", check=False)
        self.servers, self.nodes = [], []


@contextmanager
def data_hall(folder: Path, suite: str, nova: NovaCloud) -> Iterator[DataHall]:
    """Run a SLURM of a suite and the metal; everything is stopped at the end."""
    gpus = "CPUs=16 RealMemory=4000 Gres=gpu:h100:8 Feature=static,h100"
    node = f"NodeName={STATIC} NodeHostname={socket.gethostname().split('.')[0]}"
    line = f"{node} NodeAddr=127.0.0.1 Port={free_port()} {gpus}"
    with ExitStack() as stack:
        env = {**os.environ, "PYTHONPATH": str(Path(next(iter(fmlab.__path__))).parent)}
        for program, part in (("slurm", folder / "slurm"), ("metal", folder / "metal")):
            stack.enter_context(guarded([sys.executable, "-m", f"fmlab.{program}", "down", part], env=env))
        stack.callback(slurm_down, folder / "slurm")
        slurm = slurm_up(folder / "slurm", suite=suite, extra=(line,))
        stack.callback(metal_down, folder / "metal")
        hall = DataHall(slurm, nova, metal_up(folder / "metal", slurm=slurm, nova=nova))
        stack.callback(hall.ops.close)
        yield hall
