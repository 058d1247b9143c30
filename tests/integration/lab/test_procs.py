"""The lab's process helpers: what they start they can stop, and they touch nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.slurm_site import LAB

from fmlab.procs import Daemons, LabError, Process, Steps, alive, free_block, free_port, identify, port_free, wait_for


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    found = Daemons(tmp_path)
    yield found
    found.stop_all(patience_s=0)


def said(daemons: Daemons, name: str) -> str:
    return daemons.log(name).read_text() if daemons.log(name).exists() else ""


def test_a_daemon_runs_with_its_own_log_and_pid_file(daemons: Daemons) -> None:
    process = daemons.start("one", ["sh", "-c", "echo $$; exec sleep 600"])
    daemons.wait_for("one", lambda: said(daemons, "one"), 5, "the pid to be said")
    assert said(daemons, "one") == f"{process.pid}\n"
    assert daemons.process("one") == process == identify(process.pid)


def test_a_daemon_has_a_session_of_its_own(daemons: Daemons) -> None:
    process = daemons.start("one", ["sleep", "600"])
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_stop_ends_the_daemon_and_its_workers(daemons: Daemons) -> None:
    daemons.start("one", ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & echo $!; wait"])
    daemons.wait_for("one", lambda: said(daemons, "one"), 5, "the worker's pid")
    worker = identify(int(said(daemons, "one")))
    assert worker is not None
    daemons.stop("one")
    assert (alive(worker), daemons.names()) == (False, [])


def test_stop_kills_what_ignores_sigterm(daemons: Daemons) -> None:
    process = daemons.start("one", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"])
    daemons.wait_for("one", lambda: said(daemons, "one"), 5, "the trap")
    daemons.stop("one", patience_s=0.2)
    assert not alive(process)


def test_a_recycled_pid_is_not_killed(daemons: Daemons) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        now = identify(stranger.pid)
        assert now is not None
        daemons.run_dir.mkdir(parents=True)
        daemons.pid_file("one").write_text(f"{stranger.pid} {now.started - 1}\n")
        assert not daemons.alive("one")
        daemons.stop("one")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_daemon_that_runs_is_not_started_twice(daemons: Daemons) -> None:
    daemons.start("one", ["sleep", "600"])
    with pytest.raises(LabError, match="one already runs"):
        daemons.start("one", ["sleep", "600"])


def test_waiting_for_a_daemon_that_ended_fails_at_once_and_shows_its_log(daemons: Daemons) -> None:
    daemons.start("one", ["sh", "-c", "echo no such device; exit 3"])
    with pytest.raises(LabError, match=r"one ended; see .*one\.log:\n    no such device"):
        daemons.wait_for("one", lambda: False, 600, "one to listen")


def test_a_program_that_is_not_there_is_named_in_the_error(daemons: Daemons) -> None:
    daemons.start("one", ["/no/such/program"])
    with pytest.raises(LabError, match="/no/such/program"):
        daemons.wait_for("one", lambda: False, 600, "one to listen")


def test_a_pid_file_is_there_even_when_the_starter_is_killed_at_once(daemons: Daemons) -> None:
    code = f"""
import os, signal, subprocess
from pathlib import Path
from fmlab import procs
procs.wait_for = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
procs.Daemons(Path({str(daemons.run_dir.parent)!r})).start("one", ["sleep", "600"])
"""
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(LAB)}, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    wait_for(lambda: daemons.alive("one"), 5, "the pid file")


@pytest.mark.parametrize("how", ["leave", "kill"])
def test_a_guard_cleans_up_when_the_process_leaves_or_is_killed(tmp_path: Path, how: str) -> None:
    mark = tmp_path / "cleaned"
    code = f"""
import os, signal
from fmlab.procs import guarded
with guarded(["touch", {str(mark)!r}]):
    if {how!r} == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(LAB)}, timeout=30)
    wait_for(mark.exists, 5, "the guard to clean up")
    assert mark.read_text() == ""


def test_waiting_in_vain_says_how_long_and_for_what() -> None:
    with pytest.raises(LabError, match=r"waited 0\.1 s for the moon"):
        wait_for(lambda: False, 0.1, "the moon")


def test_free_ports_are_free_and_given_out_once() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(map(port_free, ports))


def test_a_block_of_ports_is_in_a_row_and_free() -> None:
    first = free_block(20)
    assert all(port_free(port) for port in range(first, first + 20))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_block(10) + 10 <= lowest


def test_steps_are_said_with_their_time() -> None:
    lines: list[str] = []
    Steps(lines.append)("SLURM is up")
    assert lines == ["[  0.0 s] SLURM is up"]


def test_a_process_that_is_gone_is_not_alive() -> None:
    ended = subprocess.Popen(["true"])
    process = identify(ended.pid) or Process(ended.pid, 0)
    ended.wait()
    assert not alive(process)
