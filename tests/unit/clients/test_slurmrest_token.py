"""The SLURM token is read when it must be, and not when it need not."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet_manager.core.clients.errors import BadRequest, ClientError, NotFound, Unavailable
from fleet_manager.core.clients.slurmrest.token import SlurmToken, expiry, time_until_reread, token_source

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
BEFORE = timedelta(minutes=5)


def jwt(expires: datetime | None, mark: str = "s") -> str:
    claims = {"sun": "fleet"} | ({"exp": int(expires.timestamp())} if expires else {})
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"h.{middle}.{mark}"


class World:
    """A token with a source and a clock that the test moves."""

    def __init__(self, *answers: str | ClientError) -> None:
        self.answers = list(answers)
        self.reads = 0
        self.now = NOW
        self.token = SlurmToken(self.read, clock=lambda: self.now, refresh_before=BEFORE)

    async def read(self) -> str:
        self.reads += 1
        await asyncio.sleep(0)
        found = self.answers[min(self.reads, len(self.answers)) - 1]
        if isinstance(found, ClientError):
            raise found
        return found


@pytest.mark.parametrize(
    ("left", "wait"),
    [
        (timedelta(hours=1), timedelta(minutes=55)),
        (timedelta(minutes=5), timedelta(0)),
        (timedelta(0), timedelta(0)),
        (timedelta(hours=-2), timedelta(0)),
    ],
)
def test_the_time_until_the_next_read_is_never_negative(left: timedelta, wait: timedelta) -> None:
    """Case 025."""
    assert time_until_reread(NOW + left, NOW, BEFORE) == wait


def test_a_token_without_exp_is_held_for_ever() -> None:
    assert time_until_reread(None, NOW, BEFORE) is None


def test_exp_is_read_without_verification() -> None:
    assert expiry(jwt(NOW)) == NOW


@pytest.mark.parametrize(
    "text", ["", "opaque", "a.b.c", "a.!!!.c", "h.bnVsbA.s", "h.e30.s", "h.eyJleHAiOiJ4In0.s", "h.eyJleHAiOjFlMzB9.s"]
)
def test_what_has_no_exp_has_none(text: str) -> None:
    assert expiry(text) is None


async def test_it_is_read_once_and_held() -> None:
    world = World(jwt(NOW + timedelta(days=1)))
    tokens = await asyncio.gather(*(world.token.current() for _ in range(50)))
    assert set(tokens) == {world.answers[0]}
    assert world.reads == 1


async def test_it_is_read_again_before_it_expires() -> None:
    world = World(jwt(NOW + timedelta(hours=1)), jwt(NOW + timedelta(hours=9)))
    await world.token.current()
    world.now += timedelta(minutes=54)
    assert await world.token.current() == world.answers[0]
    world.now += timedelta(minutes=2)
    tokens = await asyncio.gather(*(world.token.current() for _ in range(50)))
    assert set(tokens) == {world.answers[1]}
    assert world.reads == 2


async def test_it_is_read_at_once_after_a_sleep_past_its_expiry() -> None:
    """Case 025."""
    world = World(jwt(NOW + timedelta(hours=1)), jwt(NOW + timedelta(hours=9)))
    await world.token.current()
    world.now += timedelta(hours=3)
    assert await world.token.current() == world.answers[1]


async def test_a_token_that_was_not_renewed_is_not_read_for_each_call() -> None:
    world = World(jwt(NOW + timedelta(hours=1)))
    await world.token.current()
    world.now += timedelta(minutes=56)
    for _ in range(60 * 60):
        await world.token.current()
        world.now += timedelta(seconds=1)
    assert world.reads <= 17  # 30 s, doubled to 5 min, for an hour


async def test_the_held_token_serves_on_while_its_source_is_away() -> None:
    world = World(jwt(NOW + timedelta(hours=1)), Unavailable("rate limit", peer="1password"))
    await world.token.current()
    world.now += timedelta(minutes=56)
    for _ in range(20):
        assert await world.token.current() == world.answers[0]
    assert world.reads == 2


async def test_a_failure_with_nothing_held_is_remembered_and_tried_again_later() -> None:
    world = World(NotFound("no such item", peer="1password"), jwt(NOW + timedelta(days=1)))
    for _ in range(20):
        with pytest.raises(NotFound):
            await world.token.current()
    assert world.reads == 1
    world.now += timedelta(seconds=31)
    assert await world.token.current() == world.answers[1]


@pytest.mark.parametrize("text", ["", "  \n", "two words", "one\ntwo", "schön"])
async def test_what_can_be_no_token_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await World(text).token.current()
    assert not text.strip() or text not in str(caught.value)


async def test_blanks_around_it_are_taken_off() -> None:
    assert await World("  token\n").token.current() == "token"


async def test_a_rejected_token_gives_the_next_one() -> None:
    world = World("old", "new")
    assert await world.token.after_rejection(await world.token.current()) == "new"


async def test_who_comes_late_with_the_old_token_gets_the_new_one_without_a_read() -> None:
    world = World("old", "new")
    await world.token.current()
    tokens = await asyncio.gather(*(world.token.after_rejection("old") for _ in range(50)))
    assert set(tokens) == {"new"}
    assert world.reads == 2


async def test_the_same_token_again_is_none() -> None:
    world = World("only")
    await world.token.current()
    assert await world.token.after_rejection("only") is None
    assert await world.token.after_rejection("only") is None
    assert world.reads == 2


async def test_a_rejection_after_the_pause_reads_again() -> None:
    world = World("old", "old", "new")
    await world.token.current()
    assert await world.token.after_rejection("old") is None
    world.now += timedelta(seconds=31)
    assert await world.token.after_rejection("old") == "new"


async def test_seconds_to_expiry_fall_below_zero() -> None:
    world = World(jwt(NOW + timedelta(hours=1)))
    assert world.token.seconds_to_expiry() is None
    await world.token.current()
    assert world.token.seconds_to_expiry() == 3600
    world.now += timedelta(hours=2)
    assert world.token.seconds_to_expiry() == -3600


async def test_its_repr_does_not_show_it() -> None:
    world = World(jwt(NOW, mark="signature"))
    await world.token.current()
    assert "signature" not in repr(world.token)
    assert world.token.without_token(f"x {world.answers[0]} y") == "x *** y"


async def _resolve(reference: str) -> str:
    return f"resolved {reference}"


async def test_an_op_reference_goes_to_1password() -> None:
    assert await token_source("op://v/i/f", _resolve)() == "resolved op://v/i/f"


async def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    place = tmp_path / "jwt"
    source = token_source(f"file://{place}", _resolve)
    with pytest.raises(NotFound, match="is not there"):
        await source()
    for text in ("one", "two"):
        place.write_text(text)
        assert await source() == text


async def test_a_file_that_is_a_folder_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="IsADirectoryError"):
        await token_source(f"file://{tmp_path}", _resolve)()


async def test_a_variable_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    source = token_source("env://A_TOKEN", _resolve)
    with pytest.raises(NotFound, match="no A_TOKEN"):
        await source()
    monkeypatch.setenv("A_TOKEN", "value")
    assert await source() == "value"


def test_any_other_scheme_is_refused() -> None:
    with pytest.raises(BadRequest):
        token_source("https://x/y", _resolve)
