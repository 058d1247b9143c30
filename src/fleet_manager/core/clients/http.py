"""One way to speak to the hub over HTTP: status to our error class, texts cut, httpx's exceptions kept inside.

Reads are tried again when the peer could not answer; writes never are, because Temporal does that and looks first. No
body of an answer reaches an error: only the sentence of an RFC 9457 problem does.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import BaseModel, ValidationError

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    IncompatibleServer,
    NotFound,
    Unavailable,
    UnavailableTimeout,
)
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_SENTENCE = 300
"""Characters kept of what the peer says; the rest of the 500 are for where it was said."""

LONGEST_PAUSE_S = 5.0
"""The most a read waits between two tries; beyond it, the caller's own retry is better."""

_CLASSES: Mapping[int, type[ClientError]] = {
    HTTPStatus.UNAUTHORIZED: AuthRejected,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.GONE: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.PRECONDITION_FAILED: Conflict,
    HTTPStatus.REQUEST_TIMEOUT: Unavailable,
    HTTPStatus.TOO_EARLY: Unavailable,
    HTTPStatus.TOO_MANY_REQUESTS: Unavailable,
    HTTPStatus.NOT_IMPLEMENTED: IncompatibleServer,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED: IncompatibleServer,
    HTTPStatus.GATEWAY_TIMEOUT: UnavailableTimeout,
}


@dataclass(frozen=True)
class Answer:
    """A successful answer: its JSON, and what an error about it would name."""

    body: Any
    headers: Mapping[str, str]
    method: str
    url: str
    status: int
    request_id: str

    def __repr__(self) -> str:
        return f"Answer({self.method} {self.url} {self.status})"


class HttpPeer:
    """A peer that speaks JSON and RFC 9457; an async context manager.

    Args:
        settings: address, time-outs and pool of the hub.
        auth: puts the token on each request; it may raise our errors.
        sleep: the pause between two tries of a read.
        transport: for tests; None is the network.
    """

    def __init__(
        self,
        settings: FleetManagerSettings,
        *,
        auth: httpx.Auth | None = None,
        peer: str = "hub",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._auth = auth
        self._peer = peer
        self._sleep = sleep
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        self._client = new_client(self._settings, transport=self._transport, auth=self._auth)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def get(self, *path: str, params: Mapping[str, str] | None = None) -> Answer:
        """Read, up to `read_attempts` times; a time-out is long enough and is not tried again.

        Raises:
            ClientError: of the class that the status or the failure means.
        """
        for attempt in range(1, self._settings.read_attempts):
            try:
                return await self.send("GET", *path, params=params)
            except UnavailableTimeout:
                raise
            except Unavailable:
                await self._sleep(_pause_s(attempt))
        return await self.send("GET", *path, params=params)

    async def send(
        self,
        method: str,
        *path: str,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send once and return the answer.

        Each segment of the path is quoted here; a last "" makes the slash at the end. No body is part of an error.

        Raises:
            ClientError: of the class that the status or the failure means.
        """
        url = self._url(method, path)
        request_id = uuid4().hex
        if self._client is None:
            raise RuntimeError("use the client as an async context manager")
        try:
            async with asyncio.timeout(self._settings.request_timeout.total_seconds()):
                response = await self._client.request(
                    method, url, params=params, json=json, headers={**(headers or {}), "X-Request-ID": request_id}
                )
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, TimeoutError) as error:
            raise transport_error(error, peer=self._peer, method=method, url=url, request_id=request_id) from error
        return answer_of(response, peer=self._peer, method=method, request_id=request_id)

    def parse(self, model: type[ModelT], answer: Answer) -> ModelT:
        """Return the answer as a model.

        Raises:
            IncompatibleServer: it does not fit. Raised without pydantic's error, which quotes what it was given.
        """
        wrong = ""
        try:
            return model.model_validate(answer.body)
        except ValidationError as error:
            items = error.errors(include_url=False, include_input=False, include_context=False)
            wrong = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['type']}" for item in items[:3])
        raise self.unfit(answer, f"its answer is not the {model.__name__} that this client knows ({wrong})")

    def unfit(self, answer: Answer, sentence: str) -> IncompatibleServer:
        """Return the error of an answer that came and cannot be believed."""
        return IncompatibleServer(
            sentence,
            peer=self._peer,
            method=answer.method,
            url=answer.url,
            status=answer.status,
            request_id=answer.request_id,
        )

    def refused(self, method: str, sentence: str) -> BadRequest:
        """Return the error of a call that is wrong before it is sent."""
        return BadRequest(sentence, peer=self._peer, method=method)

    def _url(self, method: str, path: tuple[str, ...]) -> str:
        for segment in (*path[:-1], path[-1] or "-"):
            if segment in ("", ".", "..") or not segment.isprintable():
                raise self.refused(method, f"{segment[:40]!r} is not a name")
        return "/".join((self._settings.url.rstrip("/"), *(quote(segment, safe="") for segment in path)))


class HubClient(AbstractAsyncContextManager["HubClient"]):
    """What the hub's clients share: one peer, opened and closed with the client."""

    def __init__(
        self,
        settings: FleetManagerSettings,
        *,
        auth: httpx.Auth,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = HttpPeer(settings, auth=auth, sleep=sleep, transport=transport)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)


def new_client(
    settings: FleetManagerSettings, *, transport: httpx.AsyncBaseTransport | None, auth: httpx.Auth | None = None
) -> httpx.AsyncClient:
    """Return an HTTP client with our time-outs and limits; it follows no redirect and reads no proxy or netrc."""
    total = settings.request_timeout.total_seconds()
    return httpx.AsyncClient(
        auth=auth,
        verify=_trust(settings.ca_file),
        timeout=httpx.Timeout(total, connect=settings.connect_timeout.total_seconds()),
        limits=httpx.Limits(max_connections=settings.pool_size, max_keepalive_connections=settings.pool_size),
        headers={"Accept": "application/json", "User-Agent": "fleet-manager"},
        follow_redirects=False,
        trust_env=False,
        transport=transport,
    )


@lru_cache(maxsize=8)
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


def transport_error(error: Exception, *, peer: str, method: str, url: str, request_id: str = "") -> ClientError:
    """Return our error for what httpx raised; the texts are ours, as httpx's may quote the request."""
    kind: type[ClientError] = Unavailable
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        kind, sentence = BadRequest, "the address cannot be used"
    elif isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        sentence = "no connection in time; nothing was sent"
    elif isinstance(error, httpx.TimeoutException | TimeoutError):
        kind, sentence = UnavailableTimeout, "no answer in time"
    elif isinstance(error, httpx.ConnectError):
        sentence = "no connection"
    else:
        sentence = f"the exchange broke off ({type(error).__name__})"
    return kind(sentence, peer=peer, method=method, url=url, request_id=request_id)


def answer_of(response: httpx.Response, *, peer: str, method: str, request_id: str = "") -> Answer:
    """Return a 2xx answer's JSON.

    Raises:
        ClientError: the status says no, or a 2xx holds no JSON (a proxy's page: Unavailable).
    """
    url = str(response.request.url)
    request_id = response.headers.get("x-request-id", request_id)
    facts: dict[str, Any] = {"peer": peer, "method": method, "url": url, "status": response.status_code}
    if not response.is_success:
        raise class_of(response)(sentence_of(response), **facts, request_id=request_id)
    try:
        body = response.json()
    except ValueError:
        body = None
    if body is None:
        raise Unavailable("the answer is not JSON; is something else in between?", **facts, request_id=request_id)
    return Answer(body, response.headers, method, url, response.status_code, request_id)


def class_of(response: httpx.Response) -> type[ClientError]:
    """Return the error class of an answer that is not 2xx.

    "Not there" and "in conflict" are believed only of the hub itself, which answers with problems: the 404 of an
    ingress whose hub is away must not be read as a device that is gone.
    """
    status = response.status_code
    kind = _CLASSES.get(status)
    if kind in (NotFound, Conflict) and not is_problem(response):
        return Unavailable
    if kind is not None:
        return kind
    if 400 <= status < 500:
        return BadRequest
    return Unavailable if status >= 500 else IncompatibleServer


def is_problem(response: httpx.Response) -> bool:
    """Tell whether the body is an RFC 9457 problem, as every error of the hub's API is."""
    media_type: str = response.headers.get("content-type", "")
    return media_type.partition(";")[0].strip() == "application/problem+json"


def sentence_of(response: httpx.Response) -> str:
    """Return what a problem or an OAuth error says, cut; a body of another kind is never quoted."""
    try:
        body = response.json() if "json" in response.headers.get("content-type", "") else {}
    except ValueError:
        body = {}
    said = ""
    if isinstance(body, dict):
        said = next((body[key] for key in ("detail", "error_description", "title", "error") if body.get(key)), "")
    if not isinstance(said, str) or not said:
        said = f"it answered {response.status_code} {response.reason_phrase}"
    return said if len(said) <= MAX_SENTENCE else said[: MAX_SENTENCE - 1] + "…"


def _pause_s(attempt: int) -> float:
    """Return the pause before the next try: 0.2 s, 0.8 s, then more, with up to a quarter on top to spread them."""
    spread = 1 + random.random() / 4  # noqa: S311 - spreads retries, guards nothing
    return min(LONGEST_PAUSE_S, 0.05 * 4.0**attempt * spread)
