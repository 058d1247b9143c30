"""The command line tells what an operator can mend in a line, and ends with a code that scripts can use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def cli(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet_manager.cli.main", *arguments],
        env={"PATH": os.defpath, "LANG": "C.UTF-8", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


NOBODY = {"FLEET_TEMPORAL__ADDRESS": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("adopt", "gpu-001", "--site", "lab", "--burn-in", "smok"), 2, "allowed: smoke"),
        (("adopt", "gpu 1", "--site", "lab"), 2, "'gpu 1' is not a name"),
        (("adopt", "gpu-001", "--site", "lab"), 1, "Temporal does not answer at 127.0.0.1:1"),
        (("temporal", "bootstrap"), 1, "FLEET_TEMPORAL__ADDRESS"),
        (("devices", "list", "--site", "lab"), 2, "FLEET_MANAGER__URL: Field required"),
        (("worker", "run"), 2, "FLEET_SITE__ID: Field required"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = cli(*arguments, **NOBODY)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr
