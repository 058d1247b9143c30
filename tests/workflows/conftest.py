"""A fake site with its worker for each test, on each Temporal server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from temporalio.testing import WorkflowEnvironment
from tests.fakes.site import FakeSite
from tests.workflows.harness import Bench, bench


@pytest.fixture
async def site(temporal: WorkflowEnvironment) -> FakeSite:
    """A fake site whose clock agrees with the server's, which the skipping one has moved ahead."""
    ahead = await temporal.get_current_time() - datetime.now(UTC)
    return FakeSite(now=lambda: datetime.now(UTC) + ahead)


@pytest.fixture
async def at(temporal: WorkflowEnvironment, site: FakeSite) -> AsyncIterator[Bench]:
    """The site with its worker."""
    async with bench(temporal.client, site) as one:
        yield one
