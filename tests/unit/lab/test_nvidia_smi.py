"""The lab's nvidia-smi answers a burn-in's questions, and fails where a GPU is broken."""

import subprocess
from pathlib import Path

import pytest

from fmlab.nvidia_smi import NvidiaSmi

ECC = "ecc.errors.uncorrected.volatile.total"


@pytest.fixture
def smi(tmp_path: Path) -> NvidiaSmi:
    made = NvidiaSmi(tmp_path / "metal")
    made.install()
    made.describe("n1", gpus=8, healthy=True)
    return made


def ask(smi: NvidiaSmi, *arguments: str, node: str = "n1") -> subprocess.CompletedProcess[str]:
    env = {"SLURMD_NODENAME": node, "PATH": "/usr/bin:/bin"}
    return subprocess.run([smi.bin / "nvidia-smi", *arguments], env=env, capture_output=True, text=True, check=False)


def test_a_query_gives_a_line_a_gpu(smi: NvidiaSmi) -> None:
    said = ask(smi, f"--query-gpu=uuid,name,{ECC}", "--format=csv,noheader")
    lines = [line.split(", ") for line in said.stdout.splitlines()]
    assert said.returncode == 0
    assert [line[1:] for line in lines] == [["NVIDIA H100 80GB HBM3", "0"]] * 8
    assert len({line[0] for line in lines}) == 8


def test_a_list_names_each_gpu(smi: NvidiaSmi) -> None:
    lines = ask(smi, "-L").stdout.splitlines()
    assert len(lines) == 8
    assert lines[7].startswith("GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-")


def test_a_missing_gpu_is_missing(smi: NvidiaSmi) -> None:
    smi.describe("n1", gpus=7, healthy=True)
    assert len(ask(smi, "-L").stdout.splitlines()) == 7


def test_a_broken_gpu_is_an_err_and_exit_code_1(smi: NvidiaSmi) -> None:
    smi.describe("n1", gpus=8, healthy=False)
    said = ask(smi, "-L")
    assert (said.returncode, said.stdout) == (1, "ERR!\n")


def test_an_unknown_field_is_refused(smi: NvidiaSmi) -> None:
    said = ask(smi, "--query-gpu=uuid,colour", "--format=csv,noheader")
    assert said.returncode == 2
    assert 'Field "colour" is not a valid field' in said.stderr


def test_another_computer_has_no_driver(smi: NvidiaSmi) -> None:
    assert ask(smi, "-L", node="elsewhere").returncode == 9


def test_every_user_may_run_it(smi: NvidiaSmi) -> None:
    assert (smi.bin / "nvidia-smi").stat().st_mode & 0o777 == 0o755
    assert smi.bin.stat().st_mode & 0o005 == 0o005
