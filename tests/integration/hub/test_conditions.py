"""Device conditions over the API."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.integration.hub.support import AGENT, HPC, Api


def report(api: Api, device: str = "gpu-001", seconds: float = 0, **changes: Any) -> dict[str, Any]:
    observed = api.clock() + timedelta(seconds=seconds)
    return {
        "device": device,
        "type": "SlurmMember",
        "status": "True",
        "reason": "Registered",
        "message": "the node is in SLURM",
        "observed_at": observed.isoformat(),
        **changes,
    }


async def write(api: Api, *reports: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.call(AGENT, "POST", "lab/device-conditions", json={"conditions": list(reports)})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def condition(api: Api, type_: str = "SlurmMember") -> dict[str, Any]:
    device = (await api.call(AGENT, "GET", "lab/devices/gpu-001")).json()
    found: dict[str, Any] = next(item for item in device["conditions"] if item["type"] == type_)
    return found


async def test_each_report_is_told_in_its_order(api: Api) -> None:
    results = await write(
        api,
        report(api),
        report(api, "nobody"),
        report(api, "dev-1", 1, status="False"),
        report(api, "GPU-001", 0.5),
        report(api, seconds=2, status="False", reason="Gone"),
    )
    assert [(item["device"], item["outcome"]) for item in results] == [
        ("gpu-001", "created"),
        ("nobody", "unknown_device"),
        ("dev-1", "transitioned"),
        ("GPU-001", "stale"),
        ("gpu-001", "refreshed"),
    ]


async def test_last_transition_time_stays_while_the_status_does(api: Api) -> None:
    [first] = await write(api, report(api))
    [second] = await write(api, report(api, seconds=60, reason="StillThere"))
    assert second["last_transition_time"] == first["last_transition_time"]
    known = await condition(api)
    assert (known["reason"], known["last_transition_time"]) == ("StillThere", first["last_transition_time"])
    assert known["observed_at"] != first["last_transition_time"]


async def test_last_transition_time_moves_with_the_status(api: Api) -> None:
    [first] = await write(api, report(api))
    [second] = await write(api, report(api, seconds=60, status="Unknown", reason="SlurmUnreadable"))
    assert second["last_transition_time"] > first["last_transition_time"]
    assert (await condition(api))["status"] == "Unknown"


async def test_a_late_report_does_not_overwrite_a_newer_one(api: Api) -> None:
    await write(api, report(api, seconds=60))
    [late] = await write(api, report(api, seconds=59, status="False"))
    assert late["outcome"] == "stale"
    assert (await condition(api))["status"] == "True"


async def test_a_report_from_a_clock_that_runs_ahead_is_refused_with_what_is_allowed(api: Api) -> None:
    answer = await api.call(AGENT, "POST", "lab/device-conditions", json={"conditions": [report(api, seconds=301)]})
    assert answer.status_code == 422
    assert "clock" in answer.json()["detail"]
    assert "observed_at" in answer.json()["allowed"]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "true"},
        {"type": "slurm member"},
        {"reason": "not one word"},
        {"message": "x" * 1025},
        {"observed_at": "2026-11-30T10:00:00"},
        {"colour": "red"},
    ],
)
async def test_a_report_out_of_form_refuses_the_call(api: Api, changes: dict[str, str]) -> None:
    answer = await api.call(
        AGENT, "POST", "lab/device-conditions", json={"conditions": [report(api), report(api, **changes)]}
    )
    assert answer.status_code == 422
    assert (await api.call(AGENT, "GET", "lab/devices/gpu-001")).json()["conditions"] == []


async def test_conditions_are_read_back_by_device_type_and_status(api: Api) -> None:
    await write(
        api,
        report(api),
        report(api, type="SlurmSchedulable", status="False", reason="Drained"),
        report(api, "gpu-002", status="False"),
    )
    rows = (await api.call(HPC, "GET", "lab/device-conditions")).json()["items"]
    assert [(row["device"], row["type"], row["status"]) for row in rows] == [
        ("gpu-001", "SlurmMember", "True"),
        ("gpu-001", "SlurmSchedulable", "False"),
        ("gpu-002", "SlurmMember", "False"),
    ]
    for filters, count in (({"device": "gpu-001"}, 2), ({"type": "SlurmMember"}, 2), ({"status": "False"}, 2)):
        rows = (await api.call(HPC, "GET", "lab/device-conditions", params=filters)).json()["items"]
        assert len(rows) == count, filters


async def test_conditions_come_in_pages_that_lose_none(api: Api) -> None:
    types = ["SlurmMember", "SlurmSchedulable", "BurnIn"]
    await write(api, *(report(api, name, type=type_) for name in ("gpu-001", "gpu-002", "GPU-003") for type_ in types))
    seen: list[tuple[str, str]] = []
    after = ""
    while after is not None:
        page = (await api.call(HPC, "GET", "lab/device-conditions", params={"limit": 2, "after": after})).json()
        seen += [(row["device"], row["type"]) for row in page["items"]]
        after = page["next_after"]
    assert seen == [(name, type_) for name in ("gpu-001", "gpu-002", "GPU-003") for type_ in sorted(types)]


async def test_two_writers_of_one_condition_leave_the_newest(api: Api) -> None:
    results = await asyncio.gather(
        *(write(api, report(api, seconds=n, status="True" if n % 2 else "False")) for n in range(10))
    )
    assert all(result["outcome"] != "unknown_device" for [result] in results)
    assert (await condition(api))["status"] == "True"


async def test_a_call_takes_a_thousand_reports(api: Api) -> None:
    results = await write(api, *(report(api, type=f"T{n}") for n in range(1000)))
    assert {result["outcome"] for result in results} == {"created"}


async def test_too_many_reports_are_refused_with_the_limit(api: Api) -> None:
    answer = await api.call(AGENT, "POST", "lab/device-conditions", json={"conditions": [report(api)] * 5001})
    assert answer.status_code == 422
    assert "5000" in answer.json()["detail"]
