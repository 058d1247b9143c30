"""What every request passes before a route: an id and a log line, a bound on its body, and its bearer token.

The token is read before the body, so that a caller without one cannot make the hub parse anything.
"""

from __future__ import annotations

import logging
import re
import time
from http import HTTPStatus
from uuid import uuid4

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleet_manager.hub.logs import CONTEXT, RequestContext
from fleet_manager.hub.problems import Problem
from fleet_manager.hub.state import Hub
from fleet_manager.hub.tokens import TokenRefused

API_PREFIX = "/api/"
REALM = 'Bearer realm="fleet-manager"'

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,128}")
_UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeoutError)

_log = logging.getLogger(__name__)


class RequestLog:
    """Gives each request an id, logs it, and catches what fell through. A caller's own X-Request-ID is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        offered = Headers(scope=scope).get("x-request-id", "")
        context = RequestContext(offered if _REQUEST_ID.fullmatch(offered) else uuid4().hex)
        token = CONTEXT.set(context)
        started, status = time.monotonic(), 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = context.request_id
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except Exception as error:
            _log.error("request failed", exc_info=error)
            if status == 0:
                await _problem_of(error).response()(scope, receive, tell)
        finally:
            _log.info(
                "%s %s %s",
                scope["method"],
                scope["path"],
                status,
                extra={"duration_ms": round((time.monotonic() - started) * 1000, 1)},
            )
            CONTEXT.reset(token)


def _problem_of(error: Exception) -> Problem:
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    if isinstance(error, _UNAVAILABLE) or lost:
        detail = "The hub's database does not answer; try again."
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "database", detail, headers={"Retry-After": "2"})
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The hub failed; its log has the request's id.")


class BodyLimit:
    """Refuses a body larger than the settings allow, whether its length is announced or not."""

    def __init__(self, app: ASGIApp, hub: Hub) -> None:
        self._app = app
        self._limit = hub.settings.max_body_bytes
        self._sentence = f"The body is larger than {self._limit} bytes; send it in parts."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > self._limit:
            problem = Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", self._sentence)
            await problem.response()(scope, receive, send)
            return
        received = 0

        async def count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._sentence)
            return message

        await self._app(scope, count, send)


class BearerToken:
    """Reads the access token of every call to the API and puts its principal where the routes find it."""

    def __init__(self, app: ASGIApp, hub: Hub) -> None:
        self._app = app
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(API_PREFIX):
            await self._app(scope, receive, send)
            return
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            await _unauthorized("Send an access token: Authorization: Bearer TOKEN.", "")(scope, receive, send)
            return
        try:
            principal = self._hub.tokens.read(token.strip(), self._hub.now())
        except TokenRefused as error:
            await _unauthorized(f"{error}; ask for a new one.", ', error="invalid_token"')(scope, receive, send)
            return
        if (context := CONTEXT.get()) is not None:
            context.client_id = principal.client_id
        scope.setdefault("state", {})["principal"] = principal
        await self._app(scope, receive, send)


def _unauthorized(detail: str, parameters: str) -> ASGIApp:
    headers = {"WWW-Authenticate": REALM + parameters}
    return Problem(HTTPStatus.UNAUTHORIZED, "unauthorized", detail[0].upper() + detail[1:], headers=headers).response()
