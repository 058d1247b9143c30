"""Nothing that is missing, null, odd or wrong is ever read as empty, idle, free or done."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.slurmrest.server import Reply, Request, complaint, envelope
from tests.clients.slurmrest.talk import Talk

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate

IDLE = {"name": "gpu01", "state": ["IDLE"]}
JOB = {"job_id": 7, "job_state": ["RUNNING"], "nodes": "gpu01"}

ODD_NODES: list[Any] = [
    envelope(),
    envelope(nodes=None),
    envelope(nodes="gpu01"),
    envelope(nodes={"gpu01": IDLE}),
    envelope(nodes=[None]),
    envelope(nodes=[{"state": ["IDLE"]}]),
    envelope(nodes=[{"name": "", "state": ["IDLE"]}]),
    envelope(nodes=[{"name": "gpu01", "state": 3}]),
    envelope(nodes=[{"name": "gpu01", "state": ["IDLE"], "cpus": "many"}]),
    envelope(nodes=[IDLE, IDLE]),
    [],
    "null",
    {},
]


@pytest.mark.parametrize("body", ODD_NODES)
async def test_an_odd_list_of_nodes_is_unreadable(talk: Talk, body: Any) -> None:
    async with talk(Reply(200, body, headers={"Content-Type": "application/json"})) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_nodes()


async def test_an_empty_list_without_errors_is_a_cluster_without_nodes(talk: Talk) -> None:
    async with talk(Reply(200, envelope(nodes=[]))) as (client, _):
        assert (await client.read_nodes()).nodes == ()


async def test_an_empty_list_with_errors_is_not(talk: Talk) -> None:
    async with talk(Reply(200, envelope(nodes=[], errors=[complaint(0)]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_nodes()


async def test_a_full_list_in_an_error_is_not_used(talk: Talk) -> None:
    async with talk(Reply(500, envelope(nodes=[IDLE], errors=[complaint(9207)]))) as (client, _):
        with pytest.raises(BadRequest):
            await client.read_nodes()


async def test_a_full_list_with_errors_is_not_used_at_200_either(talk: Talk) -> None:
    async with talk(Reply(200, envelope(nodes=[IDLE], errors=[complaint(0)]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_nodes()


ODD_JOBS: list[Any] = [
    envelope(),
    envelope(jobs=None),
    envelope(jobs=[{"job_state": ["RUNNING"]}]),
    envelope(jobs=[JOB | {"job_id": 0}]),
    envelope(jobs=[JOB | {"nodes": "gpu[01-"}]),
    envelope(jobs=[JOB | {"nodes": ["gpu01"]}]),
    envelope(jobs=[JOB | {"nodes": "gpu01,,gpu02"}]),
    envelope(jobs=[JOB | {"nodes": "@group"}]),
]


@pytest.mark.parametrize("body", ODD_JOBS)
async def test_one_odd_job_makes_the_whole_list_unreadable(talk: Talk, body: Any) -> None:
    async with talk(Reply(200, body)) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.jobs_on_node("gpu01")


async def test_jobs_of_an_expired_token_are_not_no_jobs(talk: Talk) -> None:
    """Case 002."""
    error = complaint(1007, "Unable to query jobs", "Protocol authentication error")
    async with talk(Reply(511, envelope(jobs=[], errors=[error]))) as (client, _):
        with pytest.raises(slurm.SlurmTokenRejected):
            await client.jobs_on_node("gpu01")


async def test_a_node_that_is_not_there_is_not_found_at_200(talk: Talk) -> None:
    """Case 001, in the words of 25.05."""
    body = envelope("25.05.3", errors=[complaint(0, "Failure to query node bad-node", "No error")])
    async with talk(Reply(200, body)) as (client, _):
        with pytest.raises(slurm.NodeNotFound, match="Failure to query node bad-node"):
            await client.read_node("bad-node")


@pytest.mark.parametrize("nodes", [[], None])
async def test_no_node_and_no_error_is_unreadable_and_not_not_found(talk: Talk, nodes: Any) -> None:
    async with talk(Reply(200, envelope(nodes=nodes))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_node("gpu01")


@pytest.mark.parametrize("name", ["gpu02", "GPU01", "gpu01.example"])
async def test_a_node_of_another_name_is_not_the_one_asked_for(talk: Talk, name: str) -> None:
    async with talk(Reply(200, envelope(nodes=[IDLE | {"name": name}]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer, match=f"asked for node gpu01, answered {name}"):
            await client.read_node("gpu01")


async def test_a_job_of_another_id_is_not_the_one_asked_for(talk: Talk) -> None:
    async with talk(Reply(200, envelope(jobs=[JOB]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.job(8)


async def test_no_record_at_slurmdbd_is_none_and_no_end(talk: Talk) -> None:
    """Case 004."""
    warning = {"description": "slurmdb_jobs_get(0x7fa44c001940) found nothing", "source": "_dump_jobs"}
    async with talk(Reply(200, envelope(jobs=[], warnings=[warning]))) as (client, _):
        assert await client.job_record(7) is None


async def test_another_jobs_record_is_unreadable(talk: Talk) -> None:
    async with talk(Reply(200, envelope(jobs=[{"job_id": 8}]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.job_record(7)


async def test_a_ping_of_nobody_is_unreadable(talk: Talk) -> None:
    async with talk(Reply(200, envelope(pings=[]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.ping()


async def test_a_304_that_nobody_asked_for_is_unreadable(talk: Talk) -> None:
    async with talk(Reply(304)) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_nodes()


async def test_a_body_that_is_not_utf8_is_unreadable(talk: Talk) -> None:
    raw = b'{"nodes":[{"name":"gpu01","state":["IDLE"],"comment":"\xff"}],"errors":[]}'
    async with talk(Reply(200, raw, headers={"Content-Type": "application/json"})) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.read_nodes()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "gpu[01-02]", "gpu01,gpu02", "ALL", "all", "a/b", "a b", "a?x=1", "-a", "a#b"]
)
async def test_what_is_no_single_nodes_name_is_never_sent(talk: Talk, name: str) -> None:
    """POST node/ALL drains the whole cluster, and node/gpu[01-02] both (seen on 24.11 and 26.05)."""
    async with talk(Reply(200, envelope(nodes=[IDLE]))) as (client, server):
        for call in (
            client.read_node(name),
            client.node(name),
            client.update_node(name, NodeUpdate(NodeStateWord.DRAIN, "why")),
            client.delete_node(name),
            client.create_reservation("fm", nodes=(name,), users=("fleet",)),
        ):
            with pytest.raises(BadRequest):
                await call
        assert not [one for one in server.requests if one.path != "/openapi/v3"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b"])
async def test_what_is_no_reservations_name_is_never_sent(talk: Talk, name: str) -> None:
    async with talk(Reply(200, envelope(reservations=[]))) as (client, server):
        for call in (client.reservation(name), client.delete_reservation(name)):
            with pytest.raises(BadRequest):
                await call
        assert not [one for one in server.requests if one.path != "/openapi/v3"]


async def test_a_nodesets_name_is_not_written_to(talk: Talk) -> None:
    """GET says "not found" to a NodeSet's name, where POST would change all of its nodes."""
    body = envelope(errors=[complaint(0, "Failure to query node dynamic", "No error")])
    async with talk(Reply(200, body)) as (client, server):
        with pytest.raises(slurm.NodeNotFound):
            await client.update_node("dynamic", NodeUpdate(NodeStateWord.DRAIN, "why"))
        with pytest.raises(slurm.NodeNotFound):
            await client.delete_node("dynamic")
        assert server.asked("POST") == server.asked("DELETE") == []


@pytest.mark.parametrize("update", [NodeUpdate(), NodeUpdate(NodeStateWord.DRAIN, ""), NodeUpdate(reason="  ")])
async def test_an_update_that_would_be_ignored_is_refused(talk: Talk, update: NodeUpdate) -> None:
    async with talk(Reply(200, envelope(nodes=[IDLE]))) as (client, server):
        with pytest.raises(BadRequest):
            await client.update_node("gpu01", update)
        assert server.asked("POST") == []


def one_of(*names: str) -> Callable[[Request], Reply]:
    """Return a handler of a cluster with these nodes."""
    nodes = [{"name": name, "state": ["IDLE"]} for name in names]

    def handle(request: Request) -> Reply:
        if request.path.endswith("/nodes/"):
            return Reply(200, envelope(nodes=nodes))
        found = [node for node in nodes if node["name"] == request.path.rsplit("/", 1)[1]]
        return Reply(200, envelope(nodes=found) if found else envelope(errors=[complaint(0)]))

    return handle


async def test_a_name_in_another_case_is_found_in_slurms_spelling(talk: Talk) -> None:
    """Case 027."""
    async with talk(one_of("a001", "b001")) as (client, server):
        assert (await client.node("A001")).name == "a001"
        assert [one.path.rsplit("/", 2)[1:] for one in server.requests[1:]] == [
            ["node", "A001"],
            ["nodes", ""],
            ["node", "a001"],
        ]


async def test_a_name_that_is_spelled_right_costs_one_small_request(talk: Talk) -> None:
    async with talk(one_of("a001", "A001")) as (client, server):
        assert (await client.node("A001")).name == "A001"
        assert len(server.requests) == 2


async def test_two_nodes_that_differ_in_case_only_are_ambiguous_to_a_third_spelling(talk: Talk) -> None:
    async with talk(one_of("gpu-a", "GPU-A")) as (client, _):
        with pytest.raises(slurm.AmbiguousNode, match="GPU-A, gpu-a"):
            await client.node("Gpu-a")


async def test_a_write_takes_no_other_spelling(talk: Talk) -> None:
    async with talk(one_of("a001")) as (client, server):
        with pytest.raises(slurm.NodeNotFound):
            await client.update_node("A001", NodeUpdate(NodeStateWord.DRAIN, "why"))
        assert server.asked("POST") == []


async def test_a_configuration_without_its_payload_is_unreadable(talk: Talk) -> None:
    async with talk(Reply(200, envelope())) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.config()


async def test_another_reservation_than_the_one_asked_for_is_unreadable(talk: Talk) -> None:
    async with talk(Reply(200, envelope(reservations=[{"name": "other"}]))) as (client, _):
        with pytest.raises(slurm.UnreadableAnswer):
            await client.reservation("fm")
