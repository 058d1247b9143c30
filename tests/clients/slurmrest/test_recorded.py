"""Every recorded answer of every version means what it should: a domain value, or a typed error."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.clients.slurmrest.server import DATA, Reply, Request, recorded, reply_of, running

from fleet_manager.core.clients import errors as tree
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.client import SlurmRestClient
from fleet_manager.core.clients.slurmrest.protocol import ChangeMark, NodeStateWord, NodeUpdate
from fleet_manager.core.domain.slurm_job import JobSpec
from fleet_manager.settings.clients.slurm import SlurmSettings

VERSIONS = sorted((path.parent.name, path.name) for path in DATA.glob("*/*") if path.is_dir())
OLD, NEW = "slurm-24.11.5", "slurm-26.05.5"

SPEC = JobSpec("burnin", "#!/bin/bash\n", "main", "/tmp", ("PATH=/bin",), 5, ("dyn01",))

Ask = Callable[[SlurmRestClient], Awaitable[Any]]


class World:
    """A server that gives one recorded answer to what a call asks, and the proof of a node before a write."""

    def __init__(self, server: str, version: str, name: str) -> None:
        self.server, self.version, self.name = server, version, name
        self.record = recorded(server, version, name)

    def handle(self, request: Request) -> Reply:
        if request.path == "/openapi/v3":
            return Reply(200, recorded(self.server, self.version, "openapi"))
        if request.method == self.record["request"]["method"]:
            return reply_of(self.record)
        if "/node/" in request.path:
            return self._a_node(request.path.rsplit("/", 1)[1])
        if "/job/" in request.path:  # a cancel below v0.0.42 looks at the job first
            before = {"job-cancel": "job-running", "job-cancel-again": "job-cancelled"}.get(self.name, "job-unknown")
            return self._a_job(before, int(request.path.rsplit("/", 1)[1]))
        if "/reservation/" in request.path:
            return reply_of(recorded(self.server, self.version, "reservation-unknown"))
        raise AssertionError(f"{self.name} does not know {request.method} {request.path}")

    def _a_node(self, name: str) -> Reply:
        text = json.dumps(recorded(self.server, self.version, "node-dynamic-idle")["response"]["body"])
        return Reply(200, json.loads(text.replace('"dyn01"', f'"{name}"')))

    def _a_job(self, name: str, job_id: int) -> Reply:
        response = recorded(self.server, self.version, name)["response"]
        for job in response["body"].get("jobs", []):
            job["job_id"] = job_id
        return Reply(response["status"], response["body"])

    @property
    def subject(self) -> str:
        """The name or id at the end of the recorded path."""
        return str(self.record["request"]["path"]).rsplit("/", 1)[1]

    async def ask(self, ask: Ask) -> Any:
        async with running(self.handle) as server:
            settings = SlurmSettings(url=server.url, jwt_op_item="env://RECORDED_TOKEN")
            async with SlurmRestClient(settings) as client:
                return await ask(client)


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDED_TOKEN", "a.b.c")


@pytest.fixture(params=VERSIONS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def version(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


def words(*names: str) -> frozenset[str]:
    return frozenset(names)


NODES: dict[str, tuple[str, frozenset[str], str | None]] = {
    "node-allocated": ("ALLOCATED", words("DYNAMIC_NORM"), ""),
    "node-drained": ("IDLE", words("DRAIN", "DYNAMIC_NORM"), "fm:burn-in failed"),
    "node-draining": ("ALLOCATED", words("DRAIN", "DYNAMIC_NORM"), "fm:burn-in failed"),
    "node-dynamic-idle": ("IDLE", words("DYNAMIC_NORM"), ""),
    "node-is-down": ("DOWN", words("NOT_RESPONDING"), "fm:down"),
    "node-just-resumed": ("IDLE", words("NOT_RESPONDING", "DYNAMIC_NORM"), None),
    "node-static-idle": ("IDLE", words(), None),
    "node-with-comment-extra": ("IDLE", words(), None),
}
"""Name -> base, flags and reason (None: 24.11 left one behind)."""


@pytest.mark.parametrize("name", NODES)
async def test_a_node_has_its_state_and_reason_whatever_the_version(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    node = await world.ask(lambda slurm: slurm.read_node(world.subject))
    base, flags, reason = NODES[name]
    assert (node.state.base, node.state.flags, node.state.unknown) == (base, flags, frozenset())
    assert node.name == world.subject
    assert node.gres == "gpu:h100:8"
    assert (node.cpus, node.memory_mib) == (16, 4000)
    assert node.hold_reason == (reason if "DRAIN" in flags else None)
    assert reason is None or node.reason == reason


async def test_a_drained_node_tells_who_and_when(version: tuple[str, str]) -> None:
    world = World(*version, "node-drained")
    node = await world.ask(lambda slurm: slurm.read_node("dyn01"))
    assert node.reason_set_by == "root"
    assert node.reason_changed_at is not None
    assert node.reason_changed_at.year == 2026
    assert node.slurmd_start_time is not None


async def test_a_node_without_a_reason_has_no_time_of_it(version: tuple[str, str]) -> None:
    node = await World(*version, "node-dynamic-idle").ask(lambda slurm: slurm.read_node("dyn01"))
    assert node.reason_changed_at is None


async def test_comment_and_extra_are_read(version: tuple[str, str]) -> None:
    node = await World(*version, "node-with-comment-extra").ask(lambda slurm: slurm.read_node("gpu01"))
    assert (node.comment, node.extra) == ("c", '{"fm": 1}')
    assert "burned-in" in node.features


async def test_a_list_of_nodes_is_read_whole(version: tuple[str, str]) -> None:
    reading = await World(*version, "nodes").ask(lambda slurm: slurm.read_nodes())
    assert {"gpu01", "gpu02", "dyn01", "dyn02"} <= {node.name for node in reading.nodes}
    assert all(node.state.understood for node in reading.nodes)
    assert (reading.mark is None) == (version[0] == OLD)


JOBS: dict[str, tuple[frozenset[str], int | None, int | None]] = {
    "job-cancelled": (words("CANCELLED"), None, 15),
    "job-completed": (words("COMPLETED"), 0, None),
    "job-failed": (words("FAILED"), 3, None),
    "job-running": (words("RUNNING"), 0, None),
    "job-signaled": (words("FAILED"), None, 11),
}
"""Name -> states, return code, signal."""


@pytest.mark.parametrize("name", JOBS)
async def test_a_job_has_its_state_and_exit(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    job = await world.ask(lambda slurm: slurm.job(int(world.subject)))
    assert (job.states, job.return_code, job.signal) == JOBS[name]
    assert (job.name, job.user, job.partition, job.nodes) == ("burnin", "root", "main", ("dyn01",))
    assert job.time_limit_minutes == 5
    assert job.start_time is not None


async def test_a_pending_job_has_no_node_yet(version: tuple[str, str]) -> None:
    world = World(*version, "job-pending")
    job = await world.ask(lambda slurm: slurm.job(int(world.subject)))
    assert job.states == {"PENDING"}
    assert job.state_reason == world.record["response"]["body"]["jobs"][0]["state_reason"].replace("None", "")
    assert job.nodes == ()


async def test_a_list_of_jobs_is_read_whole(version: tuple[str, str]) -> None:
    world = World(*version, "jobs")
    jobs = await world.ask(lambda slurm: slurm.jobs())
    assert len(jobs) == len(world.record["response"]["body"]["jobs"]) > 0
    assert all(job.id > 0 and job.states for job in jobs)


async def test_a_reservation_is_read(version: tuple[str, str]) -> None:
    one = await World(*version, "reservation").ask(lambda slurm: slurm.reservation("fm-burnin"))
    assert one.nodes == ("gpu01",)
    assert one.users == ("root",)
    assert one.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert one.end is not None
    assert one.start is not None
    assert (one.end - one.start).total_seconds() == 600
    (same,) = await World(*version, "reservations").ask(lambda slurm: slurm.reservations())
    assert same.name == "fm-burnin"


async def test_partitions_are_read(version: tuple[str, str]) -> None:
    main, burnin = await World(*version, "partitions").ask(lambda slurm: slurm.partitions())
    assert main.nodes == ("dyn01", "dyn02", "dyn03", "gpu01", "gpu02")
    assert (main.name, main.node_sets, main.state, main.max_time_minutes) == ("main", "ALL", "UP", None)
    assert (burnin.name, burnin.node_sets, burnin.max_time_minutes) == ("burnin", "dynamic", 120)


async def test_a_ping_is_good_only_with_a_good_token(version: tuple[str, str]) -> None:
    (good,) = await World(*version, "ping").ask(lambda slurm: slurm.ping())
    (bad,) = await World(*version, "ping-bad-token").ask(lambda slurm: slurm.ping())
    assert (good.responding, good.primary) == (True, True)
    assert bad.responding is False


SUBMITTED = ("submit-ok", "submit-node-not-available", "submit-unknown-field")


@pytest.mark.parametrize("name", SUBMITTED)
async def test_a_job_id_means_submitted(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    submitted = await world.ask(lambda slurm: slurm.submit(SPEC))
    assert submitted.job_id == world.record["response"]["body"]["job_id"]
    assert bool(submitted.warnings) == (name != "submit-ok")
    assert submitted.refused == ()


async def test_a_500_with_a_job_id_is_a_job_that_runs(version: tuple[str, str]) -> None:
    world = World(*version, "submit-error-but-job-runs")
    if version[1] == "v0.0.40":  # this one took no job
        with pytest.raises(slurm.SubmitRefused):
            await world.ask(lambda slurm: slurm.submit(SPEC))
        return
    submitted = await world.ask(lambda slurm: slurm.submit(SPEC))
    assert submitted.job_id == world.record["response"]["body"]["job_id"]
    assert submitted.refused[0].startswith('Unknown flag "exclusive"')


CANCELS = {"job-cancel": True, "job-cancel-again": False, "job-cancel-unknown": False}


@pytest.mark.parametrize("name", CANCELS)
async def test_a_cancel_tells_whether_there_was_something_to_cancel(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    assert await world.ask(lambda slurm: slurm.cancel(int(world.subject))) is CANCELS[name]


WRITES = ("node-down", "node-drain-busy", "node-resume", "node-update-comment-extra-features")


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_that_was_taken_says_nothing(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    assert await world.ask(lambda slurm: slurm.update_node(world.subject, NodeUpdate(comment="c"))) is None


def drain(subject: str) -> Ask:
    return lambda client: client.update_node(subject, NodeUpdate(NodeStateWord.DRAIN, "fm:why"))


def delete(subject: str) -> Ask:
    return lambda client: client.delete_node(subject)


ERRORS: dict[str, tuple[Callable[[str], Ask], type[tree.ClientError]]] = {
    "auth-expired-token-nodes": (lambda _: lambda client: client.read_nodes(), slurm.SlurmTokenRejected),
    "auth-expired-token-submit": (lambda _: lambda client: client.submit(SPEC), slurm.SlurmTokenRejected),
    "auth-missing-token": (lambda _: lambda client: client.read_nodes(), slurm.SlurmTokenRejected),
    "auth-unprivileged-delete": (delete, slurm.NotAnAdministrator),
    "auth-unprivileged-drain": (drain, slurm.NotAnAdministrator),
    "job-unknown": (lambda name: lambda client: client.job(int(name)), slurm.JobNotFound),
    "node-unknown": (lambda name: lambda client: client.read_node(name), slurm.NodeNotFound),
    "node-delete-busy": (delete, slurm.NodeBusy),
    "node-delete-static": (delete, slurm.InvalidTransition),
    "node-resume-not-drained": (drain, slurm.InvalidTransition),
    "node-update-bad-state": (drain, tree.BadRequest),
    "node-update-gres": (drain, tree.BadRequest),
    "node-update-not-json": (drain, tree.BadRequest),
    "node-update-unknown": (drain, slurm.NodeNotFound),
    "node-update-unknown-field": (drain, slurm.NotSupportedHere),
    "nodes-bad-flag": (lambda _: lambda client: client.read_nodes(), tree.BadRequest),
    "reservation-unknown": (lambda name: lambda client: client.reservation(name), slurm.ReservationNotFound),
    "submit-bad-node": (lambda _: lambda client: client.submit(SPEC), slurm.SubmitRefused),
    "submit-bad-partition": (lambda _: lambda client: client.submit(SPEC), slurm.SubmitRefused),
    "submit-no-environment": (lambda _: lambda client: client.submit(SPEC), slurm.SubmitRefused),
    "submit-no-script": (lambda _: lambda client: client.submit(SPEC), slurm.SubmitRefused),
    "submit-too-many-gpus": (lambda _: lambda client: client.submit(SPEC), slurm.SubmitRefused),
    "unknown-path": (lambda _: lambda client: client.read_nodes(), tree.IncompatibleServer),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_a_refusal_has_its_type(version: tuple[str, str], name: str) -> None:
    world = World(*version, name)
    ask, kind = ERRORS[name]
    with pytest.raises(kind) as caught:
        await world.ask(ask(world.subject))
    assert type(caught.value) is kind
    assert caught.value.peer == "slurmrestd"
    assert "a.b.c" not in str(caught.value)


async def test_a_deleted_node_is_gone_and_one_that_never_was_is_not_found(version: tuple[str, str]) -> None:
    world = World(*version, "node-delete")
    if world.record["response"]["status"] == 200:
        assert await world.ask(delete("new1")) is None
        return
    with pytest.raises(slurm.NodeNotFound):
        await world.ask(delete("new1"))


async def test_reservations_are_written_where_the_server_can(version: tuple[str, str]) -> None:
    def create(client: SlurmRestClient) -> Awaitable[None]:
        return client.create_reservation("fm-burnin", nodes=("gpu01",), users=("root",))

    creating, deleting = World(*version, "reservation-create"), World(*version, "reservation-delete")
    if version[0] == OLD or version[1] == "v0.0.42":
        for world, ask in ((creating, create), (deleting, lambda client: client.delete_reservation("fm-burnin"))):
            with pytest.raises(slurm.NotSupportedHere):
                await world.ask(ask)
        return
    assert await creating.ask(create) is None
    assert await deleting.ask(lambda client: client.delete_reservation("fm-burnin")) is None


async def test_304_is_unchanged_where_it_is_sound_and_refused_where_it_is_not(version: tuple[str, str]) -> None:
    world = World(*version, "nodes-304")
    if version[0] == OLD:
        with pytest.raises(slurm.NotSupportedHere):
            await world.ask(lambda client: client.read_nodes_if_changed(ChangeMark(1)))
        return
    assert await world.ask(lambda client: client.read_nodes_if_changed(ChangeMark(1))) is None


async def test_every_recorded_answer_is_spoken_of_here() -> None:
    spoken = {*NODES, *JOBS, *SUBMITTED, *CANCELS, *WRITES, *ERRORS}
    spoken |= {"job-pending", "jobs", "nodes", "nodes-304", "node-cloud", "node-delete", "node-in-maint-reservation"}
    spoken |= {"openapi", "partitions", "ping", "ping-bad-token", "reservation", "reservations", "reservation-create"}
    spoken |= {"reservation-delete", "submit-error-but-job-runs"}
    assert {path.stem for path in DATA.glob("*/*/*.json")} == spoken


async def test_a_cloud_node_of_26_05_is_powered_down(version: tuple[str, str]) -> None:
    world = World(*version, "node-cloud")
    if not world.record["response"]["body"].get("nodes"):
        with pytest.raises(slurm.NodeNotFound):
            await world.ask(lambda client: client.read_node(world.subject))
        return
    node = await world.ask(lambda client: client.read_node(world.subject))
    assert not node.state.schedulable
    assert node.state.understood


async def test_a_node_in_a_maintenance_reservation_is_not_schedulable(version: tuple[str, str]) -> None:
    world = World(*version, "node-in-maint-reservation")
    node = await world.ask(lambda client: client.read_node("gpu01"))
    in_it = "MAINTENANCE" in world.record["response"]["body"]["nodes"][0]["state"]
    assert node.state.schedulable is not in_it
