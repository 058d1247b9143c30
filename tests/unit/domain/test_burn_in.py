"""Burn-in jobs as they are sent, the smoke script under a real bash, and what their ends mean (case 041)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet_manager.core.domain.burn_in import (
    SMOKE,
    SMOKE_SCRIPT,
    SUITES,
    BurnInPlace,
    SuiteJob,
    Verdict,
    evidence,
    job_name,
    job_spec,
    suite,
    verdict_of,
)
from fleet_manager.core.domain.slurm_job import JobEnd, SlurmJob, judge

PLACE = BurnInPlace(node="gpu-001", partition="burnin", reservation="fm_gpu-001", gres="gpu:h100:8", build_id="0190-b1")
JOB = SMOKE.jobs[0]


# -- the job


def test_a_burn_in_job_runs_on_the_node_alone_with_all_its_gpus_inside_the_reservation() -> None:
    spec = job_spec(PLACE, JOB, 1)
    assert spec.required_nodes == ("gpu-001",)
    assert spec.exclusive
    assert spec.tres_per_node == "gres/gpu:8"  # gpu:8 is refused by slurmctld
    assert spec.reservation == "fm_gpu-001"
    assert spec.partition == "burnin"
    assert not spec.requeue  # a second try would hide that the first one failed


def test_a_burn_in_job_carries_its_whole_environment_script_and_limit() -> None:
    spec = job_spec(PLACE.model_copy(update={"path": "/opt/nv/bin:/usr/bin", "account": "hpc"}), JOB, 1)
    assert spec.environment == ("PATH=/opt/nv/bin:/usr/bin", "FM_GPUS=8")
    assert spec.script == SMOKE_SCRIPT
    assert spec.time_limit_minutes == 10
    assert spec.current_working_directory == "/tmp"
    assert spec.standard_output == "/tmp/smoke-%j.out"
    assert spec.account == "hpc"


@pytest.mark.parametrize(
    ("gres", "gpus", "tres"),
    [
        ("gpu:h100:8", 8, "gres/gpu:8"),
        ("gpu:8", 8, "gres/gpu:8"),
        ("gpu:h100:4(S:0),gpu:a100:4(S:1)", 8, "gres/gpu:8"),
        ("nic:2,gpu:h100:1", 1, "gres/gpu:1"),
        ("nic:2", 0, None),
        ("", 0, None),
    ],
)
def test_the_gpus_asked_for_are_those_of_the_configuration(gres: str, gpus: int, tres: str | None) -> None:
    spec = job_spec(PLACE.model_copy(update={"gres": gres}), JOB, 1)
    assert spec.tres_per_node == tres
    assert f"FM_GPUS={gpus}" in spec.environment


def test_a_burn_in_job_is_found_again_by_a_name_of_its_own() -> None:
    assert job_name(PLACE, JOB, 1) == "fm-burnin-smoke-0190-b1-1"
    assert job_spec(PLACE, JOB, 1).name == job_name(PLACE, JOB, 1)
    other_build = PLACE.model_copy(update={"build_id": "0190-b2"})
    names = {job_name(PLACE, JOB, 1), job_name(PLACE, JOB, 2), job_name(other_build, JOB, 1)}
    assert len(names) == 3


def test_the_comment_tells_people_what_the_job_is() -> None:
    assert job_spec(PLACE, JOB, 1).comment == "fleet-manager burn-in of gpu-001, build 0190-b1"


# -- suites


def test_every_suite_has_a_job_with_a_limit_and_a_script_that_bash_accepts(tmp_path: Path) -> None:
    for one in SUITES.values():
        assert one.jobs, one.name
        for job in one.jobs:
            assert job.time_limit_minutes > 0
            assert job.script.startswith("#!/bin/bash\n")
            script = tmp_path / job.name
            script.write_text(job.script)
            assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_an_unknown_suite_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"burn-in suite 'smok' does not exist; allowed: smoke"):
        suite("smok")
    assert suite("smoke") is SMOKE


def test_every_exit_code_that_the_smoke_script_uses_has_a_meaning() -> None:
    assert set(JOB.exit_meanings) == {int(code) for code in re.findall(r"exit (\d+)", SMOKE_SCRIPT)}


# -- the smoke script, really run


class Machine:
    """A node's PATH with nothing but what the script needs, and an nvidia-smi that says what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("bash", "tr", "grep", "awk", "cat"):
            found = shutil.which(tool)
            assert found, f"this test needs {tool}: apt-get install -y bash coreutils grep mawk"
            (self.bin / tool).symlink_to(Path(found).resolve())
        self.script = folder / "smoke.sh"
        self.script.write_text(SMOKE_SCRIPT)
        self.asked = folder / "asked"

    def nvidia_smi(self, *rows: str, exit_code: int = 0) -> None:
        program = self.bin / "nvidia-smi"
        said = "\n".join(rows)
        text = f"#!{self.bin}/bash\necho \"$*\" > {self.asked}\ncat <<'EOF'\n{said}\nEOF\nexit {exit_code}\n"
        program.write_text(text if rows else text.replace("cat <<'EOF'\n\nEOF\n", ""))
        program.chmod(0o755)

    def run(self, *, want: str | None = "8", given: str | None = "0,1,2,3,4,5,6,7") -> tuple[int, str]:
        env = {"PATH": str(self.bin)}
        if want is not None:
            env["FM_GPUS"] = want
        if given is not None:
            env["CUDA_VISIBLE_DEVICES"] = given
        done = subprocess.run(
            [self.bin / "bash", self.script], env=env, capture_output=True, text=True, timeout=30, check=False
        )
        return done.returncode, done.stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def gpus(count: int, errors: str = "0") -> list[str]:
    return [f"GPU-5f1c0000-0000-0000-0000-{n:012x}, {errors}" for n in range(count)]


def test_eight_healthy_gpus_pass(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8))
    assert machine.run() == (0, "burn-in smoke: 8 of 8 GPUs answer, no uncorrected memory error")


def test_the_driver_is_asked_for_uuid_and_memory_errors(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8))
    machine.run()
    asked = machine.asked.read_text().split()
    assert asked == ["--query-gpu=uuid,ecc.errors.uncorrected.volatile.total", "--format=csv,noheader"]


@pytest.mark.parametrize("without_ecc", ["[N/A]", "N/A", "[Not Supported]"])
def test_gpus_without_memory_error_counters_pass(machine: Machine, without_ecc: str) -> None:
    machine.nvidia_smi(*gpus(8, without_ecc))
    assert machine.run()[0] == 0


def test_mig_slices_and_uuids_in_cuda_visible_devices_count(machine: Machine) -> None:
    machine.nvidia_smi("MIG-5f1c0000-0000-0000-0000-000000000001, 0", "MIG-5f1c0000-0000-0000-0000-000000000002, 0")
    given = "MIG-5f1c0000-0000-0000-0000-000000000001,MIG-5f1c0000-0000-0000-0000-000000000002"
    assert machine.run(want="2", given=given)[0] == 0


def test_more_gpus_in_the_machine_than_slurm_promises_do_no_harm(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8))
    assert machine.run(want="4", given="0,1,2,3")[0] == 0


@pytest.mark.parametrize(
    ("given", "count"), [(None, 0), ("", 0), ("0,1,2,3,4,5,6", 7), ("0", 1), ("0,1,2,3,4,5,6,7,8", 9)]
)
def test_20_when_slurm_gives_another_number_of_gpus(machine: Machine, given: str | None, count: int) -> None:
    machine.nvidia_smi(*gpus(8))
    assert machine.run(given=given) == (20, f"SLURM gave {count} of 8 GPUs")


def test_21_when_there_is_no_nvidia_smi(machine: Machine) -> None:
    assert machine.run() == (21, "nvidia-smi is not on this node's PATH")


def test_22_when_nvidia_smi_fails(machine: Machine) -> None:
    said = "Unable to determine the device handle for GPU 0000:07:00.0: GPU is lost."
    machine.nvidia_smi(said, exit_code=15)
    assert machine.run() == (22, f"nvidia-smi fails: {said}")


def test_22_although_all_gpus_were_listed_before_it_failed(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8), exit_code=1)
    assert machine.run()[0] == 22


@pytest.mark.parametrize(("rows", "alive"), [(gpus(7), 7), ([], 0), (["No devices were found"], 0)])
def test_23_when_fewer_gpus_answer(machine: Machine, rows: list[str], alive: int) -> None:
    machine.nvidia_smi(*rows)
    assert machine.run() == (23, f"{alive} of 8 GPUs answer")


@pytest.mark.parametrize(
    "row", ["[Unknown Error], 0", "ERR!, ERR!", "GPU-5f1c0000-0000-0000-0000-000000000007, [GPU requires reset]"]
)
def test_23_when_one_row_is_no_answer(machine: Machine, row: str) -> None:
    machine.nvidia_smi(*gpus(7), row)
    assert machine.run() == (23, "7 of 8 GPUs answer")


def test_24_when_a_gpu_has_uncorrected_memory_errors(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(6), *gpus(2, "3"))
    assert machine.run() == (24, "6 uncorrected memory errors")


def test_without_the_number_of_gpus_the_script_does_not_pass(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8))
    assert machine.run(want=None)[0] not in {0, *JOB.exit_meanings}
    assert machine.run(want="eight")[0] != 0


def test_the_script_needs_nothing_of_the_environment_but_what_the_job_sends(machine: Machine) -> None:
    machine.nvidia_smi(*gpus(8))
    sent = {word.partition("=")[0] for word in job_spec(PLACE, JOB, 1).environment}
    assert sent == {"PATH", "FM_GPUS"}  # CUDA_VISIBLE_DEVICES is slurmd's own
    assert os.environ.get("FM_GPUS") is None
    assert machine.run()[0] == 0


# -- what an end means


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        (JobEnd.PASSED, Verdict.PASS),
        (JobEnd.FAILED, Verdict.FAIL),
        (JobEnd.INFRASTRUCTURE, Verdict.INFRASTRUCTURE),
        (JobEnd.NEVER_STARTED, Verdict.NEVER_STARTED),
        (JobEnd.CANCELLED, Verdict.INFRASTRUCTURE),  # by somebody's hand: it says nothing of the machine
    ],
)
def test_each_end_has_a_verdict_and_only_a_pass_opens(end: JobEnd, verdict: Verdict) -> None:
    assert verdict_of(end) is verdict
    assert (verdict_of(end) is Verdict.PASS) is (end is JobEnd.PASSED)


def test_every_end_has_a_verdict() -> None:
    assert {verdict_of(end) for end in JobEnd} == set(Verdict)


def ended(state: str, **facts: object) -> SlurmJob:
    return SlurmJob(id=42, name="x", states=frozenset({state}), nodes=("gpu-001",), **facts)


def told(job: SlurmJob, of: SuiteJob = JOB) -> str:
    verdict = judge(job)
    assert verdict.end
    return evidence(of, job.id, verdict.end, verdict.why, job.return_code)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (20, "SLURM gave the job fewer GPUs than the node has"),
        (21, "nvidia-smi is not on the node's PATH"),
        (22, "nvidia-smi fails on the node"),
        (23, "fewer GPUs answer nvidia-smi than the node has"),
        (24, "a GPU reports uncorrected memory errors"),
    ],
)
@pytest.mark.parametrize("reason", ["NonZeroExitCode", ""])
def test_an_exit_code_is_told_in_words(code: int, meaning: str, reason: str) -> None:
    assert told(ended("FAILED", return_code=code, state_reason=reason)) == f"job 42 (smoke) failed: {meaning}"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (ended("COMPLETED", return_code=0), "job 42 (smoke) passed: completed with exit code 0"),
        (ended("FAILED", return_code=9), "job 42 (smoke) failed: FAILED: exit code 9"),
        (ended("FAILED", signal=11), "job 42 (smoke) failed: FAILED: exit code signal 11"),
        (ended("NODE_FAIL"), "job 42 (smoke) infrastructure: NODE_FAIL: its node failed under it"),
    ],
)
def test_what_has_no_meaning_of_its_own_is_told_as_slurm_tells_it(job: SlurmJob, words: str) -> None:
    assert told(job) == words


@pytest.mark.parametrize("code", [0, 20, 24, None])
def test_a_job_that_timed_out_is_told_as_that_whatever_code_it_left(code: int | None) -> None:
    words = told(ended("TIMEOUT", return_code=code))
    assert words == "job 42 (smoke) failed: TIMEOUT: did not end within its time limit"


def test_a_job_out_of_memory_is_told_as_that_whatever_code_it_left() -> None:
    assert told(ended("OUT_OF_MEMORY", return_code=22)) == "job 42 (smoke) failed: OUT_OF_MEMORY: ran out of memory"
