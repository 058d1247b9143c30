"""The lab's SLURM is a real one, with real rights, and it starts and stops cleanly."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.slurm_site import LAB

from fmlab.procs import Daemons, LabError, Process, alive, free_port, identify, stop_processes, wait_for
from fmlab.slurm import SlurmSite, slurm_down, slurm_up

pytestmark = pytest.mark.slurm


class Rest:
    """slurmrestd asked as one user, without any of our clients."""

    def __init__(self, site: SlurmSite, user: str) -> None:
        version = "v0.0.45" if site.suite == "sid" else "v0.0.42"
        self.base = f"{site.url}/slurm/{version}"
        self.headers = {"X-SLURM-USER-TOKEN": site.token(user)}
        self.site = site

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = self.headers if body is None else {**self.headers, "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        answer = httpx.request(method, f"{self.base}/{path}", headers=headers, content=content, timeout=30)
        return answer.status_code, answer.json()

    def node(self, name: str) -> dict[str, Any]:
        _, answer = self.call("GET", f"node/{name}")
        return answer["nodes"][0] if answer.get("nodes") else {"state": []}

    def submit(self, script: str = "true", **job: object) -> int:
        body = {
            "script": f"#!/bin/bash\n{script}\n",
            "job": {
                "name": "smoke",
                "partition": "main",
                "environment": ["PATH=/usr/bin:/bin"],
                "current_working_directory": "/tmp",
                "standard_output": str(self.site.jobs / "%j.out"),
                **job,
            },
        }
        status, answer = self.call("POST", "job/submit", body)
        assert status == 200, answer["errors"]
        return int(answer["job_id"])

    def job(self, job: int) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"job/{job}")[1]["jobs"][0]
        return found

    def state(self, job: int) -> list[str]:
        return list(self.job(job)["job_state"])

    def wait_state(self, job: int, state: str, seconds: float = 30) -> None:
        wait_for(lambda: self.state(job) == [state], seconds, f"job {job} to be {state}", poll_s=0.2)


def processes_of(*folders: Path) -> list[str]:
    """List every process that has one of the folders in its arguments or its environment."""
    needles = [str(folder) for folder in folders]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid() or identify(int(entry.name)) is None:
            continue
        try:
            arguments = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
            environment = (entry / "environ").read_text(errors="replace")
        except OSError:
            continue
        if any(needle in arguments or needle in environment for needle in needles):
            found.append(f"{entry.name} {arguments}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a cluster of the test's own, down at the end whatever happens."""
    place = tmp_path / "cluster"
    yield place
    slurm_down(place, purge=True)


# -- what runs --------------------------------------------------------------------------------------------------------


def test_the_newest_is_slurm_26_05(slurm_newest: SlurmSite) -> None:
    assert slurm_newest.version.startswith("26.05.")


def test_the_oldest_is_slurm_24_11(slurm_oldest: SlurmSite) -> None:
    assert slurm_oldest.version.startswith("24.11.")


def test_ping_answers_the_fleets_user(each_slurm: SlurmSite) -> None:
    status, answer = Rest(each_slurm, each_slurm.fleet_user).call("GET", "ping/")
    assert (status, answer["pings"][0]["responding"]) == (200, True)
    assert answer["meta"]["slurm"]["release"] == each_slurm.version


def test_an_expired_token_is_refused(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.fleet_user)
    rest.headers = {"X-SLURM-USER-TOKEN": each_slurm.token(each_slurm.fleet_user, ttl_s=-60)}
    assert rest.call("GET", "nodes/")[0] == 511


def test_finished_jobs_are_forgotten_after_15_seconds(each_slurm: SlurmSite) -> None:
    settings = each_slurm.run("scontrol", "show", "config")
    assert [line.split("=")[1].strip() for line in settings.splitlines() if "MinJobAge" in line] == ["15 sec"]


def test_every_node_has_8_gpus_and_is_in_the_default_partition(each_slurm: SlurmSite) -> None:
    said = each_slurm.run("sinfo", "-h", "-N", "-p", "main", "-O", "NodeList:10,Gres:20").split()
    assert {"gpu01", "gpu02", "dyn01", "dyn02"} <= set(said)
    assert set(said[1::2]) == {"gpu:h100:8"}


# -- rights -----------------------------------------------------------------------------------------------------------


def test_the_fleets_user_may_drain_a_node(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.fleet_user)
    assert rest.call("POST", "node/gpu02", {"state": ["DRAIN"], "reason": "smoke"})[0] == 200
    try:
        assert "DRAIN" in rest.node("gpu02")["state"]
        assert rest.node("gpu02")["reason_set_by_user"] == each_slurm.fleet_user
    finally:
        rest.call("POST", "node/gpu02", {"state": ["UNDRAIN"]})


def test_the_job_user_may_not_drain_a_node(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.job_user)
    status, answer = rest.call("POST", "node/gpu02", {"state": ["DRAIN"], "reason": "smoke"})
    assert status == {"sid": 422, "trixie": 500}[each_slurm.suite]
    assert answer["errors"][0]["error_number"] == 2010
    assert "DRAIN" not in rest.node("gpu02")["state"]


def test_a_job_of_the_job_user_runs_with_all_gpus_of_a_node(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.job_user)
    job = rest.submit('id -un; echo "$CUDA_VISIBLE_DEVICES"', tres_per_node="gres/gpu:8")
    rest.wait_state(job, "COMPLETED")
    assert (each_slurm.jobs / f"{job}.out").read_text() == f"{each_slurm.job_user}\n0,1,2,3,4,5,6,7\n"


def test_a_job_of_the_job_user_can_be_submitted_by_command_too(each_slurm: SlurmSite) -> None:
    output = each_slurm.jobs / "by-command.out"
    command = ["sbatch", "--parsable", "--wait", "--chdir=/tmp", f"--output={output}", "--wrap=id -un"]
    assert each_slurm.run(*command, user=each_slurm.job_user).strip().isdigit()
    assert output.read_text() == f"{each_slurm.job_user}\n"


def test_a_job_of_the_fleets_user_runs_in_the_burnin_partition(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.fleet_user)
    job = rest.submit("id -un", partition="burnin", required_nodes=["dyn01"])
    rest.wait_state(job, "COMPLETED")
    assert (each_slurm.jobs / f"{job}.out").read_text() == f"{each_slurm.fleet_user}\n"


def test_the_burnin_partition_runs_no_job_of_the_job_user(each_slurm: SlurmSite) -> None:
    rest = Rest(each_slurm, each_slurm.job_user)
    job = rest.submit(partition="burnin")
    try:
        wait_for(lambda: rest.job(job)["state_reason"] == "PartitionConfig", 15, "the job to be told why it waits")
    finally:
        rest.call("DELETE", f"job/{job}")


def test_who_has_no_association_can_submit_nothing(each_slurm: SlurmSite) -> None:
    with pytest.raises(AssertionError):
        Rest(each_slurm, "bin").submit()


def test_a_reservation_lets_the_fleets_job_in_and_the_users_job_wait(slurm_newest: SlurmSite) -> None:
    fleet, user = Rest(slurm_newest, slurm_newest.fleet_user), Rest(slurm_newest, slurm_newest.job_user)
    body = {
        "name": "smoke",
        "node_list": ["dyn02"],
        "users": [slurm_newest.fleet_user],
        "flags": ["MAINT", "IGNORE_JOBS"],
        "start_time": {"set": True, "number": int(time.time())},
        "duration": {"set": True, "infinite": True},
    }
    assert fleet.call("POST", "reservation", body)[0] == 200
    try:
        waiting = user.submit(required_nodes=["dyn02"])
        inside = fleet.submit(required_nodes=["dyn02"], reservation="smoke")
        fleet.wait_state(inside, "COMPLETED")
        assert user.state(waiting) == ["PENDING"]
    finally:
        assert fleet.call("DELETE", "reservation/smoke")[0] == 200
    user.wait_state(waiting, "COMPLETED")


# -- what the lab's machines need -------------------------------------------------------------------------------------


def start_slurmd(site: SlurmSite, name: str, hardware: str, conf: Path | None = None) -> Daemons:
    """Start a dynamic slurmd as the lab's metal does: born drained, saying which build it is."""
    said = f"NodeHostname={site.hostname} NodeAddr=127.0.0.1 Port={free_port()} {hardware} Gres=gpu:h100:8"
    command: list[str | Path] = [site.sbin / "slurmd", "-D", "-d", site.sbin / "slurmstepd", "-N", name, "-Z", "-b"]
    command += ["--instance-id", "4711", "--extra", "fm_build=b1"]
    command += ["--conf", f'{said} Feature=dynamic State=DRAIN Reason="born held"']
    daemons = Daemons(site.dir)
    daemons.start(f"slurmd-{name}", command, env=site.process_env | {"SLURM_CONF": str(conf or site.conf)})
    rest = Rest(site, site.fleet_user)
    daemons.wait_for(f"slurmd-{name}", lambda: "DRAIN" in rest.node(name)["state"], 30, f"{name} to register drained")
    return daemons


@pytest.fixture
def machine(each_slurm: SlurmSite, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a node of the test's own, out of SLURM at the end."""
    name = "metal01"
    yield name
    Daemons(each_slurm.dir).stop(f"slurmd-{name}")
    Rest(each_slurm, each_slurm.fleet_user).call("DELETE", f"node/{name}")


def test_a_machine_is_born_drained_and_says_which_build_it_is(each_slurm: SlurmSite, machine: str) -> None:
    start_slurmd(each_slurm, machine, each_slurm.hardware)
    node = Rest(each_slurm, each_slurm.fleet_user).node(machine)
    assert set(node["state"]) == {"IDLE", "DRAIN", "DYNAMIC_NORM"}
    assert (node["reason"], node["instance_id"], node["extra"]) == ("born held", "4711", "fm_build=b1")


def test_a_machine_that_misses_a_gpu_is_refused_by_slurm(each_slurm: SlurmSite, machine: str) -> None:
    start_slurmd(each_slurm, machine, each_slurm.hardware, each_slurm.conf_with_gpus(7))
    node = Rest(each_slurm, each_slurm.fleet_user).node(machine)
    assert "INVALID_REG" in node["state"]
    assert node["reason"] == "gres/gpu count reported lower than configured (7 < 8)"


@pytest.fixture(scope="module")
def strict_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    place = tmp_path_factory.mktemp("strict") / "cluster"
    try:
        yield slurm_up(place, strict=True)
    finally:
        slurm_down(place, purge=True)


def test_the_strict_profile_refuses_memory_that_is_not_there(strict_site: SlurmSite) -> None:
    start_slurmd(strict_site, "metal02", "CPUs=1 RealMemory=90000000")
    node = Rest(strict_site, strict_site.fleet_user).node("metal02")
    assert "INVALID_REG" in node["state"]
    assert node["reason"].startswith("Low RealMemory (reported:")


def test_the_strict_profile_believes_the_cpus_that_a_dynamic_node_claims(strict_site: SlurmSite) -> None:
    start_slurmd(strict_site, "metal03", "CPUs=999 RealMemory=1000")
    node = Rest(strict_site, strict_site.fleet_user).node("metal03")
    assert ("INVALID_REG" in node["state"], node["cpus"]) == (False, 999)


def test_a_machine_that_claims_nothing_reports_the_cpus_it_has(strict_site: SlurmSite) -> None:
    start_slurmd(strict_site, "metal04", "")
    assert Rest(strict_site, strict_site.fleet_user).node("metal04")["cpus"] == os.cpu_count()


# -- start and stop ---------------------------------------------------------------------------------------------------


def test_nothing_is_left_after_down_not_even_a_job_that_hides(folder: Path) -> None:
    site = slurm_up(folder, static=1)
    rest = Rest(site, site.job_user)
    job = rest.submit("(setsid nohup sleep 4711 & echo $! >&3) 3>&1\nsleep 4711")
    output = site.jobs / f"{job}.out"
    wait_for(lambda: output.exists() and output.read_text().strip(), 30, "the job to start its child")
    hidden = identify(int(output.read_text()))
    assert hidden is not None

    slurm_down(folder)

    assert not alive(hidden)
    assert processes_of(folder, site.places.public) == []
    assert not site.places.public.exists()


def test_a_second_up_returns_the_running_cluster(folder: Path) -> None:
    site = slurm_up(folder, dynamic=1)
    before = {name: Daemons(folder).process(name) for name in Daemons(folder).names()}
    assert slurm_up(folder, dynamic=1) == site
    assert {name: Daemons(folder).process(name) for name in Daemons(folder).names()} == before


def test_a_restart_keeps_ports_rights_and_drains_and_downloads_nothing(folder: Path) -> None:
    site = slurm_up(folder, static=1)
    site.run("scontrol", "update", "nodename=gpu01", "state=drain", "reason=keep me")
    slurm_down(folder)
    said: list[str] = []

    again = slurm_up(folder, static=1, say=said.append)

    assert (again.url, again.places.prefix, said) == (site.url, site.places.prefix, [])
    rest = Rest(again, again.fleet_user)
    assert rest.node("gpu01")["reason"] == "keep me"
    assert rest.call("POST", "node/gpu01", {"state": ["UNDRAIN"]})[0] == 200


def test_a_half_dead_cluster_is_started_anew(folder: Path) -> None:
    slurm_up(folder, static=1)
    daemons = Daemons(folder)
    victim, survivor = daemons.process("slurmctld"), daemons.process("slurmdbd")
    assert victim is not None
    assert survivor is not None
    os.kill(victim.pid, signal.SIGKILL)
    wait_for(lambda: not alive(victim), 5, "slurmctld to die")

    site = slurm_up(folder, static=1)

    assert not alive(survivor)
    assert Rest(site, site.fleet_user).call("GET", "ping/")[1]["pings"][0]["responding"]


def test_a_cluster_that_was_killed_whole_comes_back_with_its_rights(folder: Path) -> None:
    slurm_up(folder, static=1)
    daemons = Daemons(folder)
    stop_processes([process for name in daemons.names() if (process := daemons.process(name))], patience_s=0)

    site = slurm_up(folder, static=1)

    rest = Rest(site, site.fleet_user)
    assert rest.call("POST", "node/gpu01", {"state": ["DRAIN"], "reason": "smoke"})[0] == 200
    assert rest.node("gpu01")["reason"] == "smoke"


def test_another_suite_in_the_same_folder_is_refused(folder: Path) -> None:
    slurm_up(folder)
    with pytest.raises(LabError, match="holds a cluster of sid, not trixie"):
        slurm_up(folder, suite="trixie")


def test_clusters_run_beside_each_other(folder: Path, slurm_newest: SlurmSite, slurm_oldest: SlurmSite) -> None:
    mine = slurm_up(folder, static=1)
    jobs = [
        (rest := Rest(site, site.job_user), rest.submit('echo "$SLURM_CONF"'))
        for site in (mine, slurm_newest, slurm_oldest)
    ]
    for rest, job in jobs:
        rest.wait_state(job, "COMPLETED")
        assert (rest.site.jobs / f"{job}.out").read_text() == f"{rest.site.conf}\n"
    slurm_down(folder)
    assert slurm_newest.run("sinfo", "-h", "-o", "%T", "-n", "gpu01").strip() == "idle"


def begin_up(folder: Path) -> tuple[subprocess.Popen[bytes], Process]:
    """Run `up` in a process of its own until the first daemons run."""
    command = [sys.executable, "-m", "fmlab.slurm", "up", folder, "--static", "1"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(LAB)}, stdout=subprocess.DEVNULL)
    daemons = Daemons(folder)
    wait_for(lambda: daemons.alive("mariadbd"), 60, "the database to start")
    database = daemons.process("mariadbd")
    assert database is not None
    return process, database


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    process, database = begin_up(folder)
    process.send_signal(number)
    assert process.wait(30) != 0
    assert not alive(database)
    assert processes_of(folder) == []


def test_down_cleans_up_after_an_up_that_was_killed(folder: Path) -> None:
    process, database = begin_up(folder)
    process.kill()
    process.wait(30)
    assert alive(database)
    slurm_down(folder)
    assert processes_of(folder) == []


def test_up_goes_on_after_an_up_that_was_killed(folder: Path) -> None:
    process, database = begin_up(folder)
    process.kill()
    process.wait(30)
    site = slurm_up(folder, static=1)
    assert not alive(database)
    assert site.run("sinfo", "-h", "-o", "%T").strip() == "idle"
