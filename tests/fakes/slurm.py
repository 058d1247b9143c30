"""A client of the in-memory slurmctld: implements `SlurmClient`, so that a test needs no server.

`FakeSlurm()` is a cluster with gpu01, gpu02, dyn01, dyn02 seen by the fleet's user. Its `cluster` is the world behind
it; `as_user` gives another user's client of the same. Faults are set with `fail_next` and `cluster.away`.
"""

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.fakes.slurm_cluster import PEER, UNAVAILABLE_WARNING, FakeCluster, Job

from fleet_manager.core.clients.errors import BadRequest, ClientError, Forbidden
from fleet_manager.core.clients.slurmrest import bodies, names
from fleet_manager.core.clients.slurmrest.errors import (
    AmbiguousNode,
    JobNotFound,
    NodeNotFound,
    NotAnAdministrator,
    NotSupportedHere,
    ReservationBusy,
    ReservationExists,
    ReservationNotFound,
    SlurmctldUnavailable,
)
from fleet_manager.core.clients.slurmrest.protocol import Capabilities, ChangeMark, NodesReading, NodeUpdate
from fleet_manager.core.domain.slurm_cluster import ClusterConfig, Partition, Ping, Reservation, SlurmVersion
from fleet_manager.core.domain.slurm_job import JobSpec, SlurmJob, Submitted
from fleet_manager.core.domain.slurm_node import SlurmNode


class FakeSlurm:
    """One user's client of a `FakeCluster`."""

    def __init__(self, cluster: FakeCluster | None = None, user: str = "fleet") -> None:
        if cluster is None:
            cluster = FakeCluster()
            cluster.add_static("gpu01", "gpu02")
            for name in ("dyn01", "dyn02"):
                cluster.register(name)
        self.cluster = cluster
        self.user = user
        self.calls: list[tuple[Any, ...]] = []
        """What was asked, in order: the method's name and its arguments."""
        self._faults: dict[str, list[tuple[ClientError, bool]]] = defaultdict(list)
        self._seen: tuple[SlurmNode, ...] = ()
        self._mark = 0

    def as_user(self, user: str) -> "FakeSlurm":
        return FakeSlurm(self.cluster, user)

    def fail_next(self, method: str, error: ClientError, *, done: bool = False) -> None:
        """Let the next call of a method fail; `done`: it is carried out, and only its answer is lost."""
        self._faults[method].append((error, done))

    def _ask(self, method: str, *arguments: Any) -> None:
        self.calls.append((method, *arguments))
        if self._faults[method] and not self._faults[method][0][1]:
            raise self._faults[method].pop(0)[0]
        if self.cluster.away:
            raise SlurmctldUnavailable("Unable to contact slurm controller", peer=PEER, status=502, code=1800)
        self.cluster.catch_up()

    def _done(self, method: str) -> None:
        if self._faults[method]:
            raise self._faults[method].pop(0)[0]

    def _must_administer(self, *, operator: bool = False) -> None:
        allowed = self.cluster.admins | (self.cluster.operators if operator else set())
        if self.user not in allowed:
            raise NotAnAdministrator("Invalid user id", peer=PEER, code=2010)

    def _only_newest(self, what: str) -> None:
        if not self.cluster.newest:
            raise NotSupportedHere(f"slurmrestd {self.cluster.version} has no way of {what}", peer=PEER)

    # What is there

    async def capabilities(self) -> Capabilities:
        newest = self.cluster.newest
        return Capabilities(
            api_version="v0.0.45" if newest else "v0.0.42",
            slurm_version=self.cluster.version,
            reservations_writable=newest,
            requeue=newest,
            conf=newest,
            new_node=newest,
            cancel_tells=True,
            job_records=self.cluster.accounting,
            sound_304=newest,
        )

    async def version(self) -> SlurmVersion:
        return self.cluster.version

    async def ping(self) -> tuple[Ping, ...]:
        self.calls.append(("ping",))
        return (Ping("ctld", not self.cluster.away, True, "DOWN" if self.cluster.away else "UP"),)

    async def partitions(self) -> tuple[Partition, ...]:
        self._ask("partitions")
        return tuple(map(self.cluster.partition_view, self.cluster.partition_sets))

    async def config(self) -> ClusterConfig:
        self._only_newest("reading slurm.conf")
        self._ask("config")
        return ClusterConfig(self.cluster.min_job_age, timedelta(seconds=20), 1)

    # Nodes

    async def tells_changes(self) -> bool:
        return self.cluster.newest

    async def read_node(self, name: str) -> SlurmNode:
        names.node_name(name)
        self._ask("read_node", name)
        return self.cluster.node_view(self.cluster.known(name))

    async def read_nodes(self) -> NodesReading:
        self._ask("read_nodes")
        nodes = tuple(map(self.cluster.node_view, self.cluster.shown()))
        if nodes != self._seen:
            self._seen, self._mark = nodes, self._mark + 1
        return NodesReading(nodes, ChangeMark(self._mark) if self.cluster.newest else None)

    async def read_nodes_if_changed(self, since: ChangeMark) -> NodesReading | None:
        self._only_newest("telling whether nodes changed")
        reading = await self.read_nodes()
        return None if reading.mark == since else reading

    async def nodes(self) -> tuple[SlurmNode, ...]:
        return (await self.read_nodes()).nodes

    async def node(self, name: str) -> SlurmNode:
        try:
            return await self.read_node(name)
        except NodeNotFound:
            alike = [node for node in await self.nodes() if node.name.casefold() == name.casefold()]
            if not alike:
                raise
        if len(alike) > 1:
            raise AmbiguousNode(f"no node {name}, and {len(alike)} differ only in case", peer=PEER)
        return alike[0]

    async def update_node(self, name: str, update: NodeUpdate) -> None:
        bodies.node_update(update)
        names.node_name(name)
        self._ask("update_node", name, update)
        node = self.cluster.known(name)
        self._must_administer()
        self.cluster.change(name, update.state, update.reason, self.user)
        node.features = node.features if update.features is None else update.features
        if update.active_features is not None:
            node.active_features = update.active_features
        elif update.features is not None:
            node.active_features = update.features
        node.comment = node.comment if update.comment is None else update.comment
        node.extra = node.extra if update.extra is None else update.extra
        self._done("update_node")

    async def delete_node(self, name: str) -> None:
        names.node_name(name)
        self._ask("delete_node", name)
        self.cluster.known(name)
        self._must_administer()
        self.cluster.delete(name)
        self._done("delete_node")

    # Jobs

    async def read_jobs(self) -> tuple[SlurmJob, ...]:
        self._ask("read_jobs")
        return tuple(job.record for job in self.cluster.remembered())

    async def jobs(self) -> tuple[SlurmJob, ...]:
        return await self.read_jobs()

    async def jobs_on_node(self, name: str) -> tuple[SlurmJob, ...]:
        names.node_name(name)
        return tuple(job for job in await self.read_jobs() if name in job.nodes)

    async def jobs_named(self, name: str, user: str | None = None) -> tuple[SlurmJob, ...]:
        return tuple(job for job in await self.read_jobs() if job.name == name and user in (None, job.user))

    def _remembered(self, job_id: int) -> Job | None:
        return next((job for job in self.cluster.remembered() if job.record.id == job_id), None)

    async def job(self, job_id: int) -> SlurmJob:
        names.job_id(job_id)
        self._ask("job", job_id)
        found = self._remembered(job_id)
        if found is None:
            raise JobNotFound("Invalid job id specified", peer=PEER, status=404, code=2017)
        return found.record

    async def job_record(self, job_id: int) -> SlurmJob | None:
        if not self.cluster.accounting:
            raise NotSupportedHere("there is no slurmdbd", peer=PEER)
        names.job_id(job_id)
        self._ask("job_record", job_id)
        found = self.cluster.all_jobs.get(job_id)
        if found is None:
            return None
        # As slurmdbd: the code of a job that timed out is 0 (case 005), and nothing tells `requeue`.
        code = 0 if "TIMEOUT" in found.record.states else found.record.return_code
        return replace(found.record, return_code=code, signal=None, requeue=False)

    async def submit(self, spec: JobSpec) -> Submitted:
        bodies.submit(spec)
        self._ask("submit", spec)
        job, missing = self.cluster.take(spec, self.user)
        self._done("submit")
        return Submitted(job.record.id, (UNAVAILABLE_WARNING,) * 2 if missing else ())

    async def cancel(self, job_id: int) -> bool:
        names.job_id(job_id)
        self._ask("cancel", job_id)
        job = self._remembered(job_id)
        if job is None or job.over:
            return False
        if self.user != job.user and self.user not in self.cluster.admins | self.cluster.operators:
            raise Forbidden("Access/permission denied", peer=PEER, code=2002)
        self.cluster.end(job, "CANCELLED", signal=15 if job.running else None)
        self.cluster.catch_up()
        self._done("cancel")
        return True

    # Reservations

    async def reservations(self) -> tuple[Reservation, ...]:
        self._ask("reservations")
        return tuple(self.cluster.resv.values())

    async def reservation(self, name: str) -> Reservation:
        names.reservation_name(name)
        self._ask("reservation", name)
        if name not in self.cluster.resv:
            raise ReservationNotFound(f"Unable to find reservation {name}", peer=PEER, code=9000)
        return self.cluster.resv[name]

    async def create_reservation(
        self,
        name: str,
        *,
        nodes: tuple[str, ...],
        users: tuple[str, ...],
        flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS"),
        start: datetime | None = None,
        duration: timedelta | None = None,
    ) -> None:
        begin = start or self.cluster.now()
        bodies.reservation(name, nodes, users, flags, begin, duration)
        self._only_newest("creating a reservation")
        self._ask("create_reservation", name, nodes, users)
        for node in nodes:
            self.cluster.known(node)
        if name in self.cluster.resv:
            raise ReservationExists(f"reservation {name} is there already", peer=PEER)
        self._must_administer(operator=True)
        if not set(users) <= self.cluster.users:
            raise BadRequest("Unspecified error", peer=PEER, status=500, code=-1)
        self.cluster.resv[name] = Reservation(
            name=name,
            nodes=nodes,
            users=users,
            flags=frozenset({*flags, "SPEC_NODES"}),
            start=begin.replace(microsecond=0),
            end=None if duration is None else begin + duration,
        )
        self._done("create_reservation")

    async def delete_reservation(self, name: str) -> None:
        names.reservation_name(name)
        self._only_newest("deleting a reservation")
        self._ask("delete_reservation", name)
        if name not in self.cluster.resv:
            raise ReservationNotFound("Requested reservation is invalid", peer=PEER, code=2053)
        self._must_administer(operator=True)
        if self.cluster.jobs_where(lambda job: job.spec.reservation == name and not job.over):
            raise ReservationBusy("Requested reservation is in use", peer=PEER, code=2055)
        del self.cluster.resv[name]
        self.cluster.catch_up()
        self._done("delete_reservation")
