"""An exception of the SDK becomes ours by its class, and nothing that it holds comes along."""

import pytest
import requests
from keystoneauth1 import exceptions as ks
from openstack import exceptions as os_exceptions

from fleet_manager.core.clients.errors import AuthRejected, ClientError, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.nova.errors import (
    BuildFailed,
    LandedElsewhere,
    Misconfigured,
    NoCapacity,
    NovaBusy,
    ServerNotFound,
    build_error,
)
from fleet_manager.core.clients.nova.sdk import Request, failure
from fleet_manager.core.domain.server import Building, BuildState, Done, Elsewhere, Failed, Lost, NotThisBuild, Stopped

POST = Request("POST", "/servers", body={"server": {"user_data": "hunter2"}})


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (ks.ConnectTimeout("hunter2"), UnavailableTimeout),
        (ks.ConnectFailure("hunter2"), Unavailable),
        (ks.SSLError("hunter2"), Unavailable),
        (ks.UnknownConnectionError("hunter2", ValueError("hunter2")), Unavailable),
        (ks.DiscoveryFailure("hunter2"), Unavailable),
        (ks.Unauthorized("hunter2"), AuthRejected),
        (ks.NotFound("hunter2"), AuthRejected),
        (ks.BadRequest("hunter2"), AuthRejected),
        (ks.ServiceUnavailable("hunter2"), NovaBusy),
        (ks.InternalServerError("hunter2"), Unavailable),
        (ks.EndpointNotFound("hunter2"), Misconfigured),
        (ks.MissingRequiredOptions([]), Misconfigured),
        (os_exceptions.ConfigException("hunter2"), Misconfigured),
        (ValueError("hunter2"), Unavailable),
    ],
)
def test_an_exception_becomes_ours_without_its_text(exc: Exception, kind: type[ClientError]) -> None:
    error = failure(exc, POST)
    assert type(error) is kind
    assert "hunter2" not in repr(error) + str(error) + repr(vars(error))
    assert (error.__cause__, error.__context__) == (None, None)


def test_status_and_request_id_of_keystone_are_kept() -> None:
    error = failure(ks.Unauthorized("no", request_id="req-9"))
    assert (error.peer, error.status, error.request_id) == ("keystone", 401, "req-9")


def test_the_system_s_own_word_for_a_lost_connection_is_kept() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as inner:
            raise requests.ConnectionError("hunter2") from inner
    except requests.ConnectionError as outer:
        exc = ks.ConnectFailure("hunter2")
        exc.__context__ = outer
    assert str(failure(exc, POST)) == "nova: no connection: Connection refused (POST /servers)"


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (Failed("No valid host was found.", capacity=True), NoCapacity, "no room for server s-1"),
        (Failed("burnt"), BuildFailed, "server s-1 was not built: burnt"),
        (Lost("the server is gone"), ServerNotFound, "server s-1: the server is gone"),
        (Elsewhere("u1", "u2"), LandedElsewhere, "server s-1 is on u2 instead of u1"),
        (Elsewhere("u1", None), LandedElsewhere, "is not shown where it is"),
    ],
)
def test_an_ended_build_is_an_error_that_names_the_server(
    state: BuildState, kind: type[ClientError], words: str
) -> None:
    error = build_error(state, "s-1")
    assert type(error) is kind
    assert words in str(error)
    assert error.retryable is (kind is NoCapacity)


@pytest.mark.parametrize("state", [Done(), Stopped(), Building("BUILD"), NotThisBuild(None, busy=False)])
def test_what_may_still_become_a_machine_is_no_error(state: BuildState) -> None:
    assert build_error(state, "s-1") is None
