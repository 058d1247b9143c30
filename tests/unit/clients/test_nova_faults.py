"""Each recorded refusal of Nova becomes the error that says what to do, in our words."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.clients.nova.recorded import reply

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    IncompatibleServer,
    NotFound,
    Unavailable,
)
from fleet_manager.core.clients.nova.errors import (
    FlavorNotFound,
    HostNotFound,
    ImageNotFound,
    NetworkNotFound,
    NovaBusy,
    PinForbidden,
    QuotaExceeded,
    ServerNotFound,
)
from fleet_manager.core.clients.nova.faults import fault
from fleet_manager.core.clients.nova.sdk import Reply, Request

CREATE = Request("POST", "/servers")
GET = Request("GET", "/servers/s-1")
REBUILD = Request("POST", "/servers/s-1/action")
EMPTY = Reply(status=500, url="http://nova.test/v2.1/servers", request_id="req-1", retry_after=None, content=b"")

ROWS: list[tuple[str, Request, type[ClientError], str]] = [
    ("err-userdata-bad-base64", CREATE, BadRequest, "Nova refuses the user-data"),
    ("err-userdata-raw-cloudconfig", CREATE, BadRequest, "Nova refuses the user-data"),
    ("err-networks-omitted-2.37", CREATE, BadRequest, "does not know a field of the request, or misses one"),
    ("rebuild-userdata-2.56-400", REBUILD, BadRequest, "does not know a field of the request, or misses one"),
    ("err-metadata-key-chars", CREATE, BadRequest, "Nova refuses the field metadata"),
    ("err-tag-too-long", CREATE, BadRequest, "Nova refuses the field 0"),
    ("err-host-plus-az", CREATE, BadRequest, "the availability zone names a machine too"),
    ("err-az-notfound", CREATE, BadRequest, "does not have the availability zone"),
    ("err-keyname-notfound", CREATE, BadRequest, "does not have the key pair"),
    ("err-flavor-notfound", CREATE, FlavorNotFound, "does not find the flavor"),
    ("err-image-notfound", CREATE, ImageNotFound, "does not find the image"),
    ("rebuild-400-image", REBUILD, ImageNotFound, "does not find the image"),
    ("err-host-notfound", CREATE, HostNotFound, "knows no machine mars"),
    ("err-network-notfound", CREATE, NetworkNotFound, "network 11111111-1111-1111-1111-111111111111"),
    ("err-port-notfound", CREATE, NetworkNotFound, "network 11111111-1111-1111-1111-111111111111"),
    ("host-param-demo", CREATE, PinForbidden, "policy compute:servers:create:requested_destination"),
    ("hypervisor-hostname-param-demo", CREATE, PinForbidden, "it needs an operator's"),
    ("az-host-demo", CREATE, PinForbidden, "policy os_compute_api:servers:create:forced_host"),
    ("err-404-other-project", GET, Forbidden, "policy os_compute_api:servers:show"),
    ("err-quota-instances", CREATE, QuotaExceeded, "quota of instances is used up"),
    ("err-metadata-quota", CREATE, QuotaExceeded, "quota is used up"),
    ("get-404", GET, ServerNotFound, "no server s-1"),
    ("rebuild-404", REBUILD, ServerNotFound, "no server s-1"),
    ("err-glance-404", Request("GET", "/images/x", "image"), NotFound, "it is not there"),
    ("err-microversion-406", CREATE, IncompatibleServer, "microversion is not offered"),
    ("rebuild-409-task-state", REBUILD, Conflict, "no rebuild while the server is in task_state rebuilding"),
    ("rebuild-in-VERIFY_RESIZE", REBUILD, Conflict, "no rebuild while the server is in vm_state resized"),
    ("rebuild-locked", REBUILD, Conflict, "the server is locked"),
    ("err-port-in-use", CREATE, Conflict, "the port is in use"),
    ("err-401-expired-token", GET, AuthRejected, "the token is refused"),
]


@pytest.mark.parametrize(("name", "request_", "kind", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_a_recorded_refusal_is_told_apart(name: str, request_: Request, kind: type[ClientError], words: str) -> None:
    recorded = reply(name)
    error = fault(recorded, request_)
    assert type(error) is kind
    assert words in error.message
    assert (error.status, error.request_id) == (recorded.status, recorded.request_id)
    assert error.request_id.startswith("req-")
    assert error.url == "http://nova.test/v2.1/servers"


@pytest.mark.parametrize("status", [500, 502, 504])
def test_an_internal_error_is_retried_after_a_look(status: int) -> None:
    error = fault(replace(EMPTY, status=status), CREATE)
    assert type(error) is Unavailable
    assert "a write may have happened" in str(error)


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [
        ("30", timedelta(seconds=30)),
        (" 7 ", timedelta(seconds=7)),
        (None, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-5", None),
        ("99999999999", None),
    ],
)
@pytest.mark.parametrize("status", [413, 429, 503])
def test_a_busy_answer_keeps_the_time_it_asks_for(status: int, retry_after: str | None, wait: timedelta | None) -> None:
    error = fault(replace(EMPTY, status=status, retry_after=retry_after), CREATE)
    assert isinstance(error, NovaBusy)
    assert error.retry_after == wait
    assert error.retryable


@pytest.mark.parametrize(
    "content",
    [
        b"<html>404 Not Found</html>",
        b"",
        b'{"message": "The resource could not be found.", "code": "404 Not Found", "title": "Not Found"}',
    ],
)
def test_a_404_that_no_handler_of_nova_gave_does_not_prove_that_a_server_is_gone(content: bytes) -> None:
    error = fault(replace(EMPTY, status=404, content=content), GET)
    assert type(error) is Unavailable


@pytest.mark.parametrize("status", [400, 403, 409, 418])
@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[1]", b'{"badRequest": "text"}', b'{"badRequest": {"code": 400}}']
)
def test_an_error_without_nova_s_text_is_still_an_error(status: int, content: bytes) -> None:
    kinds = {400: BadRequest, 403: Forbidden, 409: Conflict, 418: Unavailable}
    assert type(fault(replace(EMPTY, status=status, content=content), CREATE)) is kinds[status]


def test_what_was_sent_cannot_pose_as_a_cause_and_is_never_quoted() -> None:
    text = "Invalid input for field/attribute hunter2!. Value: Policy doesn't allow x to be performed. Quota exceeded"
    content = json.dumps({"badRequest": {"code": 400, "message": text}}).encode()
    error = fault(replace(EMPTY, status=400, content=content), CREATE)
    assert type(error) is BadRequest
    assert "hunter2" not in repr(error) + str(error)
