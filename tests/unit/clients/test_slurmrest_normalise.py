"""Every form in which a fact was ever written becomes the one domain value."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from fleet_manager.core.clients.slurmrest import normalise, wire
from fleet_manager.core.domain.slurm_cluster import SlurmVersion
from fleet_manager.core.domain.slurm_job import JobEnd, JobPhase, judge
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag


def a_node(**fields: Any) -> Any:
    return normalise.node(msgspec.convert({"name": "gpu01", **fields}, wire.WireNode))


def a_job(**fields: Any) -> Any:
    return normalise.job(msgspec.convert({"job_id": 7, **fields}, wire.WireJob))


def a_record(**fields: Any) -> Any:
    return normalise.job_record(msgspec.convert({"job_id": 7, **fields}, wire.WireRecord))


STATES: list[tuple[Any, Any]] = [
    (["IDLE", "DRAIN"], None),
    ("IDLE+DRAIN", None),
    ("idle", ["DRAIN"]),
    ("idle", ["drain"]),
    ("Idle", "DRAIN"),
    (["idle", "drain"], []),
]


@pytest.mark.parametrize(("state", "flags"), STATES)
def test_a_state_of_any_form_is_base_and_flags(state: Any, flags: Any) -> None:
    """Case 006."""
    node = a_node(state=state, state_flags=flags)
    assert (node.state.base, node.state.flags) == (NodeBase.IDLE, {NodeFlag.DRAIN})
    assert node.state.understood


@pytest.mark.parametrize(
    "state", [["IDLE", "BRAND_NEW"], "drain*", "idle~", "IDLE+BRAND_NEW", [], None, ["IDLE", "DOWN"]]
)
def test_a_word_that_is_not_known_is_kept_and_makes_the_node_not_known_good(state: Any) -> None:
    node = a_node(state=state)
    assert not node.state.understood
    assert not node.state.schedulable
    assert not node.drained(jobs=0)


NUMBERS: list[tuple[Any, int | None]] = [
    (5, 5),
    (5.0, 5),
    ({"set": True, "infinite": False, "number": 5}, 5),
    ({"number": 5}, 5),
    ({"set": False, "infinite": False, "number": 5}, None),
    ({"set": True, "infinite": True, "number": 0}, None),
    ({"set": False, "infinite": True, "number": 0}, None),
    (4294967294, None),
    (4294967295, None),
    (18446744073709551614, None),
    (None, None),
]


@pytest.mark.parametrize(("raw", "value"), NUMBERS)
def test_a_number_of_any_form(raw: Any, value: int | None) -> None:
    assert normalise.number(msgspec.convert(raw, wire.AnyNumber)) == value
    assert a_job(time_limit=raw).time_limit_minutes == value


@pytest.mark.parametrize("raw", [0, {"set": True, "infinite": False, "number": 0}, {"set": False, "number": 9}, None])
def test_no_time_is_none(raw: Any) -> None:
    assert a_node(reason_changed_at=raw, boot_time=raw).reason_changed_at is None


@pytest.mark.parametrize("raw", [1796042570, {"set": True, "infinite": False, "number": 1796042570}])
def test_a_time_is_aware(raw: Any) -> None:
    assert a_node(boot_time=raw).boot_time == datetime(2026, 11, 30, 12, 42, 50, tzinfo=UTC)


HOSTLISTS: list[tuple[str, tuple[str, ...]]] = [
    ("", ()),
    ("(null)", ()),
    ("None assigned", ()),
    ("gpu01", ("gpu01",)),
    ("gpu01,cpu-0", ("gpu01", "cpu-0")),
    ("gpu-[1-3,7],cpu-0", ("gpu-1", "gpu-2", "gpu-3", "gpu-7", "cpu-0")),
    ("gpu[001-003]", ("gpu001", "gpu002", "gpu003")),
    ("gpu[008-011]", ("gpu008", "gpu009", "gpu010", "gpu011")),
    ("rack[1-2]n[01-02]", ("rack1n01", "rack1n02", "rack2n01", "rack2n02")),
    ("a.b-c_d1", ("a.b-c_d1",)),
]


@pytest.mark.parametrize(("text", "names"), HOSTLISTS)
def test_a_hostlist_is_expanded(text: str, names: tuple[str, ...]) -> None:
    """Case 031."""
    assert sorted(normalise.expand(text)) == sorted(names)


BAD_HOSTLISTS = [
    "gpu[1-3",
    "gpu1-3]",
    "gpu[]",
    "gpu[3-1]",
    "gpu[a-b]",
    "a,,b",
    ",a",
    "a,",
    "@all",
    "a!b",
    "a&b",
    "a b",
    "a[1]]",
]


@pytest.mark.parametrize("text", BAD_HOSTLISTS)
def test_a_bad_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        normalise.expand(text)


RESOURCES: list[dict[str, Any]] = [
    {"job_resources": {"count": 1, "nodes": {"list": "other", "allocation": [{"name": "other"}]}}},
    {"job_resources": {"nodes": "other", "allocated_nodes": [{"nodename": "other"}]}},
    {"job_resources": {"nodes": "other", "allocated_nodes": {"0": {"nodename": "other"}}}},
    {"job_resources": None},
    {},
]


@pytest.mark.parametrize("resources", RESOURCES)
def test_a_jobs_nodes_come_from_the_top_level_hostlist_only(resources: dict[str, Any]) -> None:
    """Case 009: all three forms of `job_resources` are read over."""
    assert a_job(nodes="gpu[01-02]", **resources).nodes == ("gpu01", "gpu02")


TIMED_OUT = {
    "status": ["SIGNALED"],
    "return_code": {"set": False, "infinite": False, "number": 0},
    "signal": {"id": {"set": True, "infinite": False, "number": 15}, "name": "TERM"},
}
SUCCESS = {
    "status": ["SUCCESS"],
    "return_code": {"set": True, "infinite": False, "number": 0},
    "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
}


def test_a_timed_out_job_has_failed_in_both_of_its_forms() -> None:
    """Case 005: slurmdbd says SUCCESS and code 0 of a job that hung."""
    live = a_job(job_state=["TIMEOUT"], exit_code=TIMED_OUT)
    record = a_record(state={"current": ["TIMEOUT"], "reason": "None"}, exit_code=SUCCESS)
    assert (live.return_code, live.signal) == (None, 15)
    assert (record.return_code, record.signal) == (0, None)
    assert {judge(job).end for job in (live, record)} == {JobEnd.FAILED}


EXITS: list[tuple[Any, int | None, int | None]] = [
    (SUCCESS, 0, None),
    (TIMED_OUT, None, 15),
    ({"status": "ERROR", "return_code": 3, "signal": {"signal_id": 0, "name": ""}}, 3, None),
    ({"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "KILL"}}, 0, 9),
    (768, 3, None),
    (9, 0, 9),
    (None, None, None),
]


@pytest.mark.parametrize(("raw", "code", "signal"), EXITS)
def test_an_exit_code_of_any_form(raw: Any, code: int | None, signal: int | None) -> None:
    job = a_job(job_state="COMPLETED", exit_code=raw)
    assert (job.return_code, job.signal) == (code, signal)


def test_a_record_of_slurmdbd_has_the_same_facts_under_other_names() -> None:
    job = a_record(
        name="burnin",
        user="fleet",
        partition="main",
        comment={"job": "c", "administrator": "", "system": ""},
        reservation={"name": "fm", "id": 1},
        nodes="None assigned",
        state={"current": ["PENDING"], "reason": "Resources"},
        time={"submission": 1796042570, "start": 0, "end": 0, "limit": {"set": True, "number": 5}},
        stdout_expanded="/tmp/7.out",
        restart_cnt=2,
    )
    assert (job.name, job.user, job.partition, job.comment, job.reservation) == ("burnin", "fleet", "main", "c", "fm")
    assert (job.nodes, job.state_reason, job.time_limit_minutes, job.restarts) == ((), "Resources", 5, 2)
    assert (job.submit_time is not None, job.start_time, job.end_time) == (True, None, None)
    assert judge(job).phase is JobPhase.PENDING


def test_a_record_of_nothing_but_its_id_is_unknown_and_no_end() -> None:
    assert judge(a_record()).phase is JobPhase.UNKNOWN


@pytest.mark.parametrize("state", [["RUNNING", "CONFIGURING"], "RUNNING,CONFIGURING", ["running", "configuring"]])
def test_several_states_at_once_are_kept(state: Any) -> None:
    """Case 057."""
    assert a_job(job_state=state).states == {"RUNNING", "CONFIGURING"}


def test_a_name_with_odd_characters_is_kept_as_it_is() -> None:
    """Case 053."""
    job = a_job(name="a|b^^^run", comment="two\nlines", job_state=["RUNNING"])
    assert (job.name, job.comment) == ("a|b^^^run", "two\nlines")


@pytest.mark.parametrize("job_id", [0, -1, {"set": False, "infinite": False, "number": 7}, None])
def test_a_job_without_an_id_is_refused(job_id: Any) -> None:
    with pytest.raises(ValueError):
        a_job(job_id=job_id)


def a_reservation(**fields: Any) -> Any:
    return normalise.reservation(msgspec.convert({"name": "fm", **fields}, wire.WireReservation))


@pytest.mark.parametrize("users", ["fleet,root", ["fleet", "root"]])
@pytest.mark.parametrize("nodes", ["gpu[01-02]", ["gpu01", "gpu02"]])
def test_a_reservation_of_either_form(users: Any, nodes: Any) -> None:
    one = a_reservation(users=users, node_list=nodes, flags=["maint"], accounts="")
    assert (one.users, one.nodes, one.flags, one.accounts) == (("fleet", "root"), ("gpu01", "gpu02"), {"MAINT"}, ())


def test_a_reservation_that_ends_a_year_after_its_start_has_no_end() -> None:
    start = 1796045564
    assert a_reservation(start_time=start, end_time=start + 365 * 86400).end is None
    assert a_reservation(start_time=start, end_time=4294967295).end is None
    one = a_reservation(start_time=start, end_time=start + 365 * 86400 - 1)
    assert one.end - one.start == timedelta(days=365) - timedelta(seconds=1)


PINGS: list[tuple[dict[str, Any], bool]] = [
    ({"pinged": "UP"}, True),
    ({"pinged": "UP", "responding": True}, True),
    ({"responding": True, "status": "No error"}, True),
    ({"pinged": "DOWN"}, False),
    ({"pinged": "DOWN", "responding": True}, False),
    ({"pinged": "UP", "responding": False}, False),
    ({"responding": True, "status": "Protocol authentication error"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("raw", "good"), PINGS)
def test_a_ping_is_good_if_every_sign_is(raw: dict[str, Any], good: bool) -> None:
    assert normalise.ping(msgspec.convert(raw, wire.WirePing)).responding is good


@pytest.mark.parametrize(
    ("raw", "primary"), [({"mode": "primary"}, True), ({"mode": "backup1"}, False), ({"primary": True}, True)]
)
def test_a_primary_is_told_in_two_ways(raw: dict[str, Any], primary: bool) -> None:
    assert normalise.ping(msgspec.convert(raw, wire.WirePing)).primary is primary


METAS: list[tuple[Any, SlurmVersion | None]] = [
    ({"version": {"major": "24", "micro": "2", "minor": "05"}, "release": "24.05.2"}, SlurmVersion(24, 5, 2)),
    ({"version": {"major": 23, "micro": 7, "minor": 2}, "release": "23.02.7"}, SlurmVersion(23, 2, 7)),
    ({"release": "24.05.2-1"}, SlurmVersion(24, 5, 2)),
    ({"version": {"major": "x", "minor": "y"}, "release": "26.05.5"}, SlurmVersion(26, 5, 5)),
    ({"version": {}, "release": ""}, None),
    (None, None),
]


@pytest.mark.parametrize(("slurm", "version"), METAS)
def test_a_release_is_read_by_number(slurm: Any, version: SlurmVersion | None) -> None:
    """Case 008."""
    assert normalise.meta_version(msgspec.convert({"slurm": slurm}, wire.Meta)) == version


@pytest.mark.parametrize(("raw", "value"), [("none", 0), ("non_responsive_only", 1), ("ANY", 2), (1, 1), ("new", None)])
def test_return_to_service_is_a_number_or_unknown(raw: Any, value: int | None) -> None:
    conf = msgspec.convert({"MinJobAge": 300, "SlurmdTimeout": 20, "ReturnToService": raw}, wire.WireConf)
    config = normalise.config(conf)
    assert config.return_to_service == value
    assert config.min_job_age == timedelta(minutes=5)
    assert config.slurmd_timeout == timedelta(seconds=20)
