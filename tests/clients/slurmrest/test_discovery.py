"""The version is taken from the server, once, and again when it vanishes (case 045)."""

import asyncio
from typing import Any

import pytest
from tests.clients.slurmrest.server import Reply, Request, envelope, openapi
from tests.clients.slurmrest.talk import Talk

from fleet_manager.core.clients.errors import IncompatibleServer, Unavailable
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_cluster import SlurmVersion

NODE = {"name": "gpu01", "state": ["IDLE"]}
GONE = Reply(404, "Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint", close=True)


def both(*documents: dict[str, Any]) -> dict[str, Any]:
    """Return one document with the paths of all."""
    paths = {path: methods for one in documents for path, methods in one["paths"].items()}
    return {"info": documents[-1]["info"], "paths": paths}


async def test_the_newest_version_that_both_know_is_taken(talk: Talk) -> None:
    document = both(openapi("v0.0.43", "26.11.0"), openapi("v0.0.45", "26.11.0"), openapi("v0.0.46", "26.11.0"))
    async with talk(Reply(200, envelope("26.11.0", nodes=[NODE])), document=document) as (client, server):
        await client.read_node("gpu01")
        assert server.requests[-1].path == "/slurm/v0.0.45/node/gpu01"
        assert (await client.capabilities()).slurm_version == SlurmVersion(26, 11, 0)


async def test_no_common_version_names_wanted_and_offered(talk: Talk) -> None:
    document = both(openapi("v0.0.36", "22.05.8"), openapi("v0.0.38", "22.05.8"))
    async with talk(Reply(200), document=document) as (client, _):
        with pytest.raises(IncompatibleServer) as caught:
            await client.read_nodes()
    for version in ("v0.0.36", "v0.0.38", "v0.0.40", "v0.0.45"):
        assert version in str(caught.value)


async def test_fifty_callers_discover_once(talk: Talk) -> None:
    async with talk(Reply(200, envelope(nodes=[NODE]))) as (client, server):
        await asyncio.gather(*(client.read_node("gpu01") for _ in range(50)))
        assert len(server.asked("GET", "/openapi/v3")) == 1


class Upgraded:
    """A site whose SLURM is upgraded between two calls."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], release: str) -> None:
        self.document, self.after, self.release = before, after, release
        self.upgraded = False

    def handle(self, request: Request) -> Reply:
        if request.path == "/openapi/v3":
            return Reply(200, self.after if self.upgraded else self.document)
        old = next(path.split("/")[2] for path in self.document["paths"])
        if self.upgraded and f"/{old}/" in request.path:
            return GONE
        return Reply(200, envelope(self.release, nodes=[NODE], jobs=[]))


async def test_an_endpoint_that_vanished_is_looked_for_and_the_call_goes_on(talk: Talk) -> None:
    site = Upgraded(openapi("v0.0.41", "25.11.1"), openapi("v0.0.45", "25.11.1"), "25.11.1")
    async with talk(site.handle, document=None) as (client, server):
        await client.read_node("gpu01")
        site.upgraded = True
        assert (await client.read_node("gpu01")).name == "gpu01"
        assert server.requests[-1].path.startswith("/slurm/v0.0.45/")
        assert len(server.asked("GET", "/openapi/v3")) == 2


async def test_a_write_goes_on_too_for_nothing_was_done(talk: Talk) -> None:
    site = Upgraded(openapi("v0.0.41", "25.11.1"), openapi("v0.0.45", "25.11.1"), "25.11.1")
    async with talk(site.handle, document=None) as (client, server):
        await client.read_node("gpu01")
        site.upgraded = True
        await client.update_node("gpu01", NodeUpdate(NodeStateWord.DRAIN, "why"))
        assert [one.path for one in server.asked("POST")] == ["/slurm/v0.0.45/node/gpu01"]


async def test_fifty_callers_find_the_vanished_endpoint_once(talk: Talk) -> None:
    site = Upgraded(openapi("v0.0.41", "25.11.1"), openapi("v0.0.45", "25.11.1"), "25.11.1")
    async with talk(site.handle, document=None) as (client, server):
        await client.read_node("gpu01")
        site.upgraded = True
        await asyncio.gather(*(client.read_node("gpu01") for _ in range(50)))
        assert len(server.asked("GET", "/openapi/v3")) == 2


async def test_an_endpoint_that_stays_away_is_asked_for_twice_and_named(talk: Talk) -> None:
    async with talk(GONE) as (client, server):
        with pytest.raises(IncompatibleServer, match=r"/slurm/v0\.0\.45/nodes/"):
            await client.read_nodes()
        assert len(server.asked("GET", "/nodes/")) == 2
        assert len(server.asked("GET", "/openapi/v3")) == 2


async def test_a_new_release_that_keeps_the_version_is_discovered_anew(talk: Talk) -> None:
    """24.11 and 26.05 both speak v0.0.42, but only the newer can write reservations, in a newer version."""
    site = Upgraded(openapi("v0.0.42", "24.11.5"), openapi("v0.0.45", "26.05.5"), "24.11.5")
    async with talk(site.handle, document=None) as (client, _):
        assert not (await client.capabilities()).sound_304
        await client.read_node("gpu01")
        site.release = "26.05.5"
        await client.read_node("gpu01")
        site.upgraded = True
        assert (await client.capabilities()).sound_304


OLD = openapi("v0.0.40", "23.11.10")


async def test_a_release_that_the_document_hides_is_asked_of_ping(talk: Talk) -> None:
    document = {"paths": OLD["paths"]}
    async with talk(Reply(200, envelope("23.11.10", pings=[])), document=document) as (client, server):
        assert await client.version() == SlurmVersion(23, 11, 10)
        assert server.requests[-1].path == "/slurm/v0.0.40/ping/"


@pytest.mark.parametrize("body", ["<html>", "{}", '{"paths": []}'])
async def test_a_document_that_is_none_is_unreadable(talk: Talk, body: str) -> None:
    async with talk(Reply(200, body), document=None) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.capabilities()


async def test_a_failed_discovery_is_tried_again_by_the_next_call(talk: Talk) -> None:
    replies = iter([Reply(503, "busy"), Reply(200, OLD), Reply(200, envelope("23.11.10", nodes=[NODE]))])
    async with talk(lambda _: next(replies), document=None) as (client, _):
        with pytest.raises(Unavailable):
            await client.read_node("gpu01")
        assert (await client.read_node("gpu01")).name == "gpu01"


async def test_what_a_server_cannot_do_is_refused_without_asking(talk: Talk) -> None:
    document = {"info": {"version": "Slurm-24.11.5&openapi/slurmctld"}, "paths": {"/slurm/v0.0.42/nodes/": {"get": {}}}}
    async with talk(Reply(200), document=document) as (client, server):
        for call in (
            client.config(),
            client.job_record(7),
            client.delete_reservation("fm"),
            client.create_reservation("fm", nodes=("gpu01",), users=("fleet",)),
        ):
            with pytest.raises(slurm.NotSupportedHere, match=r"24\.11\.5 \(v0\.0\.42\)"):
                await call
        assert len(server.requests) == 1


async def test_an_address_with_a_path_in_front_is_kept(talk: Talk) -> None:
    def handle(request: Request) -> Reply:
        assert request.path.startswith("/proxy/here/")
        return Reply(200, OLD if "openapi" in request.path else envelope("23.11.10", nodes=[NODE]))

    async with talk(handle, document=None, prefix="/proxy/here/") as (client, _):
        assert (await client.read_node("gpu01")).name == "gpu01"
