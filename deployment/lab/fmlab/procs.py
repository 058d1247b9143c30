"""Start, watch and stop the lab's daemons by pid, so that nothing of ours stays and nothing else is ever touched.

A daemon `NAME` of a folder DIR has its pid in `DIR/run/NAME.pid` and what it prints in `DIR/log/NAME.log`. The pid
file holds two numbers: the pid and the process's start time (field 22 of `/proc/PID/stat`, clock ticks since boot). A
pid that the kernel gave to somebody else has another start time, so it is never signalled. The file is written by the
daemon's own process before it becomes the daemon: however early the caller is killed, the next `stop` finds it.

Must not kill by name, know any particular daemon, or choose a port that is written down anywhere.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

Say = Callable[[str], None]

_POLL_S = 0.01
_TAIL_LINES = 15
_FIRST_PORT = 10_000
_children: list[subprocess.Popen[bytes]] = []  # held so that they are reaped here and never warned about
_handed_out: set[int] = set()
_lock = threading.Lock()  # of the two: labs start side by side in threads

# $0 is the pid file, "$@" the daemon. The name in stat is "sh" here, so blanks separate its fields; exec keeps pid and
# start time.
_WRITE_PID_THEN_EXEC = (
    'printf "%s %s\\n" $$ "$(cut -d" " -f22 /proc/$$/stat)" > "$0.new" && mv "$0.new" "$0" && exec "$@"'
)


class LabError(RuntimeError):
    """The lab could not do what was asked; the text says why and what to do."""


class Process(NamedTuple):
    """One process and no other: a pid with the start time that tells it from a later owner of the same pid."""

    pid: int
    started: int


class _Stat(NamedTuple):
    state: str
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    """Read `/proc/PID/stat`, or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold blanks and brackets
    return _Stat(state=fields[0], session=int(fields[3]), started=int(fields[19]))


def _reap() -> None:
    with _lock:
        _children[:] = [child for child in _children if child.poll() is None]


def identify(pid: int) -> Process | None:
    """Return the process that has this pid now, or None when it is gone (a zombie is gone)."""
    _reap()
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else Process(pid, stat.started)


def alive(process: Process) -> bool:
    """Tell whether this very process still runs."""
    return identify(process.pid) == process


def read_pid_file(path: Path) -> Process | None:
    """Return what a pid file names, alive or not; None when it is missing or unreadable."""
    try:
        pid, started = path.read_text().split()
        return Process(int(pid), int(started))
    except (FileNotFoundError, ValueError):
        return None


def send(process: Process, number: signal.Signals) -> None:
    """Signal the process if it is still the one meant."""
    if alive(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def stop_processes(processes: Sequence[Process], patience_s: float = 10.0) -> list[Process]:
    """Stop all of them at once: SIGTERM, wait, SIGKILL to the rest; return those that had to be killed."""
    for process in processes:
        send(process, signal.SIGTERM)
    stubborn = _await_end(processes, patience_s)
    for process in stubborn:
        send(process, signal.SIGKILL)
    left = _await_end(stubborn, 10.0)
    if left:
        raise LabError(f"processes {[p.pid for p in left]} survive SIGKILL (a hanging disk or mount?)")
    return stubborn


def _await_end(processes: Sequence[Process], seconds: float) -> list[Process]:
    end = time.monotonic() + seconds
    left = [p for p in processes if alive(p)]
    while left and time.monotonic() < end:
        time.sleep(_POLL_S)
        left = [p for p in left if alive(p)]
    return left


def _session_of(leader: Process) -> list[Process]:
    """List what a dead daemon left running in its session (its workers).

    The kernel does not give the leader's pid to anybody while the session has members, so if a process has that pid and
    another start time there are none.
    """
    now = _stat(leader.pid)
    if now is not None and now.started != leader.started:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None and stat.session == leader.pid:
            found.append(Process(int(entry.name), stat.started))
    return [p for p in found if p.pid != leader.pid]


class Daemons:
    """The daemons of one folder: pids in DIR/run, output in DIR/log."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.log_dir = folder / "log"

    def pid_file(self, name: str) -> Path:
        return self.run_dir / f"{name}.pid"

    def log(self, name: str) -> Path:
        return self.log_dir / f"{name}.log"

    def names(self) -> list[str]:
        """Name every daemon that was started and not stopped here, alive or not."""
        return sorted(path.stem for path in self.run_dir.glob("*.pid"))

    def process(self, name: str) -> Process | None:
        """Return the running daemon, or None."""
        process = read_pid_file(self.pid_file(name))
        return process if process is not None and alive(process) else None

    def alive(self, name: str) -> bool:
        return self.process(name) is not None

    def start(
        self, name: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        """Start a foreground program as a daemon in a session of its own (Ctrl-C does not reach it).

        Args:
            name: of the pid file and the log; the log is appended to.
            argv: the program; it must stay in the foreground.
            env: the whole environment, ours when None.
            cwd: the working directory, `/` when None.
        """
        if (running := self.process(name)) is not None:
            raise LabError(f"{name} already runs (pid {running.pid}); stop it first")
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        pid_file = self.pid_file(name)
        pid_file.unlink(missing_ok=True)
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WRITE_PID_THEN_EXEC, str(pid_file), *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd or "/",
                start_new_session=True,
            )
        with _lock:
            _children.append(child)
        wait_for(lambda: pid_file.exists() or child.poll() is not None, 10, f"{name} to start", log=self.log(name))
        process = read_pid_file(pid_file)
        if process is None:
            raise LabError(f"{name} could not be started{tail(self.log(name))}")
        return process

    def stop(self, *names: str, patience_s: float = 10.0) -> None:
        """Stop these at the same time, with all they started in their session; those that do not run are no error."""
        leaders = [p for name in names if (p := read_pid_file(self.pid_file(name))) is not None]
        stop_processes(leaders, patience_s)
        stop_processes([member for leader in leaders for member in _session_of(leader)], patience_s=1.0)
        for name in names:
            self.pid_file(name).unlink(missing_ok=True)

    def stop_all(self, patience_s: float = 10.0) -> None:
        self.stop(*self.names(), patience_s=patience_s)

    def wait_for(self, name: str, fact: Callable[[], object], seconds: float, what: str) -> None:
        """Wait for a fact about this daemon; fail at once when the daemon ends, with the tail of its log."""

        def gone() -> str:
            return "" if self.alive(name) else f"{name} ended"

        wait_for(fact, seconds, what, log=self.log(name), hopeless=gone)


@contextmanager
def guarded(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a clean-up command at the end of the block, even when this very process is killed in it.

    A shell of its own session waits for the end of a pipe that only we hold open; the kernel closes it whatever
    becomes of us. What the command prints is lost; it must do no harm when there is nothing left to clean.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", 'cat && exec "$@"', "guard", *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=None if env is None else dict(env),
        cwd="/",
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate()


def wait_for(
    fact: Callable[[], object],
    seconds: float,
    what: str,
    *,
    log: Path | None = None,
    hopeless: Callable[[], str] = lambda: "",
    poll_s: float = _POLL_S,
) -> None:
    """Wait until `fact()` is true.

    Args:
        fact: asked again and again; must not raise for "not yet".
        seconds: patience.
        what: completes "waited N s for ..." in the error.
        log: whose last lines the error shows.
        hopeless: returns why waiting longer is pointless, "" while it is not.
        poll_s: pause between two questions.

    Raises:
        LabError: the time is over or it is hopeless.
    """
    end = time.monotonic() + seconds
    while True:
        reason = hopeless()  # before the fact: a fact that came true in the last moment still counts
        if fact():
            return
        if reason:
            raise LabError(f"no use waiting for {what}: {reason}{tail(log)}")
        if time.monotonic() >= end:
            raise LabError(f"waited {seconds:g} s for {what}{tail(log)}")
        time.sleep(poll_s)


def tail(log: Path | None, lines: int = _TAIL_LINES) -> str:
    """Return "; see LOG:" and the last lines of the log, for the end of an error."""
    if log is None:
        return ""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            last = file.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return f"; no log {log}"
    return f"; see {log}:\n" + "\n".join(f"    {line}" for line in last)


def port_open(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def socket_open(path: Path) -> bool:
    """Tell whether somebody listens on this unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def port_free(port: int) -> bool:
    """Tell whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port on 127.0.0.1."""
    return free_block(1)


def free_block(count: int) -> int:
    """Return the first of `count` free ports in a row on 127.0.0.1.

    They lie below the kernel's range for outgoing connections, so that no client's socket takes one before its server
    does, start at a random place, so that two labs starting at once do not meet, and are given to one caller only.
    """
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = lowest_outgoing if lowest_outgoing - _FIRST_PORT > 4 * count + 1000 else 60_000
    for _ in range(1000):
        first = random.randrange(_FIRST_PORT, end - count)
        block = range(first, first + count)
        with _lock:
            if _handed_out.isdisjoint(block) and all(map(port_free, block)):
                _handed_out.update(block)
                return first
    raise LabError(f"no {count} free ports in a row on 127.0.0.1 between {_FIRST_PORT} and {end}")


class Steps:
    """Says each step with the time since the beginning: `[ 12.3 s] text`."""

    def __init__(self, say: Say = print) -> None:
        self._say = say
        self._start = time.monotonic()

    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def __call__(self, text: str) -> None:
        self._say(f"[{self.elapsed_s():5.1f} s] {text}")
