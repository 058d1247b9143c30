"""The layers' contract can fail: planted in a copy of the house, a forbidden import is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--config", folder / "pyproject.toml", "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    shutil.copytree(TOP / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_house_as_it_is_keeps_its_layers(house: Path) -> None:
    done = lint(house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("core/domain/slurm_node.py", "import httpx", "The domain knows no I/O"),
        ("core/clients/watch.py", "import temporalio", "The core and the settings know nothing of Temporal"),
        ("cli/devices.py", "import fleet_manager.temporal.workflows.adopt", "import contracts, never a workflow"),
        ("temporal/activities/hub.py", "import httpx", "Only the clients speak HTTP"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(house: Path, file: str, line: str, contract: str) -> None:
    path = house / "src" / "fleet_manager" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint(house)
    assert done.returncode == 1
    assert any(contract in row and "BROKEN" in row for row in done.stdout.splitlines())
