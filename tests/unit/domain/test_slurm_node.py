"""What a node's state means, word by word, and what GRES texts say (cases 006, 014, 016, 021)."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_manager.core.domain.slurm_node import (
    BLOCKING_FLAGS,
    Gres,
    NodeBase,
    NodeFlag,
    SlurmNode,
    SlurmNodeState,
    extra_value,
    parse_gres,
)

V0_0_45_WORDS = (
    "INVALID UNKNOWN DOWN IDLE ALLOCATED ERROR MIXED FUTURE EXTERNAL RESERVED UNDRAIN CLOUD RESUME DRAIN COMPLETING "
    "NOT_RESPONDING POWERED_DOWN FAIL POWERING_UP MAINTENANCE REBOOT_REQUESTED REBOOT_CANCELED POWERING_DOWN "
    "DYNAMIC_FUTURE REBOOT_ISSUED PLANNED INVALID_REG POWER_DOWN POWER_UP POWER_DRAIN POWER_DOWN_ASAP "
    "POWER_DOWN_FORCE DYNAMIC_NORM BLOCKED"
).split()
"""The enum of `node.state` in the OpenAPI document of slurmrestd 26.05.5, data_parser v0.0.45; older ones have less."""


def state(text: str) -> SlurmNodeState:
    return SlurmNodeState.from_words(text.split("+"))


def node(text: str, **facts: str) -> SlurmNode:
    return SlurmNode(name="gpu-001", state=state(text), **facts)


@pytest.mark.parametrize("word", V0_0_45_WORDS)
def test_every_word_that_slurmrestd_can_write_is_known(word: str) -> None:
    assert not state(word).unknown


def test_idle_takes_jobs() -> None:
    assert state("IDLE").why_not_schedulable() == ()


@pytest.mark.parametrize(
    ("base", "usable"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),  # full now, and the scheduler may plan on it
        ("DOWN", False),
        ("ERROR", False),
        ("UNKNOWN", False),
        ("FUTURE", False),
    ],
)
def test_which_bases_take_jobs(base: str, usable: bool) -> None:
    assert state(base).schedulable is usable


@pytest.mark.parametrize("base", ["DOWN", "ERROR", "UNKNOWN", "FUTURE"])
def test_a_base_that_takes_no_jobs_is_named(base: str) -> None:
    assert state(base).why_not_schedulable() == (f"its state is {base}",)


TAKES_JOBS = {
    "CLOUD",
    "COMPLETING",
    "DYNAMIC_FUTURE",  # a slurmd has taken the FUTURE node: slurmctld writes IDLE + DYNAMIC_FUTURE (proc_req.c)
    "DYNAMIC_NORM",
    "PLANNED",
    "POWER_UP",
    "REBOOT_CANCEL",
    "REBOOT_CANCELED",
    "RESERVED",  # for the users of the reservation
    "RESUME",
    "UNDRAIN",
}


@pytest.mark.parametrize("flag", list(NodeFlag))
def test_each_flag_keeps_jobs_off_or_does_not(flag: NodeFlag) -> None:
    idle = state(f"IDLE+{flag}")
    assert idle.schedulable is (flag.value in TAKES_JOBS)
    assert bool(idle.why_not_schedulable()) is (flag in BLOCKING_FLAGS)


def test_every_cause_is_told() -> None:
    causes = state("DOWN+DRAIN+NOT_RESPONDING").why_not_schedulable()
    assert causes == ("its state is DOWN", "drained or draining", "its slurmd does not answer")


@pytest.mark.parametrize(
    "words",
    [
        ["IDLE", "DRAIN"],
        ["idle", "drain"],
        [" IDLE ", "Drain"],
        ["DRAIN", "IDLE"],
        ["IDLE", "DRAIN", "DRAIN", ""],
        ["IDLE", "IDLE", "DRAIN"],
    ],
)
def test_case_order_and_blanks_do_not_matter(words: list[str]) -> None:
    assert SlurmNodeState.from_words(words) == SlurmNodeState(NodeBase.IDLE, frozenset({NodeFlag.DRAIN}))


@pytest.mark.parametrize("word", ["DRAIN*", "IDLE~", "BOOT^", "PERFCTRS", "QUANTUM"])
def test_a_word_that_is_not_known_is_kept_and_makes_the_node_not_known_good(word: str) -> None:
    seen = SlurmNodeState.from_words(["IDLE", word])
    assert seen.unknown == {word}
    assert not seen.understood
    assert not seen.schedulable
    assert word in seen.why_not_schedulable()[0]


@pytest.mark.parametrize("words", [[], ["DRAIN"], ["IDLE", "DOWN"], ["ALLOCATED", "IDLE"]])
def test_without_exactly_one_base_a_node_is_not_understood(words: list[str]) -> None:
    seen = SlurmNodeState.from_words(words)
    assert seen.base is None
    assert not seen.understood
    assert "no single base state in SLURM's answer" in seen.why_not_schedulable()


def test_a_state_is_written_as_scontrol_writes_it() -> None:
    assert str(state("DRAIN+IDLE")) == "IDLE+DRAIN"
    assert str(SlurmNodeState.from_words(["DRAIN", "odd"])) == "?+DRAIN+ODD"


@pytest.mark.parametrize(
    ("text", "busy", "draining", "drained"),
    [
        ("IDLE", False, False, False),
        ("IDLE+DRAIN", False, False, True),
        ("ALLOCATED", True, False, False),
        ("ALLOCATED+DRAIN", True, True, False),  # case 014
        ("MIXED+DRAIN", True, True, False),
        ("IDLE+COMPLETING+DRAIN", True, True, False),  # its processes may still be there
        ("DOWN", False, False, False),
        ("DOWN+DRAIN", False, False, True),  # a dead node does not wait for IDLE for ever (case 016)
        ("DOWN+DRAIN+NOT_RESPONDING", False, False, True),
        ("DOWN+COMPLETING+DRAIN", True, True, False),
        ("IDLE+DRAIN+MAINTENANCE+RESERVED", False, False, True),
        ("DRAIN", False, False, False),  # no base: nothing is known
        ("IDLE+DRAIN+QUANTUM", False, False, False),
        ("IDLE+UNDRAIN", False, False, False),
    ],
)
def test_draining_and_drained_are_told_apart(text: str, busy: bool, draining: bool, drained: bool) -> None:
    seen = node(text)
    assert (seen.state.busy, seen.draining, seen.drained(jobs=0)) == (busy, draining, drained)


@pytest.mark.parametrize("text", ["IDLE+DRAIN", "DOWN+DRAIN", "DOWN+DRAIN+NOT_RESPONDING"])
def test_a_node_with_a_job_listed_on_it_is_not_drained_whatever_its_flags(text: str) -> None:
    assert not node(text).drained(jobs=1)


@given(st.sets(st.sampled_from(sorted({*NodeBase, *NodeFlag, "ODD"})), max_size=6), st.integers(0, 2))
def test_drained_is_never_said_of_what_is_busy_or_odd_or_open(words: set[str], jobs: int) -> None:
    seen = SlurmNode(name="n", state=SlurmNodeState.from_words(words))
    if seen.drained(jobs):
        assert "DRAIN" in words
        assert not words & {"ALLOCATED", "MIXED", "COMPLETING", "ODD"}
        assert jobs == 0
        assert not seen.state.schedulable


@pytest.mark.parametrize(
    ("text", "down", "responding", "dead"),
    [
        ("IDLE", False, True, False),
        ("IDLE+NOT_RESPONDING", False, False, True),
        ("DOWN", True, True, True),
        ("ERROR", True, True, True),
        ("DOWN+NOT_RESPONDING", True, False, True),
        ("IDLE+DRAIN", False, True, False),
    ],
)
def test_dead_is_down_or_silent(text: str, down: bool, responding: bool, dead: bool) -> None:
    seen = state(text)
    assert (seen.down, seen.responding, seen.dead) == (down, responding, dead)


@pytest.mark.parametrize(
    ("flag", "rebooting"),
    [("REBOOT_REQUESTED", True), ("REBOOT_ISSUED", True), ("REBOOT_CANCELED", False), ("DRAIN", False)],
)
def test_rebooting_is_asked_for_or_under_way(flag: str, rebooting: bool) -> None:
    assert state(f"IDLE+{flag}").rebooting is rebooting


def test_only_a_node_that_registered_itself_by_dash_z_can_be_deleted() -> None:
    assert state("IDLE+DYNAMIC_NORM").dynamic
    assert not state("IDLE+DYNAMIC_FUTURE").dynamic
    assert not state("IDLE+CLOUD").dynamic


def test_a_reason_is_a_hold_only_while_drain_is_set() -> None:
    assert node("IDLE", reason="left behind by 24.11").hold_reason is None
    assert node("DOWN", reason="Not responding").hold_reason is None
    assert node("IDLE+DRAIN", reason="psu").hold_reason == "psu"


def test_a_drain_without_a_reason_is_a_hold_all_the_same() -> None:
    assert node("IDLE+DRAIN").hold_reason == ""  # case 021


@pytest.mark.parametrize(
    ("text", "there"),
    [("IDLE", True), ("DOWN+NOT_RESPONDING", True), ("FUTURE", False), ("IDLE+DYNAMIC_FUTURE", True), ("DRAIN", True)],
)
def test_only_a_future_node_is_not_in_the_cluster(text: str, there: bool) -> None:
    assert node(text).in_our_world is there


def test_what_the_server_said_beside_the_answer_does_not_make_two_nodes_differ() -> None:
    assert node("IDLE") == SlurmNode(name="gpu-001", state=state("IDLE"), warnings=("something",))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("gpu:8", (Gres("gpu", None, 8),)),
        ("gpu:h100:8", (Gres("gpu", "h100", 8),)),
        ("gpu:h100:8(S:0-1)", (Gres("gpu", "h100", 8),)),
        ("gpu:h100:4(S:0,2),gpu:a100:4(S:1,3)", (Gres("gpu", "h100", 4), Gres("gpu", "a100", 4))),
        ("gpu:h100:8(S:0-1),nic:2", (Gres("gpu", "h100", 8), Gres("nic", None, 2))),
        ("gpu:h100:0(IDX:N/A)", (Gres("gpu", "h100", 0),)),
        ("gpu:h100:8(IDX:0-3,5)", (Gres("gpu", "h100", 8),)),
        (" gpu:8 , nic:2 ", (Gres("gpu", None, 8), Gres("nic", None, 2))),
        ("gpu:8,", (Gres("gpu", None, 8),)),
        ("gpu:h100.80gb:8", (Gres("gpu", "h100.80gb", 8),)),
        ("mps:2K", (Gres("mps", None, 2048),)),
        ("bw:ib:4M", (Gres("bw", "ib", 4 * 1024**2),)),
        ("bw:1g", (Gres("bw", None, 1024**3),)),
        ("bw:3T", (Gres("bw", None, 3 * 1024**4),)),
        ("bw:1P", (Gres("bw", None, 1024**5),)),
        ("bw:lustre:no_consume:4G", (Gres("bw", "lustre", 4 * 1024**3),)),
        ("craynetwork:no_consume:4", (Gres("craynetwork", None, 4),)),
    ],
)
def test_gres_is_read_as_slurm_writes_it(text: str, found: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "gpu",
        "gpu:",
        ":8",
        "gpu:h100",
        "gpu::8",
        "gpu:h100:x",
        "gpu:h100:-1",
        "gpu:h100:1.5",
        "gpu:h100:8:9",
        "gpu:h100:K",
        "gpu:h100:8KK",
        "gpu:h100:²",
        "gpu:h100:\u0663",  # a digit, but not one that SLURM writes
        "gpu h100 8",
        "gpu:8(S:0,nic:2",  # cut in the middle: nic must not vanish in the bracket
        "gpu:8(S:0)x",
        "(S:0)",
    ],
)
def test_nonsense_is_refused_with_an_example_of_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match="as in gpu:h100:8"):
        parse_gres(text)


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
            st.none() | st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True).filter(lambda t: t != "no_consume"),
            st.integers(0, 10**6),
        ),
        max_size=4,
    )
)
def test_what_we_write_reads_back(parts: list[tuple[str, str | None, int]]) -> None:
    gres = tuple(Gres(*part) for part in parts)
    assert parse_gres(",".join(map(str, gres))) == gres


@pytest.mark.parametrize(
    ("extra", "value"),
    [
        ("fm_build=b-1", "b-1"),
        ("other=x fm_build=b-1", "b-1"),
        ("other=x,fm_build=b-1,more=y", "b-1"),
        ("fm_build=a=b", "a=b"),
        ("", None),
        ("fm_build", None),
        ("xfm_build=b-1", None),
        ("fm_builds=b-1", None),
        ("fm_build=", ""),
    ],
)
def test_a_word_of_extra_is_found_by_its_exact_key(extra: str, value: str | None) -> None:
    assert extra_value(extra, "fm_build") == value


def test_no_two_bases_or_flags_share_a_word() -> None:
    assert not {base.value for base in NodeBase} & {flag.value for flag in NodeFlag}
    for one, other in combinations(NodeBase, 2):
        assert SlurmNodeState.from_words([one, other]).base is None
