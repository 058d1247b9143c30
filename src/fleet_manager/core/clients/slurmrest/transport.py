"""One HTTP exchange with slurmrestd: connections, time-outs and headers, and httpx's errors turned into ours.

Knows nothing of SLURM's answers. Never retries a write; repeats a read once if a kept-alive connection was gone.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from fleet_manager.core.clients.errors import BadRequest, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.slurmrest.errors import PEER, AnswerLost
from fleet_manager.settings.clients.slurm import SlurmSettings

JSON = "application/json"
"""Exactly this: with a charset behind it 24.11 says 400 and 26.05 says 415."""

KEEP_ALIVE_SECONDS = 60.0
"""How long an idle connection is kept. slurmrestd never closes one; each counts against its 124."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body as they came."""

    status: int
    is_json: bool
    body: bytes

    @property
    def text(self) -> str:
        return self.body[:500].decode("utf-8", "replace").strip()


class Transport:
    """The connections to one slurmrestd, never more than `pool_size`."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._base = str(settings.url).rstrip("/")
        self._slots = asyncio.Semaphore(settings.pool_size)
        seconds = settings.request_timeout.total_seconds()
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(seconds, connect=settings.connect_timeout.total_seconds(), pool=None),
            limits=httpx.Limits(
                max_connections=settings.pool_size,
                max_keepalive_connections=settings.pool_size,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
            verify=_trust(settings),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    def address(self, path: str) -> str:
        return self._base + path

    async def send(
        self, method: str, path: str, token: str, *, body: bytes | None = None, query: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request and return the answer, whatever its status.

        Raises:
            Unavailable: nothing was sent: no connection, or no free one in `pool_timeout`.
            UnavailableTimeout: it was sent and not answered in `request_timeout`.
            AnswerLost: a write was sent and the connection broke.
        """
        try:
            async with asyncio.timeout(self._settings.pool_timeout.total_seconds()):
                await self._slots.acquire()
        except TimeoutError as error:
            raise self._error(Unavailable, "no free connection: not sent", method, path) from error
        try:
            async with asyncio.timeout(self._settings.request_timeout.total_seconds()):
                return await self._exchange(method, path, token, body, query)
        except TimeoutError as error:
            seconds = self._settings.request_timeout.total_seconds()
            raise self._error(UnavailableTimeout, f"no answer in {seconds:.0f} s", method, path) from error
        finally:
            self._slots.release()

    async def _exchange(
        self, method: str, path: str, token: str, body: bytes | None, query: Mapping[str, str] | None
    ) -> Answer:
        tries = 2 if method == "GET" else 1
        while True:
            tries -= 1
            try:
                return await self._once(method, path, token, body, query)
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if isinstance(error, httpx.ConnectError) or not tries:
                    raise self._translated(error, method, path) from error
            except httpx.HTTPError as error:
                raise self._translated(error, method, path) from error

    async def _once(
        self, method: str, path: str, token: str, body: bytes | None, query: Mapping[str, str] | None
    ) -> Answer:
        headers = {"X-SLURM-USER-TOKEN": token, "Accept": f"{JSON}, */*"}
        if self._settings.user_name:
            headers["X-SLURM-USER-NAME"] = self._settings.user_name
        if body is not None:
            headers["Content-Type"] = JSON
        answer = await self._http.request(method, self._base + path, content=body, headers=headers, params=query)
        kind = answer.headers.get("content-type", "").split(";")[0].strip().lower()
        return Answer(answer.status_code, kind == JSON, answer.content)

    def _translated(self, error: httpx.HTTPError, method: str, path: str) -> Unavailable:
        kind = type(error).__name__
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            return self._error(Unavailable, f"no connection ({kind}): not sent", method, path)
        if isinstance(error, httpx.TimeoutException):
            seconds = self._settings.request_timeout.total_seconds()
            return self._error(UnavailableTimeout, f"no answer in {seconds:.0f} s", method, path)
        if method == "GET":
            return self._error(Unavailable, f"no readable answer ({kind})", method, path)
        return self._error(AnswerLost, f"no readable answer ({kind}): it may have been carried out", method, path)

    def _error(self, kind: type[Unavailable], text: str, method: str, path: str) -> Unavailable:
        return kind(text, peer=PEER, method=method, url=self.address(path))


def _trust(settings: SlurmSettings) -> ssl.SSLContext | bool:
    if settings.url.scheme != "https":
        return False
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise BadRequest(f"the certificates {settings.ca_file} cannot be read", peer=PEER) from error
