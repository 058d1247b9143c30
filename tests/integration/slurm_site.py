"""The session's real SLURM clusters: a pytest plugin with the fixtures `slurm_newest`, `slurm_oldest` and `each_slurm`.

Each is brought up from nothing on first use (10 s the first time on a machine, 2 to 4 s afterwards) and taken down with
the session, also when that is interrupted or killed. A cluster that cannot be had is an error that says why, never a
skip. The clusters are shared: a test gives its jobs, reservations and further nodes names of their own and leaves the
four nodes as it found them.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmlab
from fmlab.procs import guarded
from fmlab.slurm import SlurmSite, slurm_down, slurm_up

LAB = Path(next(iter(fmlab.__path__))).parent


def _cluster(folder: Path, suite: str) -> Iterator[SlurmSite]:
    """Run a cluster; its logs stay where pytest keeps the files of its last runs."""
    clean_up = [sys.executable, "-m", "fmlab.slurm", "down", folder]
    with guarded(clean_up, env={**os.environ, "PYTHONPATH": str(LAB)}):
        try:
            yield slurm_up(folder, suite=suite, static=2, dynamic=2)
        finally:
            slurm_down(folder)
            shutil.rmtree(folder / "state", ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    """The newest SLURM that can be had, 26.05: nodes gpu01, gpu02 (static), dyn01, dyn02 (dynamic)."""
    yield from _cluster(tmp_path_factory.mktemp("slurm-sid"), "sid")


@pytest.fixture(scope="session")
def slurm_oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    """The oldest SLURM that we serve, 24.11, with the same four nodes."""
    yield from _cluster(tmp_path_factory.mktemp("slurm-trixie"), "trixie")


@pytest.fixture(params=["slurm_newest", "slurm_oldest"])
def each_slurm(request: pytest.FixtureRequest) -> SlurmSite:
    """Both of them, one after the other."""
    site: SlurmSite = request.getfixturevalue(request.param)
    return site
