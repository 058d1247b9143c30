"""What the client does with a cloud that misbehaves: tokens, pages, proxies, lost answers, old versions, secrets."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.clients.nova.leaks import SECRET, everything, leaks
from tests.clients.nova.recorded import answer
from tests.clients.nova.scripted import Answer, Script, scripted, version_document

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    IncompatibleServer,
    NotFound,
    Unavailable,
    UnavailableTimeout,
)
from fleet_manager.core.clients.nova.client import OpenStackNova
from fleet_manager.core.clients.nova.errors import (
    AmbiguousName,
    DuplicateServers,
    ImageNotFound,
    Misconfigured,
    NovaBusy,
    ServerNotFound,
)
from fleet_manager.core.clients.nova.models import RebuildSpec, ServerSpec
from fleet_manager.settings.clients.nova import NovaSettings

ID = "8f28661d-4813-4697-adf3-58e848507e4c"
CREATED = Answer(202, answer("create-202")["body"])
SPEC = ServerSpec(name="n1", image_id="i", flavor_id="f", user_data_b64="aHVudGVyMg==", tags=frozenset({"fm-device-x"}))


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as script:
        yield script


def settings(script: Script, folder: Path, **more: Any) -> NovaSettings:
    return NovaSettings(cloud="scripted", config_file=script.clouds_yaml(folder), **more)


@pytest.fixture
async def nova(script: Script, tmp_path: Path) -> AsyncIterator[OpenStackNova]:
    async with OpenStackNova(settings(script, tmp_path)) as nova:
        yield nova


def shown(server_id: str = ID, **more: Any) -> dict[str, Any]:
    server: dict[str, Any] = answer("server-ACTIVE")["body"]["server"]
    return server | {"id": server_id} | more


async def test_every_call_names_the_pinned_microversion(script: Script, nova: OpenStackNova) -> None:
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": shown()}))
    await nova.get(ID)
    assert [seen.microversion for seen in script.calls("GET", f"/v2.1/servers/{ID}")] == ["compute 2.74"]


async def test_an_expired_token_is_replaced_once(script: Script, nova: OpenStackNova) -> None:
    expired = Answer(401, answer("err-401-expired-token")["body"])
    script.on("GET", f"/v2.1/servers/{ID}", expired, Answer(200, {"server": shown()}))
    assert (await nova.get(ID)).id == ID
    assert [seen.token for seen in script.calls("GET", f"/v2.1/servers/{ID}")] == ["token-1", "token-2"]


async def test_a_token_that_is_refused_twice_is_an_auth_error(script: Script, nova: OpenStackNova) -> None:
    script.on("GET", f"/v2.1/servers/{ID}", Answer(401, answer("err-401-expired-token")["body"]))
    with pytest.raises(AuthRejected) as caught:
        await nova.get(ID)
    assert len(script.calls("GET", f"/v2.1/servers/{ID}")) == 2
    assert caught.value.request_id.startswith("req-")


@pytest.mark.parametrize(
    "stale",
    [
        Answer(400, {"badRequest": {"code": 400, "message": "Not authorized for image 19e26a86."}}),
        Answer(
            500, {"computeFault": {"code": 500, "message": "Unexpected\n<class 'nova.exception.ImageNotAuthorized'>"}}
        ),
    ],
)
async def test_a_revoked_token_that_nova_still_holds_is_replaced_once(
    script: Script, nova: OpenStackNova, stale: Answer
) -> None:
    script.on("POST", "/v2.1/servers", stale, CREATED)
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": shown()}))
    assert (await nova.create(SPEC)).id == ID
    assert [seen.token for seen in script.calls("POST", "/v2.1/servers")] == ["token-1", "token-2"]


async def test_an_image_that_a_new_token_may_not_have_either_is_an_auth_error(
    script: Script, nova: OpenStackNova
) -> None:
    stale = Answer(400, {"badRequest": {"code": 400, "message": "Not authorized for image 19e26a86."}})
    script.on("POST", "/v2.1/servers", stale)
    with pytest.raises(AuthRejected, match="Glance refuses the token"):
        await nova.create(SPEC)
    assert len(script.calls("POST", "/v2.1/servers")) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_proxy_s_wait_is_kept_and_the_write_is_not_repeated(
    script: Script, nova: OpenStackNova, status: int
) -> None:
    script.on("POST", "/v2.1/servers", Answer(status, "slow down", {"Retry-After": "17"}))
    with pytest.raises(NovaBusy) as caught:
        await nova.create(SPEC)
    assert caught.value.retry_after == timedelta(seconds=17)
    assert len(script.calls("POST", "/v2.1/servers")) == 1


@pytest.mark.parametrize("wrong", [Answer(500, "{}"), Answer(502, "<html>"), Answer(cut=True)])
async def test_a_write_whose_answer_is_lost_is_not_repeated(script: Script, nova: OpenStackNova, wrong: Answer) -> None:
    script.on("POST", "/v2.1/servers", wrong)
    with pytest.raises(Unavailable) as caught:
        await nova.create(SPEC)
    assert len(script.calls("POST", "/v2.1/servers")) == 1
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_503_whose_server_exists_is_found_by_its_tag(script: Script, nova: OpenStackNova) -> None:
    script.on("POST", "/v2.1/servers", Answer(503, "<html>"))
    script.on("GET", "/v2.1/servers/detail", Answer(200, {"servers": [shown(tags=["fm-device-x"])]}))
    with pytest.raises(Unavailable):
        await nova.create(SPEC)
    found = await nova.find_one_by_tag("fm-device-x")
    assert found is not None
    assert found.id == ID


async def test_a_slow_answer_is_a_time_out(script: Script, tmp_path: Path) -> None:
    script.on("POST", "/v2.1/servers", Answer(202, CREATED.body, delay_s=0.5))
    async with OpenStackNova(settings(script, tmp_path, read_timeout=timedelta(seconds=0.2))) as nova:
        with pytest.raises(UnavailableTimeout) as caught:
            await nova.create(SPEC)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_server_that_was_accepted_and_is_not_shown_is_to_be_looked_for(
    script: Script, nova: OpenStackNova
) -> None:
    script.on("POST", "/v2.1/servers", CREATED)
    with pytest.raises(Unavailable, match=f"server {ID} was accepted and is not shown"):
        await nova.create(SPEC)


async def test_all_pages_are_read_by_their_markers(script: Script, nova: OpenStackNova) -> None:
    link = [{"rel": "next", "href": "http://other-host/v2.1/servers/detail?tags=fm-device-x&marker=a"}]
    script.on(
        "GET",
        "/v2.1/servers/detail",
        Answer(200, {"servers": [shown("a", tags=["fm-device-x"])], "servers_links": link}),
        Answer(200, {"servers": [shown("b", tags=["fm-device-x"])]}),
    )
    with pytest.raises(DuplicateServers) as caught:
        await nova.find_one_by_tag("fm-device-x")
    assert caught.value.server_ids == ("a", "b")
    queries = [seen.query for seen in script.calls("GET", "/v2.1/servers/detail")]
    assert queries == [{"tags": "fm-device-x"}, {"tags": "fm-device-x", "marker": "a"}]


async def test_a_filter_that_nova_ignored_finds_nobody_else_s_server(script: Script, nova: OpenStackNova) -> None:
    others = [shown("a", tags=[]), shown("b", tags=["fm-device-y"])]
    script.on("GET", "/v2.1/servers/detail", Answer(200, {"servers": others}))
    assert await nova.find_one_by_tag("fm-device-x") is None


async def test_the_metadata_filter_is_never_used(script: Script, nova: OpenStackNova) -> None:
    script.on("GET", "/v2.1/servers/detail", Answer(200, {"servers": []}))
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": shown()}))
    await nova.find_by_tag("fm-device-x")
    await nova.find_one_by_tag("fm-build-y")
    await nova.get(ID)
    assert [key for seen in script.seen for key in seen.query] == ["tags", "tags"]


@pytest.mark.parametrize("page", [Answer(404, "<html>"), Answer(404, {"message": "gone", "code": "404 Not Found"})])
async def test_a_proxy_s_404_deletes_nothing_and_proves_nothing(
    script: Script, nova: OpenStackNova, page: Answer
) -> None:
    script.on("GET", f"/v2.1/servers/{ID}", page)
    script.on("DELETE", f"/v2.1/servers/{ID}", page)
    with pytest.raises(Unavailable):
        await nova.get(ID)
    with pytest.raises(Unavailable):
        await nova.delete(ID)


async def test_nova_s_own_404_is_gone_and_a_delete_s_success(script: Script, nova: OpenStackNova) -> None:
    script.on("DELETE", f"/v2.1/servers/{ID}", Answer(404, answer("get-404")["body"]))
    await nova.delete(ID)
    with pytest.raises(ServerNotFound):
        await nova.get(ID)


async def test_a_nova_that_is_too_old_is_named_with_both_versions(script: Script, nova: OpenStackNova) -> None:
    for path in ("/v2.1", "/v2.1/"):
        script.answers["GET", path] = [Answer(200, version_document(script.url, highest="2.60"))]
    with pytest.raises(IncompatibleServer, match=r"2\.74 is wanted and this Nova offers 2\.60"):
        await nova.check()


async def test_two_images_of_one_name_are_named_by_id(script: Script, nova: OpenStackNova) -> None:
    images = [{"id": n, "name": "node", "status": "active"} for n in ("i-1", "i-2")]
    script.on("GET", "/v2/images", Answer(200, {"images": images}))
    with pytest.raises(AmbiguousName, match="2 images are called 'node': i-1, i-2"):
        await nova.find_image("node")


async def test_an_image_that_is_not_active_is_not_found_and_why(script: Script, nova: OpenStackNova) -> None:
    images = [
        {"id": "i-1", "name": "node", "status": "deactivated"},
        {"id": "i-2", "name": "node2", "status": "active"},
    ]
    script.on("GET", "/v2/images", Answer(200, {"images": images}))
    with pytest.raises(ImageNotFound, match=r"not active \(deactivated\)"):
        await nova.find_image("node")


async def test_images_are_read_over_all_pages(script: Script, nova: OpenStackNova) -> None:
    first = [{"id": "i-0", "name": "other", "status": "active"}]
    second = [{"id": "i-1", "name": "node", "status": "active"}]
    script.on(
        "GET",
        "/v2/images",
        Answer(200, {"images": first, "next": "/v2/images?marker=i-0"}),
        Answer(200, {"images": second}),
    )
    assert (await nova.find_image("node")).id == "i-1"


async def test_a_flavor_s_id_that_is_another_flavor_s_name_is_ambiguous(script: Script, nova: OpenStackNova) -> None:
    size = {"vcpus": 1, "ram": 512, "disk": 1}
    flavors = [{"id": "1", "name": "small"} | size, {"id": "2", "name": "1"} | size]
    script.on("GET", "/v2.1/flavors/detail", Answer(200, {"flavors": flavors}))
    with pytest.raises(AmbiguousName):
        await nova.find_flavor("1")


async def test_a_rebuild_tags_before_it_builds_and_the_old_tag_goes_after(script: Script, nova: OpenStackNova) -> None:
    before = shown(tags=["fm-device-x", "fm-build-1", "team"], metadata={"owner": "team", "fm_build": "1"})
    between = before | {"tags": [*before["tags"], "fm-build-2"]}
    after = before | {"tags": ["fm-device-x", "fm-build-2", "team"]}
    script.on("GET", f"/v2.1/servers/{ID}", *(Answer(200, {"server": s}) for s in (before, between, between, after)))
    script.on("PUT", f"/v2.1/servers/{ID}/tags/fm-build-2", Answer(201))
    script.on("POST", f"/v2.1/servers/{ID}/action", Answer(202, answer("rebuild-202")["body"]))
    script.on("DELETE", f"/v2.1/servers/{ID}/tags/fm-build-1", Answer(204))
    tags = frozenset({"fm-device-x", "fm-build-2"})
    spec = RebuildSpec(server_id=ID, image_id="i-2", user_data_b64="", tags=tags, metadata={"fm_build": "2"})
    await nova.rebuild(spec)
    settled = await nova.settle_tags(ID, "x", "2")
    assert settled.tags == {"fm-device-x", "fm-build-2", "team"}
    writes = [(seen.method, seen.path.rsplit("/", 1)[-1]) for seen in script.seen if seen.method != "GET"]
    assert writes[1:] == [("PUT", "fm-build-2"), ("POST", "action"), ("DELETE", "fm-build-1")]
    sent = json.loads(script.calls("POST", f"/v2.1/servers/{ID}/action")[0].body)
    assert sent["rebuild"]["metadata"] == {"owner": "team", "fm_build": "2"}


async def test_a_tag_that_cannot_be_put_stops_the_rebuild(script: Script, nova: OpenStackNova) -> None:
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": shown()}))
    script.on("PUT", f"/v2.1/servers/{ID}/tags/fm-build-2", Answer(500, ""))
    spec = RebuildSpec(server_id=ID, image_id="i-2", user_data_b64="", tags=frozenset({"fm-build-2"}))
    with pytest.raises(Unavailable):
        await nova.rebuild(spec)
    assert script.calls("POST", f"/v2.1/servers/{ID}/action") == []


@pytest.mark.parametrize("name", ["err-appcred-wrong-secret", "err-appcred-unknown"])
async def test_a_credential_that_keystone_refuses_is_an_auth_error(
    script: Script, nova: OpenStackNova, name: str
) -> None:
    recorded = answer(name)
    script.answers["POST", "/v3/auth/tokens"] = [Answer(recorded["status"], recorded["body"])]
    with pytest.raises(AuthRejected) as caught:
        await nova.get(ID)
    assert (caught.value.peer, caught.value.status) == ("keystone", recorded["status"])
    assert caught.value.request_id.startswith("req-")
    assert "hunter2" not in leaks(caught.value)


async def test_a_cloud_that_is_not_in_the_file_is_a_clear_error(script: Script, tmp_path: Path) -> None:
    wrong = NovaSettings(cloud="mars", config_file=script.clouds_yaml(tmp_path))
    with pytest.raises(Misconfigured, match="is its name right"):
        async with OpenStackNova(wrong):
            pass


async def test_a_catalog_without_nova_is_a_clear_error(script: Script, nova: OpenStackNova) -> None:
    body: Any = script.answers["POST", "/v3/auth/tokens"][0].body
    body["token"]["catalog"] = []
    with pytest.raises(Misconfigured, match="no compute endpoint"):
        await nova.get(ID)


async def test_a_cloud_that_is_down_says_why(tmp_path: Path) -> None:
    with scripted() as script:
        where = settings(script, tmp_path)
    async with OpenStackNova(where) as nova:
        with pytest.raises(Unavailable, match="Connection refused") as caught:
            await nova.get(ID)
    assert caught.value.__context__ is None


async def test_an_unopened_client_says_how_it_is_used(script: Script, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await OpenStackNova(settings(script, tmp_path)).get(ID)


async def test_a_404_of_a_tag_that_is_gone_already_is_no_error(script: Script, nova: OpenStackNova) -> None:
    server = shown(tags=["fm-device-x", "fm-build-1", "fm-build-2"])
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": server}))
    gone = {"itemNotFound": {"code": 404, "message": f"Instance {ID} has no tag 'fm-build-1'"}}
    script.on("DELETE", f"/v2.1/servers/{ID}/tags/fm-build-1", Answer(404, gone))
    settled = await nova.settle_tags(ID, "x", "2")
    assert settled.id == ID


@pytest.mark.parametrize("status", [400, 403, 409, 500, 503, 418])
async def test_user_data_that_nova_quotes_twice_is_nowhere(
    script: Script, nova: OpenStackNova, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    everything(caplog)
    long = SECRET * 3000
    text = f"Invalid input for field/attribute user_data. Value: {long}. '{long}' is too long"
    script.on("POST", "/v2.1/servers", Answer(status, {"badRequest": {"code": status, "message": text}}))
    spec = ServerSpec(name="n", image_id="i", flavor_id="f", user_data_b64=long, tags=frozenset(), metadata={})
    with pytest.raises(ClientError) as caught:
        await nova.create(spec)
    assert SECRET in script.calls("POST", "/v2.1/servers")[0].body
    assert SECRET not in leaks(caught.value) + caplog.text + repr(spec)


async def test_a_lost_connection_does_not_carry_the_request(
    script: Script, nova: OpenStackNova, caplog: pytest.LogCaptureFixture
) -> None:
    everything(caplog)
    script.on("POST", "/v2.1/servers", Answer(cut=True))
    spec = ServerSpec(name="n", image_id="i", flavor_id="f", user_data_b64=SECRET, tags=frozenset())
    with pytest.raises(Unavailable) as caught:
        await nova.create(spec)
    assert SECRET not in leaks(caught.value) + caplog.text


async def test_the_password_of_a_created_server_is_nowhere(
    script: Script, nova: OpenStackNova, caplog: pytest.LogCaptureFixture
) -> None:
    everything(caplog)
    created = {"server": {"id": ID, "adminPass": SECRET}}
    script.on("POST", "/v2.1/servers", Answer(202, created))
    script.on("GET", f"/v2.1/servers/{ID}", Answer(200, {"server": shown()}))
    server = await nova.create(SPEC)
    assert SECRET not in repr(server) + caplog.text


async def test_an_unexpected_refusal_keeps_the_request_id(script: Script, nova: OpenStackNova) -> None:
    script.on("POST", "/v2.1/servers", Answer(400, {"badRequest": {"code": 400, "message": "Something new"}}))
    with pytest.raises(BadRequest) as caught:
        await nova.create(SPEC)
    assert caught.value.request_id.startswith("req-")
    assert "Something new" not in str(caught.value)
    assert not isinstance(caught.value, NotFound)
