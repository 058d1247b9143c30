"""A client against a server that answers as the test says: the fixtures `talk` and `clock`."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.clients.slurmrest.server import OPENAPI_26_05, Handler, Reply, Request, Server, running

from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.settings.clients.slurm import SlurmSettings

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    """The time, as the test says."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **kinds: float) -> None:
        self.now += timedelta(**kinds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


Talk = Callable[..., AbstractAsyncContextManager[tuple[SlurmRestClient, Server]]]


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Return a context manager: handler, settings -> client and server.

    The handler need not answer for /openapi/v3: a 26.05 with v0.0.45 does, unless `document` is another one.
    """
    monkeypatch.setenv("TEST_TOKEN", "the.test.token")

    @contextlib.asynccontextmanager
    async def connect(
        handler: Handler | Reply,
        *,
        document: Any = OPENAPI_26_05,
        client: dict[str, Any] | None = None,
        prefix: str = "",
        **settings: Any,
    ) -> AsyncIterator[tuple[SlurmRestClient, Server]]:
        def handle(request: Request) -> Any:
            if request.path == "/openapi/v3" and document is not None:
                return Reply(200, document)
            return handler if isinstance(handler, Reply) else handler(request)

        async with running(handle) as server:
            given = {"url": server.url + prefix, "jwt_op_item": "env://TEST_TOKEN", **settings}
            # request_timeout past the validator: these tests wait for one that no site may set
            checked = SlurmSettings(**{key: value for key, value in given.items() if key != "request_timeout"})
            checked = checked.model_copy(update={key: given[key] for key in ("request_timeout",) if key in given})
            async with SlurmRestClient(checked, **(client or {})) as slurm:
                yield slurm, server

    return connect
