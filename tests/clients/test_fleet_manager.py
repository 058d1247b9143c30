"""The hub's devices and conditions through the client: one body for the real hub and for the fake, then the faults."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.clients.hub_support import HubServer
from tests.fakes.hub import FakeFleetManager
from tests.integration.hub.support import AGENT, READER, SITES, FakeClock

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    IncompatibleServer,
    NotFound,
    Unavailable,
    UnavailableTimeout,
)
from fleet_manager.core.clients.fleet_manager import FleetManager, FleetManagerClient
from fleet_manager.core.domain.device import ConditionReport, ConditionStatus, Device, DeviceBuild
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

pytest_plugins = ["tests.clients.hub_server"]


@pytest.fixture(params=["hub", "fake"])
async def fleet(request: pytest.FixtureRequest, seeded: HubServer) -> AsyncIterator[FleetManager]:
    """A client of a hub with the seeded sites, or the fake with the same devices."""
    if request.param == "fake":
        made = [Device(**{**device.model_dump(), "id": device.id or str(uuid4())}) for device in SITES.devices]
        yield FakeFleetManager(made)
        return
    async with seeded.devices(AGENT) as client:
        yield client


def report(device: str, type_: str, seconds: float = 0, **changes: Any) -> ConditionReport:
    values = {"status": ConditionStatus.TRUE, "reason": "Registered", "message": "in SLURM", **changes}
    when = FakeClock().now + timedelta(seconds=seconds)
    return ConditionReport(device=device, type=type_, observed_at=when, **values)


def a_type() -> str:
    return f"T{uuid4().hex}"


# one body for both


async def test_all_devices_of_a_site_come_by_name(fleet: FleetManager) -> None:
    devices = await fleet.list_devices("lab")
    assert [device.name for device in devices] == ["gpu-001", "gpu-002", "GPU-003"]
    assert [device.node_name for device in devices] == ["gpu-001", "Node02", "GPU-003"]


async def test_devices_of_one_role_are_listed(fleet: FleetManager) -> None:
    assert [device.name for device in await fleet.list_devices("lab", role="cpu")] == ["GPU-003"]
    assert await fleet.list_devices("lab", role="none") == ()


@pytest.mark.parametrize("name", ["dev-1", "gpu-001", "GPU-001"])
async def test_a_device_is_found_by_id_and_by_name_whatever_the_case(fleet: FleetManager, name: str) -> None:
    device = await fleet.get_device("lab", name)
    assert (device.id, device.name, device.hypervisor_hostname) == ("dev-1", "gpu-001", "cmp-001")


async def test_an_unknown_device_is_not_found_by_name(fleet: FleetManager) -> None:
    with pytest.raises(NotFound, match="'gpu-009'"):
        await fleet.get_device("lab", "gpu-009")


@pytest.mark.parametrize("site", ["other", "nowhere"])
async def test_another_site_is_not_found(fleet: FleetManager, site: str) -> None:
    if isinstance(fleet, FakeFleetManager):
        fleet.devices = [device for device in fleet.devices if device.site == "lab"]
    with pytest.raises(NotFound):
        await fleet.list_devices(site)
    with pytest.raises(NotFound):
        await fleet.get_device(site, "gpu-001")


async def test_a_build_is_recorded_and_read_back(fleet: FleetManager) -> None:
    build = DeviceBuild(server_id=str(uuid4()), build_id="b-1", config_revision=4)
    before = await fleet.get_device("lab", "gpu-002")
    recorded = await fleet.record_build("lab", before.id, build)
    assert recorded.build == build
    assert recorded.revision == before.revision + 1
    assert await fleet.get_device("lab", "gpu-002") == recorded


async def test_a_build_recorded_twice_is_recorded_once(fleet: FleetManager) -> None:
    build = DeviceBuild(server_id=str(uuid4()), build_id="b-1", config_revision=4)
    first = await fleet.record_build("lab", "gpu-002", build)
    assert await fleet.record_build("lab", "gpu-002", build) == first


async def test_a_released_device_has_no_build(fleet: FleetManager) -> None:
    await fleet.record_build("lab", "gpu-002", DeviceBuild(server_id="s", build_id="b", config_revision=1))
    assert (await fleet.record_build("lab", "gpu-002", DeviceBuild())).build == DeviceBuild()


async def test_a_build_of_an_unknown_device_is_not_found(fleet: FleetManager) -> None:
    with pytest.raises(NotFound):
        await fleet.record_build("lab", "gpu-009", DeviceBuild())


async def test_each_report_is_told(fleet: FleetManager) -> None:
    type_ = a_type()
    results = await fleet.write_conditions(
        "lab",
        [
            report("gpu-001", type_),
            report("nobody", type_),
            report("dev-1", type_, 1, status=ConditionStatus.FALSE),
            report("gpu-001", type_, 0.5),
            report("gpu-001", type_, 2, status=ConditionStatus.FALSE),
        ],
    )
    assert [result.outcome for result in results] == [
        "created",
        "unknown_device",
        "transitioned",
        "stale",
        "refreshed",
    ]
    assert results[2].last_transition_time == results[4].last_transition_time
    known = (await fleet.get_device("lab", "gpu-001")).condition(type_)
    assert known is not None
    assert (known.status, known.last_transition_time) == (ConditionStatus.FALSE, results[4].last_transition_time)


async def test_no_reports_are_no_call(fleet: FleetManager) -> None:
    assert await fleet.write_conditions("lab", []) == ()


# the hub alone


async def test_a_missing_scope_is_forbidden_and_named(seeded: HubServer) -> None:
    seeded.lab.add("reads-nothing", "lab", ["device:update"])
    async with seeded.devices("reads-nothing") as client:
        with pytest.raises(Forbidden, match="scope device:read"):
            await client.list_devices("lab")


async def test_reports_of_a_whole_site_go_in_several_calls(seeded: HubServer) -> None:
    type_ = a_type()
    reports = [report("gpu-001", type_, n / 1000) for n in range(2500)]
    async with seeded.devices(AGENT) as client:
        results = await client.write_conditions("lab", reports)
    assert [result.outcome for result in results] == ["created"] + ["refreshed"] * 2499


async def test_a_long_message_is_cut_and_not_refused(seeded: HubServer) -> None:
    type_ = a_type()
    async with seeded.devices(AGENT) as client:
        await client.write_conditions("lab", [report("gpu-001", type_, message="x" * 5000)])
        known = (await client.get_device("lab", "gpu-001")).condition(type_)
    assert known is not None
    assert (len(known.message), known.message[-1]) == (1024, "…")


async def test_a_site_of_many_pages_is_read_whole(seeded: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet_manager.core.clients.fleet_manager.PAGE", 1)
    async with seeded.devices(AGENT) as client:
        assert len(await client.list_devices("lab")) == 3


async def test_a_client_of_another_site_sees_only_its_own(seeded: HubServer) -> None:
    async with seeded.devices(READER) as client:
        assert [device.id for device in await client.list_devices("other")] == ["dev-other"]
        with pytest.raises(NotFound):
            await client.get_device("lab", "dev-1")


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb"])
async def test_a_name_that_would_change_the_path_is_refused_before_it_is_sent(seeded: HubServer, name: str) -> None:
    async with seeded.devices(AGENT) as client:
        with pytest.raises(BadRequest):
            await client.get_device(name, "gpu-001")


async def test_a_slash_in_a_name_stays_in_the_name(seeded: HubServer) -> None:
    async with seeded.devices(AGENT) as client:
        with pytest.raises(NotFound):
            await client.get_device("lab", "../../other/devices/gpu-001")


async def test_an_error_names_the_request_but_no_query(seeded: HubServer) -> None:
    async with seeded.devices(AGENT) as client:
        with pytest.raises(NotFound) as caught:
            await client.list_devices("nowhere", role="gpu")
    assert caught.value.url == f"{seeded.url}/api/v1/sites/nowhere/devices"
    assert (caught.value.method, caught.value.status, caught.value.peer) == ("GET", 404, "hub")
    assert caught.value.request_id


# faults that the hub does not make on demand


class NoAuth(httpx.Auth):
    pass


Handler = Callable[[httpx.Request], httpx.Response]
DEVICE = {"id": "dev-1", "site": "lab", "name": "gpu-001", "role": "gpu"}


class Scripted:
    """A client whose server is a function; it notes the requests and the pauses between them."""

    def __init__(self, handler: Handler, **settings: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

        async def handle(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return handler(request)

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        values = {"url": "http://127.0.0.1:1", "client_id": "me", "private_key_file": "/nowhere", **settings}
        transport = httpx.MockTransport(handle)
        self.client = FleetManagerClient(
            FleetManagerSettings(**values), auth=NoAuth(), sleep=sleep, transport=transport
        )


def problem(status: int, detail: str = "no") -> httpx.Response:
    return httpx.Response(status, json={"detail": detail}, headers={"Content-Type": "application/problem+json"})


@pytest.mark.parametrize(
    "status,kind",
    [
        (301, IncompatibleServer),
        (400, BadRequest),
        (401, AuthRejected),
        (403, Forbidden),
        (404, NotFound),
        (405, BadRequest),
        (409, Conflict),
        (410, NotFound),
        (412, Conflict),
        (413, BadRequest),
        (422, BadRequest),
        (428, BadRequest),
        (408, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (501, IncompatibleServer),
        (502, Unavailable),
        (503, Unavailable),
        (504, UnavailableTimeout),
    ],
)
async def test_each_status_is_one_of_our_errors(status: int, kind: type[ClientError]) -> None:
    script = Scripted(lambda _: problem(status, "the hub's words"))
    async with script.client as client:
        with pytest.raises(ClientError, match="the hub's words") as caught:
            await client.record_build("lab", "dev-1", DeviceBuild())
    assert type(caught.value) is kind
    assert len(script.requests) == 1  # a write is sent once


@pytest.mark.parametrize("status", [404, 409, 410, 412])
async def test_not_there_is_believed_of_the_hub_only(status: int) -> None:
    """An ingress whose hub is away answers 404 too; that device is not gone."""
    script = Scripted(lambda _: httpx.Response(status, html="<h1>default backend - 404</h1>"))
    async with script.client as client:
        with pytest.raises(Unavailable) as caught:
            await client.get_device("lab", "gpu-001")
    assert "default backend" not in str(caught.value)


@pytest.mark.parametrize(
    "fault,kind",
    [
        (httpx.ConnectError("x"), Unavailable),
        (httpx.ConnectTimeout("x"), Unavailable),
        (httpx.PoolTimeout("x"), Unavailable),
        (httpx.ReadTimeout("x"), UnavailableTimeout),
        (httpx.WriteTimeout("x"), UnavailableTimeout),
        (httpx.ReadError("x"), Unavailable),
        (httpx.WriteError("x"), Unavailable),
        (httpx.CloseError("x"), Unavailable),
        (httpx.RemoteProtocolError("x"), Unavailable),
        (httpx.LocalProtocolError("x"), Unavailable),
        (httpx.ProxyError("x"), Unavailable),
        (httpx.UnsupportedProtocol("x"), BadRequest),
        (httpx.DecodingError("x"), Unavailable),
        (httpx.TooManyRedirects("x"), Unavailable),
        (httpx.InvalidURL("x"), BadRequest),
        (httpx.StreamClosed(), Unavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_no_exception_of_httpx_leaves_the_client(fault: Exception, kind: type[ClientError]) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise fault

    for call in ("get_device", "list_devices"):
        async with Scripted(handler).client as client:
            with pytest.raises(ClientError) as caught:
                await getattr(client, call)(*(["lab", "gpu-001"] if call == "get_device" else ["lab"]))
        assert type(caught.value) is kind
        assert caught.value.__cause__ is fault


async def test_a_whole_exchange_has_a_bound() -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    settings = FleetManagerSettings(
        url="http://127.0.0.1:1", client_id="me", private_key_file="/nowhere", request_timeout=timedelta(seconds=0.05)
    )
    async with FleetManagerClient(settings, auth=NoAuth(), transport=httpx.MockTransport(never)) as client:
        with pytest.raises(UnavailableTimeout, match="no answer in time"):
            await client.get_device("lab", "gpu-001")


async def test_a_read_is_tried_again_and_the_pauses_grow() -> None:
    answers = [problem(503), httpx.Response(502, text="bad gateway"), httpx.Response(200, json=DEVICE)]
    script = Scripted(lambda _: answers.pop(0))
    async with script.client as client:
        assert (await client.get_device("lab", "gpu-001")).id == "dev-1"
    assert len(script.requests) == 3
    assert 0.2 <= script.pauses[0] <= 0.25
    assert 0.8 <= script.pauses[1] <= 1.0


async def test_a_read_gives_up_after_its_last_try() -> None:
    script = Scripted(lambda _: problem(503))
    async with script.client as client:
        with pytest.raises(Unavailable):
            await client.get_device("lab", "gpu-001")
    assert (len(script.requests), len(script.pauses)) == (3, 2)


@pytest.mark.parametrize("status", [404, 401, 403, 504])
async def test_a_refusal_and_a_time_out_are_not_tried_again(status: int) -> None:
    script = Scripted(lambda _: problem(status))
    async with script.client as client:
        with pytest.raises(ClientError):
            await client.get_device("lab", "gpu-001")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    "body,kind",
    [
        (b"<html>login</html>", Unavailable),
        (b"", Unavailable),
        (b"null", Unavailable),
        (b"[]", IncompatibleServer),
        (b'{"id": "dev-1"}', IncompatibleServer),
        (b'{"id": "dev-2", "site": "lab", "name": "gpu-002", "role": "gpu"}', IncompatibleServer),
        (b'{"id": "dev-1", "site": "other", "name": "gpu-001", "role": "gpu"}', IncompatibleServer),
    ],
)
async def test_a_200_that_is_not_the_device_is_not_believed(body: bytes, kind: type[ClientError]) -> None:
    script = Scripted(lambda _: httpx.Response(200, content=body), read_attempts=1)
    async with script.client as client:
        with pytest.raises(ClientError) as caught:
            await client.get_device("lab", "gpu-001")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "page",
    [
        {"items": [DEVICE], "next_after": "gpu-001"},
        {"items": [], "next_after": "gpu-001"},
        {"items": [DEVICE]},
        {"items": [{**DEVICE, "site": "other"}], "next_after": None},
        {},
    ],
)
async def test_a_list_that_cannot_be_whole_is_an_error_and_not_a_shorter_list(page: dict[str, Any]) -> None:
    script = Scripted(lambda _: httpx.Response(200, json=page))
    async with script.client as client:
        with pytest.raises(IncompatibleServer):
            await client.list_devices("lab")


async def test_results_that_are_not_those_of_the_reports_are_not_believed() -> None:
    script = Scripted(lambda _: httpx.Response(200, json={"results": []}))
    async with script.client as client:
        with pytest.raises(IncompatibleServer):
            await client.write_conditions("lab", [report("gpu-001", "SlurmMember")])


async def test_a_field_that_a_newer_hub_adds_is_no_error() -> None:
    script = Scripted(lambda _: httpx.Response(200, json={**DEVICE, "rack": "r1"}))
    async with script.client as client:
        assert (await client.get_device("lab", "gpu-001")).name == "gpu-001"


async def test_a_long_answer_is_cut_in_the_error() -> None:
    script = Scripted(lambda _: problem(422, "x" * 10_000))
    async with script.client as client:
        with pytest.raises(BadRequest) as caught:
            await client.record_build("lab", "dev-1", DeviceBuild())
    assert len(caught.value.message) == 300


async def test_a_client_that_was_not_opened_says_so() -> None:
    with pytest.raises(RuntimeError, match="context manager"):
        await Scripted(lambda _: problem(503)).client.get_device("lab", "gpu-001")
