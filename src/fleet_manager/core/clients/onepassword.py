"""Reads single secrets from 1Password, sparingly.

1Password limits reads per account and per day, and counts the refused ones too: a wrong reference that is asked for
again and again eats the whole quota in twenty minutes (case 044). So a failure is remembered and not asked again before
its time, and a rate limit stops every read of this process. What was read is not kept here: its holder knows how long
it is good for.

One `OnePassword` per process (`process_client`). No secret and no service account token ever enters a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

from pydantic import SecretStr

from fleet_manager.core.clients.errors import AuthRejected, BadRequest, ClientError, Forbidden, NotFound, Unavailable

PEER = "1password"
INTEGRATION_NAME = "fleet-manager-slurm"
INTEGRATION_VERSION = "v1"

FIRST_PAUSE = timedelta(seconds=30)
"""After the first failure of a reference; doubled with each further one."""
LONGEST_PAUSE = timedelta(minutes=15)
RATE_LIMIT_PAUSE = timedelta(minutes=15)
"""After "rate limit exceeded": a quarter of 1Password's hourly window."""

_MEANING: tuple[tuple[str, type[ClientError]], ...] = (
    ("service account token", AuthRejected),
    ("not authenticated", AuthRejected),
    ("failed to authenticate", AuthRejected),
    ("right permissions", Forbidden),
    ("no vault matched", NotFound),
    ("no item matched", NotFound),
    ("no section matched", NotFound),
    ("cannot be found", NotFound),
    ("couldn't be found", NotFound),
    ("resource not found", NotFound),
    ("more than one", BadRequest),
    ("could not be parsed", BadRequest),
)
"""Words of onepassword-sdk 0.4's texts -> what they mean; it tells these apart by nothing else."""

Clock = Callable[[], datetime]


class Secrets(Protocol):
    """The one call of onepassword-sdk's `client.secrets` that we use."""

    async def resolve(self, secret_reference: str) -> str: ...


Connect = Callable[[str], Awaitable[Secrets]]
"""Service account token -> the SDK's secrets API."""


async def connect(service_account_token: str) -> Secrets:
    """Authenticate with onepassword-sdk. Imported here: it loads a native library for 0.9 s."""
    from onepassword.client import Client  # type: ignore[import-untyped]  # it ships no types

    client = await Client.authenticate(
        auth=service_account_token, integration_name=INTEGRATION_NAME, integration_version=INTEGRATION_VERSION
    )
    secrets: Secrets = client.secrets
    return secrets


@dataclass(slots=True)
class _Failure:
    error: ClientError
    until: datetime
    pause: timedelta


def now_utc() -> datetime:
    return datetime.now(UTC)


class OnePassword:
    """Resolves `op://vault/item/field` references with one service account."""

    def __init__(self, token: SecretStr | None, *, clock: Clock = now_utc, connect: Connect = connect) -> None:
        self._token = token
        self._clock = clock
        self._connect = connect
        self._secrets: Secrets | None = None
        self._failures: dict[str, _Failure] = {}
        self._closed_until: datetime | None = None
        self._lock = asyncio.Lock()

    async def resolve(self, reference: str) -> str:
        """Return the secret that a reference names.

        Raises:
            NotFound: no such vault, item or field.
            AuthRejected: no service account token, or one that is not accepted.
            Unavailable: no answer, or the rate limit; also while a pause lasts, without asking.
        """
        async with self._lock:
            self._refuse_while_paused(reference)
            try:
                secret = await (await self._connected()).resolve(reference)
            except ClientError as error:
                raise self._remembered(reference, error) from None
            except Exception as error:
                raise self._remembered(reference, self._meaning(error, reference)) from None
            self._failures.pop(reference, None)
            return secret

    async def _connected(self) -> Secrets:
        if self._token is None or not self._token.get_secret_value():
            raise AuthRejected("no service account token: set OP_SERVICE_ACCOUNT_TOKEN", peer=PEER)
        if self._secrets is None:
            self._secrets = await self._connect(self._token.get_secret_value())
        return self._secrets

    def _refuse_while_paused(self, reference: str) -> None:
        now = self._clock()
        if self._closed_until and now < self._closed_until:
            raise Unavailable(f"rate limit exceeded: not asked before {self._closed_until:%H:%M:%S} UTC", peer=PEER)
        failure = self._failures.get(reference)
        if failure and now < failure.until:
            raise failure.error.with_traceback(None)

    def _remembered(self, reference: str, error: ClientError) -> ClientError:
        before = self._failures.get(reference)
        pause = min(before.pause * 2, LONGEST_PAUSE) if before else FIRST_PAUSE
        self._failures[reference] = _Failure(error, self._clock() + pause, pause)
        return error

    def _meaning(self, error: Exception, reference: str) -> ClientError:
        """Read the SDK's error: it has a class for the rate limit, and a text for everything else."""
        text = self._without_token(str(error))
        kind = next((kind for words, kind in _MEANING if words in text.lower()), Unavailable)
        if type(error).__name__ == "RateLimitExceededException" or "rate limit" in text.lower():
            kind = Unavailable
            self._closed_until = self._clock() + RATE_LIMIT_PAUSE
        if kind is AuthRejected:
            self._secrets = None
        return kind(f"cannot read {reference}: {text}", peer=PEER, method="resolve")

    def _without_token(self, text: str) -> str:
        token = self._token.get_secret_value() if self._token else ""
        return text.replace(token, "***") if token else text


@lru_cache(maxsize=1)
def process_client(token: SecretStr | None) -> OnePassword:
    """Return this process's one client; its pauses hold for every caller."""
    return OnePassword(token)
