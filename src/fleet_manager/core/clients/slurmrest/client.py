"""The client of slurmrestd: everything that we ask of SLURM over REST, for SLURM 23.11 to 26.05.

    async with SlurmRestClient(settings, resolve=onepassword.resolve) as slurm:
        node = await slurm.node("gpu-001")

Returns domain models and raises our errors; no httpx type and no raw answer leaves this package. Decides nothing: who
may drain what is the domain's. Reads may be repeated inside, writes never are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest.caller import Caller
from fleet_manager.core.clients.slurmrest.cluster import ClusterCalls
from fleet_manager.core.clients.slurmrest.jobs import JobCalls
from fleet_manager.core.clients.slurmrest.token import SlurmToken, token_source
from fleet_manager.core.clients.slurmrest.transport import Transport
from fleet_manager.settings.clients.slurm import SlurmSettings


def _now() -> datetime:
    return datetime.now(UTC)


async def _no_onepassword(reference: str) -> str:
    raise BadRequest(f"no 1Password client was given to read {reference}", peer="token")


class SlurmRestClient(JobCalls, ClusterCalls):
    """Implements `SlurmClient` and `NodeReader` of `protocol.py`, which say what each method returns and raises."""

    def __init__(
        self,
        settings: SlurmSettings,
        *,
        resolve: Callable[[str], Awaitable[str]] = _no_onepassword,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Make a client that has not connected yet.

        Args:
            settings: where slurmrestd is, and where its token is.
            resolve: reads an `op://` reference, such as `OnePassword.resolve`.
            clock: the present time, aware.
        """
        self._clock = clock
        self._transport = Transport(settings)
        source = token_source(settings.jwt_op_item, resolve)
        self._token = SlurmToken(source, clock=clock, refresh_before=settings.token_refresh_before)
        self._api = Caller(self._transport, self._token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    @property
    def token(self) -> SlurmToken:
        """The token's holder, for its `seconds_to_expiry`; it shows the token to nobody."""
        return self._token
