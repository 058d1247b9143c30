"""The session's real Nova: a pytest plugin with the fixture `nova_cloud`.

Brought up from nothing by the test session itself (a minute the first time on a machine, 7 s afterwards) and taken down
with it. A cloud that cannot be had is an error that says why, never a skip.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fmlab.nova import NovaCloud, nova_down, nova_up

HOSTS = tuple(f"device-{n}" for n in range(1, 9))


@pytest.fixture(scope="session")
def nova_cloud() -> Iterator[NovaCloud]:
    """A cloud with a compute host for each of eight devices; tests give their servers names of their own."""
    with TemporaryDirectory(prefix="fm-nova-") as name:
        folder = Path(name)
        try:
            yield nova_up(folder, hosts=HOSTS)
        finally:
            nova_down(folder, purge=True)
