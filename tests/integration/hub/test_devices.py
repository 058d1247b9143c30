"""Devices over the API."""

import asyncio

import pytest
from tests.integration.hub.support import AGENT, Api


async def test_devices_are_listed_by_name_whatever_the_case(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices")
    assert [item["name"] for item in answer.json()["items"]] == ["gpu-001", "gpu-002", "GPU-003"]
    assert answer.json()["next_after"] is None


async def test_the_list_comes_in_pages(api: Api) -> None:
    first = (await api.call(AGENT, "GET", "lab/devices", params={"limit": 2})).json()
    second = (await api.call(AGENT, "GET", "lab/devices", params={"limit": 2, "after": first["next_after"]})).json()
    assert [item["name"] for item in first["items"] + second["items"]] == ["gpu-001", "gpu-002", "GPU-003"]
    assert second["next_after"] is None


@pytest.mark.parametrize(
    "filters,names",
    [
        ({"name": "gpu-003"}, ["GPU-003"]),
        ({"role": "gpu"}, ["gpu-001", "gpu-002"]),
        ({"slurm_node": "node02"}, ["gpu-002"]),
        ({"role": "gpu", "name": "GPU-003"}, []),
    ],
)
async def test_filters_must_all_hold(api: Api, filters: dict[str, str], names: list[str]) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices", params=filters)
    assert [item["name"] for item in answer.json()["items"]] == names


async def test_a_filter_that_does_not_exist_is_refused(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices", params={"nmae": "gpu-001"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == ["nmae: there is no such field."]


@pytest.mark.parametrize("name", ["dev-1", "gpu-001", "GPU-001"])
async def test_a_device_is_found_by_id_and_by_name(api: Api, name: str) -> None:
    answer = await api.call(AGENT, "GET", f"lab/devices/{name}")
    assert answer.json()["id"] == "dev-1"
    assert answer.json()["hypervisor_hostname"] == "cmp-001"
    assert answer.headers["etag"] == '"1"'


async def test_a_device_that_does_not_exist_is_404_with_its_name(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices/gpu-009")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "Site 'lab' has no device of id or name 'gpu-009'."


async def test_a_build_is_recorded_with_who_and_when(api: Api) -> None:
    api.clock.pass_(minutes=1)
    build = {"server_id": "srv-1", "build_id": "b-1", "config_revision": 3}
    answer = await api.call(AGENT, "PATCH", "lab/devices/dev-1", json=build)
    device = answer.json()
    assert {name: device[name] for name in build} == build
    assert (device["revision"], answer.headers["etag"]) == (2, '"2"')
    assert device["updated_by"] == AGENT
    assert device["updated_at"] == api.clock().isoformat().replace("+00:00", "Z")


async def test_the_same_build_again_changes_nothing(api: Api) -> None:
    build = {"server_id": "srv-1", "build_id": "b-1", "config_revision": 3}
    first = (await api.call(AGENT, "PATCH", "lab/devices/dev-1", json=build)).json()
    api.clock.pass_(minutes=1)
    assert (await api.call(AGENT, "PATCH", "lab/devices/dev-1", json=build)).json() == first


async def test_a_field_that_is_not_given_stays_and_null_clears(api: Api) -> None:
    await api.call(AGENT, "PATCH", "lab/devices/dev-1", json={"server_id": "srv-1", "build_id": "b-1"})
    device = (await api.call(AGENT, "PATCH", "lab/devices/dev-1", json={"server_id": None})).json()
    assert (device["server_id"], device["build_id"]) == (None, "b-1")


@pytest.mark.parametrize("body", [{"role": "cpu"}, {"name": "x"}, {"server_id": 7}, {"config_revision": "3"}])
async def test_nothing_else_of_a_device_can_be_written(api: Api, body: dict[str, object]) -> None:
    assert (await api.call(AGENT, "PATCH", "lab/devices/dev-1", json=body)).status_code == 422


async def test_if_match_of_an_older_revision_is_412_and_tells_the_present_one(api: Api) -> None:
    await api.call(AGENT, "PATCH", "lab/devices/dev-1", json={"server_id": "srv-1"})
    headers = {"If-Match": '"1"'}
    answer = await api.call(AGENT, "PATCH", "lab/devices/dev-1", json={"server_id": None}, headers=headers)
    assert (answer.status_code, answer.json()["revision"], answer.headers["etag"]) == (412, 2, '"2"')


async def test_of_many_writers_at_once_each_counts(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.call(AGENT, "PATCH", "lab/devices/dev-1", json={"server_id": f"srv-{n}"}) for n in range(8))
    )
    assert sorted(answer.json()["revision"] for answer in answers) == list(range(2, 10))
