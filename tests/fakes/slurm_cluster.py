"""An in-memory slurmctld, true to the real one in what our rules stand on; the clients' contract holds it to that.

Time is what the given clock says. Whoever looks sees a world brought up to that time: jobs started and ended,
reservations run out, silent nodes answering again. The methods that are no client's are the world's: machines that
register and vanish, other administrators, and slurmctld's own hand on a reason.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from tests.fakes.slurm_parts import Job, Node, what_it_does

from fleet_manager.core.clients.slurmrest.errors import InvalidTransition, NodeBusy, NodeNotFound, SubmitRefused
from fleet_manager.core.domain.slurm_cluster import Partition, Reservation, SlurmVersion
from fleet_manager.core.domain.slurm_job import JobSpec, SlurmJob
from fleet_manager.core.domain.slurm_node import NodeBase, NodeFlag, SlurmNode, parse_gres

PEER = "slurmrestd"
UNAVAILABLE_WARNING = "Required node not available (down, drained or reserved)"
NOT_STARTABLE = {NodeFlag.DRAIN, NodeFlag.NOT_RESPONDING, NodeFlag.FAIL, NodeFlag.INVALID_REG, NodeFlag.REBOOT_ISSUED}
RESUMABLE = {NodeFlag.DRAIN, NodeFlag.FAIL, NodeFlag.REBOOT_REQUESTED}


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class FakeCluster:
    """The state of one cluster."""

    newest: bool = True
    """26.05.5, else 24.11.5."""
    accounting: bool = True
    """With slurmdbd. 24.11 without it leaves the reason on a node that was undrained."""
    now: Callable[[], datetime] = _now
    silence: timedelta = timedelta(seconds=0.3)
    """How long a node does not respond after UNDRAIN or RESUME."""
    min_job_age: timedelta = timedelta(seconds=15)
    admins: set[str] = field(default_factory=lambda: {"root", "fleet"})
    operators: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=lambda: {"root", "fleet", "alice"})
    away: bool = False
    """slurmctld does not answer; slurmrestd does."""
    nodes: dict[str, Node] = field(default_factory=dict)
    all_jobs: dict[int, Job] = field(default_factory=dict)
    resv: dict[str, Reservation] = field(default_factory=dict)
    partition_sets: dict[str, str] = field(default_factory=lambda: {"main": "ALL", "burnin": "dynamic"})
    """Partition -> its `Nodes=`: ALL, or a feature."""
    outcome: Callable[[JobSpec], tuple[timedelta, int]] = lambda spec: what_it_does(spec.script)
    """A job -> how long it runs and its exit code; for tests that say it otherwise than by the script."""

    @property
    def version(self) -> SlurmVersion:
        return SlurmVersion(26, 5, 5) if self.newest else SlurmVersion(24, 11, 5)

    # Machines

    def add_static(self, *names: str, features: tuple[str, ...] = ("static", "h100")) -> None:
        """Put nodes into slurm.conf, each with its slurmd up."""
        for name in names:
            self.nodes[name] = Node(name, False, features, features, started_at=self.now())

    def register(
        self,
        name: str,
        *,
        features: tuple[str, ...] = ("dynamic",),
        gres: str = "gpu:h100:8",
        found_gres: str | None = None,
        cpus: int = 16,
        memory_mib: int = 4000,
        drained: str | None = None,
        instance_id: str = "",
        extra: str = "",
        rebooted: bool = False,
    ) -> None:
        """Let a slurmd register: a new dynamic node, or one that slurmctld knows.

        Args:
            name: its node name.
            features: of a new node; a known one keeps its own.
            gres: what it is configured with.
            found_gres: what it really has, if that is less.
            cpus: its CPUs.
            memory_mib: its memory.
            drained: the reason that it is born drained with (`State=DRAIN Reason=...`); only for a new node.
            instance_id: of `slurmd --instance-id`.
            extra: of `slurmd --extra`.
            rebooted: whether slurmctld sees a new boot that nobody asked for.
        """
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name, True, features, features, gres=gres)
            if drained is not None:
                node.flags.add(NodeFlag.DRAIN)
                self._reason(node, drained, "root")
        elif rebooted and NodeFlag.DRAIN not in node.flags:
            self._down(node, "Node unexpectedly rebooted")
        elif node.base is NodeBase.DOWN and node.reason == "Not responding":
            node.base, node.reason = NodeBase.IDLE, ""
        node.alive, node.started_at, node.silent_until = True, self.now(), None
        node.flags.discard(NodeFlag.NOT_RESPONDING)
        node.instance_id, node.extra = instance_id, extra
        node.cpus, node.memory_mib = cpus, memory_mib
        self._judge_gres(node, found_gres or gres)

    def _judge_gres(self, node: Node, found: str) -> None:
        has, wanted = parse_gres(found)[0].count, parse_gres(node.gres)[0].count
        if has < wanted:
            node.flags |= {NodeFlag.INVALID_REG, NodeFlag.DRAIN}
            node.gres = found
            self._reason(node, f"gres/gpu count reported lower than configured ({has} < {wanted})", "root")
        else:
            node.flags.discard(NodeFlag.INVALID_REG)

    def lose(self, name: str) -> None:
        """Let its slurmd die: it does not respond, and is not DOWN yet."""
        node = self.nodes[name]
        node.alive = False
        node.flags.add(NodeFlag.NOT_RESPONDING)

    def time_out(self, name: str) -> None:
        """Let SlurmdTimeout pass for a node whose slurmd died: DOWN, its jobs NODE_FAIL, its reason appended to."""
        self.lose(name)
        node = self.nodes[name]
        self._down(node, f"{node.reason} : Not responding" if node.reason else "Not responding")

    # What slurmctld and others do to a node

    def append_reason(self, name: str, text: str) -> None:
        """Append to a reason as slurmctld does, which refreshes its time."""
        node = self.nodes[name]
        self._reason(node, f"{node.reason} : {text}" if node.reason else text, "root")

    def foreign_update(self, name: str, state: str, reason: str = "", user: str = "root") -> None:
        """Let another administrator change a node with scontrol; DOWN is possible here."""
        self.change(name, state, reason or None, user)

    def change(self, name: str, state: str | None, reason: str | None, user: str) -> None:
        """Apply a state word and a reason, as slurmctld's update_node."""
        self.catch_up()
        node = self.known(name)
        busy = bool(self.running_on(name))
        if state == "RESUME" and node.base is not NodeBase.DOWN and not (node.flags & RESUMABLE):
            raise InvalidTransition("Invalid node state transition", peer=PEER, code=2180)
        if state == "RESUME" and NodeFlag.INVALID_REG in node.flags:
            raise InvalidTransition("Invalid node state transition", peer=PEER, code=2180)
        if state == "FUTURE" and busy:
            raise InvalidTransition("Invalid node state transition", peer=PEER, code=2180)
        if reason:
            self._reason(node, reason, user)
        if state == "DRAIN":
            node.flags.add(NodeFlag.DRAIN)
        elif state == "UNDRAIN":
            self._open(node, lift_down=False)
        elif state == "RESUME":
            self._open(node, lift_down=True)
        elif state == "DOWN":
            self._down(node, node.reason)
        elif state == "FUTURE":
            node.base = NodeBase.FUTURE

    def _open(self, node: Node, *, lift_down: bool) -> None:
        was_drained = NodeFlag.DRAIN in node.flags
        node.flags -= {NodeFlag.DRAIN, NodeFlag.FAIL, NodeFlag.REBOOT_REQUESTED} if lift_down else {NodeFlag.DRAIN}
        if lift_down and node.base is NodeBase.DOWN:
            node.base = NodeBase.IDLE
            was_drained = True
        if was_drained:
            node.flags.add(NodeFlag.NOT_RESPONDING)
            node.silent_until = self.now() + self.silence
        if node.base is not NodeBase.DOWN and (self.newest or self.accounting):
            node.reason, node.reason_by, node.reason_at = "", "", None

    def _down(self, node: Node, reason: str) -> None:
        node.base = NodeBase.DOWN
        self._reason(node, reason, node.reason_by or "root")
        for job in self.running_on(node.name):
            self.end(job, "NODE_FAIL", state_reason="NodeDown")

    def _reason(self, node: Node, text: str, user: str) -> None:
        node.reason, node.reason_by, node.reason_at = text, user, self.now()

    def known(self, name: str) -> Node:
        """Return a node that slurmctld shows. Raises NodeNotFound."""
        node = self.nodes.get(name)
        if node is None or node.base is NodeBase.FUTURE:
            raise NodeNotFound(f"Failure to query node {name}", peer=PEER, status=200, code=0)
        return node

    def delete(self, name: str) -> None:
        node = self.known(name)
        if not node.dynamic:
            raise InvalidTransition(f"Failure to delete node {name}", peer=PEER, code=2028)
        if self.running_on(name):
            raise NodeBusy(f"Failure to delete node {name}: Requested nodes are busy", peer=PEER, code=2016)
        del self.nodes[name]
        for one in list(self.resv.values()):
            self.resv[one.name] = replace(one, nodes=tuple(other for other in one.nodes if other != name))

    # Time

    def catch_up(self) -> None:
        """Let happen what had to happen until now."""
        now = self.now()
        for node in self.nodes.values():
            if node.alive and node.silent_until and now >= node.silent_until:
                node.flags.discard(NodeFlag.NOT_RESPONDING)
                node.silent_until = None
        for job in self.jobs_where(lambda job: job.running):
            self._end_if_due(job, now)
        for one in [one for one in self.resv.values() if one.end and one.end <= now]:
            self._run_out(one)
        for job in self.jobs_where(lambda job: job.pending):
            self._start_if_possible(job, now)
        for job in self.jobs_where(lambda job: job.over and job.forgotten_at is None):
            job.forgotten_at = now + self.min_job_age

    def _end_if_due(self, job: Job, now: datetime) -> None:
        assert job.record.start_time is not None
        limit = timedelta(minutes=job.spec.time_limit_minutes)
        end = job.record.start_time + min(job.runs, limit)
        if end > now:
            return
        if job.runs >= limit:
            self.end(job, "TIMEOUT", signal=15, at=end)
        elif job.code:
            self.end(job, "FAILED", code=job.code, state_reason="NonZeroExitCode", at=end)
        else:
            self.end(job, "COMPLETED", code=0, at=end)

    def _run_out(self, one: Reservation) -> None:
        """Kill what runs in a reservation that is over, as slurmctld does."""
        del self.resv[one.name]
        for job in self.jobs_where(lambda job: job.spec.reservation == one.name and not job.over):
            if job.running:
                self.end(job, "TIMEOUT", signal=15)
            else:
                job.record = replace(job.record, states=frozenset({"PENDING", "RESV_DEL_HOLD"}))

    def _start_if_possible(self, job: Job, now: datetime) -> None:
        if "RESV_DEL_HOLD" in job.record.states:
            return
        wanted = (
            job.spec.required_nodes
            or tuple(name for name in self.partition_nodes(job.spec.partition) if not self.why_not(job, name))[:1]
        )
        causes = {self.why_not(job, name) for name in wanted} - {""}
        if not wanted or causes:
            why = "ReqNodeNotAvail" if "ReqNodeNotAvail" in causes else "Resources"
            job.record = replace(job.record, state_reason=why)
            return
        job.record = replace(
            job.record,
            states=frozenset({"RUNNING"}),
            state_reason="",
            nodes=wanted,
            start_time=now,
            end_time=now + timedelta(minutes=job.spec.time_limit_minutes),
        )
        self._end_if_due(job, now)

    def why_not(self, job: Job, name: str) -> str:
        """Say why a job cannot start on a node now: "" if it can."""
        node = self.nodes.get(name)
        if node is None or node.base is not NodeBase.IDLE or node.flags & NOT_STARTABLE or not node.alive:
            return "ReqNodeNotAvail"
        for one in self.active_on(name):
            mine = job.spec.reservation == one.name and job.user in (*one.users, "root")
            if not mine:
                return "ReqNodeNotAvail"
        if job.spec.reservation and job.spec.reservation not in {one.name for one in self.active_on(name)}:
            return "Reservation"
        return "Resources" if self.running_on(name) else ""

    def end(
        self,
        job: Job,
        state: str,
        *,
        code: int | None = None,
        signal: int | None = None,
        state_reason: str = "",
        at: datetime | None = None,
    ) -> None:
        job.record = replace(
            job.record,
            states=frozenset({state}),
            return_code=code,
            signal=signal,
            state_reason=state_reason,
            end_time=at or self.now(),
        )

    # Jobs

    def jobs_where(self, wanted: Callable[[Job], bool]) -> list[Job]:
        return [job for job in self.all_jobs.values() if wanted(job)]

    def running_on(self, name: str) -> list[Job]:
        return self.jobs_where(lambda job: job.running and name in job.record.nodes)

    def remembered(self) -> list[Job]:
        """Return the jobs that slurmctld has not forgotten yet."""
        now = self.now()
        return self.jobs_where(lambda job: job.forgotten_at is None or now < job.forgotten_at)

    def take(self, spec: JobSpec, user: str) -> tuple[Job, bool]:
        """Take a job; say also whether a node that it must have is not available now.

        Raises:
            SubmitRefused: as slurmctld refuses, with its number.
        """
        self.catch_up()
        if spec.partition not in self.partition_sets:
            raise SubmitRefused("Invalid partition name specified", peer=PEER, code=2000)
        if any(name not in self.nodes for name in spec.required_nodes):
            raise SubmitRefused("Invalid node name specified", peer=PEER, code=2018)
        if spec.tres_per_node and self._too_many(spec):
            raise SubmitRefused("Requested node configuration is not available", peer=PEER, code=2014)
        if spec.reservation is not None:
            one = self.resv.get(spec.reservation)
            if one is None:
                raise SubmitRefused("Requested reservation is invalid", peer=PEER, code=2053)
            if user not in (*one.users, "root"):
                raise SubmitRefused("Access denied to requested reservation", peer=PEER, code=2052)
        job_id = max(self.all_jobs, default=0) + 1
        record = SlurmJob(
            id=job_id,
            name=spec.name,
            states=frozenset({"PENDING"}),
            user=user,
            partition=spec.partition,
            comment=spec.comment or "",
            reservation=spec.reservation or "",
            submit_time=self.now(),
            time_limit_minutes=spec.time_limit_minutes,
            requeue=spec.requeue,
            standard_output=spec.standard_output or "",
        )
        job = self.all_jobs[job_id] = Job(record, spec, *self.outcome(spec))
        missing = any(self.why_not(job, name) == "ReqNodeNotAvail" for name in spec.required_nodes)
        self.catch_up()
        return job, missing

    def _too_many(self, spec: JobSpec) -> bool:
        wanted = int((spec.tres_per_node or "0").rsplit(":", 1)[1])
        names = spec.required_nodes or tuple(self.nodes)
        return all(wanted > parse_gres(self.nodes[name].gres)[0].count for name in names)

    # Views

    def active_on(self, name: str) -> list[Reservation]:
        now = self.now()
        return [one for one in self.resv.values() if name in one.nodes and one.active(now)]

    def partition_nodes(self, name: str) -> tuple[str, ...]:
        wanted = self.partition_sets[name]
        return tuple(
            node.name
            for node in self.shown()
            if wanted == "ALL" or wanted in node.active_features or node.name == wanted
        )

    def shown(self) -> Iterable[Node]:
        return (node for node in self.nodes.values() if node.base is not NodeBase.FUTURE)

    def node_view(self, node: Node) -> SlurmNode:
        """Return a node as slurmrestd tells it."""
        partitions = tuple(name for name in self.partition_sets if node.name in self.partition_nodes(name))
        if node.dynamic and not self.newest:
            partitions = partitions[:1]  # 24.11 is wrong about dynamic nodes
        busy = bool(self.running_on(node.name))
        return node.view(busy=busy, reservations=self.active_on(node.name), partitions=partitions, version=self.version)

    def partition_view(self, name: str) -> Partition:
        return Partition(
            name=name,
            nodes=self.partition_nodes(name),
            node_sets=self.partition_sets[name],
            default=self.newest and name == "main",  # 24.11 does not tell
            max_time_minutes=120 if name == "burnin" else None,
        )
