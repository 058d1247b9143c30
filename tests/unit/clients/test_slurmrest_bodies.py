"""What is sent to slurmrestd is exactly what was asked for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest import bodies, names
from fleet_manager.core.clients.slurmrest.errors import SubmitRefused
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.settings.clients.slurm import SlurmSettings

SPEC = JobSpec("burnin", "#!/bin/bash\ntrue\n", "main", "/tmp", ("PATH=/bin",), 60, ("gpu01",), "fm", "gres/gpu:8")
START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_a_burn_in_is_exclusive_pinned_and_in_its_reservation() -> None:
    assert bodies.submit(SPEC) == {
        "script": "#!/bin/bash\ntrue\n",
        "job": {
            "name": "burnin",
            "partition": "main",
            "current_working_directory": "/tmp",
            "environment": ["PATH=/bin"],
            "time_limit": {"set": True, "infinite": False, "number": 60},
            "required_nodes": ["gpu01"],
            "reservation": "fm",
            "tres_per_node": "gres/gpu:8",
            "shared": ["none"],
            "requeue": False,
        },
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    job = bodies.submit(JobSpec("j", "#!/bin/bash\n", "main", "/tmp", ("A=b",), 1, exclusive=False))["job"]
    assert job.keys() == {"name", "partition", "current_working_directory", "environment", "time_limit", "requeue"}


INCOMPLETE: list[dict[str, Any]] = [
    {"script": ""},
    {"script": " \n"},
    {"environment": ()},
    {"current_working_directory": ""},
    {"current_working_directory": "tmp"},
]


@pytest.mark.parametrize("missing", INCOMPLETE)
def test_a_job_that_slurmrestd_would_refuse_with_a_misleading_text_is_refused_here(missing: dict[str, Any]) -> None:
    with pytest.raises(SubmitRefused):
        bodies.submit(replace(SPEC, **missing))


def test_a_drain_without_a_reason_sends_none_so_that_the_old_one_stays() -> None:
    assert bodies.node_update(NodeUpdate(NodeStateWord.DRAIN)) == {"state": ["DRAIN"]}


def test_an_update_sends_what_is_given_also_when_it_is_empty() -> None:
    update = NodeUpdate(features=(), active_features=("a",), comment="", extra="fm_build=1")
    assert bodies.node_update(update) == {"features": [], "features_act": ["a"], "comment": "", "extra": "fm_build=1"}


def test_no_word_that_kills_jobs_can_be_sent() -> None:
    assert {str(word) for word in NodeStateWord} == {"DRAIN", "UNDRAIN", "RESUME", "FUTURE"}


def test_a_reservation_without_end_is_infinite() -> None:
    body = bodies.reservation("fm-gpu01", ("gpu01",), ("fleet",), ("MAINT", "IGNORE_JOBS"), START, None)
    assert body == {
        "name": "fm-gpu01",
        "node_list": ["gpu01"],
        "users": ["fleet"],
        "flags": ["MAINT", "IGNORE_JOBS"],
        "start_time": {"set": True, "infinite": False, "number": 1796040000},
        "duration": {"set": False, "infinite": True, "number": 0},
    }


@pytest.mark.parametrize(("duration", "minutes"), [(timedelta(hours=2), 120), (timedelta(seconds=1), 1)])
def test_a_reservations_duration_is_in_minutes(duration: timedelta, minutes: int) -> None:
    body = bodies.reservation("fm", ("gpu01",), ("fleet",), (), START, duration)
    assert body["duration"] == {"set": True, "infinite": False, "number": minutes}


@pytest.mark.parametrize(("nodes", "users"), [((), ("fleet",)), (("gpu01",), ()), (("gpu[01-02]",), ("fleet",))])
def test_a_reservation_of_nothing_or_for_nobody_is_refused(nodes: tuple[str, ...], users: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest):
        bodies.reservation("fm", nodes, users, (), START, None)


@pytest.mark.parametrize("name", ["gpu01", "gpu-001.site", "A_1", "0a", "all1"])
def test_a_nodes_name_is_taken_as_it_is(name: str) -> None:
    assert names.node_name(name) == name


@pytest.mark.parametrize("value", [0, -1])
def test_a_job_id_is_above_zero(value: int) -> None:
    with pytest.raises(BadRequest):
        names.job_id(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_timeout": "25"},
        {"request_timeout": "PT20S"},
        {"jwt_op_item": "op://vault/item"},
        {"jwt_op_item": "eyJhbGciOi.a.b"},
        {"jwt_op_item": "file://relative"},
        {"jwt_op_item": "env://"},
        {"pool_size": 0},
        {"pool_size": 100},
        {"url": "slurm:6820"},
        {"user_name": "two words"},
    ],
)
def test_settings_refuse_what_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SlurmSettings(**{"url": "http://slurm:6820", "jwt_op_item": "op://v/i/f", **wrong})


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_SLURM__URL", "http://slurm:6820")
    monkeypatch.setenv("FLEET_SLURM__JWT_OP_ITEM", "op://site/slurm/jwt")
    monkeypatch.setenv("FLEET_SLURM__POOL_SIZE", "4")
    settings = SlurmSettings()  # type: ignore[call-arg]
    assert (settings.pool_size, settings.request_timeout) == (4, timedelta(seconds=60))
