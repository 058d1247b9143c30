"""Tokens by private_key_jwt, against the real hub, and against scripted servers for what it does not do."""

import asyncio
import json
import logging
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.clients.hub_support import HubServer, Recorder
from tests.integration.hub.support import AGENT, HPC, FakeClock, kid_of, new_key, pem

from fleet_manager.core.clients.errors import (
    AuthRejected,
    ClientError,
    Forbidden,
    IncompatibleServer,
    Unavailable,
    UnavailableTimeout,
)
from fleet_manager.core.clients.oauth import PrivateKeyJwtAuth, TokenSource, metadata_url
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

pytest_plugins = ["tests.clients.hub_server"]

TOKEN, METADATA = "/oauth/token", "/.well-known/oauth-authorization-server"
ALL: frozenset[str] = frozenset()


def bearer(source: TokenSource, *scopes: str, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(auth=PrivateKeyJwtAuth(source, scopes), transport=transport, trust_env=False)


# against the real hub


async def test_a_token_is_asked_for_once_and_used_for_every_call(seeded: HubServer) -> None:
    network = Recorder()
    async with bearer(seeded.source(AGENT, network), transport=network) as http:
        statuses = [(await http.get(f"{seeded.url}/api/v1/sites/lab/devices")).status_code for _ in range(3)]
    assert statuses == [200, 200, 200]
    assert (network.count(METADATA), network.count(TOKEN)) == (1, 1)


async def test_fifty_callers_at_once_ask_for_one_token(hub_server: HubServer) -> None:
    network = Recorder()
    source = hub_server.source(AGENT, network)
    tokens = await asyncio.gather(*(source.token(ALL) for _ in range(50)))
    assert len(set(tokens)) == 1
    assert (network.count(METADATA), network.count(TOKEN)) == (1, 1)


async def test_each_scope_set_has_a_token_of_its_own(hub_server: HubServer) -> None:
    network = Recorder()
    source = hub_server.source(AGENT, network)
    sets = (frozenset({"device:read"}), frozenset({"device:update", "device:read"}), frozenset({"device:read"}))
    tokens = [await source.token(scopes) for scopes in sets]
    assert tokens[0] == tokens[2] != tokens[1]
    assert [jwt.decode(token, options={"verify_signature": False})["scope"] for token in tokens[:2]] == [
        "device:read",
        "device:read device:update",
    ]
    assert network.count(TOKEN) == 2


async def test_a_401_gets_one_more_try_with_a_new_token(hub_server: HubServer) -> None:
    network = Recorder(refuse_next=1)
    async with bearer(hub_server.source(AGENT, network), transport=network) as http:
        answer = await http.get(f"{hub_server.url}/api/v1/sites/nowhere/devices")
    assert answer.status_code == 404
    assert network.count(TOKEN) == 2


async def test_a_second_401_is_the_answer(hub_server: HubServer) -> None:
    network = Recorder(refuse_next=10)
    async with bearer(hub_server.source(AGENT, network), transport=network) as http:
        answer = await http.get(f"{hub_server.url}/api/v1/sites/lab/devices")
    assert answer.status_code == 401
    assert network.count(TOKEN) == 2
    assert network.count("/api/v1/sites/lab/devices") == 2


async def test_a_write_is_sent_again_with_its_body_after_a_401(hub_server: HubServer) -> None:
    network = Recorder(refuse_next=1)
    async with bearer(hub_server.source(AGENT, network), transport=network) as http:
        await http.post(f"{hub_server.url}/api/v1/sites/nowhere/device-conditions", json={"conditions": []})
    sent = [body for (_, path), body in zip(network.sent, network.bodies, strict=True) if path.startswith("/api/")]
    assert sent == [b'{"conditions":[]}'] * 2


async def test_many_callers_whose_token_is_rejected_ask_for_one_new_token(hub_server: HubServer) -> None:
    network = Recorder(refuse_next=20)
    source = hub_server.source(AGENT, network)
    async with bearer(source, transport=network) as http:
        answers = await asyncio.gather(*(http.get(f"{hub_server.url}/api/v1/sites/nowhere/devices") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {404}
    assert network.count(TOKEN) == 2


async def test_a_token_is_replaced_a_minute_before_its_end(hub_server: HubServer) -> None:
    network = Recorder()
    source = hub_server.source(AGENT, network)
    first = await source.token(ALL)
    hub_server.clock.pass_(seconds=239)
    assert await source.token(ALL) == first
    hub_server.clock.pass_(seconds=1)
    assert await source.token(ALL) != first
    assert network.count(TOKEN) == 2


async def test_a_process_that_slept_through_the_end_asks_at_once(hub_server: HubServer) -> None:
    """Case 025: exp - now - margin is two hours below zero; that is now, not never."""
    source = hub_server.source(AGENT)
    first = await source.token(ALL)
    hub_server.clock.pass_(hours=2)
    assert source.seconds_to_expiry() == 0.0
    assert await source.token(ALL) != first
    assert source.seconds_to_expiry() == 300.0


async def test_seconds_to_expiry_is_unknown_before_the_first_token(hub_server: HubServer) -> None:
    assert hub_server.source(AGENT).seconds_to_expiry() is None


async def test_the_hubs_refusal_of_a_key_is_auth_rejected_with_its_words(hub_server: HubServer) -> None:
    hub_server.lab.key_file("stranger").write_bytes(pem(new_key()))
    hub_server.lab.key_file("stranger").chmod(0o600)
    with pytest.raises(AuthRejected, match="invalid_client: the assertion is not signed by a key") as caught:
        await hub_server.source("stranger").token(ALL)
    assert caught.value.status == 401
    assert caught.value.url.endswith(TOKEN)
    assert caught.value.request_id


async def test_a_scope_that_is_not_ours_is_forbidden(hub_server: HubServer) -> None:
    with pytest.raises(Forbidden, match=r"invalid_scope: the client has only these scopes: device-condition:create"):
        await hub_server.source(AGENT).token(frozenset({"slurm-bootstrap-config:read"}))


async def test_a_clock_that_is_wrong_is_told_as_such(hub_server: HubServer) -> None:
    late = TokenSource(hub_server.settings(AGENT), clock=lambda: hub_server.clock() - timedelta(hours=1))
    with pytest.raises(AuthRejected, match=r"exp has passed.*compare the clocks"):
        await late.token(ALL)


async def test_a_new_key_in_the_file_is_used_without_a_restart(hub_server: HubServer) -> None:
    lab = hub_server.lab
    lab.add("client-rotating", "lab", ["device:read"])
    source = hub_server.source("client-rotating")
    await source.token(ALL)
    lab.add("client-rotating", "lab", ["device:read"])
    hub_server.clock.pass_(minutes=5)
    assert await source.token(ALL)


@pytest.mark.parametrize("kind", ["EC", "OKP", "RSA"])
async def test_every_kind_of_key_that_the_hub_takes_signs(hub_server: HubServer, kind: str) -> None:
    hub_server.lab.add(f"client-of-{kind}", "lab", ["device:read"], new_key(kind))
    assert await hub_server.source(f"client-of-{kind}").token(ALL)


async def test_a_kid_of_the_rosters_own_choosing_is_sent(hub_server: HubServer) -> None:
    hub_server.lab.add("named-kid", "lab", ["device:read"])
    hub_server.lab.clients["named-kid"]["keys"][0]["kid"] = "2026-11"
    hub_server.lab.write()
    assert await hub_server.source("named-kid", key_id="2026-11").token(ALL)
    with pytest.raises(AuthRejected, match="kid"):
        await hub_server.source("named-kid").token(ALL)


async def test_nothing_secret_is_logged_or_shown(hub_server: HubServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    network = Recorder()
    source = hub_server.source(HPC, network)
    auth = PrivateKeyJwtAuth(source)
    async with httpx.AsyncClient(auth=auth, transport=network) as http:
        await http.get(f"{hub_server.url}/api/v1/sites/lab/devices")
    token = await source.token(ALL)
    form = next(body for (_, path), body in zip(network.sent, network.bodies, strict=True) if path == TOKEN).decode()
    assertion = form.split("client_assertion=")[1].split("&")[0]
    key = hub_server.lab.key_file(HPC).read_text().splitlines()[1]
    shown = caplog.text + repr(source) + repr(auth) + repr(vars(source)) + repr(vars(auth))
    for secret in (token, assertion, assertion.split(".")[2], key):
        assert secret not in shown


# against scripted servers


class Server:
    """Answers by script: metadata is right, the token endpoint does what each test says."""

    issuer = "http://127.0.0.1:1"

    def __init__(self, clock: FakeClock, folder: Any, **settings: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.metadata: Any = {
            "issuer": self.issuer,
            "token_endpoint": f"{self.issuer}{TOKEN}",
            "token_endpoint_auth_methods_supported": ["private_key_jwt"],
        }
        self.answer: Callable[[], httpx.Response] = lambda: self.token_answer()
        self.life: float = 300
        key = new_key()
        self.kid = kid_of(key)
        path = folder / "client.pem"
        path.write_bytes(pem(key))
        path.chmod(0o600)
        values: dict[str, Any] = {"url": self.issuer, "client_id": "me", "private_key_file": path, **settings}
        self.settings = FleetManagerSettings(**values)
        self.clock = clock
        self.source = TokenSource(self.settings, clock=clock, transport=httpx.MockTransport(self.handle))

    def token_answer(self, **changes: Any) -> httpx.Response:
        body = {"access_token": f"token-{len(self.requests)}", "token_type": "Bearer", "expires_in": self.life}
        return httpx.Response(200, json={**body, **changes})

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await asyncio.sleep(0)
        if request.url.path == METADATA:
            return (
                self.metadata if isinstance(self.metadata, httpx.Response) else httpx.Response(200, json=self.metadata)
            )
        return self.answer()

    @property
    def token_requests(self) -> int:
        return sum(request.url.path == TOKEN for request in self.requests)


@pytest.fixture
def server(tmp_path: Any) -> Server:
    return Server(FakeClock(), tmp_path)


async def test_the_assertion_says_what_rfc_7523_asks(server: Server) -> None:
    await server.source.token(frozenset({"b", "a"}))
    form = dict(httpx.QueryParams(server.requests[-1].content.decode()))
    assert (form["grant_type"], form["scope"]) == ("client_credentials", "a b")
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    claims = jwt.decode(form["client_assertion"], options={"verify_signature": False})
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("me", "me", server.issuer)
    assert claims["exp"] - claims["iat"] == 60
    assert jwt.get_unverified_header(form["client_assertion"])["kid"] == server.kid


async def test_every_assertion_has_a_jti_of_its_own(server: Server) -> None:
    for scopes in ("a", "b", "c"):
        await server.source.token(frozenset({scopes}))
    forms = [httpx.QueryParams(request.content.decode()) for request in server.requests if request.method == "POST"]
    ids = {jwt.decode(form["client_assertion"], options={"verify_signature": False})["jti"] for form in forms}
    assert len(ids) == 3


@pytest.mark.parametrize(
    "metadata,word",
    [
        ({"issuer": "http://127.0.0.1:1/"}, "another issuer"),
        ({"issuer": "https://127.0.0.1:1"}, "another issuer"),
        ({"token_endpoint_auth_methods_supported": ["client_secret_basic"]}, "does not take private_key_jwt"),
        ({"token_endpoint_auth_methods_supported": None}, "not that of RFC 8414"),
        ({"token_endpoint": "ftp://127.0.0.1:1/x"}, "issuer's scheme"),
    ],
)
async def test_metadata_that_is_not_the_issuers_is_not_believed(
    server: Server, metadata: dict[str, Any], word: str
) -> None:
    server.metadata.update(metadata)
    with pytest.raises(IncompatibleServer, match=word):
        await server.source.token(ALL)
    assert server.token_requests == 0


@pytest.mark.parametrize(
    "issuer,url",
    [
        ("https://hub.example", "https://hub.example/.well-known/oauth-authorization-server"),
        ("https://hub.example/tenant", "https://hub.example/.well-known/oauth-authorization-server/tenant"),
        ("https://hub.example/a/", "https://hub.example/.well-known/oauth-authorization-server/a"),
    ],
)
def test_the_well_known_part_goes_before_the_issuers_path(issuer: str, url: str) -> None:
    assert metadata_url(issuer) == url


@pytest.mark.parametrize(
    "status,body,kind",
    [
        (401, {"error": "invalid_client"}, AuthRejected),
        (400, {"error": "invalid_client"}, AuthRejected),
        (400, {"error": "invalid_grant"}, AuthRejected),
        (400, {"error": "invalid_scope"}, Forbidden),
        (400, {"error": "unauthorized_client"}, Forbidden),
        (403, {}, Forbidden),
        (401, {}, AuthRejected),
        (404, "a proxy's page", Unavailable),
        (405, "no such method", IncompatibleServer),
        (429, {"error": "slow_down"}, Unavailable),
        (500, {"error": "server_error"}, Unavailable),
        (502, "a proxy's page", Unavailable),
        (504, "a proxy's page", UnavailableTimeout),
        (302, "elsewhere", IncompatibleServer),
        (200, "a proxy's page", Unavailable),
        (200, {"access_token": "x", "token_type": "mac", "expires_in": 300}, IncompatibleServer),
        (200, {"access_token": "x", "token_type": "Bearer", "expires_in": 0}, IncompatibleServer),
        (200, {"token_type": "Bearer", "expires_in": 300}, IncompatibleServer),
    ],
)
async def test_each_answer_of_the_token_endpoint_is_one_of_our_errors(
    server: Server, status: int, body: Any, kind: type[ClientError]
) -> None:
    content = {"json": body} if isinstance(body, dict) else {"text": body}
    server.answer = lambda: httpx.Response(status, **content)
    with pytest.raises(ClientError) as caught:
        await server.source.token(ALL)
    assert type(caught.value) is kind
    assert "proxy's page" not in str(caught.value)


async def test_no_answer_of_the_issuer_can_be_taken_for_a_missing_device(server: Server) -> None:
    """NotFound of a device lets a workflow go on; a 404 of the token endpoint must not look like it."""
    problem = {"content-type": "application/problem+json"}
    server.answer = lambda: httpx.Response(404, json={"detail": "Not Found"}, headers=problem)
    with pytest.raises(IncompatibleServer):
        await server.source.token(ALL)
    server.metadata = httpx.Response(404, json={"detail": "Not Found"}, headers=problem)
    with pytest.raises(IncompatibleServer):
        await TokenSource(server.settings, transport=httpx.MockTransport(server.handle)).token(ALL)


async def test_transport_errors_are_ours_and_come_from_httpx(server: Server) -> None:
    def fail() -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    server.answer = fail
    with pytest.raises(UnavailableTimeout) as caught:
        await server.source.token(ALL)
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)


async def test_nobody_there_is_unavailable(tmp_path: Any) -> None:
    server = Server(FakeClock(), tmp_path)
    with pytest.raises(Unavailable, match="no connection"):
        await TokenSource(server.settings, clock=server.clock).token(ALL)


async def test_a_failure_is_told_to_everybody_who_waits_and_the_next_caller_tries_again(server: Server) -> None:
    server.answer = lambda: httpx.Response(503)
    results = await asyncio.gather(*(server.source.token(ALL) for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    assert server.token_requests == 1
    server.answer = server.token_answer
    assert await server.source.token(ALL) == "token-4"


async def test_a_failed_early_refresh_keeps_the_token_that_is_still_good(server: Server) -> None:
    first = await server.source.token(ALL)
    server.answer = lambda: httpx.Response(503)
    server.clock.pass_(seconds=250)
    assert [await server.source.token(ALL) for _ in range(5)] == [first] * 5
    assert server.token_requests == 2  # the next try is due in five seconds
    server.clock.pass_(seconds=5)
    assert await server.source.token(ALL) == first
    assert server.token_requests == 3
    server.clock.pass_(seconds=45)
    with pytest.raises(Unavailable):
        await server.source.token(ALL)


async def test_a_short_lived_token_is_used_for_three_quarters_of_its_life(server: Server) -> None:
    server.life = 20
    first = await server.source.token(ALL)
    server.clock.pass_(seconds=14.9)
    assert await server.source.token(ALL) == first
    server.clock.pass_(seconds=0.2)
    assert await server.source.token(ALL) != first


async def test_the_first_callers_cancellation_does_not_take_the_token_from_the_others(server: Server) -> None:
    callers = [asyncio.create_task(server.source.token(ALL)) for _ in range(3)]
    await asyncio.sleep(0)
    callers[0].cancel()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == ["token-2", "token-2"]
    assert server.token_requests == 1


async def test_the_metadata_is_read_again_after_a_refusal(server: Server) -> None:
    await server.source.token(ALL)
    server.answer = lambda: httpx.Response(404, text="moved")
    with pytest.raises(ClientError):
        await server.source.token(frozenset({"a"}))
    server.answer = server.token_answer
    await server.source.token(frozenset({"a"}))
    assert sum(request.url.path == METADATA for request in server.requests) == 2


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602])
async def test_a_key_that_others_can_read_is_not_used(server: Server, mode: int) -> None:
    server.settings.private_key_file.chmod(mode)
    with pytest.raises(AuthRejected, match=f"mode {mode:04o}"):
        await server.source.token(ALL)
    assert server.token_requests == 0


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440])
async def test_a_key_that_only_we_or_our_group_can_read_is_used(server: Server, mode: int) -> None:
    server.settings.private_key_file.chmod(mode)
    assert await server.source.token(ALL)


async def test_a_key_that_is_not_there_is_told_by_its_path(server: Server) -> None:
    server.settings.private_key_file.unlink()
    with pytest.raises(AuthRejected, match=r"client\.pem cannot be read: No such file"):
        await server.source.token(ALL)


@pytest.mark.parametrize(
    "content",
    [
        b"not a key",
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        pem(new_key(), password=b"locked"),
    ],
    ids=["text", "P-384", "RSA-1024", "locked"],
)
async def test_a_key_that_is_not_allowed_is_refused_with_what_is(server: Server, content: bytes) -> None:
    server.settings.private_key_file.write_bytes(content)
    with pytest.raises(AuthRejected, match="EC P-256, Ed25519 or RSA of 2048 bits") as caught:
        await server.source.token(ALL)
    assert content.decode()[:40] not in str(caught.value)


def test_the_auth_is_for_async_clients_only(server: Server) -> None:
    with httpx.Client(auth=PrivateKeyJwtAuth(server.source)) as http, pytest.raises(RuntimeError, match="AsyncClient"):
        http.get("http://127.0.0.1:1/")


async def test_a_held_token_cannot_be_pickled_or_printed_by_accident(server: Server) -> None:
    token = await server.source.token(ALL)
    assert token not in repr(server.source._held)
    with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
        pickle.dumps(server.source)


@pytest.mark.parametrize("url", ["http://hub.example", "http://10.0.0.1:8800"])
def test_http_is_taken_on_loopback_only(url: str) -> None:
    with pytest.raises(ValueError, match="must be https"):
        FleetManagerSettings(url=url, client_id="me", private_key_file="/k")


def test_settings_do_not_quote_what_they_refuse() -> None:
    with pytest.raises(ValueError) as caught:
        FleetManagerSettings(url="https://user:s3cret@hub.example", client_id="me", private_key_file="/k")
    assert "s3cret" not in json.dumps(str(caught.value))
