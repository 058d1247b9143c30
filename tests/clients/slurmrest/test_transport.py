"""Connections, time-outs and headers, against a real server that is slow, drops, or counts."""

import asyncio
import contextlib
import socket
import traceback
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.clients.slurmrest.server import OPENAPI_26_05, Reply, Request, envelope
from tests.clients.slurmrest.talk import Talk

from fleet_manager.core.clients.errors import BadRequest, Unavailable, UnavailableTimeout
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.settings.clients.slurm import SlurmSettings

NODE = envelope(nodes=[{"name": "gpu01", "state": ["IDLE"]}])
DRAIN = NodeUpdate(NodeStateWord.DRAIN, "why")
SPEC = JobSpec("burnin", "#!/bin/bash\n", "main", "/tmp", ("PATH=/bin",), 5)
SHORT = timedelta(seconds=0.3)


async def test_content_type_and_accept_are_exactly_what_slurmrestd_takes(talk: Talk) -> None:
    async with talk(Reply(200, NODE), user_name="fleet") as (client, server):
        await client.update_node("gpu01", DRAIN)
        (sent,) = server.asked("POST")
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["content-length"] == str(len(sent.body))
    assert "application/json" in sent.headers["accept"]
    assert sent.headers["x-slurm-user-name"] == "fleet"
    assert sent.token == "the.test.token"
    assert sent.json == {"state": ["DRAIN"], "reason": "why"}


async def test_a_get_has_no_content_type(talk: Talk) -> None:
    async with talk(Reply(200, NODE)) as (client, server):
        await client.read_node("gpu01")
    assert "content-type" not in server.requests[-1].headers
    assert "x-slurm-user-name" not in server.requests[-1].headers


async def test_never_more_connections_than_the_pool_has(talk: Talk) -> None:
    async with talk(lambda _: Reply(200, NODE, delay=0.01), pool_size=3) as (client, server):
        await asyncio.gather(*(client.read_node("gpu01") for _ in range(40)))
        assert server.most_open <= 3
        assert len(server.asked("GET", "/node/")) == 40


async def test_never_more_connections_when_every_answer_closes_one(talk: Talk) -> None:
    async with talk(lambda _: Reply(502, envelope(), delay=0.01, close=True), pool_size=3) as (client, server):
        found = await asyncio.gather(*(client.read_node("gpu01") for _ in range(20)), return_exceptions=True)
        assert {type(one) for one in found} == {slurm.SlurmctldUnavailable}
        assert server.most_open <= 6  # each may be closed on our side and not yet on the server's


async def test_connections_are_kept_and_used_again(talk: Talk) -> None:
    async with talk(Reply(200, NODE)) as (client, server):
        for _ in range(10):
            await client.read_node("gpu01")
        assert server.opened == 1


async def test_who_waits_too_long_for_a_connection_was_not_sent(talk: Talk) -> None:
    async def slow(_: Request) -> Reply:
        await asyncio.sleep(1)
        return Reply(200, NODE)

    async with talk(slow, pool_size=1, pool_timeout=SHORT) as (client, server):
        await client.capabilities()
        first = asyncio.create_task(client.read_node("gpu01"))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="not sent") as caught:
            await client.read_node("gpu01")
        await first
        assert type(caught.value) is Unavailable
        assert len(server.asked("GET", "/node/")) == 1


async def test_a_late_answer_is_a_time_out_and_frees_its_connection(talk: Talk) -> None:
    delays = iter([5.0, 0.0])
    async with talk(lambda _: Reply(200, NODE, delay=next(delays)), pool_size=1, request_timeout=SHORT) as (client, _):
        with pytest.raises(UnavailableTimeout, match="no answer"):
            await client.read_node("gpu01")
        assert (await client.read_node("gpu01")).name == "gpu01"


async def test_an_answer_that_trickles_is_a_time_out_as_well(talk: Talk) -> None:
    """httpx's own time-outs begin anew with each byte."""

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    listening = await asyncio.start_server(trickle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = SlurmSettings(url=f"http://127.0.0.1:{port}", jwt_op_item="env://TEST_TOKEN")
    async with listening, SlurmRestClient(settings.model_copy(update={"request_timeout": SHORT})) as client:
        with pytest.raises(UnavailableTimeout):
            await client.read_nodes()


async def test_a_time_out_of_a_submit_says_that_a_job_may_exist(talk: Talk) -> None:
    async with talk(Reply(200, envelope(job_id=7), delay=5), request_timeout=SHORT) as (client, server):
        with pytest.raises(slurm.SubmitUnknown, match="a job burnin may exist"):
            await client.submit(SPEC)
        assert len(server.asked("POST")) == 1


async def test_a_dropped_connection_of_a_submit_says_that_a_job_may_exist(talk: Talk) -> None:
    async with talk(Reply(drop=True)) as (client, server):
        with pytest.raises(slurm.SubmitUnknown, match="may exist"):
            await client.submit(SPEC)
        assert len(server.asked("POST")) == 1


async def test_a_submit_that_was_not_sent_made_no_job() -> None:
    with socket.socket() as taken:  # bound and not listening: refused
        taken.bind(("127.0.0.1", 0))
        settings = SlurmSettings(url=f"http://127.0.0.1:{taken.getsockname()[1]}", jwt_op_item="env://TEST_TOKEN")
        async with SlurmRestClient(settings) as client:
            with pytest.raises(Unavailable, match="not sent") as caught:
                await client.submit(SPEC)
    assert type(caught.value) is Unavailable


async def test_a_read_is_repeated_once_when_a_kept_connection_is_gone(talk: Talk) -> None:
    replies = iter([Reply(200, NODE), Reply(drop=True), Reply(200, NODE)])
    async with talk(lambda _: next(replies)) as (client, server):
        await client.read_node("gpu01")
        assert (await client.read_node("gpu01")).name == "gpu01"
        assert len(server.asked("GET", "/node/")) == 3


async def test_a_read_is_not_repeated_for_ever(talk: Talk) -> None:
    async with talk(Reply(drop=True)) as (client, server):
        with pytest.raises(Unavailable, match="no readable answer"):
            await client.read_node("gpu01")
        assert len(server.asked("GET", "/node/")) == 2


async def test_a_restart_of_the_server_between_two_reads_is_not_noticed(talk: Talk) -> None:
    async with talk(Reply(200, NODE)) as (client, server):
        await client.read_node("gpu01")
        server.drop_idle()
        assert (await client.read_node("gpu01")).name == "gpu01"


async def test_a_write_whose_connection_broke_is_sent_once_and_may_have_been_done(talk: Talk) -> None:
    def handle(request: Request) -> Reply:
        return Reply(200, NODE) if request.method == "GET" else Reply(drop=True)

    async with talk(handle) as (client, server):
        with pytest.raises(slurm.AnswerLost, match="may have been carried out") as caught:
            await client.update_node("gpu01", DRAIN)
        assert isinstance(caught.value, UnavailableTimeout)
        assert len(server.asked("POST")) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_write_is_never_repeated(talk: Talk, status: int) -> None:
    def handle(request: Request) -> Reply:
        return Reply(200, NODE) if request.method == "GET" else Reply(status, envelope(), close=True)

    async with talk(handle) as (client, server):
        with pytest.raises(Unavailable):
            await client.update_node("gpu01", DRAIN)
        assert len(server.asked("POST")) == 1


async def test_a_redirect_is_not_followed(talk: Talk) -> None:
    def handle(request: Request) -> Reply:
        return Reply(302, "", headers={"Location": "/elsewhere"})

    async with talk(handle) as (client, server):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_node("gpu01")
        assert not server.asked("GET", "elsewhere")


BROKEN: list[bytes] = [
    b"",
    b"nonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n",
    b"HTTP/1.1 999999 OK\r\n\r\n",
]


@pytest.mark.parametrize("raw", BROKEN)
@pytest.mark.parametrize("write", [False, True])
async def test_no_error_of_httpx_leaks(raw: bytes, write: bool) -> None:
    good = Reply(200, OPENAPI_26_05, close=True).wire

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(good if b"openapi" in head else raw)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = SlurmSettings(url=f"http://127.0.0.1:{port}", jwt_op_item="env://TEST_TOKEN")
    async with listening, SlurmRestClient(settings) as client:
        call: Any = client.submit(SPEC) if write else client.read_nodes()
        with pytest.raises(slurm.SubmitUnknown if write else Unavailable) as caught:
            await call
    assert not isinstance(caught.value, httpx.HTTPError)


async def test_the_token_is_in_no_error_not_even_in_its_causes(talk: Talk) -> None:
    text = "bad header X-SLURM-USER-TOKEN: the.test.token"
    async with talk(Reply(400, text)) as (client, _):
        with pytest.raises(BadRequest) as caught:
            await client.read_nodes()
    assert "the.test.token" not in "".join(traceback.format_exception(caught.value))
    assert "***" in str(caught.value)


async def test_a_token_that_no_header_can_carry_is_not_quoted(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWO_LINES", "secret-one\nsecret-two")
    async with talk(Reply(200, NODE), jwt_op_item="env://TWO_LINES") as (client, server):
        with pytest.raises(BadRequest) as caught:
            await client.read_nodes()
        assert server.requests == []
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "the.test.token")


def test_certificates_that_are_not_there_are_told_at_once() -> None:
    with pytest.raises(BadRequest, match="/nowhere"):
        SlurmRestClient(SlurmSettings(url="https://slurm", jwt_op_item="env://TEST_TOKEN", ca_file="/nowhere"))
