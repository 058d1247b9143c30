"""Holds, the reason's form, and whose a drain is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet_manager.core.domain.slurm_holds import (
    MAX_REASON_BYTES,
    Hold,
    Ownership,
    ReasonClass,
    classify,
    is_birth,
    is_system_text,
    live,
    one_line,
    parse,
    render,
    short_id,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BIRTH = "fm:born new build"


def hold(number: int, owner: str = "alice", why: str = "psu swap", **more: object) -> Hold:
    fields = {"id": f"0190aaaa-0000-7000-8000-{number:012x}", "owner": owner, "why": why}
    return Hold.model_validate({**fields, "since": NOW + timedelta(seconds=number), **more})


def test_one_hold_reads_owner_and_why_first_and_its_id_last() -> None:
    assert render((hold(1),)) == "fm:alice psu swap [fm 000000000001]"


def test_holds_are_written_oldest_first_so_that_a_new_one_does_not_move_the_words() -> None:
    text = render((hold(2, "bob", "fans"), hold(1)))
    assert text == "fm:alice psu swap; bob fans [fm 000000000001 000000000002]"


def test_a_reason_without_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="opened, it gets no reason"):
        render(())


def test_what_does_not_fit_is_counted() -> None:
    text = render(tuple(hold(n, why="w" * 150) for n in range(1, 31)))
    assert len(text.encode()) <= MAX_REASON_BYTES
    parsed = parse(text)
    assert parsed is not None
    assert len(parsed.short_ids) + parsed.more == 30
    assert " +29 [fm " in text


@given(
    st.lists(st.tuples(st.text(max_size=300), st.integers(0, 10**6)), min_size=1, max_size=40, unique_by=lambda t: t[1])
)
def test_any_reason_is_one_printable_line_that_reads_back(items: list[tuple[str, int]]) -> None:
    holds = tuple(hold(number, why=why or "x") for why, number in items)
    text = render(holds)
    assert len(text.encode()) <= MAX_REASON_BYTES
    assert text.isprintable()
    assert text.startswith("fm:alice")
    parsed = parse(text)
    assert parsed is not None
    assert set(parsed.short_ids) <= {h.short_id for h in holds}
    assert len(parsed.short_ids) + parsed.more == len(holds)


def test_words_that_imitate_our_form_do_not_make_ids() -> None:
    sly = hold(1, why="see [fm ffffffffffff] here")
    parsed = parse(render((sly,)))
    assert parsed is not None
    assert parsed.short_ids == ("000000000001",)


def test_what_slurmctld_appends_is_read_apart() -> None:
    parsed = parse(render((hold(1),)) + " : Not responding")
    assert parsed is not None
    assert parsed.short_ids == ("000000000001",)
    assert parsed.appended == "Not responding"


@pytest.mark.parametrize("text", ["", "ADMIN SHUTDOWN", "fm:alice psu swap", "FM:alice [fm 000000000001]"])
def test_other_texts_are_not_of_our_form(text: str) -> None:
    assert parse(text) is None


OURS = render((hold(1),))
RECORD = Ownership(known_ids=frozenset({hold(1).short_id}), birth_reason=BIRTH)
NO_BIRTH = RECORD.model_copy(update={"birth_reason": None})


@pytest.mark.parametrize(
    ("reason", "set_by", "record", "whose"),
    [
        (None, "", RECORD, ReasonClass.NONE),
        (OURS, "daemon", RECORD, ReasonClass.OURS),
        (OURS + " : Not responding", "root", RECORD, ReasonClass.OURS),
        # our text with somebody's words behind it, or set by somebody who is not us
        (OURS + " AND bob: cabinet is open", "root", RECORD, ReasonClass.FOREIGN),
        (OURS + " : ask bob", "root", RECORD, ReasonClass.FOREIGN),
        (OURS, "bob", RECORD.model_copy(update={"slurm_user": "daemon"}), ReasonClass.FOREIGN),
        (OURS, "daemon", RECORD.model_copy(update={"slurm_user": "daemon"}), ReasonClass.OURS),
        # our form with an id that nobody of us gave: another satellite's, or a human's
        (render((hold(7),)), "daemon", RECORD, ReasonClass.FOREIGN),
        ("fm:alice psu swap", "daemon", RECORD, ReasonClass.FOREIGN),
        (BIRTH, "root", RECORD, ReasonClass.BIRTH),
        (BIRTH + " : Not responding", "root", RECORD, ReasonClass.BIRTH),
        (BIRTH, "root", NO_BIRTH, ReasonClass.FOREIGN),
        (BIRTH + "s and bugs", "root", RECORD, ReasonClass.FOREIGN),
        ("", "", RECORD, ReasonClass.FOREIGN),  # case 021
        ("ADMIN SHUTDOWN", "root", RECORD, ReasonClass.FOREIGN),
        ("Not responding", "root", RECORD, ReasonClass.SYSTEM),
        ("Not responding", "slurm", RECORD, ReasonClass.SYSTEM),
        ("Not responding", "alice", RECORD, ReasonClass.FOREIGN),
        ("gres/gpu count reported lower than configured (7 < 8)", "root", RECORD, ReasonClass.SYSTEM),
        ("Low socket*core*thread count, Low CPUs", "root", RECORD, ReasonClass.SYSTEM),
        ("Not responding and smoking", "root", RECORD, ReasonClass.FOREIGN),
    ],
)
def test_whose_a_drain_is(reason: str | None, set_by: str, record: Ownership, whose: ReasonClass) -> None:
    assert classify(reason, set_by, record) is whose


def test_slurmctlds_own_texts_are_a_closed_list() -> None:
    assert is_system_text("Low RealMemory (reported:900 < 100.00% of configured:4000)")
    assert is_system_text("Kill task failed : Not responding")
    assert not is_system_text("")
    assert not is_system_text("Kill task failed : ask bob")


def test_birth_reason_is_exact_or_appended_to_by_slurmctld_alone() -> None:
    assert is_birth(BIRTH, BIRTH)
    assert is_birth(f"{BIRTH} : Not responding", BIRTH)
    assert not is_birth(f"{BIRTH} : bob has it open", BIRTH)


def test_expired_holds_are_not_live() -> None:
    gone = hold(1, expires=NOW)
    stays = hold(2, expires=NOW + timedelta(hours=1))
    assert live((gone, stays, hold(3)), NOW) == (stays, hold(3))


@pytest.mark.parametrize("owner", ["", "Alice", "a b", "x" * 33, "-x"])
def test_owner_names_outside_the_form_are_refused(owner: str) -> None:
    with pytest.raises(ValidationError):
        hold(1, owner)


def test_one_line_keeps_people_readable() -> None:
    assert one_line("Übergabe\nan\tBob [bench]; ok", 80) == "Übergabe an Bob (bench), ok"


def test_short_ids_are_the_random_end_of_a_uuid() -> None:
    assert short_id("0190AAAA-0000-7000-8000-ABCDEF012345") == "abcdef012345"
