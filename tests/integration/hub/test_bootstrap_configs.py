"""SLURM bootstrap configurations over the API."""

import asyncio
import base64
import hashlib
from typing import Any

import httpx
import pytest
from tests.integration.hub.support import HPC, SCRIPT, SECRET, USER_DATA, WORKER, Api, b64

PATH = "lab/slurm-bootstrap-configs/"


async def create(api: Api, who: str = HPC, **changes: Any) -> httpx.Response:
    body = {
        "device_role": "gpu",
        "image": "slurm-node",
        "flavor": "gpu.8",
        "features": ["h100", "ib"],
        "gres": "gpu:h100:8",
        "user_data": USER_DATA,
        **changes,
    }
    return await api.call(who, "POST", PATH, json={name: value for name, value in body.items() if value != "OMIT"})


async def test_a_configuration_is_made_and_read_by_role_and_by_id(api: Api) -> None:
    made = await create(api)
    assert made.status_code == 201
    config = made.json()
    assert made.headers["location"] == f"/api/v1/sites/{PATH}{config['id']}"
    assert made.headers["etag"] == '"1"'
    assert (config["created_by"], config["updated_by"], config["revision"]) == (HPC, HPC, 1)
    for name in ("gpu", config["id"]):
        read = await api.call(WORKER, "GET", PATH + name)
        assert read.json() == config
        assert read.json()["user_data"] == USER_DATA
        assert read.headers["cache-control"] == "no-store"


async def test_the_path_works_without_its_last_slash_too(api: Api) -> None:
    assert (await api.call(WORKER, "GET", PATH.rstrip("/"))).status_code == 200


async def test_user_data_is_kept_byte_for_byte_whatever_its_folding(api: Api) -> None:
    folded = base64.encodebytes(SCRIPT.encode()).decode()
    config = (await create(api, user_data=folded)).json()
    assert base64.b64decode(config["user_data"]) == SCRIPT.encode()
    assert config["user_data_sha256"] == hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert config["user_data_bytes"] == len(SCRIPT)


async def test_a_list_holds_no_user_data(api: Api) -> None:
    await create(api)
    await create(api, device_role="cpu", gres="")
    answer = await api.call(WORKER, "GET", PATH)
    assert [item["device_role"] for item in answer.json()["items"]] == ["cpu", "gpu"]
    assert all("user_data" not in item for item in answer.json()["items"])
    filtered = await api.call(WORKER, "GET", PATH, params={"device_role": "gpu"})
    assert [item["device_role"] for item in filtered.json()["items"]] == ["gpu"]


async def test_a_list_of_configurations_comes_in_pages(api: Api) -> None:
    for role in ("a", "b", "c"):
        await create(api, device_role=role)
    first = (await api.call(WORKER, "GET", PATH, params={"limit": 2})).json()
    second = (await api.call(WORKER, "GET", PATH, params={"limit": 2, "after": first["next_after"]})).json()
    assert [item["device_role"] for item in first["items"] + second["items"]] == ["a", "b", "c"]


async def test_who_may_not_read_user_data_is_not_given_it_back(api: Api) -> None:
    made = await create(api, "hpc-writer")
    assert made.status_code == 201
    assert "user_data" not in made.json()
    assert (await api.call("hpc-writer", "GET", PATH + "gpu")).status_code == 403
    changed = await api.call("hpc-writer", "PATCH", PATH + "gpu", json={"gres": ""}, headers={"If-Match": "*"})
    assert changed.status_code == 200
    assert "user_data" not in changed.json()


async def test_image_and_flavor_may_be_null_or_missing(api: Api) -> None:
    config = (await create(api, image=None, flavor="OMIT")).json()
    assert (config["image"], config["flavor"]) == (None, None)


async def test_a_role_has_one_configuration_and_the_second_is_409_with_the_first(api: Api) -> None:
    first = (await create(api)).json()
    second = await create(api, image="other")
    assert second.status_code == 409
    assert second.json()["existing_id"] == first["id"]
    assert f"PATCH /api/v1/sites/lab/slurm-bootstrap-configs/{first['id']}" in second.json()["detail"]


async def test_of_many_creates_at_once_one_wins(api: Api) -> None:
    answers = await asyncio.gather(*(create(api) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5


async def test_the_same_role_at_another_site_is_another_configuration(api: Api) -> None:
    await create(api)
    body = {"device_role": "gpu", "user_data": USER_DATA}
    assert (await api.call(HPC, "POST", "other/slurm-bootstrap-configs/", json=body)).status_code == 201


async def test_a_change_needs_the_revision_that_was_read(api: Api) -> None:
    await create(api)
    answer = await api.call(HPC, "PATCH", PATH + "gpu", json={"image": "new"})
    assert answer.status_code == 428
    assert "If-Match" in answer.json()["detail"]


async def test_a_change_bumps_the_revision_and_keeps_the_rest(api: Api) -> None:
    before = (await create(api)).json()
    api.clock.pass_(minutes=5)
    answer = await api.call(HPC, "PATCH", PATH + before["id"], json={"image": "new"}, headers={"If-Match": '"1"'})
    after = answer.json()
    assert (after["image"], after["revision"], answer.headers["etag"]) == ("new", 2, '"2"')
    assert after["updated_at"] > before["updated_at"]
    assert after["created_at"] == before["created_at"]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"image", "revision", "updated_at"}


async def test_a_change_that_changes_nothing_keeps_the_revision(api: Api) -> None:
    before = (await create(api)).json()
    api.clock.pass_(minutes=5)
    body = {"image": "slurm-node", "user_data": USER_DATA}
    answer = await api.call(HPC, "PATCH", PATH + "gpu", json=body, headers={"If-Match": '"1"'})
    assert answer.json() == before


async def test_a_change_of_an_older_revision_is_412_and_changes_nothing(api: Api) -> None:
    await create(api)
    await api.call(HPC, "PATCH", PATH + "gpu", json={"image": "first"}, headers={"If-Match": '"1"'})
    answer = await api.call(HPC, "PATCH", PATH + "gpu", json={"image": "second"}, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["revision"]) == (412, 2)
    assert (await api.call(WORKER, "GET", PATH + "gpu")).json()["image"] == "first"


async def test_of_many_changes_of_one_revision_one_wins(api: Api) -> None:
    await create(api)
    answers = await asyncio.gather(
        *(
            api.call(HPC, "PATCH", PATH + "gpu", json={"image": f"image-{n}"}, headers={"If-Match": '"1"'})
            for n in range(6)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 5


async def test_a_star_changes_whatever_is_there(api: Api) -> None:
    await create(api)
    answer = await api.call(HPC, "PATCH", PATH + "gpu", json={"flavor": None}, headers={"If-Match": "*"})
    assert (answer.json()["flavor"], answer.json()["revision"]) == (None, 2)


async def test_a_role_without_a_configuration_is_404_with_the_call_that_makes_one(api: Api) -> None:
    answer = await api.call(WORKER, "GET", PATH + "gpu")
    assert answer.status_code == 404
    assert "POST /api/v1/sites/lab/slurm-bootstrap-configs/" in answer.json()["detail"]
    assert "'lab'" in answer.json()["detail"]
    assert "'gpu'" in answer.json()["detail"]


@pytest.mark.parametrize(
    "script,word",
    [
        (SCRIPT.replace("State=DRAIN", "State=UNKNOWN"), "State=DRAIN"),
        (SCRIPT.replace("fm:born new build", "fm:another"), 'Reason="fm:born new build"'),
        (SCRIPT.replace("--instance-id", "--instance-type"), "--instance-id"),
        (SCRIPT.replace("--extra fm_build=", "--extra build="), "--extra fm_build="),
    ],
)
async def test_user_data_that_would_not_be_born_drained_is_refused_on_create_and_change(
    api: Api, script: str, word: str
) -> None:
    refused = await create(api, user_data=b64(script))
    assert refused.status_code == 422
    assert word in refused.json()["detail"]
    assert refused.json()["allowed"]["user_data"]["conf"] == 'State=DRAIN Reason="fm:born new build"'
    await create(api)
    body, headers = {"user_data": b64(script)}, {"If-Match": "*"}
    assert (await api.call(HPC, "PATCH", PATH + "gpu", json=body, headers=headers)).status_code == 422


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"user_data": SCRIPT}, "base64"),
        ({"user_data": "A" * 65_536}, "65,535"),
        ({"user_data": ""}, "empty"),
        ({"user_data": None}, "user_data"),
        ({"user_data": "OMIT"}, "user_data"),
        ({"features": ["two words"]}, "feature"),
        ({"features": ["h100", "h100"]}, "twice"),
        ({"gres": "gpu:eight"}, "gpu:h100:8"),
        ({"device_role": "a role"}, "device_role"),
        ({"image": ""}, "image"),
        ({"flavour": "x"}, "flavour: there is no such field."),
    ],
)
async def test_a_configuration_out_of_form_is_refused_with_what_is_allowed(
    api: Api, changes: dict[str, Any], word: str
) -> None:
    answer = await create(api, **changes)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.json()["detail"]


async def test_all_that_is_wrong_is_told_at_once(api: Api) -> None:
    answer = await create(api, features=["a b"], gres="x", user_data="%")
    assert len(answer.json()["errors"]) == 3


async def test_no_refusal_quotes_the_user_data(api: Api) -> None:
    wrong = SCRIPT.replace("State=DRAIN", "State=IDLE")
    for changes in ({"user_data": b64(wrong)}, {"user_data": SCRIPT}, {"user_data": [SCRIPT]}, {"extra": SCRIPT}):
        answer = await create(api, **changes)
        assert answer.status_code == 422
        assert SECRET not in answer.text
        assert b64(wrong)[:40] not in answer.text
