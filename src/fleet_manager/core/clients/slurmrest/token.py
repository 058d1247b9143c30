"""The SLURM JWT: read once from where the setting says, held in memory, read again only with a reason.

Reasons are: its `exp` comes near, or SLURM rejected it. Either way a read that brought nothing new is not repeated
before a pause, because each one counts against 1Password's quota (case 044), and polling goes on with the token that is
held. Whatever the number of callers, one read is under way at a time. The token is in no repr, log or error text; its
`exp` is read without verification, to know when to ask, never to decide whether it is good: that is SLURM's.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from fleet_manager.core.clients.errors import BadRequest, ClientError, Forbidden, NotFound, Unavailable
from fleet_manager.settings.clients.slurm import environment_variable

FIRST_PAUSE = timedelta(seconds=30)
"""After a read that brought nothing new; doubled with each further one."""
LONGEST_PAUSE = timedelta(minutes=5)
"""So a token that was renewed at its source is taken up within five minutes."""

_TOKEN = re.compile(r"[!-~]+")
"""Printable ASCII in one word. httpx quotes a header that it cannot send, so a broken token must not get there."""

Clock = Callable[[], datetime]
Source = Callable[[], Awaitable[str]]


class _Claims(msgspec.Struct):
    exp: int | float | None = None


def expiry(token: str) -> datetime | None:
    """Return the `exp` of a JWT, unverified; None if it has none or is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        exp = msgspec.json.decode(claims, type=_Claims).exp
        return None if exp is None else datetime.fromtimestamp(exp, UTC)
    except (binascii.Error, msgspec.MsgspecError, ValueError, OverflowError, OSError):
        return None


def time_until_reread(expires: datetime | None, now: datetime, before: timedelta) -> timedelta | None:
    """Return how long the token may be held; zero if it is due, never negative (case 025); None: for ever."""
    return None if expires is None else max(timedelta(0), expires - now - before)


class SlurmToken:
    """The one token of a client."""

    def __init__(self, source: Source, *, clock: Clock, refresh_before: timedelta) -> None:
        self._source = source
        self._clock = clock
        self._refresh_before = refresh_before
        self._held = ""
        self._expires: datetime | None = None
        self._failure: ClientError | None = None
        self._pause = FIRST_PAUSE
        self._not_before: datetime | None = None
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SlurmToken expires={self._expires}>"

    @property
    def expires(self) -> datetime | None:
        return self._expires

    def seconds_to_expiry(self) -> float | None:
        """Return the time left, below zero once it is over; None while nothing is held or it has no `exp`."""
        return (self._expires - self._clock()).total_seconds() if self._expires else None

    async def current(self) -> str:
        """Return the token to send, read (again) first where that is due.

        Raises:
            ClientError: nothing is held and it cannot be read.
        """
        if self._held and not self._due():
            return self._held
        async with self._lock:
            if not self._held:
                await self._first_read()
            elif self._due():
                await self._read_again()
            return self._held

    async def after_rejection(self, rejected: str) -> str | None:
        """Return another token than the rejected one, or None if there is none now.

        Reads the source once for all who come with the same rejected token.

        Raises:
            ClientError: the source cannot be read, so it is not known whether there is another.
        """
        async with self._lock:
            if self._held != rejected:
                return self._held
            if self._may_read():
                await self._read_again()
            if self._held != rejected:
                return self._held
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            return None

    def without_token(self, text: str) -> str:
        """Return a text of the peer's with the token struck out, should it ever quote it."""
        return text.replace(self._held, "***") if self._held else text

    def _due(self) -> bool:
        left = time_until_reread(self._expires, self._clock(), self._refresh_before)
        return left == timedelta(0) and self._may_read()

    def _may_read(self) -> bool:
        return self._not_before is None or self._clock() >= self._not_before

    async def _first_read(self) -> None:
        if self._failure is not None and not self._may_read():
            raise self._failure.with_traceback(None)
        await self._read_again()
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def _read_again(self) -> None:
        """Read the source; what is held stays if that fails or brings the same."""
        before = self._held
        try:
            token = (await self._source()).strip()
            if not _TOKEN.fullmatch(token):
                raise BadRequest("the place of the SLURM token holds nothing that can be a token", peer="token")
        except ClientError as error:
            self._failure = error
        else:
            self._failure = None
            self._held, self._expires = token, expiry(token)
        if self._failure is not None or self._held == before:
            self._not_before = self._clock() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        else:
            self._not_before, self._pause = None, FIRST_PAUSE


def token_source(reference: str, resolve: Callable[[str], Awaitable[str]]) -> Source:
    """Return what reads a `jwt_op_item`.

    Args:
        reference: `op://vault/item/field`, `file:///path` or `env://NAME`.
        resolve: reads an `op://` reference.
    """
    if reference.startswith("op://"):
        return lambda: resolve(reference)
    scheme, _, rest = reference.partition("://")
    if scheme == "file":
        return lambda: _from_file(Path(rest))
    if scheme == "env":
        return lambda: _from_environment(rest)
    raise BadRequest(f"{reference!r} is neither op://, file:// nor env://", peer="token")


async def _from_file(path: Path) -> str:
    try:
        return await asyncio.to_thread(path.read_text, "utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"the token file {path} is not there", peer="token") from error
    except PermissionError as error:
        raise Forbidden(f"the token file {path} may not be read", peer="token") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the token file {path} cannot be read: {type(error).__name__}", peer="token") from error


async def _from_environment(name: str) -> str:
    value = environment_variable(name)
    if value is None:
        raise NotFound(f"the environment has no {name}", peer="token")
    return value
