"""1Password is asked sparingly, and what it says is told without its secrets (case 044)."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Forbidden,
    NotFound,
    Unavailable,
)
from fleet_manager.core.clients.onepassword import OnePassword, process_client
from fleet_manager.settings.clients.onepassword import OnePasswordSettings

REF = "op://site/slurm/jwt"
TOKEN = "ops_very-secret"


class RateLimitExceededException(Exception):
    """As onepassword-sdk names it."""


class World:
    """An account that answers as the test says, and counts."""

    def __init__(self, *answers: str | Exception, token: str | None = TOKEN) -> None:
        self.answers = list(answers)
        self.reads = self.connects = 0
        self.now = datetime(2026, 11, 30, 12, tzinfo=UTC)
        secret = None if token is None else SecretStr(token)
        self.client = OnePassword(secret, clock=lambda: self.now, connect=self.connect)

    async def connect(self, token: str) -> "World":
        self.connects += 1
        assert token == TOKEN
        return self

    async def resolve(self, secret_reference: str) -> str:
        self.reads += 1
        found = self.answers[min(self.reads, len(self.answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return f"{found} of {secret_reference}"


async def test_a_reference_is_resolved_over_one_connection() -> None:
    world = World("secret")
    assert await world.client.resolve(REF) == f"secret of {REF}"
    assert await world.client.resolve("op://site/other/field") == "secret of op://site/other/field"
    assert (world.connects, world.reads) == (1, 2)


TEXTS: list[tuple[str, type[ClientError]]] = [
    ("error resolving secret reference: no item matched the secret reference query", NotFound),
    ("error resolving secret reference: no vault matched the secret reference query", NotFound),
    ("error resolving secret reference: no section matched the secret reference", NotFound),
    ("error resolving secret reference: the specified field cannot be found within the item", NotFound),
    ("error resolving secret reference: more than one item matched the secret reference query", BadRequest),
    ("error resolving secret reference: the secret reference could not be parsed", BadRequest),
    ("invalid service account token, please make sure you provide a valid one", AuthRejected),
    ("you are not authenticated", AuthRejected),
    ("you don't have the right permissions to access this resource", Forbidden),
    ("request timeout", Unavailable),
    ("something quite new", Unavailable),
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
async def test_each_text_of_the_sdk_is_an_error_of_ours(text: str, kind: type[ClientError]) -> None:
    with pytest.raises(kind) as caught:
        await World(Exception(text)).client.resolve(REF)
    assert type(caught.value) is kind
    assert (caught.value.peer, REF in str(caught.value)) == ("1password", True)
    assert caught.value.__cause__ is None


async def test_a_wrong_reference_is_not_asked_for_again_and_again() -> None:
    world = World(Exception("no item matched the secret reference query"))
    for _ in range(24 * 60):
        with pytest.raises(NotFound):
            await world.client.resolve(REF)
        world.now += timedelta(minutes=1)
    assert world.reads <= 105  # 30 s, doubled to 15 min, for a day


async def test_a_wrong_reference_does_not_stop_another() -> None:
    world = World(Exception("no item matched the secret reference query"), "secret")
    with pytest.raises(NotFound):
        await world.client.resolve(REF)
    assert await world.client.resolve("op://site/other/field") == "secret of op://site/other/field"


async def test_a_rate_limit_stops_every_read_of_the_process() -> None:
    world = World(RateLimitExceededException("rate limit exceeded"), "secret")
    with pytest.raises(Unavailable, match="rate limit exceeded"):
        await world.client.resolve(REF)
    with pytest.raises(Unavailable, match="not asked before 12:15:00 UTC"):
        await world.client.resolve("op://site/other/field")
    assert world.reads == 1
    world.now += timedelta(minutes=15)
    assert await world.client.resolve(REF) == f"secret of {REF}"


async def test_a_success_forgets_the_failures_before_it() -> None:
    world = World(Exception("request timeout"), "secret", Exception("request timeout"), "secret")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await world.client.resolve(REF)
        world.now += timedelta(seconds=30)
        assert await world.client.resolve(REF) == f"secret of {REF}"


async def test_a_token_that_was_not_accepted_is_connected_anew() -> None:
    world = World(Exception("you are not authenticated"), "secret")
    with pytest.raises(AuthRejected):
        await world.client.resolve(REF)
    world.now += timedelta(minutes=1)
    await world.client.resolve(REF)
    assert world.connects == 2


@pytest.mark.parametrize("token", [None, ""])
async def test_without_a_service_account_token_it_says_which_variable(token: str | None) -> None:
    world = World("secret", token=token)
    with pytest.raises(AuthRejected, match="OP_SERVICE_ACCOUNT_TOKEN"):
        await world.client.resolve(REF)
    assert world.reads == 0


async def test_the_service_account_token_is_in_no_error() -> None:
    with pytest.raises(Unavailable) as caught:
        await World(Exception(f"cannot use {TOKEN}")).client.resolve(REF)
    assert TOKEN not in str(caught.value)


async def test_the_real_sdk_refuses_a_bad_token_in_our_words() -> None:
    with pytest.raises(AuthRejected, match="service account token"):
        await OnePassword(SecretStr("ops_not-a-token")).resolve(REF)


def test_a_process_has_one_client() -> None:
    token = SecretStr(TOKEN)
    assert process_client(token) is process_client(token)


def test_its_token_comes_from_the_variable_of_1passwords_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_SERVICE_ACCOUNT_TOKEN", TOKEN)
    settings = OnePasswordSettings()
    assert settings.service_account_token is not None
    assert settings.service_account_token.get_secret_value() == TOKEN
    assert TOKEN not in repr(settings)
