"""A rejected token is read again once, by one of all who hold it, and the call goes on or says that it is rejected."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.clients.slurmrest.server import Reply, Request, complaint, envelope
from tests.clients.slurmrest.talk import Clock, Talk

from fleet_manager.core.clients.errors import Unavailable
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec

NODE = {"name": "gpu01", "state": ["IDLE"]}
SPEC = JobSpec("burnin", "#!/bin/bash\n", "main", "/tmp", ("PATH=/bin",), 5)
ITEM = "op://site/slurm/jwt"


class Vault:
    """What 1Password would give, and how often it was asked."""

    def __init__(self, *tokens: str | Exception) -> None:
        self.tokens = list(tokens)
        self.reads = 0

    async def __call__(self, reference: str) -> str:
        assert reference == ITEM
        self.reads += 1
        await asyncio.sleep(0.01)
        found = self.tokens[min(self.reads, len(self.tokens)) - 1]
        if isinstance(found, Exception):
            raise found
        return found


def accepting(*good: str, answer: Reply | None = None) -> Callable[[Request], Reply]:
    """Return a handler that knows only these tokens."""
    rejection = answer or Reply(511, envelope(jobs=[], errors=[complaint(1007)]), close=True)

    def handle(request: Request) -> Reply:
        if request.token not in good:
            return rejection
        if request.path.endswith("/submit"):
            return Reply(200, envelope(job_id=7))
        return Reply(200, envelope(nodes=[NODE], jobs=[]))

    return handle


@pytest.fixture
def vault_client(clock: Clock) -> Callable[[Vault], dict[str, Any]]:
    return lambda vault: {"jwt_op_item": ITEM, "client": {"resolve": vault, "clock": clock}}


Make = Callable[[Vault], dict[str, Any]]

REJECTIONS = [
    Reply(511, envelope(nodes=[], errors=[complaint(1007)]), close=True),
    Reply(511, envelope(nodes=[]), close=True),
    Reply(401, "Authentication failure", close=True),
    Reply(200, envelope(errors=[complaint(1007)])),
]


@pytest.mark.parametrize("rejection", REJECTIONS)
async def test_a_renewed_token_is_taken_up(talk: Talk, vault_client: Make, rejection: Reply) -> None:
    """Case 002."""
    vault = Vault("old", "new")
    async with talk(accepting("new", answer=rejection), **vault_client(vault)) as (client, server):
        assert (await client.read_node("gpu01")).name == "gpu01"
        assert [one.token for one in server.asked("GET", "/node/")] == ["old", "new"]
    assert vault.reads == 2


async def test_a_token_is_read_once_for_many_calls(talk: Talk, vault_client: Make) -> None:
    vault = Vault("good")
    async with talk(accepting("good"), **vault_client(vault)) as (client, _):
        await asyncio.gather(*(client.read_node("gpu01") for _ in range(50)))
    assert vault.reads == 1


async def test_fifty_callers_with_one_rejected_token_read_it_once(talk: Talk, vault_client: Make) -> None:
    vault = Vault("old", "new")
    async with talk(accepting("old", "new"), **vault_client(vault)) as (client, server):
        await client.read_node("gpu01")
        server.handler = accepting("new")
        nodes = await asyncio.gather(*(client.read_node("gpu01") for _ in range(50)))
        assert {node.name for node in nodes} == {"gpu01"}
    assert vault.reads == 2


async def test_the_same_token_again_is_rejected_without_another_try(talk: Talk, vault_client: Make) -> None:
    vault = Vault("dead")
    async with talk(accepting(), **vault_client(vault)) as (client, server):
        with pytest.raises(slurm.SlurmTokenRejected) as caught:
            await client.read_node("gpu01")
        assert len(server.asked("GET", "/node/")) == 1
    assert vault.reads == 2
    assert (caught.value.status, caught.value.code) == (511, 1007)
    assert "dead" not in str(caught.value)


async def test_two_dead_tokens_are_two_reads_and_no_third(talk: Talk, vault_client: Make) -> None:
    vault = Vault("dead", "dead-too", "never-read")
    async with talk(accepting(), **vault_client(vault)) as (client, _):
        with pytest.raises(slurm.SlurmTokenRejected):
            await client.read_node("gpu01")
    assert vault.reads == 2


async def test_a_dead_token_does_not_eat_the_quota(talk: Talk, vault_client: Make, clock: Clock) -> None:
    """Case 044: an hour of polls each second reads the vault a few times, and takes up a new token when it comes."""
    vault = Vault("dead")
    async with talk(accepting("new"), **vault_client(vault)) as (client, _):
        for _ in range(720):
            with pytest.raises(slurm.SlurmTokenRejected):
                await client.read_node("gpu01")
            clock.pass_(seconds=5)
        assert vault.reads <= 20
        vault.tokens = ["new"]
        clock.pass_(minutes=5)
        assert (await client.read_node("gpu01")).name == "gpu01"


async def test_fifty_callers_of_a_dead_token_read_it_once_more(talk: Talk, vault_client: Make) -> None:
    vault = Vault("dead")
    async with talk(accepting(), **vault_client(vault)) as (client, _):
        found = await asyncio.gather(*(client.read_node("gpu01") for _ in range(50)), return_exceptions=True)
    assert {type(one) for one in found} == {slurm.SlurmTokenRejected}
    assert vault.reads == 2


async def test_a_write_whose_token_was_rejected_is_sent_with_the_new_one(talk: Talk, vault_client: Make) -> None:
    vault = Vault("old", "new")
    async with talk(accepting("new"), **vault_client(vault)) as (client, server):
        assert (await client.submit(SPEC)).job_id == 7
        assert [one.token for one in server.asked("POST")] == ["old", "new"]


async def test_a_vault_that_does_not_answer_is_not_a_rejected_token(talk: Talk, vault_client: Make) -> None:
    vault = Vault("old", Unavailable("rate limit exceeded", peer="1password"))
    async with talk(accepting("old"), **vault_client(vault)) as (client, server):
        await client.read_node("gpu01")
        server.handler = accepting("new")
        with pytest.raises(Unavailable, match="rate limit"):
            await client.read_node("gpu01")
        with pytest.raises(Unavailable, match="rate limit"):
            await client.read_node("gpu01")
    assert vault.reads == 2


def answer_of_24_05(request: Request) -> Reply:
    error = complaint(-1, "Unable to query jobs", "Unspecified error")
    return Reply(500, envelope("24.05.3", jobs=[], nodes=[], errors=[error]), close=True)


async def test_the_500_of_24_05_is_tried_once_with_a_fresh_token(talk: Talk, vault_client: Make) -> None:
    """Case 002: there it may mean a dead token. It is never an empty list."""
    vault = Vault("old", "new")

    def handle(request: Request) -> Reply:
        return Reply(200, envelope("24.05.3", jobs=[])) if request.token == "new" else answer_of_24_05(request)

    async with talk(handle, **vault_client(vault)) as (client, _):
        assert await client.jobs() == ()
    assert vault.reads == 2


async def test_the_500_of_24_05_with_no_other_token_is_unavailable(talk: Talk, vault_client: Make) -> None:
    vault = Vault("held")
    async with talk(answer_of_24_05, **vault_client(vault)) as (client, server):
        with pytest.raises(slurm.SlurmctldUnavailable):
            await client.jobs()
        assert len(server.asked("GET", "/jobs/")) == 1
    assert vault.reads == 2


@pytest.mark.parametrize("release", ["24.11.5", "26.05.5"])
async def test_the_same_500_of_a_newer_server_reads_no_token(talk: Talk, vault_client: Make, release: str) -> None:
    vault = Vault("held")
    async with talk(Reply(500, envelope(release, errors=[complaint(-1)])), **vault_client(vault)) as (client, _):
        with pytest.raises(slurm.SlurmctldUnavailable):
            await client.job(7)
    assert vault.reads == 1


async def test_a_write_is_not_sent_again_for_the_500_of_24_05(talk: Talk, vault_client: Make) -> None:
    vault = Vault("old", "new")

    def handle(request: Request) -> Reply:
        return Reply(200, envelope("24.05.3", nodes=[NODE])) if request.method == "GET" else answer_of_24_05(request)

    async with talk(handle, **vault_client(vault)) as (client, server):
        with pytest.raises(slurm.SlurmctldUnavailable):
            await client.update_node("gpu01", NodeUpdate(NodeStateWord.DRAIN, "why"))
        assert len(server.asked("POST")) == 1
    assert vault.reads == 1


async def test_a_dead_token_at_discovery_is_read_again_as_well(talk: Talk, vault_client: Make) -> None:
    vault = Vault("old", "new")

    def handle(request: Request) -> Reply:
        if request.token == "old":
            return Reply(401, "Authentication failure", close=True)
        return accepting("new")(request)

    async with talk(handle, **vault_client(vault)) as (client, server):
        document_of = server.handler

        def both(request: Request) -> Reply | Awaitable[Reply]:
            return handle(request) if request.token == "old" else document_of(request)

        server.handler = both
        assert (await client.read_node("gpu01")).name == "gpu01"
    assert vault.reads == 2


async def test_without_a_1password_client_an_op_item_is_refused_with_a_sentence(talk: Talk) -> None:
    async with talk(Reply(200), jwt_op_item=ITEM) as (client, _):
        with pytest.raises(slurm.BadRequest, match="no 1Password client"):
            await client.read_nodes()


async def test_the_clients_token_tells_its_expiry_and_nothing_else(
    talk: Talk, vault_client: Make, clock: Clock
) -> None:

    exp = int((clock() + timedelta(hours=1)).timestamp())
    claims = base64.urlsafe_b64encode(json.dumps({"exp": exp, "sun": "fleet"}).encode()).decode().rstrip("=")
    token = f"head.{claims}.signature"
    async with talk(accepting(token), **vault_client(Vault(token))) as (client, _):
        assert client.token.seconds_to_expiry() is None
        await client.read_node("gpu01")
        assert client.token.seconds_to_expiry() == 3600
        assert "signature" not in repr(client.token) + repr(vars(client))
