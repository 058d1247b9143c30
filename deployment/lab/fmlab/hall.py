"""What the machines of the lab's data hall share, and what is written down of each.

DIR/state/metal/machines/SERVER/machine.json is one machine's record; DIR/state/metal/{ports,builds}.json outlive the
machines. No secret may be in any of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmlab.nvidia_smi import NvidiaSmi
from fmlab.procs import LabError, port_free
from fmlab.slurm_conf import SPARE_SLURMD_PORTS
from fmlab.slurm_site import SlurmSite


@dataclass(frozen=True)
class Record:
    """What is known of a machine; no secret may be in it.

    Attributes:
        server: the server's id.
        name: the server's name.
        generation: the server's launched_at: a rebuild has another one.
        cpus: the flavor's.
        memory_mib: the flavor's.
        state: "off", "late" (its slurmd starts at `due`), "running", "bare" (nothing to start), "never-boots", or
            "refused" (the user-data asks for something unknown).
        why: of bare and refused.
        node: the node's name that its slurmd uses.
        enabled: slurmd starts again when the power comes back.
        due: when a late slurmd starts, in seconds since 1970.
        rebooted: it rebooted under a job already, since its last boot.
    """

    server: str
    name: str
    generation: str
    cpus: int
    memory_mib: int
    state: str = "off"
    why: str = ""
    node: str = ""
    enabled: bool = False
    due: float = 0.0
    rebooted: bool = False


@dataclass(frozen=True)
class Hall:
    """What all machines share."""

    folder: Path
    slurm: SlurmSite
    smi: NvidiaSmi
    say: Callable[[str], None]

    @property
    def state(self) -> Path:
        return self.folder / "state" / "metal"

    @property
    def machines(self) -> Path:
        return self.state / "machines"

    def records(self) -> list[Record]:
        """List the machines there are."""
        found = []
        for file in sorted(self.machines.glob("*/machine.json")):
            with suppress(FileNotFoundError):  # it may be taken away right now
                found.append(Record(**json.loads(file.read_text())))
        return found

    def remember(self, what: str, key: str, value: Any) -> None:
        """Keep a fact in DIR/state/metal/WHAT.json that outlives the machines."""
        facts = self.recall(what) | {key: value}
        new = self.state / f"{what}.json.new"
        new.write_text(json.dumps(facts))
        new.rename(self.state / f"{what}.json")

    def recall(self, what: str) -> dict[str, Any]:
        file = self.state / f"{what}.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def port(self, node: str) -> int:
        """Return the port of a node's slurmd: always the same, because slurmctld remembers it of a dynamic node."""
        ports: dict[str, int] = self.recall("ports")
        base = self.slurm.slurmd_port_base
        taken = {port for other, port in ports.items() if other != node}
        kept = [ports[node]] if ports.get(node, 0) in range(base, base + SPARE_SLURMD_PORTS) else []
        candidates: list[int] = [*kept, *range(base, base + SPARE_SLURMD_PORTS)]
        for port in candidates:
            if port not in taken and port_free(port):
                self.remember("ports", node, port)
                return port
        raise LabError(f"none of the {SPARE_SLURMD_PORTS} ports from {base} is free for the slurmd of {node}")
