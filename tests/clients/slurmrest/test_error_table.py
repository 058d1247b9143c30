"""What slurmrestd says when something is wrong (slurm-api.md 5), in the words of both servers, is the right error.

Each row is an answer that was seen: the status, the error numbers, and what the client makes of it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.clients.slurmrest.server import Reply, Request, complaint, envelope, openapi
from tests.clients.slurmrest.talk import Talk

from fleet_manager.core.clients import errors as tree
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.core.clients.slurmrest.protocol import NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec

SPEC = JobSpec("burnin", "#!/bin/bash\n", "main", "/tmp", ("PATH=/bin",), 5, ("gpu01",))

Ask = Callable[[SlurmRestClient], Awaitable[Any]]


def drain(client: SlurmRestClient) -> Awaitable[None]:
    return client.update_node("gpu01", NodeUpdate(NodeStateWord.DRAIN, "why"))


ASK: dict[str, Ask] = {
    "nodes": lambda client: client.read_nodes(),
    "node": lambda client: client.read_node("gpu01"),
    "drain": drain,
    "delete": lambda client: client.delete_node("gpu01"),
    "jobs": lambda client: client.jobs(),
    "job": lambda client: client.job(7),
    "record": lambda client: client.job_record(7),
    "submit": lambda client: client.submit(SPEC),
    "cancel": lambda client: client.cancel(7),
    "partitions": lambda client: client.partitions(),
    "reservation": lambda client: client.reservation("fm"),
    "create": lambda client: client.create_reservation("fm", nodes=("gpu01",), users=("fleet",)),
    "drop": lambda client: client.delete_reservation("fm"),
}

T, W = "24.11", "26.05"

TABLE: list[tuple[str, str, int, list[int], type[tree.ClientError]]] = [
    # what is asked, server, status, error numbers, error
    ("nodes", T, 511, [1007], slurm.SlurmTokenRejected),
    ("nodes", W, 511, [1007], slurm.SlurmTokenRejected),
    ("partitions", T, 511, [], slurm.SlurmTokenRejected),
    ("partitions", W, 511, [], slurm.SlurmTokenRejected),
    ("submit", W, 511, [1007], slurm.SlurmTokenRejected),
    ("record", T, 502, [7000], slurm.SlurmctldUnavailable),
    ("record", W, 502, [7000], slurm.SlurmctldUnavailable),
    ("drain", T, 500, [2010], slurm.NotAnAdministrator),
    ("drain", W, 422, [2010], slurm.NotAnAdministrator),
    ("delete", T, 500, [2010], slurm.NotAnAdministrator),
    ("delete", W, 422, [2010], slurm.NotAnAdministrator),
    ("node", T, 200, [0], slurm.NodeNotFound),
    ("node", W, 200, [0], slurm.NodeNotFound),
    ("drain", T, 500, [2018], slurm.NodeNotFound),
    ("drain", W, 422, [2018], slurm.NodeNotFound),
    ("delete", T, 500, [2018], slurm.NodeNotFound),
    ("delete", W, 422, [2018], slurm.NodeNotFound),
    ("drain", T, 500, [2028], slurm.InvalidTransition),
    ("drain", W, 422, [2180], slurm.InvalidTransition),
    ("drain", T, 500, [9207, 2028], tree.BadRequest),
    ("drain", W, 500, [9207, 2180], tree.BadRequest),
    ("delete", T, 500, [2016], slurm.NodeBusy),
    ("delete", W, 422, [2016], slurm.NodeBusy),
    ("delete", T, 500, [2028], slurm.InvalidTransition),
    ("delete", W, 422, [2028], slurm.InvalidTransition),
    ("drain", T, 500, [2072], tree.BadRequest),
    ("drain", W, 422, [2072], tree.BadRequest),
    *(("submit", T, 500, [code], slurm.SubmitRefused) for code in (2000, 2018, 2029, 2014, 2053, 2063, 2019)),
    *(("submit", W, 422, [code], slurm.SubmitRefused) for code in (2000, 2018, 2029, 2014, 2053, 2063, 2127)),
    ("submit", T, 422, [9000], slurm.SubmitRefused),
    ("submit", W, 422, [9000], slurm.SubmitRefused),
    ("job", T, 404, [2017], slurm.JobNotFound),
    ("job", W, 404, [2017], slurm.JobNotFound),
    ("reservation", T, 422, [9000], slurm.ReservationNotFound),
    ("reservation", W, 422, [9000], slurm.ReservationNotFound),
    ("reservation", W, 200, [0], slurm.ReservationNotFound),
    ("drop", W, 422, [2053], slurm.ReservationNotFound),
    ("drop", W, 422, [2055], slurm.ReservationBusy),
    ("create", W, 422, [2104], slurm.ReservationExists),
    ("create", W, 422, [2058], slurm.ReservationBusy),
    ("create", W, 422, [2010], slurm.NotAnAdministrator),
    ("create", W, 422, [2018], slurm.NodeNotFound),
    ("create", W, 500, [-1], tree.BadRequest),
    ("nodes", T, 500, [9207, 9000], tree.BadRequest),
    # slurmctld is away
    *((ask, T, 502, [1800], slurm.SlurmctldUnavailable) for ask in ("nodes", "node", "jobs", "drain", "submit")),
    *((ask, W, 502, [1800], slurm.SlurmctldUnavailable) for ask in ("nodes", "node", "jobs", "drain", "submit")),
    *((ask, W, 502, [1800], slurm.SlurmctldUnavailable) for ask in ("reservation", "create", "drop", "delete")),
    ("partitions", T, 502, [], slurm.SlurmctldUnavailable),
    ("job", T, 500, [-1], slurm.SlurmctldUnavailable),
    ("job", W, 500, [-1], slurm.SlurmctldUnavailable),
    ("cancel", T, 500, [1], slurm.SlurmctldUnavailable),
    ("cancel", W, 403, [1], slurm.SlurmctldUnavailable),
    # slurmctld hangs: it has the call, and may carry it out later
    *((ask, T, 504, [5004], slurm.SlurmctldTimeout) for ask in ("nodes", "node", "jobs", "drain", "delete")),
    *((ask, W, 504, [5004], slurm.SlurmctldTimeout) for ask in ("nodes", "node", "jobs", "drain", "delete", "drop")),
    ("partitions", T, 504, [], slurm.SlurmctldTimeout),
    ("submit", T, 504, [5004], slurm.SubmitUnknown),
    ("submit", W, 504, [5004], slurm.SubmitUnknown),
    # not seen, and to be read the safe way
    ("nodes", W, 500, [], slurm.SlurmctldUnavailable),
    ("nodes", W, 503, [], tree.Unavailable),
    ("nodes", W, 429, [], tree.Unavailable),
    ("nodes", W, 500, [1900], slurm.SlurmctldUnavailable),
    ("nodes", W, 422, [4711], tree.BadRequest),
    ("nodes", W, 200, [0], slurm.UnreadableAnswer),
    ("nodes", W, 302, [], slurm.UnreadableAnswer),
    ("submit", W, 500, [-1], slurm.SubmitUnknown),
    ("submit", W, 500, [], slurm.SubmitUnknown),
    ("cancel", W, 403, [2002], tree.Forbidden),
]

NODE = {"name": "gpu01", "state": ["IDLE"]}
RELEASES = {T: ("v0.0.42", "24.11.5"), W: ("v0.0.45", "26.05.5")}
READ_FIRST = {"drain", "delete", "create", "drop", "cancel", "submit"}


@pytest.mark.parametrize(
    ("ask", "server", "status", "codes", "kind"), TABLE, ids=[f"{row[0]}-{row[1]}-{row[2]}-{row[3]}" for row in TABLE]
)
async def test_each_answer_is_its_error(
    talk: Talk, ask: str, server: str, status: int, codes: list[int], kind: type[tree.ClientError]
) -> None:
    version, release = RELEASES[server]

    def handle(request: Request) -> Reply:
        if request.method == "GET" and ask in READ_FIRST:  # the proof before a write
            if "/reservation/" in request.path:
                return Reply(200, envelope(release, errors=[complaint(0)]))
            return Reply(200, envelope(release, nodes=[NODE], jobs=[]))
        everything = {"nodes": [NODE], "jobs": [], "partitions": [], "reservations": []}
        errors = [complaint(code, f"complaint {code}") for code in codes]
        return Reply(
            status, envelope(release, **(everything if status != 200 else {})) | {"errors": errors}, close=True
        )

    async with talk(handle, document=openapi(version, release)) as (client, _):
        with pytest.raises(kind) as caught:
            await ASK[ask](client)
    assert type(caught.value) is kind
    assert caught.value.retryable is issubclass(kind, (tree.Unavailable, slurm.SlurmTokenRejected))
    if codes:
        assert f"complaint {codes[0]}" in caught.value.message
        assert caught.value.code == codes[0]
    assert caught.value.status == status


TEXTS: list[tuple[str, int, str, type[tree.ClientError]]] = [
    ("nodes", 401, "Authentication failure", slurm.SlurmTokenRejected),
    ("drain", 400, "Unable to parse body", tree.BadRequest),
    ("drain", 415, "Unsupported", tree.BadRequest),
    ("nodes", 500, "Unable to parse query", slurm.SlurmctldUnavailable),
    ("nodes", 404, "Unable find requested URL. Please view /openapi/v3", tree.IncompatibleServer),
    ("nodes", 404, "Unable to find requested URL endpoint.", tree.IncompatibleServer),
    ("nodes", 200, "<html>a proxy's page</html>", slurm.UnreadableAnswer),
    ("submit", 200, "", slurm.SubmitUnknown),
]


@pytest.mark.parametrize(("ask", "status", "text", "kind"), TEXTS)
async def test_a_text_body_is_read_as_well(
    talk: Talk, ask: str, status: int, text: str, kind: type[tree.ClientError]
) -> None:
    def handle(request: Request) -> Reply:
        if request.method == "GET" and ask in READ_FIRST:
            return Reply(200, envelope(nodes=[NODE]))
        return Reply(status, text, close=status != 200)

    async with talk(handle) as (client, _):
        with pytest.raises(kind) as caught:
            await ASK[ask](client)
    assert type(caught.value) is kind


async def test_the_text_of_an_error_says_what_the_server_said(talk: Talk) -> None:
    async with talk(Reply(415, "Unsupported media type", close=True)) as (client, _):
        with pytest.raises(tree.BadRequest, match="Unsupported media type"):
            await client.read_nodes()


async def test_pointers_of_the_server_are_not_in_an_error(talk: Talk) -> None:
    body = envelope(errors=[complaint(2014, "slurmdb_jobs_get(0x7fa44c001940) found nothing")])
    async with talk(Reply(422, body)) as (client, _):
        with pytest.raises(tree.BadRequest) as caught:
            await client.read_nodes()
    assert caught.value.message == "slurmdb_jobs_get found nothing: because"


async def test_an_error_whose_body_is_broken_json_is_told_by_its_status(talk: Talk) -> None:
    async with talk(Reply(502, '{"errors": [', headers={"Content-Type": "application/json"})) as (client, _):
        with pytest.raises(slurm.SlurmctldUnavailable):
            await client.read_nodes()


async def test_a_cancel_of_another_users_job_is_forbidden(talk: Talk) -> None:
    status = [{"error": {"string": "Access/permission denied", "code": 2002}, "step_id": "7"}]
    async with talk(Reply(200, envelope(status=status))) as (client, _):
        with pytest.raises(tree.Forbidden):
            await client.cancel(7)


@pytest.mark.parametrize("code", [2017, 2021])
async def test_a_cancel_of_what_is_over_reached_its_aim(talk: Talk, code: int) -> None:
    async with talk(Reply(200, envelope(status=[{"error": {"code": code}}]))) as (client, _):
        assert await client.cancel(7) is False


async def test_a_cancel_that_failed_for_some_reason_is_an_error(talk: Talk) -> None:
    async with talk(Reply(200, envelope(status=[{"error": {"code": 2021}}, {"error": {"code": 1800}}]))) as (client, _):
        with pytest.raises(slurm.SlurmctldUnavailable):
            await client.cancel(7)
