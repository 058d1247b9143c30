"""A real Temporal dev server with its UI on loopback, its state on disk.

Must not prepare the namespace: that is done by the product's own bootstrap, as in production.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from fmlab.procs import Daemons, Say, free_block, port_free, port_open

NAME = "temporal"


@dataclass(frozen=True)
class TemporalSite:
    """A running dev server.

    Attributes:
        address: host:port of its frontend.
        ui_url: where people open it.
    """

    address: str
    ui_url: str


def temporal_up(folder: Path, *, say: Say = print) -> TemporalSite:
    """Start the dev server of a folder, or return the one that runs. Workflows of earlier starts are there again."""
    folder = folder.resolve()
    daemons = Daemons(folder)
    state = folder / "state" / "temporal"
    state.mkdir(parents=True, exist_ok=True)
    frontend, ui, http, metrics = ports = _ports(state, reuse=True)
    if not daemons.alive(NAME):
        if not all(map(port_free, ports)):
            frontend, ui, http, metrics = _ports(state, reuse=False)
        daemons.start(
            NAME,
            [
                Path(sys.executable).parent / "temporal",
                *("server", "start-dev", "--ip", "127.0.0.1", "--ui-ip", "127.0.0.1"),
                *("--port", str(frontend), "--ui-port", str(ui)),
                *("--http-port", str(http), "--metrics-port", str(metrics)),
                *("--db-filename", str(state / "temporal.db"), "--log-level", "warn"),
            ],
            env={"HOME": str(state), "PATH": "/usr/bin:/bin"},
        )
    daemons.wait_for(NAME, lambda: port_open(frontend) and port_open(ui), 60, "Temporal to listen")
    say(f"Temporal is up: 127.0.0.1:{frontend}, UI http://127.0.0.1:{ui}")
    return TemporalSite(f"127.0.0.1:{frontend}", f"http://127.0.0.1:{ui}")


def temporal_down(folder: Path) -> None:
    """Stop it."""
    Daemons(folder.resolve()).stop(NAME)


def _ports(state: Path, *, reuse: bool) -> list[int]:
    file = state / "ports.json"
    if reuse and file.exists():
        kept: list[int] = json.loads(file.read_text())
        return kept
    first = free_block(4)
    chosen = list(range(first, first + 4))
    file.write_text(json.dumps(chosen))
    return chosen
