"""What an adoption decides, row by row (cases 011 to 014, 018, 020, 021, 027, 030, 032, 034, 041)."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import (
    BUILD_KEY,
    USER_DATA_KEY,
    Building,
    BuildState,
    Done,
    Elsewhere,
    Failed,
    Lost,
    NotThisBuild,
    Server,
    ServerStatus,
    Stopped,
)
from fleet_manager.core.domain.slurm_adoption import Seen, cannot_gate, known_ids, survey
from fleet_manager.core.domain.slurm_bootstrap_config import BIRTH_REASON, SlurmBootstrapConfig, UserData
from fleet_manager.core.domain.slurm_build import (
    BuildPlan,
    Wanted,
    Way,
    plan_build,
    refuse_build,
    refuse_config,
    way_of_attempt,
    words_of_build,
)
from fleet_manager.core.domain.slurm_cluster import Partition, Reservation
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, Ownership, render
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import SlurmNode, SlurmNodeState
from fleet_manager.core.domain.slurm_projection import Build
from fleet_manager.core.domain.slurm_registration import (
    RESERVATION_FLAGS,
    Expectation,
    missing_features,
    partition_problem,
    refuse_machine,
    registered,
    reservation_name,
    reservation_problem,
    why_not_registered,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
CLAIM = "0190aaaa-0000-7000-8000-00000000000a"
OTHER = "0190aaaa-0000-7000-8000-00000000000b"
ENDED = "0190aaaa-0000-7000-8000-00000000000c"
NAME = "gpu-001"
METAL = "rack1-u1"

SERVER = Server(
    id="srv-1",
    name=NAME,
    status=ServerStatus.ACTIVE,
    image_id="image-1",
    flavor_name="gpu.h100x8",
    metadata={BUILD_KEY: "b-1", USER_DATA_KEY: "hash-1"},
    hypervisor_hostname=METAL,
    launched_at=NOW - HOUR,
)
WANTED = Wanted(image_id="image-1", image="ubuntu-24.04", flavor="gpu.h100x8", user_data_sha256="hash-1")
BUILD = Build(server_id="srv-1", build_id="b-1")


def node(text: str = "IDLE", **facts: object) -> SlurmNode:
    base = SlurmNode(
        name=NAME,
        state=SlurmNodeState.from_words(text.split("+")),
        features=("h100", "ib"),
        active_features=("h100", "ib"),
        gres="gpu:h100:8(S:0-1)",
        cpus=16,
        memory_mib=64_000,
        instance_id="srv-1",
        extra="fm_build=b-1",
    )
    return replace(base, **facts)


def drained(reason: str, by: str = "root", text: str = "IDLE+DRAIN") -> SlurmNode:
    return node(text, reason=reason, reason_set_by=by)


def hold(hold_id: str, kind: HoldKind = HoldKind.DRAIN, owner: str = "alice", **more: object) -> Hold:
    fields = {"id": hold_id, "owner": owner, "why": "psu swap", "since": NOW - HOUR, "kind": kind}
    return Hold.model_validate({**fields, **more})


def seen(*, birth: str | None = BIRTH_REASON, **facts: object) -> Seen:
    """Return a device in use by nobody: an IDLE node on its own server, no hold, no reservation."""
    holds = facts.get("holds", ())
    base = Seen(
        device_id="dev-1",
        device=NAME,
        node_name=NAME,
        hypervisor=METAL,
        node=node(),
        jobs=(),
        servers=(SERVER,),
        holds=(),
        ownership=Ownership(known_ids=known_ids(holds, [ENDED]), birth_reason=birth),  # type: ignore[arg-type]
        reservations=(),
        now=NOW,
    )
    return replace(base, **facts)


def refused(facts: Seen, *, force: bool = False) -> Refusal:
    refusal = survey(facts, claim_id=CLAIM, force_rebuild=force)
    assert refusal is not None
    return refusal


def begins(facts: Seen, *, force: bool = False) -> bool:
    return survey(facts, claim_id=CLAIM, force_rebuild=force) is None


# -- the survey


def test_a_living_node_on_a_server_that_is_not_the_devices_is_refused() -> None:
    refusal = refused(seen(servers=()))
    assert refusal.code == "AmbiguousNode"
    assert "runs on server srv-1" in refusal.why


def test_no_such_node_is_not_free_when_another_name_runs_on_the_devices_server() -> None:
    refusal = refused(seen(node=None, elsewhere=("rack7-n3",)))
    assert refusal.code == "AmbiguousNode"
    assert "rack7-n3" in refusal.why
    assert "slurm_node to rack7-n3" in refusal.way_out


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "facts",
    [
        seen(),
        seen(node=None, servers=()),  # a device that is free
        seen(node=None),
        seen(node=node(instance_id=""), servers=()),  # a node that does not say on which server it runs
        seen(node=node("DOWN")),
        seen(node=node("DOWN+NOT_RESPONDING"), servers=()),
        seen(node=node("UNKNOWN")),
        seen(node=node("FUTURE")),
        seen(node=node("IDLE+PLANNED")),
        seen(node=node("IDLE", reason="left behind by 24.11", reason_set_by="alice")),  # holds nothing
    ],
)
def test_nothing_stands_against_a_device_that_nobody_uses(facts: Seen, force: bool) -> None:
    assert begins(facts, force=force)


def running(job_id: int) -> SlurmJob:
    return SlurmJob(id=job_id, name="train", states=frozenset({"RUNNING"}), nodes=(NAME,))


def test_a_node_with_jobs_is_refused_and_they_are_named() -> None:
    refusal = refused(seen(node=node("ALLOCATED"), jobs=(running(41), running(42))), force=True)
    assert refusal.code == "NodeInUse"
    assert refusal.why == "Node gpu-001 is in use: 2 job(s) on it (41, 42)."
    assert refusal.way_out == "Drain it first: fleet-manager drain gpu-001 --reason ..."


def test_a_thousand_jobs_do_not_make_a_sentence_without_end() -> None:
    refusal = refused(seen(jobs=tuple(running(n) for n in range(1, 1001))))
    assert "1000 job(s)" in refusal.why
    assert len(refusal.sentence()) < 300


@pytest.mark.parametrize(
    "text",
    ["ALLOCATED", "MIXED", "ALLOCATED+DRAIN", "MIXED+DRAIN", "IDLE+COMPLETING", "DOWN+COMPLETING"],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_node_that_is_busy_by_its_state_alone_is_refused(text: str, force: bool) -> None:
    """Draining is not drained (case 014): also when no job is listed, as the list may be a moment older."""
    refusal = refused(seen(node=node(text)), force=force)
    assert refusal.code == "NodeInUse"
    assert f"its state is {node(text).state}" in refusal.why


def test_a_down_node_with_a_job_on_it_is_in_use() -> None:
    assert refused(seen(node=node("DOWN+DRAIN"), jobs=(running(41),)), force=True).code == "NodeInUse"


@pytest.mark.parametrize("text", ["IDLE+QUANTUM", "DRAIN", "IDLE+DOWN", ""])
def test_a_node_in_a_state_that_is_not_understood_is_refused(text: str) -> None:
    refusal = refused(seen(node=node(text)), force=True)
    assert refusal.code == "NodeStateUnknown"
    assert "which we do not understand" in refusal.why
    assert "scontrol show node" in refusal.way_out


@pytest.mark.parametrize("text", ["IDLE+REBOOT_REQUESTED", "DOWN+REBOOT_ISSUED", "IDLE+DRAIN+REBOOT_ISSUED"])
def test_a_rebooting_node_is_refused(text: str) -> None:
    """A resume during a reboot would clear REBOOT_ISSUED (case 012)."""
    refusal = refused(seen(node=node(text)), force=True)
    assert refusal.code == "NodeRebooting"
    assert str(node(text).state) in refusal.why


@pytest.mark.parametrize(
    ("reason", "by", "shown"),
    [
        ("ADMIN SHUTDOWN", "root", "by root: ADMIN SHUTDOWN"),
        ("psu on fire", "alice", "by alice: psu on fire"),
        ("", "", "by somebody: (no reason given)"),  # case 021
        ("", "root", "by root: (no reason given)"),
        ("Not responding", "alice", "by alice: Not responding"),  # slurmctld's words from a human's hand
        ("fm:alice psu swap", "alice", "by alice: fm:alice psu swap"),
        ("fm:alice psu swap [fm ffffffffffff]", "root", "by root: fm:alice psu swap [fm ffffffffffff]"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_drain_of_somebody_else_is_refused_and_named(reason: str, by: str, shown: str, force: bool) -> None:
    refusal = refused(seen(node=drained(reason, by)), force=force)
    assert refusal.code == "NodeHeld"
    assert f"Node gpu-001 is drained {shown}." == refusal.why
    assert "we never clear a drain that is not ours" in refusal.way_out


@pytest.mark.parametrize("text", ["DOWN", "DOWN+NOT_RESPONDING", "IDLE+FAIL"])
@pytest.mark.parametrize("force", [False, True])
def test_a_node_that_somebody_set_down_with_a_reason_is_refused_before_it_is_claimed(text: str, force: bool) -> None:
    """Else our own DRAIN would turn his words into a drain, and the RESUME under our reservation clear his DOWN."""
    refusal = refused(seen(node=drained("psu on fire", "alice", text)), force=force)
    assert refusal.code == "NodeHeld"
    assert f"is set {node(text).state} by alice: psu on fire" in refusal.why


@pytest.mark.parametrize(
    "reason",
    [
        BIRTH_REASON,
        f"{BIRTH_REASON} : Not responding",
        render((hold(ENDED),)),  # ours, ended
        render((hold(ENDED),)) + " : Not responding",
    ],
)
@pytest.mark.parametrize("text", ["IDLE+DRAIN", "DOWN+DRAIN", "DOWN+DRAIN+NOT_RESPONDING", "DOWN"])
def test_our_own_words_are_no_obstacle(reason: str, text: str) -> None:
    assert begins(seen(node=drained(reason, text=text)))


def test_the_birth_reason_is_ours_only_before_the_verdict() -> None:
    refusal = refused(seen(node=drained(BIRTH_REASON), birth=None))
    assert refusal.code == "NodeHeld"


SYSTEM_TEXTS = ["Not responding", "Kill task failed", "gres/gpu count reported lower than configured (7 < 8)"]


@pytest.mark.parametrize("reason", SYSTEM_TEXTS)
def test_slurmctlds_own_drain_refuses_a_leave_and_says_what_to_do(reason: str) -> None:
    refusal = refused(seen(node=drained(reason)))
    assert refusal.code == "NodeDrainedBySlurm"
    assert refusal.why == f"Node gpu-001 is drained by slurmctld itself: {reason}."
    assert "--force-rebuild" in refusal.way_out


@pytest.mark.parametrize("reason", SYSTEM_TEXTS)
@pytest.mark.parametrize("text", ["IDLE+DRAIN", "DOWN+DRAIN", "DOWN+NOT_RESPONDING", "IDLE+DRAIN+INVALID_REG"])
def test_slurmctlds_own_drain_does_not_refuse_a_forced_rebuild(reason: str, text: str) -> None:
    assert begins(seen(node=drained(reason, text=text)), force=True)


@pytest.mark.parametrize("text", ["DOWN+DRAIN", "DOWN+DRAIN+NOT_RESPONDING", "DOWN+NOT_RESPONDING"])
def test_slurmctlds_own_drain_of_a_machine_that_is_gone_is_no_obstacle(text: str) -> None:
    assert begins(seen(node=drained("Not responding", text=text), servers=()))


@pytest.mark.parametrize("reason", ["Not responding", "Node unexpectedly rebooted"])
def test_a_down_node_is_told_before_the_claim_what_would_be_told_after_it(reason: str) -> None:
    """Our DRAIN keeps the reason that is there, so the build's own survey would refuse it as slurmctld's drain."""
    refusal = refused(seen(node=drained(reason, text="DOWN")))
    assert refusal.code == "NodeDrainedBySlurm"
    assert refusal.why == f"Node gpu-001 is set DOWN by slurmctld itself: {reason}."


def test_a_hold_of_somebody_else_is_refused_with_owner_and_since() -> None:
    refusal = refused(seen(holds=(hold(OTHER),)), force=True)
    assert refusal.code == "NodeHeld"
    assert refusal.why == "Node gpu-001 is held by alice since 2026-11-30 11:00 UTC: psu swap."
    assert f"--hold {OTHER}" in refusal.way_out


def test_every_holder_is_named() -> None:
    refusal = refused(seen(holds=(hold(OTHER), hold(ENDED, owner="bob", why="fans"))))
    assert "alice since 2026-11-30 11:00 UTC: psu swap; bob since 2026-11-30 11:00 UTC: fans" in refusal.why


def test_a_hold_is_refused_also_while_slurm_has_no_such_node() -> None:
    assert refused(seen(node=None, servers=(), holds=(hold(OTHER),))).code == "NodeHeld"


def test_a_hold_that_has_expired_is_none() -> None:
    assert begins(seen(holds=(hold(OTHER, expires=NOW),)))
    assert begins(seen(holds=(hold(OTHER, expires=NOW - HOUR),)))
    assert not begins(seen(holds=(hold(OTHER, expires=NOW + HOUR),)))


def test_the_gate_of_our_own_claim_is_no_obstacle() -> None:
    gate = hold(CLAIM, HoldKind.GATE, "adopt")
    assert begins(seen(holds=(gate,), node=drained(render((gate,)))))


def test_an_earlier_verdict_is_what_an_adoption_is_for() -> None:
    verdict = hold(OTHER, HoldKind.VERDICT, "adopt")
    assert begins(seen(holds=(verdict,), node=drained(render((verdict,)))))


def test_a_hold_beside_our_gate_is_still_an_obstacle() -> None:
    holds = (hold(CLAIM, HoldKind.GATE, "adopt"), hold(OTHER))
    assert refused(seen(holds=holds, node=drained(render(holds)))).code == "NodeHeld"


def reservation(name: str = "maint", **facts: object) -> Reservation:
    base = Reservation(name=name, nodes=(NAME, "gpu-002"), users=("alice",), start=NOW - HOUR, end=NOW + HOUR)
    return replace(base, **facts)


@pytest.mark.parametrize(
    ("there", "who"),
    [
        (reservation(), "alice"),
        (reservation(start=NOW + HOUR, end=NOW + 2 * HOUR), "alice"),  # one to come: ours has no end
        (reservation(end=None), "alice"),
        (reservation(users=("alice", "bob")), "alice, bob"),
        (reservation(users=(), accounts=("physics",)), "physics"),
        (reservation(users=()), "nobody named"),
        (reservation(reservation_name("gpu-002")), "alice"),  # another node's own, over this one
        (reservation("fm_GPU-001"), "alice"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_reservation_of_others_now_or_to_come_is_refused(there: Reservation, who: str, force: bool) -> None:
    refusal = refused(seen(reservations=(reservation(nodes=("gpu-009",)), there)), force=force)
    assert refusal.code == "NodeReserved"
    assert refusal.why == f"Node gpu-001 is in reservation {there.name} (users: {who})."


@pytest.mark.parametrize(
    "there",
    [
        reservation(nodes=("gpu-002",)),
        reservation(start=NOW - 2 * HOUR, end=NOW - HOUR),
        reservation(reservation_name(NAME), nodes=(NAME,)),  # what an earlier try of ours left
    ],
)
def test_a_reservation_that_is_over_or_elsewhere_or_our_own_is_no_obstacle(there: Reservation) -> None:
    assert begins(seen(reservations=(there,)))


def test_two_servers_are_both_named_and_neither_is_chosen() -> None:
    refusal = refused(seen(servers=(replace(SERVER, id="srv-9"), SERVER)), force=True)
    assert refusal.code == "DuplicateServers"
    assert "srv-1 and srv-9" in refusal.why
    assert "we never choose one to delete" in refusal.way_out


@pytest.mark.parametrize("spelling", ["GPU-001", "Gpu-001"])
def test_another_spelling_in_slurm_is_refused_with_both(spelling: str) -> None:
    refusal = refused(seen(node=node(name=spelling)), force=True)
    assert refusal.code == "AmbiguousNode"
    assert f"SLURM has the node as {spelling}, the hub as gpu-001" in refusal.why
    assert f"slurm_node to {spelling}" in refusal.way_out


@pytest.mark.parametrize("hypervisor", [None, ""])
def test_a_device_without_a_hypervisor_is_refused(hypervisor: str | None) -> None:
    refusal = refused(seen(node=None, servers=(), hypervisor=hypervisor))
    assert refusal.code == "DeviceWithoutHypervisor"
    assert "openstack hypervisor list" in refusal.way_out


def test_a_server_on_another_machine_is_refused_with_both() -> None:
    refusal = refused(seen(servers=(replace(SERVER, hypervisor_hostname="rack9-u9"),)), force=True)
    assert refusal.code == "LandedElsewhere"
    assert "srv-1" in refusal.why
    assert "is on rack9-u9, not on rack1-u1" in refusal.why


def test_a_server_whose_machine_is_not_shown_is_looked_at_again_after_the_build() -> None:
    assert begins(seen(servers=(replace(SERVER, hypervisor_hostname=None),)))


@pytest.mark.parametrize(
    "facts",
    [
        seen(node=node("ALLOCATED")),
        seen(node=drained("psu", "alice")),
        seen(holds=(hold(OTHER),)),
        seen(reservations=(reservation(),)),
        seen(servers=(SERVER, replace(SERVER, id="srv-9"))),
        seen(hypervisor=None),
    ],
)
def test_every_refusal_has_a_way_out_and_fits_a_history(facts: Seen) -> None:
    refusal = refused(facts)
    assert refusal.way_out
    assert refusal.code.isidentifier()
    assert len(refusal.sentence()) < 500


# -- create, rebuild or leave


def plan(server: Server | None, wanted: Wanted = WANTED, *, force: bool = False, build: str = "b-2") -> BuildPlan:
    found = plan_build(wanted, server, build, force_rebuild=force)
    assert isinstance(found, BuildPlan), found
    return found


def no_plan(server: Server, wanted: Wanted = WANTED, *, force: bool = False) -> Refusal:
    found = plan_build(wanted, server, "b-2", force_rebuild=force)
    assert isinstance(found, Refusal), found
    return found


@pytest.mark.parametrize("force", [False, True])
def test_a_device_without_a_server_gets_one(force: bool) -> None:
    assert plan(None, force=force).way is Way.CREATE


def test_what_matches_already_is_left() -> None:
    assert plan(SERVER) == BuildPlan(Way.LEAVE, "image, flavor and user-data match already")


def test_a_matching_server_that_is_switched_off_is_left_to_be_started() -> None:
    """Case 032: no rebuild unless forced when image, flavor and user-data are right."""
    assert plan(replace(SERVER, status=ServerStatus.SHUTOFF)).way is Way.LEAVE


def test_the_hash_that_the_cloud_shows_counts_before_the_one_that_we_wrote() -> None:
    assert plan(replace(SERVER, user_data_sha256="hash-1")).way is Way.LEAVE
    assert plan(replace(SERVER, user_data_sha256="hash-0")).way is Way.REBUILD


@pytest.mark.parametrize(
    ("server", "wanted", "why"),
    [
        (SERVER, replace(WANTED, image_id="image-2", image="new"), "image image-1 becomes new (image-2)"),
        (SERVER, replace(WANTED, user_data_sha256="hash-2"), "the user-data differs"),
        (
            replace(SERVER, metadata={USER_DATA_KEY: "hash-1"}),
            WANTED,
            "the server carries no build id of ours",
        ),
        (
            replace(SERVER, metadata={}),
            replace(WANTED, image_id="image-2", image="new"),
            "image image-1 becomes new (image-2); the user-data differs; the server carries no build id of ours",
        ),
        (replace(SERVER, status=ServerStatus.ERROR), WANTED, "the server is ERROR"),
    ],
)
def test_what_differs_is_rebuilt_in_place_and_said(server: Server, wanted: Wanted, why: str) -> None:
    assert plan(server, wanted) == BuildPlan(Way.REBUILD, why)


def test_force_rebuilds_what_matches() -> None:
    assert plan(SERVER, force=True) == BuildPlan(Way.REBUILD, "forced")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "server",
    [
        replace(SERVER, metadata={BUILD_KEY: "b-2"}),
        replace(SERVER, metadata={BUILD_KEY: "b-2"}, status=ServerStatus.BUILD, task_state="spawning"),
        replace(SERVER, metadata={BUILD_KEY: "b-2"}, status=ServerStatus.REBUILD, task_state="rebuilding"),
        replace(SERVER, metadata={BUILD_KEY: "b-2"}, status=ServerStatus.ERROR),
        replace(SERVER, metadata={BUILD_KEY: "b-2"}, locked=True),
    ],
)
def test_what_an_earlier_try_of_this_adoption_made_is_left_even_when_forced(server: Server, force: bool) -> None:
    assert plan(server, force=force) == BuildPlan(Way.LEAVE, "an earlier try of this adoption has made this build")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("status", [ServerStatus.ACTIVE, ServerStatus.SHUTOFF, ServerStatus.ERROR])
def test_another_flavor_cannot_be_rebuilt_and_both_are_named(status: ServerStatus, force: bool) -> None:
    refusal = no_plan(replace(SERVER, status=status), replace(WANTED, flavor="gpu.h200x8"), force=force)
    assert refusal.code == "RecreateNeeded"
    assert "has flavor gpu.h100x8, the configuration asks for gpu.h200x8" in refusal.why
    assert refusal.way_out.startswith("Recreate needed: release the device")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (replace(SERVER, volume_booted=True, image_id=None), "it boots from a volume"),
        (replace(SERVER, locked=True), "it is locked"),
        (replace(SERVER, task_state="rebooting"), "Nova is busy with it (ACTIVE/rebooting)"),
        (replace(SERVER, status=ServerStatus.ERROR, launched_at=None), "it never ran"),
        (replace(SERVER, status=ServerStatus.PAUSED), "it is PAUSED"),
        (replace(SERVER, status=ServerStatus.SOFT_DELETED), "it is deleted or being deleted"),
    ],
)
def test_a_server_that_cannot_be_rebuilt_is_refused_with_why(server: Server, why: str) -> None:
    refusal = no_plan(server, force=True)
    assert refusal.code == "RebuildRefused"
    assert f"Server srv-1 cannot be rebuilt: {why}" in refusal.why


def test_a_locked_server_that_matches_is_left() -> None:
    assert plan(replace(SERVER, locked=True)).way is Way.LEAVE


@pytest.mark.parametrize("status", [ServerStatus.PAUSED, ServerStatus.SUSPENDED, ServerStatus.RESCUE])
def test_a_matching_server_in_an_odd_state_is_not_taken_for_built(status: ServerStatus) -> None:
    assert no_plan(replace(SERVER, status=status)).code == "RebuildRefused"


def test_a_matching_server_that_nova_is_busy_with_is_not_left() -> None:
    assert no_plan(replace(SERVER, task_state="deleting")).code == "RebuildRefused"


@pytest.mark.parametrize(
    ("mark", "way"),
    [
        ("create-1", Way.CREATE),
        ("rebuild-12", Way.REBUILD),
        ("leave-1", Way.LEAVE),
        ("create", Way.CREATE),
        ("", None),
        (None, None),
        ("CREATE-1", None),
        ("other-1", None),
    ],
)
def test_how_the_present_build_came_about_is_read_from_its_mark(mark: str | None, way: Way | None) -> None:
    assert way_of_attempt(mark) is way


# -- where a build stands


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (Done(), "the server is ACTIVE"),
        (Stopped(), "the server is SHUTOFF and is being started"),
        (Building("BUILD/spawning"), "the server is BUILD/spawning"),
        (NotThisBuild("b-0", busy=False), "the server carries build b-0"),
        (NotThisBuild(None, busy=True), "the server carries build (none) and Nova is at work"),
        (Failed("burnt"), "burnt"),
        (Lost("the server is gone"), "the server is gone"),
        (Elsewhere(METAL, "rack9-u9"), "the server is on rack9-u9, not on rack1-u1"),
        (Elsewhere(METAL, None), "the server is on a machine that is not shown, not on rack1-u1"),
    ],
)
def test_a_build_is_told_in_words(state: BuildState, words: str) -> None:
    assert words_of_build(state) == words


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (Done(), None),
        (Stopped(), None),
        (Building("BUILD"), None),
        (NotThisBuild("b-0", busy=False), None),
        (Failed("No valid host was found.", capacity=True), "NoCapacity"),
        (Failed("burnt"), "BuildFailed"),
        (Lost("the server is gone"), "ServerLost"),
        (Elsewhere(METAL, "rack9-u9"), "LandedElsewhere"),
        (Elsewhere(METAL, None), "LandedElsewhere"),
    ],
)
def test_only_an_end_refuses_a_build(state: BuildState, code: str | None) -> None:
    refusal = refuse_build(state, NAME, "srv-1")
    assert (refusal.code if refusal else None) == code
    if refusal:
        assert "srv-1" in refusal.why
        assert NAME in refusal.why
        assert refusal.way_out


def test_want_of_room_is_not_told_as_a_broken_node() -> None:
    refusal = refuse_build(Failed("No valid host was found", capacity=True), NAME, "srv-1")
    assert refusal
    assert refusal.why == "Nova found no room for server srv-1 of device gpu-001: No valid host was found."
    assert "The node is not broken." in refusal.way_out


# -- registered by this build


@pytest.mark.parametrize(
    ("there", "ours"),
    [
        (node("IDLE+DRAIN+DYNAMIC_NORM"), True),
        (node("DOWN+DRAIN"), True),  # back after SlurmdTimeout
        (node("DOWN"), True),
        (node("IDLE+MAINTENANCE+RESERVED"), True),
        (node("UNKNOWN+DRAIN+INVALID_REG"), True),  # refused by slurmctld: there, and to be told why
        (node("IDLE+DRAIN", instance_id="srv-0"), False),
        (node("IDLE+DRAIN", instance_id=""), False),
        (node("IDLE+DRAIN", extra="fm_build=b-0"), False),
        (node("IDLE+DRAIN", extra=""), False),
        (node("IDLE+DRAIN", extra="fm_build=b-10"), False),
        (node("IDLE+DRAIN", extra="x=1 fm_build=b-1"), True),
        (node("IDLE+DRAIN+INVALID_REG", extra="fm_build=b-0"), False),
        (node("IDLE+NOT_RESPONDING"), False),
        (node("DOWN+NOT_RESPONDING+DRAIN"), False),
        (node("UNKNOWN"), False),  # slurmctld has just restarted and remembers the extra
        (node("FUTURE"), False),
        (node("IDLE+QUANTUM"), False),
        (node("DRAIN"), False),
    ],
)
def test_only_this_very_build_counts_as_registered(there: SlurmNode, ours: bool) -> None:
    assert registered(there, BUILD) is ours


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (None, "SLURM has no node gpu-001 yet"),
        (
            node("IDLE+DRAIN", instance_id="srv-0", extra="fm_build=b-0"),
            "gpu-001 is there, but not from this build: instance_id srv-0, extra fm_build=b-0; "
            "expected srv-1, fm_build=b-1",
        ),
        (
            node("IDLE", instance_id="", extra=""),
            "gpu-001 is there, but not from this build: instance_id (none), extra (none); expected srv-1, fm_build=b-1",
        ),
        (
            node("DOWN+NOT_RESPONDING"),
            "gpu-001 registered from this build, its slurmd does not answer (DOWN+NOT_RESPONDING)",
        ),
        (node("UNKNOWN"), "gpu-001 is UNKNOWN"),
    ],
)
def test_a_wait_for_the_registration_says_what_is_there_instead(there: SlurmNode | None, words: str) -> None:
    assert why_not_registered(there, NAME, BUILD) == words


# -- the whole machine

PROMISED = Expectation(
    build=BUILD,
    gres="gpu:h100:8",
    features=("h100", "ib"),
    flavor_vcpus=18,
    flavor_ram_mib=65_536,
    reserved_cpus=2,
    reserved_memory_mib=2048,
)


def short(there: SlurmNode, **promised: object) -> str:
    refusal = refuse_machine(there, replace(PROMISED, **promised))
    if refusal is None:
        return ""
    assert refusal.code == "IncompleteMachine"
    assert "--force-rebuild" in refusal.way_out
    words = refusal.why.removeprefix("Node gpu-001 registered with less than promised: ").removesuffix(".")
    assert words, "a refusal that says nothing"
    return words


@pytest.mark.parametrize(
    ("there", "promised"),
    [
        (node(), {}),
        (node(cpus=18, memory_mib=65_536), {}),
        (node(memory_mib=63_488), {}),  # exactly the flavor less the reserve
        (node(cpus=64, memory_mib=10**6), {}),
        (node(gres="gpu:h100:8(S:0-1),nic:2"), {}),
        (node(gres="nic:2,gpu:h100:4(S:0),gpu:h100:4(S:1)"), {}),
        (node(gres="gpu:h100:4,gpu:a100:4"), {"gres": "gpu:8"}),  # any type will do
        (node(gres=""), {"gres": ""}),
        (node(gres="gpu:h100:9"), {}),
        (node(gres="bw:ib:no_consume:4G,gpu:h100:8"), {}),
    ],
)
def test_a_whole_machine_passes(there: SlurmNode, promised: dict[str, object]) -> None:
    assert short(there, **promised) == ""


@pytest.mark.parametrize(
    ("there", "promised", "words"),
    [
        (node(gres="gpu:h100:7"), {}, "7 of 8 GPUs of type h100"),  # case 041
        (node(gres="gpu:7"), {"gres": "gpu:8"}, "7 of 8 GPUs"),
        (node(gres="gpu:h100:7(S:0-1)"), {"gres": "gpu:8"}, "7 of 8 GPUs"),
        (node(gres=""), {}, "0 of 8 GPUs of type h100"),
        (node(gres="gpu:a100:8"), {}, "0 of 8 GPUs of type h100"),  # another machine than the one that was paid for
        (node(gres="gpu:8"), {}, "0 of 8 GPUs of type h100"),  # the node says no type
        (node(gres="gpu:h100:8"), {"gres": "gpu:h100:8,nic:2"}, "0 of 2 nic"),
        (node(cpus=15), {}, "15 of 16 CPUs"),
        (node(memory_mib=63_487), {}, "63487 of 63488 MiB of memory"),
        (
            node(gres="gpu:h100:7", cpus=8, memory_mib=1),
            {},
            "7 of 8 GPUs of type h100; 8 of 16 CPUs; 1 of 63488 MiB of memory",
        ),
        (
            node(
                "DOWN+DRAIN+INVALID_REG",
                reason="gres/gpu count reported lower than configured (7 < 8), Low CPUs",
            ),
            {},
            "7 of 8 GPUs; slurmctld refuses its registration: "
            "gres/gpu count reported lower than configured (7 < 8), Low CPUs",
        ),
        (
            node("IDLE+DRAIN+INVALID_REG", reason="Low RealMemory (reported:900 < 100.00% of configured:4000)"),
            {},
            "slurmctld refuses its registration: Low RealMemory (reported:900 < 100.00% of configured:4000)",
        ),
        (node("IDLE+DRAIN+INVALID_REG"), {}, "slurmctld refuses its registration: no reason given"),
        (node(gres="gpu:h100:eight"), {}, "its GRES 'gpu:h100:eight' cannot be read, gpu:h100:8 was promised"),
    ],
)
def test_less_than_promised_is_refused_with_both_figures(
    there: SlurmNode, promised: dict[str, object], words: str
) -> None:
    assert short(there, **promised) == words


def test_a_lower_count_in_the_reason_of_a_good_registration_is_history() -> None:
    old = node("IDLE+DRAIN", reason="gres/gpu count reported lower than configured (7 < 8)")
    assert short(old) == ""


@pytest.mark.parametrize(
    ("features", "active", "wanted", "missing"),
    [
        (("h100", "ib"), ("h100", "ib"), ("h100", "ib"), None),
        (("ib", "h100"), ("h100", "ib"), ("h100", "ib"), None),  # order says nothing
        (("h100",), ("h100",), ("h100", "ib"), ("h100", "ib")),
        (("h100", "ib", "old"), ("h100", "ib", "old"), ("h100", "ib"), ("h100", "ib")),
        (("h100", "ib"), ("h100",), ("h100", "ib"), ("h100", "ib")),  # there, and not active
        (("h100",), ("h100", "ib"), ("h100", "ib"), ("h100", "ib")),  # active, and lost at the next reconfigure
        ((), (), ("h100",), ("h100",)),
        (("h100",), ("h100",), (), None),  # the configuration says nothing of features
    ],
)
def test_features_are_set_when_they_differ(
    features: tuple[str, ...], active: tuple[str, ...], wanted: tuple[str, ...], missing: tuple[str, ...] | None
) -> None:
    assert missing_features(node(features=features, active_features=active), wanted) == missing


# -- the reservation and the partition

OWN = Reservation(
    name="fm_gpu-001",
    nodes=(NAME,),
    users=("fleet",),
    flags=frozenset({"MAINT", "IGNORE_JOBS", "SPEC_NODES"}),
    start=NOW - timedelta(minutes=1),
)


def test_our_reservation_guards_the_node() -> None:
    assert reservation_problem(OWN, NAME, "fleet", NOW) == ""
    assert OWN.name == reservation_name(NAME)
    assert set(RESERVATION_FLAGS) <= OWN.flags


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (None, "there is no reservation fm_gpu-001"),
        (replace(OWN, nodes=(NAME, "gpu-002")), "reservation fm_gpu-001 is of gpu-001, gpu-002, not of gpu-001 alone"),
        (replace(OWN, nodes=("gpu-002",)), "reservation fm_gpu-001 is of gpu-002, not of gpu-001 alone"),
        (replace(OWN, nodes=()), "reservation fm_gpu-001 is of no node, not of gpu-001 alone"),
        (replace(OWN, flags=frozenset({"IGNORE_JOBS"})), "reservation fm_gpu-001 lacks the flag MAINT"),
        (replace(OWN, users=("fleet", "bob")), "reservation fm_gpu-001 lets in fleet, bob, not fleet alone"),
        (replace(OWN, users=("bob",)), "reservation fm_gpu-001 lets in bob, not fleet alone"),
        (replace(OWN, users=()), "reservation fm_gpu-001 lets in nobody, not fleet alone"),
        (replace(OWN, start=NOW + HOUR), "reservation fm_gpu-001 is not active now"),
        (replace(OWN, end=NOW), "reservation fm_gpu-001 is not active now"),
        # when it runs out, its burn-in dies and a user's job starts (slurm-api.md 11)
        (
            replace(OWN, end=NOW + HOUR),
            "reservation fm_gpu-001 ends at 2026-11-30 13:00 UTC, and users' jobs would start then",
        ),
    ],
)
def test_a_reservation_that_does_not_guard_the_node_is_told(there: Reservation | None, words: str) -> None:
    assert reservation_problem(there, NAME, "fleet", NOW) == words


PARTITIONS = (
    Partition(name="main", nodes=("gpu-002",)),
    Partition(name="burnin", nodes=(NAME,)),
    Partition(name="closed", nodes=(NAME,), state="DOWN"),
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("burnin", ""),
        ("burn", "partition burn does not exist (there are: main, burnin, closed); set FLEET_SITE__BURN_IN_PARTITION"),
        ("closed", "partition closed is DOWN"),
        (
            "main",
            "node gpu-001 is not in partition main; set FLEET_SITE__BURN_IN_PARTITION or the role's features",
        ),
    ],
)
def test_a_partition_that_cannot_run_the_burn_in_is_told(name: str, words: str) -> None:
    assert partition_problem(PARTITIONS, name, NAME) == words


def test_a_cluster_without_partitions_is_told() -> None:
    assert "(there are: none)" in partition_problem((), "burnin", NAME)


def test_a_site_without_reservations_over_rest_is_refused_with_what_is_needed() -> None:
    refusal = cannot_gate("24.11.5")
    assert refusal.code == "SiteCannotGate"
    assert "SLURM 24.11.5 cannot make reservations over REST" in refusal.why
    assert "25.05" in refusal.way_out


def test_reasons_are_ours_by_the_ids_of_live_and_ended_holds() -> None:
    assert known_ids([hold(OTHER)], [ENDED]) == {"00000000000b", "00000000000c"}


# -- the configuration

SCRIPT = f"""## template: jinja
#cloud-config
runcmd:
  - slurmd -Z -N gpu-001 --conf 'Gres=gpu:h100:8 State=DRAIN Reason="{BIRTH_REASON}"'
    --instance-id {{{{ v1.instance_id }}}} --extra fm_build={{{{ ds.meta_data.meta.fm_build }}}}
"""


def config(script: str = SCRIPT, **facts: object) -> SlurmBootstrapConfig:
    fields = {
        "id": "cfg-1",
        "site": "lab",
        "device_role": "gpu-h100",
        "image": "ubuntu-24.04",
        "flavor": "gpu.h100x8",
        "user_data": UserData(base64.b64encode(script.encode()).decode()),
        "revision": 3,
    }
    return SlurmBootstrapConfig.model_validate({**fields, **facts})


def test_a_whole_configuration_is_built_from() -> None:
    assert refuse_config(config(), BIRTH_REASON) is None


@pytest.mark.parametrize(
    ("facts", "fields", "body"),
    [
        ({"image": None}, "image", '{"image": ...}'),
        ({"image": ""}, "image", '{"image": ...}'),
        ({"flavor": None}, "flavor", '{"flavor": ...}'),
        ({"image": None, "flavor": None}, "image and flavor", '{"image": ..., "flavor": ...}'),
    ],
)
def test_a_missing_field_is_told_with_site_role_field_and_call(facts: dict[str, None], fields: str, body: str) -> None:
    refusal = refuse_config(config(**facts), BIRTH_REASON)
    assert refusal
    assert refusal.code == "BootstrapConfigIncomplete"
    assert refusal.why == f"The configuration of role gpu-h100 at site lab has no {fields}."
    assert refusal.way_out == f"Set it: PATCH /api/v1/sites/lab/slurm-bootstrap-configs/gpu-h100 {body}"


def test_user_data_that_would_not_be_born_drained_is_refused_without_showing_it() -> None:
    refusal = refuse_config(config(SCRIPT.replace("State=DRAIN", "Secret=s3cr3t")), BIRTH_REASON)
    assert refusal
    assert refusal.code == "BootstrapConfigIncomplete"
    assert "role gpu-h100 at site lab" in refusal.why
    assert "State=DRAIN" in refusal.why
    assert 'slurm-bootstrap-configs/gpu-h100 {"user_data": ...}' in refusal.way_out
    assert "s3cr3t" not in refusal.sentence()


def test_user_data_with_another_sites_birth_reason_is_refused() -> None:
    refusal = refuse_config(config(), "born at another site")
    assert refusal
    assert 'Reason="born at another site"' in refusal.why
