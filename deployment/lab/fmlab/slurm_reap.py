"""Find every process of one lab cluster, those without a pid file too: job steps, their jobs, slurmds of others.

slurmstepd outlives slurmd by design, and it wipes its own environment; what ties it to a cluster is the log file that
it holds open. Its jobs are its descendants (it adopts their orphans) and carry the cluster's SLURM_CONF beside their
SLURM_JOB_ID. A shell that merely sourced the lab's environment is none of ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fmlab.procs import Process, identify, stop_processes
from fmlab.slurm_conf import Places

SLURMDS = frozenset({"slurmd"})
STEPS = frozenset({"slurmstepd"})
SERVERS = frozenset({"slurmrestd", "slurmctld", "slurmdbd", "mariadbd", "munged"})


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _program(pid: int) -> str:
    """Return the program's file name, "" when it is gone or a kernel thread."""
    try:
        target = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
    return Path(target.removesuffix(" (deleted)")).name


def _environment(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{entry}")


def _names_our_conf(environment: list[str], places: Places) -> bool:
    return any(entry.startswith(f"SLURM_CONF={places.public}/") for entry in environment)


def programs_of(places: Places, names: frozenset[str]) -> list[Process]:
    """List the running SLURM programs of these names that belong to the cluster."""
    roots = (f"{places.folder}/", f"{places.public}/")
    found = []
    for pid in _pids():
        if _program(pid) not in names:
            continue
        ours = _names_our_conf(_environment(pid), places) or any(path.startswith(roots) for path in _open_files(pid))
        if ours and (process := identify(pid)) is not None:
            found.append(process)
    return found


def jobs_of(places: Places) -> list[Process]:
    """List the job steps of the cluster with everything they started."""
    steps = {process.pid for process in programs_of(places, STEPS)}
    ours = set(steps)
    parents = {pid: _parent(pid) for pid in _pids()}
    for pid in parents:
        line = pid
        while line > 1 and line not in steps:
            line = parents.get(line, 0)
        if line in steps:
            ours.add(pid)
        elif _is_job_process(_environment(pid), places):
            ours.add(pid)
    ours.discard(os.getpid())
    return [process for pid in ours if (process := identify(pid)) is not None]


def _is_job_process(environment: list[str], places: Places) -> bool:
    return _names_our_conf(environment, places) and any(entry.startswith("SLURM_JOB_ID=") for entry in environment)


def _parent(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(status[status.rindex(")") + 2 :].split()[1])


def kill_jobs(places: Places) -> None:
    """End the cluster's steps and jobs; the slurmds must be gone, so that none is born meanwhile."""
    while found := jobs_of(places):
        stop_processes(found, patience_s=0)
