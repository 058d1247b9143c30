"""What an operator reads in the Temporal UI at 3 a.m."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, ReasonClass
from fleet_manager.core.domain.slurm_projection import Build, Projection
from fleet_manager.temporal.contracts.adopt import AdoptPhase, AdoptProgress
from fleet_manager.temporal.contracts.common import Verb
from fleet_manager.temporal.contracts.node_actor import ActorState, Claim, Gate
from fleet_manager.temporal.workflows.headlines import actor_details, adopt_details, clock, hold_line

NOW = datetime(2026, 11, 30, 3, 0, 7, tzinfo=UTC)
ID = "0190aaaa-0000-7000-8000-00000000000a"
BENCH = Hold(id=ID, owner="alice", why="psu swap", since=NOW)
SHOWN = Projection(seen=True, drained=True, state="IDLE+DRAIN", reason="fm:alice psu swap", whose=ReasonClass.OURS)


def test_times_say_their_zone() -> None:
    assert clock(NOW) == "2026-11-30 03:00:07 UTC"


def test_a_hold_is_told_with_owner_since_why_id_and_kind() -> None:
    assert hold_line(BENCH) == f"- **alice** since 2026-11-30 03:00:07 UTC: psu swap (`{ID}`, drain)"


def test_a_hold_that_expires_says_when() -> None:
    expiring = BENCH.model_copy(update={"expires": NOW + timedelta(hours=2), "kind": HoldKind.VERDICT})
    assert ", until 2026-11-30 05:00:07 UTC: psu swap" in hold_line(expiring)
    assert hold_line(expiring).endswith(", verdict)")


def test_an_actor_without_anything_says_so() -> None:
    assert actor_details("gpu-001", ActorState()) == "## Node gpu-001\n\nNo hold of ours."


def test_an_actor_tells_every_hold_and_who_has_the_node() -> None:
    gate = BENCH.model_copy(update={"owner": "adopt", "why": "burn-in to come", "kind": HoldKind.GATE})
    state = ActorState(
        holds=(gate, BENCH),
        claim=Claim(id=ID, verb=Verb.ADOPT, workflow_id="adopt/lab/gpu-001", started_by="bob@laptop", since=NOW),
    )
    text = actor_details("gpu-001", state)
    assert "Held by:\n- **adopt** since" in text
    assert "- **alice** since" in text
    assert "No hold" not in text
    assert "Taken by **adopt** since 2026-11-30 03:00:07 UTC, by bob@laptop: `adopt/lab/gpu-001`." in text


def test_an_open_gate_is_told_with_build_and_reservation() -> None:
    state = ActorState(gate=Gate(build=Build(server_id="s", build_id="b-1"), reservation="fm_gpu-001"))
    text = actor_details("gpu-001", state)
    assert "The gate is open for build `b-1` under reservation `fm_gpu-001`." in text


def test_what_slurm_shows_is_told() -> None:
    text = actor_details("gpu-001", ActorState(projection=SHOWN))
    assert "SLURM shows: IDLE+DRAIN, reason `fm:alice psu swap` (ours)." in text


def test_a_reason_that_is_empty_is_shown_as_that() -> None:
    shown = SHOWN.model_copy(update={"reason": "", "whose": ReasonClass.FOREIGN})
    assert "reason `-` (foreign)." in actor_details("gpu-001", ActorState(projection=shown))


def test_a_problem_stands_out() -> None:
    shown = SHOWN.model_copy(update={"problem": "held by foreign: ADMIN SHUTDOWN (set by root)"})
    text = actor_details("gpu-001", ActorState(projection=shown))
    assert "\n**held by foreign: ADMIN SHUTDOWN (set by root)**" in text


def test_trouble_with_slurm_says_that_it_is_tried_again() -> None:
    text = actor_details("gpu-001", ActorState(trouble="slurmctld does not answer"))
    assert "Cannot write SLURM now, tried again shortly: slurmctld does not answer" in text


PROGRESS = AdoptProgress(phase=AdoptPhase.REGISTER, since=NOW, waiting_for="build b-1 to register as gpu-001")


def test_an_adoption_tells_phase_since_when_and_what_for() -> None:
    text = adopt_details("gpu-001", PROGRESS)
    assert text.startswith("## Adopting gpu-001: register\n")
    assert "Since 2026-11-30 03:00:07 UTC: build b-1 to register as gpu-001" in text
    assert "Until" not in text


def test_an_adoption_tells_until_when_and_what_it_has() -> None:
    progress = PROGRESS.model_copy(
        update={
            "until": NOW + timedelta(minutes=30),
            "node": "gpu-001",
            "server_id": "srv-1",
            "build_id": "b-1",
            "job_ids": (7, 8),
        }
    )
    text = adopt_details("gpu-001", progress)
    assert "Until 2026-11-30 03:30:07 UTC at the latest." in text
    assert "- node: `gpu-001`\n- server: `srv-1`\n- build: `b-1`\n- jobs: `7, 8`" in text


def test_what_is_not_known_yet_is_left_out() -> None:
    text = adopt_details("gpu-001", PROGRESS)
    assert "`" not in text
    assert "None" not in text


@pytest.mark.parametrize("phase", list(AdoptPhase))
def test_how_to_stop_is_told_as_long_as_it_can_be_stopped(phase: AdoptPhase) -> None:
    text = adopt_details("gpu-001", PROGRESS.model_copy(update={"phase": phase}))
    stoppable = phase not in (AdoptPhase.DONE, AdoptPhase.GIVING_UP)
    assert ("Cancel this workflow to stop" in text) is stoppable
    if stoppable:
        assert "the node is left held, or untouched if nothing was built yet" in text


def test_a_time_that_a_caller_wrote_in_his_own_zone_is_told_in_utc() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=2)))
    hold = Hold(id=ID, owner="alice", why="psu swap", since=there, expires=there + timedelta(hours=1))
    assert "since 2026-11-30 03:00:07 UTC, until 2026-11-30 04:00:07 UTC" in hold_line(hold)
