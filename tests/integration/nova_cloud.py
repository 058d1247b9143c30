"""The session's real Nova: a pytest plugin with the fixture `nova_cloud`.

Brought up from nothing by the test session itself (a minute the first time on a machine, 7 s afterwards) and taken down
with it. A cloud that cannot be had is an error that says why, never a skip.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmlab
from fmlab.nova import NovaCloud, nova_down, nova_up
from fmlab.procs import guarded

HOSTS = tuple(f"device-{n}" for n in range(1, 9))
LAB = Path(next(iter(fmlab.__path__))).parent


@pytest.fixture(scope="session")
def nova_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NovaCloud]:
    """A cloud with a compute host for each of eight devices; tests give their servers names of their own."""
    folder = tmp_path_factory.mktemp("nova")
    clean_up = [sys.executable, "-m", "fmlab.nova", "down", folder]
    with guarded(clean_up, env={**os.environ, "PYTHONPATH": str(LAB)}):
        try:
            yield nova_up(folder, hosts=HOSTS)
        finally:
            nova_down(folder)
