"""Who gets in: 401, 404 for another's site, 403 for a scope; and that no answer tells more than it should."""

import json

import pytest
from tests.integration.hub.support import AGENT, HPC, READER, USER_DATA, WORKER, Api

from fleet_manager.hub.scopes import Scope

PROBLEM = "application/problem+json"


async def test_a_call_without_a_token_is_401_and_says_how(api: Api) -> None:
    answer = await api.http.get("/api/v1/sites/lab/devices")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="fleet-manager"'
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json() == {
        "type": "urn:fleet-manager:problem:unauthorized",
        "title": "Unauthorized",
        "status": 401,
        "detail": "Send an access token: Authorization: Bearer TOKEN.",
    }


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
async def test_a_token_that_is_not_ours_is_invalid_token(api: Api, token: str) -> None:
    answer = await api.http.get("/api/v1/sites/lab/devices", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


async def test_a_token_ends_with_its_exp(api: Api) -> None:
    token = api.token(AGENT)
    headers = {"Authorization": f"Bearer {token}"}
    api.clock.pass_(seconds=299)
    assert (await api.http.get("/api/v1/sites/lab/devices", headers=headers)).status_code == 200
    api.clock.pass_(seconds=1)
    answer = await api.http.get("/api/v1/sites/lab/devices", headers=headers)
    assert answer.status_code == 401
    assert answer.json()["detail"] == "The token has expired; ask for a new one."


async def test_the_body_is_not_read_before_the_token(api: Api) -> None:
    answer = await api.http.post("/api/v1/sites/lab/device-conditions", content=b"{not json")
    assert answer.status_code == 401


async def test_a_missing_scope_is_403_and_named(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/slurm-bootstrap-configs/")
    assert answer.status_code == 403
    assert answer.json()["scope"] == "slurm-bootstrap-config:read"
    assert "slurm-bootstrap-config:read" in answer.json()["detail"]
    assert 'error="insufficient_scope", scope="slurm-bootstrap-config:read"' in answer.headers["www-authenticate"]


async def test_a_token_of_fewer_scopes_has_no_more(api: Api) -> None:
    headers = {"Authorization": f"Bearer {api.token(AGENT, Scope.DEVICE_READ)}"}
    answer = await api.http.patch("/api/v1/sites/lab/devices/dev-1", json={}, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", "lab/devices"),
        ("GET", "lab/devices/gpu-001"),
        ("GET", "lab/devices/dev-1"),
        ("PATCH", "lab/devices/dev-1"),
        ("POST", "lab/device-conditions"),
        ("GET", "lab/device-conditions"),
        ("GET", "lab/slurm-bootstrap-configs/"),
        ("POST", "lab/slurm-bootstrap-configs/"),
        ("GET", "lab/slurm-bootstrap-configs/gpu"),
        ("PATCH", "lab/slurm-bootstrap-configs/gpu"),
    ],
)
async def test_another_site_is_404_as_one_that_does_not_exist(api: Api, method: str, path: str) -> None:
    made = await api.call(
        HPC, "POST", "lab/slurm-bootstrap-configs/", json={"device_role": "gpu", "user_data": USER_DATA}
    )
    assert made.status_code == 201
    theirs = await api.call(READER, method, path, json={})
    nowhere = await api.call(READER, method, path.replace("lab/", "nowhere/", 1), json={})
    assert theirs.status_code == nowhere.status_code == 404
    assert theirs.text == nowhere.text.replace("nowhere", "lab")


async def test_a_device_of_another_site_is_not_found_by_its_id(api: Api) -> None:
    assert (await api.call(AGENT, "GET", "lab/devices/dev-other")).status_code == 404
    reports = [_report("dev-other")]
    answer = await api.call(AGENT, "POST", "lab/device-conditions", json={"conditions": reports})
    assert answer.json()["results"][0]["outcome"] == "unknown_device"


async def test_a_client_of_every_site_gets_each_but_none_that_does_not_exist(api: Api) -> None:
    statuses = [
        (await api.call(HPC, "GET", f"{site}/devices/gpu-001")).status_code for site in ("lab", "other", "nowhere")
    ]
    assert statuses == [200, 200, 404]


async def test_a_client_struck_off_the_roster_loses_its_token_at_once(api: Api) -> None:
    token = api.token(WORKER)
    kept = api.lab.clients.pop(WORKER)
    api.lab.write()
    try:
        answer = await api.http.get("/api/v1/sites/lab/devices", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert "roster" in answer.json()["detail"]
    finally:
        api.lab.clients[WORKER] = kept
        api.lab.write()


async def test_a_scope_taken_from_the_roster_is_taken_from_its_tokens(api: Api) -> None:
    token = api.token(WORKER)
    kept = api.lab.clients[WORKER]
    api.lab.clients[WORKER] = {**kept, "scopes": ["device:update"]}
    api.lab.write()
    try:
        answer = await api.http.get("/api/v1/sites/lab/devices", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 403
    finally:
        api.lab.clients[WORKER] = kept
        api.lab.write()


async def test_an_unknown_path_is_a_problem_too(api: Api) -> None:
    answer = await api.http.get("/nothing-here")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


async def test_a_wrong_method_is_a_problem_too(api: Api) -> None:
    answer = await api.call(AGENT, "DELETE", "lab/devices/dev-1")
    assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)


async def test_a_body_that_is_not_json_is_400(api: Api) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await api.call(AGENT, "POST", "lab/device-conditions", content=b"{no", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)


async def test_a_body_of_another_type_is_415_and_says_which_header(api: Api) -> None:
    answer = await api.call(AGENT, "POST", "lab/device-conditions", data={"conditions": "[]"})
    assert answer.status_code == 415
    assert "Content-Type: application/json" in answer.json()["detail"]


async def test_a_body_over_the_limit_is_413_whether_its_length_is_told_or_not(api: Api) -> None:
    large = b"[" + b" " * (4 * 1024 * 1024) + b"]"

    async def parts():  # type: ignore[no-untyped-def]
        yield large

    json_type = {"Content-Type": "application/json"}
    told = await api.call(AGENT, "POST", "lab/device-conditions", content=large, headers=json_type)
    untold = await api.call(AGENT, "POST", "lab/device-conditions", content=parts(), headers=json_type)
    assert (told.status_code, untold.status_code) == (413, 413)
    assert "4194304 bytes" in told.json()["detail"]


async def test_every_answer_has_the_request_id_that_was_sent(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices", headers={"X-Request-ID": "fm-test-0001"})
    assert answer.headers["x-request-id"] == "fm-test-0001"


async def test_a_request_id_that_could_forge_a_log_line_is_replaced(api: Api) -> None:
    answer = await api.call(AGENT, "GET", "lab/devices", headers={"X-Request-ID": 'x" level="ERROR'})
    assert answer.headers["x-request-id"].isalnum()


async def test_health_needs_no_token(api: Api) -> None:
    answers = [await api.http.get(path) for path in ("/healthz", "/readyz")]
    assert [answer.json() for answer in answers] == [{"status": "ok"}, {"status": "ok"}]


async def test_the_api_description_names_every_scope(api: Api) -> None:
    described = json.dumps((await api.http.get("/openapi.json")).json())
    assert all(scope.value in described for scope in Scope)


def _report(device: str) -> dict[str, str]:
    return {
        "device": device,
        "type": "SlurmMember",
        "status": "True",
        "reason": "Registered",
        "observed_at": "2026-11-30T10:00:00Z",
    }
