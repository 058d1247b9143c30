"""Access tokens of the hub by private_key_jwt (RFC 7521, 7523), and the httpx.Auth that puts them on requests.

One token per scope set, replaced early, asked for once however many callers wait, once more when a 401 rejects it. No
token, assertion or key is logged, shown by a repr or part of an error. The wall clock decides and is handed in: a
process that slept through a token's end must see that it has passed (a monotonic clock may stand still meanwhile).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import BaseModel, Field, SecretStr, ValidationError

from fleet_manager.core.clients.client_key import ClientKey
from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    IncompatibleServer,
    NotFound,
    Unavailable,
)
from fleet_manager.core.clients.http import Answer, answer_of, class_of, new_client, sentence_of, transport_error
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
WELL_KNOWN = "/.well-known/oauth-authorization-server"
RETRY_EARLY_REFRESH = timedelta(seconds=5)
"""After an early refresh failed, a token that is still good is used this long before the next try."""

Clock = Callable[[], datetime]
Scopes = frozenset[str]


def now_utc() -> datetime:
    return datetime.now(UTC)


class ServerMetadata(BaseModel):
    """What we use of RFC 8414 metadata."""

    issuer: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class TokenAnswer(BaseModel):
    """A successful answer of the token endpoint (RFC 6749 section 5.1)."""

    model_config = {"hide_input_in_errors": True}

    access_token: SecretStr
    token_type: str
    expires_in: Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class HeldToken:
    """A token and its times by our clock, counted from before it was asked for."""

    value: str = field(repr=False)
    expires_at: datetime
    refresh_at: datetime


class TokenSource:
    """Hands out tokens of one client at one issuer; share it between the clients of a process."""

    def __init__(
        self,
        settings: FleetManagerSettings,
        *,
        clock: Clock = now_utc,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._transport = transport
        self._key = ClientKey(settings.private_key_file, kid=settings.key_id)
        self._metadata: ServerMetadata | None = None
        self._held: dict[Scopes, HeldToken] = {}
        self._flights: dict[Scopes, asyncio.Task[HeldToken]] = {}

    def __repr__(self) -> str:
        return f"TokenSource({self._settings.client_id} at {self._settings.issuer_id})"

    async def token(self, scopes: Scopes, *, rejected: str | None = None) -> str:
        """Return a token for a scope set.

        Args:
            scopes: what it is for; none is all that the roster grants us.
            rejected: a token that the API answered 401 to; another one is returned, asked for if need be.

        Raises:
            AuthRejected: the issuer does not accept our key or our id.
            Forbidden: it does not grant us these scopes.
            IncompatibleServer: it is not the issuer that it should be, or does not take private_key_jwt.
            Unavailable: it did not answer; while an older token is good, that one is returned instead.
        """
        held = self._held.get(scopes)
        if held is not None and held.value != rejected and self._clock() < held.refresh_at:
            return held.value
        try:
            return (await asyncio.shield(self._flight(scopes))).value
        except Unavailable:
            held = self._held.get(scopes)
            if held is None or held.value == rejected or self._clock() >= held.expires_at:
                raise
            retry_at = self._clock() + RETRY_EARLY_REFRESH
            self._held[scopes] = HeldToken(held.value, held.expires_at, max(held.refresh_at, retry_at))
            return held.value

    def seconds_to_expiry(self, scopes: Iterable[str] = ()) -> float | None:
        """Return how long the held token is good, never below 0; None while there is none. For a metric."""
        held = self._held.get(frozenset(scopes))
        return None if held is None else max(0.0, (held.expires_at - self._clock()).total_seconds())

    def _flight(self, scopes: Scopes) -> asyncio.Task[HeldToken]:
        """Return the request for a token that is under way, or start it: one for everybody who waits.

        It is a task of its own, so that the first caller's cancellation does not take the token from the others.
        """
        task = self._flights.get(scopes)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(self._fetch(scopes), name="oauth-token")
            task.add_done_callback(_retrieve)
            self._flights[scopes] = task
        return task

    async def _fetch(self, scopes: Scopes) -> HeldToken:
        async with new_client(self._settings, transport=self._transport) as client:
            metadata = self._metadata or await self._discover(client)
            asked_at = self._clock()
            answer = await self._ask(client, metadata, scopes)
        held = self._held_from(answer, asked_at)
        self._metadata = metadata
        self._held[scopes] = held
        return held

    async def _discover(self, client: httpx.AsyncClient) -> ServerMetadata:
        """Read the issuer's metadata and believe it only if it names the issuer that we were told of (RFC 8414 3.3)."""
        issuer = self._settings.issuer_id
        answer = await self._exchange(client, "GET", metadata_url(issuer))
        try:
            metadata = ServerMetadata.model_validate(answer.body)
        except ValidationError:
            raise self._incompatible(answer, "its metadata is not that of RFC 8414") from None
        if metadata.issuer != issuer:
            raise self._incompatible(
                answer, f"its metadata names another issuer than {issuer}; see FLEET_MANAGER__ISSUER"
            )
        if "private_key_jwt" not in metadata.token_endpoint_auth_methods_supported:
            raise self._incompatible(answer, "its token endpoint does not take private_key_jwt")
        if urlsplit(metadata.token_endpoint).scheme != urlsplit(issuer).scheme:
            raise self._incompatible(answer, "its token endpoint is not of the issuer's scheme")
        return metadata

    async def _ask(self, client: httpx.AsyncClient, metadata: ServerMetadata, scopes: Scopes) -> Answer:
        settings = self._settings
        assertion = self._key.assertion(
            client_id=settings.client_id, audience=metadata.issuer, now=self._clock(), ttl=settings.assertion_ttl
        )
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion,
        }
        if scopes:
            form["scope"] = " ".join(sorted(scopes))
        return await self._exchange(client, "POST", metadata.token_endpoint, form)

    async def _exchange(
        self, client: httpx.AsyncClient, method: str, url: str, form: dict[str, str] | None = None
    ) -> Answer:
        try:
            async with asyncio.timeout(self._settings.request_timeout.total_seconds()):
                response = await client.request(method, url, data=form)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, TimeoutError) as error:
            raise transport_error(error, peer="hub", method=method, url=url) from error
        if response.is_success:
            return answer_of(response, peer="hub", method=method)
        self._metadata = None  # the endpoint may have moved: look again next time
        raise _refusal(response, method, url)

    def _held_from(self, answer: Answer, asked_at: datetime) -> HeldToken:
        """Return the token with its times; the margin is never so large that a new token is due at once."""
        try:
            parsed = TokenAnswer.model_validate(answer.body)
        except ValidationError:
            parsed = None
        if parsed is None or parsed.token_type.lower() != "bearer":
            raise self._incompatible(answer, "its token answer is not that of RFC 6749 with a bearer token")
        life = timedelta(seconds=parsed.expires_in)
        margin = min(self._settings.token_refresh_before, life / 4)
        return HeldToken(parsed.access_token.get_secret_value(), asked_at + life, asked_at + life - margin)

    def _incompatible(self, answer: Answer, sentence: str) -> IncompatibleServer:
        return IncompatibleServer(
            sentence,
            peer="hub",
            method=answer.method,
            url=answer.url,
            status=answer.status,
            request_id=answer.request_id,
        )


class PrivateKeyJwtAuth(httpx.Auth):
    """Puts the source's token for a scope set on each request; a 401 gets exactly one more try, with a new token."""

    def __init__(self, source: TokenSource, scopes: Iterable[str] = ()) -> None:
        self._source = source
        self._scopes = frozenset(scopes)

    @classmethod
    def from_settings(
        cls, settings: FleetManagerSettings, scopes: Iterable[str] = (), *, clock: Clock = now_utc
    ) -> PrivateKeyJwtAuth:
        """Return an auth with a source of its own, for a process that has one client."""
        return cls(TokenSource(settings, clock=clock), scopes)

    def __repr__(self) -> str:
        return f"PrivateKeyJwtAuth({self._source!r}, {sorted(self._scopes)})"

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        token = await self._source.token(self._scopes)
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED:
            token = await self._source.token(self._scopes, rejected=token)
            request.headers["Authorization"] = f"Bearer {token}"
            yield request

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        raise RuntimeError("PrivateKeyJwtAuth is for httpx.AsyncClient only")


def metadata_url(issuer: str) -> str:
    """Return where an issuer's metadata is: the well-known part goes between host and path (RFC 8414 section 3.1)."""
    parts = urlsplit(issuer)
    return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN + parts.path.rstrip("/"), "", ""))


def _refusal(response: httpx.Response, method: str, url: str) -> ClientError:
    """Return our error for an answer of no: of the key or id, of the scopes, or of a server that is not ours.

    Never NotFound or Conflict: the caller would take them for the device that it asked about.
    """
    code = ""
    with suppress(ValueError, AttributeError):
        code = str(response.json().get("error", ""))[:64]
    kind = class_of(response)
    if code in ("invalid_scope", "unauthorized_client"):
        kind = Forbidden
    elif code and issubclass(kind, BadRequest):
        kind = AuthRejected
    elif issubclass(kind, NotFound | Conflict | BadRequest):
        kind = IncompatibleServer
    sentence = f"{code}: {sentence_of(response)}" if code else sentence_of(response)
    request_id = response.headers.get("x-request-id", "")
    return kind(sentence, peer="hub", method=method, url=url, status=response.status_code, request_id=request_id)


def _retrieve(task: asyncio.Task[HeldToken]) -> None:
    """Look at a failed request's error, so that one whose callers all went away is not reported at exit."""
    if not task.cancelled():
        task.exception()
