"""Which write comes next, row by row."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, Ownership, ReasonClass, classify, render
from fleet_manager.core.domain.slurm_node import SlurmNode, SlurmNodeState
from fleet_manager.core.domain.slurm_projection import (
    Build,
    HoldRecord,
    NodeVerb,
    NodeWrite,
    OpenNode,
    next_write,
    problem_of,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BUILD = Build(server_id="srv-1", build_id="b-1")
GATE = Hold(id="0190aaaa-0000-7000-8000-00000000000a", owner="adopt", why="burn-in", since=NOW, kind=HoldKind.GATE)
BENCH = Hold(id="0190aaaa-0000-7000-8000-00000000000b", owner="alice", why="psu", since=NOW + timedelta(seconds=1))
ENDED = "cccccccccccc"
BIRTH = "fm:born new build"


def node(*words: str, reason: str = "", by: str = "root", proven: bool = True) -> SlurmNode:
    return SlurmNode(
        name="gpu-001",
        state=SlurmNodeState.from_words(words),
        reason=reason,
        reason_set_by=by,
        reason_changed_at=NOW,
        instance_id="srv-1" if proven else "srv-0",
        extra="fm_build=b-1" if proven else "fm_build=b-0",
    )


def record(*holds: Hold, open_for: Build | None = None, clears_system: bool = False) -> HoldRecord:
    known = frozenset({GATE.short_id, BENCH.short_id, ENDED})
    ownership = Ownership(known_ids=known, birth_reason=BIRTH)
    return HoldRecord(holds=holds, ownership=ownership, open_for=open_for, clears_system=clears_system)


DRAIN = NodeWrite(state=NodeVerb.DRAIN)
UNDRAIN = NodeWrite(state=NodeVerb.UNDRAIN)
RESUME = NodeWrite(state=NodeVerb.RESUME)
GATE_TEXT = render((GATE,))
GATE_WRITE = NodeWrite(state=NodeVerb.DRAIN, reason=GATE_TEXT)
ENDED_TEXT = f"fm:adopt old [fm {ENDED}]"


@pytest.mark.parametrize(
    ("seen", "write"),
    [
        (node("IDLE"), DRAIN),  # first without a reason
        (node("ALLOCATED", reason="left from 24.11"), DRAIN),
        (node("DOWN", reason="Not responding"), DRAIN),
        (node("IDLE", "DRAIN", reason=GATE_TEXT), None),
        (node("IDLE", "DRAIN", reason=f"{GATE_TEXT} : Not responding"), None),
        (node("IDLE", "DRAIN", reason=BIRTH), GATE_WRITE),
        (node("IDLE", "DRAIN", reason=ENDED_TEXT), GATE_WRITE),
        (node("IDLE", "DRAIN", reason="ADMIN SHUTDOWN"), None),  # case 018
        (node("IDLE", "DRAIN", reason=""), None),  # case 021
        (node("DOWN", "DRAIN", reason="Not responding"), None),
    ],
)
def test_a_held_node_is_drained_and_only_our_own_words_are_replaced(seen: SlurmNode, write: NodeWrite | None) -> None:
    assert next_write(record(GATE), seen, None) == write


def test_after_our_own_drain_the_reason_is_written_where_there_is_none() -> None:
    assert next_write(record(GATE), node("IDLE", "DRAIN"), OpenNode.of(node("IDLE"))) == GATE_WRITE


def test_a_reason_left_behind_by_24_11_is_nobodys() -> None:
    before, after = OpenNode.of(node("IDLE", reason="old note")), node("IDLE", "DRAIN", reason="old note")
    assert next_write(record(GATE), after, before) == GATE_WRITE


def test_a_reason_that_came_between_our_read_and_our_drain_is_kept() -> None:
    before = OpenNode.of(node("IDLE", reason=""))
    assert next_write(record(GATE), node("IDLE", "DRAIN", reason="bob: fire"), before) is None


def test_the_same_words_set_anew_between_are_kept() -> None:
    before = OpenNode.of(node("IDLE", reason="old note"))
    after = replace(node("IDLE", "DRAIN", reason="old note"), reason_changed_at=NOW + timedelta(seconds=1))
    assert next_write(record(GATE), after, before) is None


def test_the_reason_of_a_node_that_an_admin_set_down_is_kept() -> None:
    before = OpenNode.of(node("DOWN", reason="psu on fire", by="alice"))
    assert next_write(record(GATE), node("DOWN", "DRAIN", reason="psu on fire", by="alice"), before) is None


@pytest.mark.parametrize(
    ("seen", "write"),
    [
        (node("IDLE"), None),
        (node("IDLE", "DRAIN", reason=GATE_TEXT), UNDRAIN),
        (node("IDLE", "DRAIN", reason=ENDED_TEXT), UNDRAIN),
        (node("IDLE", "DRAIN", reason="ADMIN SHUTDOWN"), None),
        (node("IDLE", "DRAIN", reason=""), None),
        (node("IDLE", "DRAIN", reason="Kill task failed"), None),
        (node("DOWN", reason="Not responding"), None),  # never RESUME without the gate (case 012)
        (node("DOWN", "DRAIN", reason=GATE_TEXT), UNDRAIN),
    ],
)
def test_without_holds_only_our_own_drain_is_taken_off(seen: SlurmNode, write: NodeWrite | None) -> None:
    assert next_write(record(), seen, None) == write


@pytest.mark.parametrize(
    ("seen", "clears", "write"),
    [
        (node("IDLE", "DRAIN", reason=BIRTH), False, UNDRAIN),
        (node("IDLE", "DRAIN", reason=GATE_TEXT), False, UNDRAIN),
        (node("DOWN", "DRAIN", reason=GATE_TEXT), False, RESUME),
        (node("DOWN", reason="Node unexpectedly rebooted"), False, RESUME),
        (node("IDLE", "MAINTENANCE"), False, None),
        (node("DOWN", "DRAIN", reason="Node unexpectedly rebooted"), True, RESUME),
        (node("DOWN", "DRAIN", reason="Node unexpectedly rebooted"), False, None),
        (node("IDLE", "DRAIN", reason="ADMIN SHUTDOWN"), True, None),
        (node("IDLE", "DRAIN", reason=GATE_TEXT, proven=False), True, None),
        (node("DOWN", "DRAIN", reason=GATE_TEXT, proven=False), True, None),
    ],
)
def test_an_open_gate_lets_only_the_proven_build_in(seen: SlurmNode, clears: bool, write: NodeWrite | None) -> None:
    assert next_write(record(GATE, open_for=BUILD, clears_system=clears), seen, None) == write


def test_another_hold_does_not_close_an_open_gate_as_the_reservation_stands_in() -> None:
    assert next_write(record(GATE, BENCH, open_for=BUILD), node("IDLE", "MAINTENANCE"), None) is None


def test_a_foreign_drain_is_named_with_who_set_it() -> None:
    seen = node("IDLE", "DRAIN", reason="ADMIN SHUTDOWN", by="root")
    whose = classify(seen.hold_reason, seen.reason_set_by, record().ownership)
    assert whose is ReasonClass.FOREIGN
    assert problem_of(record(), seen, whose) == "held by foreign: ADMIN SHUTDOWN (set by root)"


def test_a_build_that_did_not_register_is_named() -> None:
    text = problem_of(
        record(GATE, open_for=BUILD), node("IDLE", "DRAIN", reason=BIRTH, proven=False), ReasonClass.BIRTH
    )
    assert text == "gpu-001 was registered by instance srv-0 fm_build=b-0, not by this build"


def test_after_its_first_opening_nothing_of_slurmctld_is_cleared_and_nothing_resumed() -> None:
    """What drains the node or sets it DOWN during the burn-in is about this very build."""
    opened = record(GATE, open_for=BUILD, clears_system=True).model_copy(update={"opened": True})
    assert next_write(opened, node("IDLE", "DRAIN", reason="Kill task failed"), None) is None
    assert next_write(opened, node("DOWN", reason="Not responding"), None) is None
    assert next_write(opened, node("IDLE", "DRAIN", reason=GATE_TEXT), None) == UNDRAIN


def test_the_end_of_a_hold_opens_no_other_build_than_the_one_that_passed() -> None:
    ended = record().model_copy(update={"proven": BUILD})
    other = node("IDLE", "DRAIN", reason=ENDED_TEXT, proven=False)
    assert next_write(ended, other, None) is None
    assert problem_of(ended, other, ReasonClass.OURS).startswith("gpu-001 does not run the build that passed")
    assert next_write(ended, node("IDLE", "DRAIN", reason=ENDED_TEXT), None) == UNDRAIN
