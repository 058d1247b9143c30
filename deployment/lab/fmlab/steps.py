"""Find the job steps of one node of the lab, with the jobs they run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fmlab.procs import Process, identify
from fmlab.slurm_reap import STEPS, programs_of
from fmlab.slurm_site import SlurmSite


def steps_of(slurm: SlurmSite, node: str) -> list[Process]:
    """List the job steps of a node with all they started.

    slurmstepd wipes its environment; what tells its node is the node's log file, which it holds open. It adopts its
    jobs' orphans, so all of a job are its descendants.
    """
    log = str(slurm.places.folder / "log" / f"node-{node}.log")
    steps = {process.pid for process in programs_of(slurm.places, STEPS) if log in _open_files(process.pid)}
    if not steps:
        return []
    parents = {int(p.name): _parent(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    ours = set(steps)
    for pid in parents:
        line = pid
        while line > 1 and line not in steps:
            line = parents.get(line, 0)
        if line in steps:
            ours.add(pid)
    return [process for pid in ours if (process := identify(pid)) is not None]


def _open_files(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(entry.readlink()))
    return found


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat[stat.rindex(")") + 2 :].split()[1])
