"""What an adoption decides: refuse or go on, create or rebuild or leave, is this the build, is it the whole machine.

Each function takes what was read and returns a decision or a `Refusal`; the activities read, ask here, and write.
Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import (
    Building,
    BuildState,
    Done,
    Elsewhere,
    Failed,
    Lost,
    NotThisBuild,
    Server,
    ServerStatus,
    Stopped,
    is_settled,
    rebuild_refusal,
)
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig, check_user_data, missing_fields
from fleet_manager.core.domain.slurm_cluster import Partition, Reservation
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, Ownership, ReasonClass, classify, live, short_id
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import Gres, NodeBase, NodeFlag, SlurmNode, parse_gres
from fleet_manager.core.domain.slurm_projection import Build

RESERVE_PATIENCE = timedelta(minutes=2)
"""How long the scheduler may take to use a node whose reservation is gone: the flag MAINTENANCE goes seconds late."""
RESERVATION_FLAGS = ("MAINT", "IGNORE_JOBS")
CLOCK_DIFFERENCE = timedelta(minutes=5)
"""How far ahead of slurmctld's clock ours may be: our reservation begins that long ago, so that it is active there the
moment it is made. MUNGE refuses more than 5 minutes anyway, slurmctld a start of more than 10 (reservation.c)."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an adoption sees before it touches anything."""

    device_id: str
    device: str
    node_name: str
    hypervisor: str | None
    node: SlurmNode | None
    """None: SLURM answered and has no such node. An unreadable SLURM never gets here."""
    jobs: tuple[SlurmJob, ...]
    """Jobs that still have the node."""
    servers: tuple[Server, ...]
    """By the device's tag, and the one that the hub names."""
    holds: tuple[Hold, ...]
    ownership: Ownership
    reservations: tuple[Reservation, ...]
    now: datetime


def survey(seen: Seen, *, claim_id: str, force_rebuild: bool) -> Refusal | None:
    """Return why the adoption must not begin, or None. Called again right after the gate is up.

    Args:
        seen: the present facts.
        claim_id: the adoption's own id: its gate, and its reservation, are no obstacle.
        force_rebuild: whether slurmctld's own drains are to be built away.
    """
    return (
        _ambiguous(seen)
        or _node_state(seen)
        or _in_use(seen)
        or _held(seen, claim_id, force_rebuild=force_rebuild)
        or _reserved(seen)
        or _machine(seen)
    )


def _ambiguous(seen: Seen) -> Refusal | None:
    if len(seen.servers) > 1:
        ids = " and ".join(sorted(server.id for server in seen.servers))
        return Refusal(
            code="DuplicateServers",
            why=f"Device {seen.device} has {len(seen.servers)} servers in Nova: {ids}.",
            way_out="Find out which one is the machine and delete the other by hand; we never choose one to delete.",
        )
    if seen.node is not None and seen.node.name != seen.node_name:
        return Refusal(
            code="AmbiguousNode",
            why=f"SLURM has the node as {seen.node.name}, the hub as {seen.node_name}; SLURM tells cases apart.",
            way_out=f"Set the device's slurm_node to {seen.node.name} in the hub.",
        )
    return None


def _node_state(seen: Seen) -> Refusal | None:
    node = seen.node
    if node is None:
        return None
    if not node.state.understood:
        return Refusal(
            code="NodeStateUnknown",
            why=f"Node {node.name} is in state {node.state}, which we do not understand.",
            way_out="Look at it with `scontrol show node` and adopt it once it is in a known state.",
        )
    if node.state.rebooting:
        return Refusal(
            code="NodeRebooting",
            why=f"Node {node.name} is rebooting ({node.state}).",
            way_out="Adopt it again once it is back.",
        )
    return None


def _in_use(seen: Seen) -> Refusal | None:
    if seen.jobs:
        ids = ", ".join(str(job.id) for job in seen.jobs[:10])
        return Refusal(
            code="NodeInUse",
            why=f"Node {seen.node_name} is in use: {len(seen.jobs)} job(s) on it ({ids}).",
            way_out=f"Drain it first: fleet-manager drain {seen.node_name} --reason ...",
        )
    if seen.node is not None and seen.node.state.busy:
        return Refusal(
            code="NodeInUse",
            why=f"Node {seen.node_name} is in use: its state is {seen.node.state}.",
            way_out=f"Drain it first: fleet-manager drain {seen.node_name} --reason ...",
        )
    return None


def _held(seen: Seen, claim_id: str, *, force_rebuild: bool) -> Refusal | None:
    others = [hold for hold in live(seen.holds, seen.now) if hold.kind is HoldKind.DRAIN and hold.id != claim_id]
    if others:
        who = "; ".join(f"{hold.owner} since {hold.since:%Y-%m-%d %H:%M} UTC: {hold.why}" for hold in others)
        return Refusal(
            code="NodeHeld",
            why=f"Node {seen.node_name} is held by {who}.",
            way_out=f"Ask the owner, or resume the hold: fleet-manager resume {seen.node_name} --hold {others[0].id}",
        )
    return _held_in_slurm(seen, seen.node, force_rebuild=force_rebuild) if seen.node else None


def _held_in_slurm(seen: Seen, node: SlurmNode, *, force_rebuild: bool) -> Refusal | None:
    # who set a node DOWN or FAIL and wrote why is heard as well: our DRAIN would make a hold of it, our RESUME clear it
    set_aside = node.state.down or NodeFlag.FAIL in node.state.flags
    reason = node.reason if set_aside and node.reason else node.hold_reason
    whose = classify(reason, node.reason_set_by, seen.ownership)
    done = "drained" if node.state.drain else f"set {node.state}"
    if whose is ReasonClass.FOREIGN:
        by = node.reason_set_by or "somebody"
        return Refusal(
            code="NodeHeld",
            why=f"Node {seen.node_name} is {done} by {by}: {node.reason or '(no reason given)'}.",
            way_out="Ask them to resume it in SLURM; we never clear a drain that is not ours.",
        )
    if whose is ReasonClass.SYSTEM and not force_rebuild and seen.servers:
        return Refusal(
            code="NodeDrainedBySlurm",
            why=f"Node {seen.node_name} is {done} by slurmctld itself: {node.reason}.",
            way_out="If a new build is the cure, adopt it with force_rebuild=true; else mend it and resume it.",
        )
    return None


def _reserved(seen: Seen) -> Refusal | None:
    own = reservation_name(seen.node_name)
    for reservation in seen.reservations:
        if reservation.name == own or not reservation.covers(seen.node_name, seen.now):
            continue
        who = ", ".join(reservation.users or reservation.accounts) or "nobody named"
        return Refusal(
            code="NodeReserved",
            why=f"Node {seen.node_name} is in reservation {reservation.name} (users: {who}).",
            way_out="Ask its owner to end it or to take the node out; a second one on top breaks theirs.",
        )
    return None


def _machine(seen: Seen) -> Refusal | None:
    if not seen.hypervisor:
        return Refusal(
            code="DeviceWithoutHypervisor",
            why=f"Device {seen.device} has no hypervisor_hostname in the hub, so a server could land on any machine.",
            way_out="Set the device's hypervisor_hostname to the name that `openstack hypervisor list` shows for it.",
        )
    for server in seen.servers:
        if server.hypervisor_hostname and server.hypervisor_hostname != seen.hypervisor:
            return landed_elsewhere(seen.device, server.id, seen.hypervisor, server.hypervisor_hostname)
    return None


def landed_elsewhere(device: str, server_id: str, wanted: str, found: str | None) -> Refusal:
    """Return the refusal of a server that is not on the device's own machine."""
    return Refusal(
        code="LandedElsewhere",
        why=f"Server {server_id} of device {device} is on {found or 'a machine that this credential cannot see'}, "
        f"not on {wanted}.",
        way_out="Correct the device's hypervisor_hostname, or delete that server, then adopt again.",
    )


class Way(StrEnum):
    """How a device gets its build."""

    CREATE = "create"
    REBUILD = "rebuild"
    LEAVE = "leave"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the configuration asks for, resolved to Nova's own names."""

    image_id: str
    image: str
    flavor: str
    user_data_sha256: str


@dataclass(frozen=True)
class BuildPlan:
    """How to get there, and why in words."""

    way: Way
    why: str


def plan_build(wanted: Wanted, server: Server | None, build_id: str, *, force_rebuild: bool) -> BuildPlan | Refusal:
    """Decide between create, rebuild, leave and refuse.

    A server that carries BUILD_ID already is what an earlier try of this same adoption made: it is left, force or not.
    One that matches and is switched off is left as well: whoever waits for it starts it (case 032).
    """
    if server is None:
        return BuildPlan(Way.CREATE, "the device has no server")
    if server.build_id == build_id:
        return BuildPlan(Way.LEAVE, "an earlier try of this adoption has made this build")
    if server.flavor_name != wanted.flavor:
        return Refusal(
            code="RecreateNeeded",
            why=f"Server {server.id} has flavor {server.flavor_name}, the configuration asks for {wanted.flavor}; "
            "a rebuild cannot change the flavor.",
            way_out="Recreate needed: release the device (its server is deleted), then adopt it again.",
        )
    differs = _differences(wanted, server)
    if not differs and not force_rebuild and is_settled(server) and server.status in _BUILT:
        return BuildPlan(Way.LEAVE, "image, flavor and user-data match already")
    refusal = rebuild_refusal(server)
    if refusal:
        return Refusal(
            code="RebuildRefused",
            why=f"Server {server.id} cannot be rebuilt: {refusal}.",
            way_out="Mend that, or release the device and adopt it anew.",
        )
    return BuildPlan(
        Way.REBUILD, "; ".join(differs) or ("forced" if force_rebuild else f"the server is {server.status}")
    )


_BUILT = (ServerStatus.ACTIVE, ServerStatus.SHUTOFF)


def _differences(wanted: Wanted, server: Server) -> list[str]:
    found: list[str] = []
    if server.image_id != wanted.image_id:
        found.append(f"image {server.image_id} becomes {wanted.image} ({wanted.image_id})")
    if server.known_user_data_sha256 != wanted.user_data_sha256:
        found.append("the user-data differs")
    if not server.build_id:
        found.append("the server carries no build id of ours")
    return found


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The whole machine, as the configuration and the flavor promise it."""

    build: Build
    gres: str
    features: tuple[str, ...]
    flavor_vcpus: int
    flavor_ram_mib: int
    reserved_cpus: int = 0
    """CPUs of the flavor that the node may keep for itself."""
    reserved_memory_mib: int = 0


def registered(node: SlurmNode, build: Build) -> bool:
    """Say whether this build has registered: what it says of itself, a slurmd that answers, a state we know.

    A registration that slurmctld refuses counts too: the machine is there, and `refuse_machine` says what is wrong.
    Its base stays UNKNOWN then (seen on 26.05), so waiting on would only hide the cause.
    """
    if not build.proven_by(node):
        return False
    if NodeFlag.INVALID_REG in node.state.flags:
        return True
    settled = node.state.understood and node.state.base not in (NodeBase.UNKNOWN, NodeBase.FUTURE)
    return settled and node.state.responding


def why_not_registered(node: SlurmNode | None, name: str, build: Build) -> str:
    """Return in words what a wait for the registration sees."""
    if node is None:
        return f"SLURM has no node {name} yet"
    if not build.proven_by(node):
        seen = f"instance_id {node.instance_id or '(none)'}, extra {node.extra or '(none)'}"
        return (
            f"{name} is there, but not from this build: {seen}; expected {build.server_id}, fm_build={build.build_id}"
        )
    if not node.state.responding:
        return f"{name} registered from this build, its slurmd does not answer ({node.state})"
    return f"{name} is {node.state}"


def refuse_machine(node: SlurmNode, expected: Expectation) -> Refusal | None:
    """Return why this machine is not the whole one that was promised, or None (the gate on GRES, CPUs and memory)."""
    short = [*_short_gres(node, expected.gres), *_short_size(node, expected), *_refused_registration(node)]
    if not short:
        return None
    return Refusal(
        code="IncompleteMachine",
        why=f"Node {node.name} registered with less than promised: {'; '.join(short)}.",
        way_out="Repair the machine (or correct the configuration), then adopt it again with force_rebuild=true.",
    )


_REPORTED_LOWER = re.compile(r"gres/(\S+) count (?:reported lower than configured|too low) \((\d+) < (\d+)\)")


def _refused_registration(node: SlurmNode) -> list[str]:
    """Return what slurmctld says against the registration; the node's own figures are the configured ones then."""
    if NodeFlag.INVALID_REG not in node.state.flags:
        return []
    counts = [f"{have} of {want} {_plural(name)}" for name, have, want in _REPORTED_LOWER.findall(node.reason)]
    return [*counts, f"slurmctld refuses its registration: {node.reason or 'no reason given'}"]


def _short_gres(node: SlurmNode, wanted: str) -> list[str]:
    try:
        have = parse_gres(node.gres)
    except ValueError:
        return [f"its GRES {node.gres!r} cannot be read, {wanted} was promised"]
    short: list[str] = []
    for want in parse_gres(wanted):
        count = sum(gres.count for gres in have if _same_kind(gres, want))
        if count < want.count:
            kind = f" of type {want.type}" if want.type else ""
            short.append(f"{count} of {want.count} {_plural(want.name)}{kind}")
    return short


def _plural(gres: str) -> str:
    return "GPUs" if gres == "gpu" else gres


def _same_kind(have: Gres, want: Gres) -> bool:
    return have.name == want.name and (want.type is None or have.type == want.type)


def _short_size(node: SlurmNode, expected: Expectation) -> list[str]:
    short: list[str] = []
    cpus = expected.flavor_vcpus - expected.reserved_cpus
    memory = expected.flavor_ram_mib - expected.reserved_memory_mib
    if node.cpus < cpus:
        short.append(f"{node.cpus} of {cpus} CPUs")
    if node.memory_mib < memory:
        short.append(f"{node.memory_mib} of {memory} MiB of memory")
    return short


def missing_features(node: SlurmNode, wanted: Sequence[str]) -> tuple[str, ...] | None:
    """Return the features to set when they differ from the configuration's, else None. Order does not matter.

    None wanted means that the configuration says nothing of features, not that there must be none.
    """
    same = set(node.features) == set(wanted) and set(node.active_features) == set(wanted)
    return None if same or not wanted else tuple(wanted)


def reservation_name(node: str) -> str:
    """Return the name of the one reservation that we ever make for a node."""
    return f"fm_{node}"


def reservation_problem(reservation: Reservation | None, node: str, user: str, now: datetime) -> str:
    """Return why this reservation does not keep users' jobs off the node, "" when it does."""
    name = reservation_name(node)
    if reservation is None:
        return f"there is no reservation {name}"
    if reservation.nodes != (node,):
        return f"reservation {name} is of {', '.join(reservation.nodes) or 'no node'}, not of {node} alone"
    if "MAINT" not in reservation.flags:
        return f"reservation {name} lacks the flag MAINT"
    if reservation.users != (user,):
        return f"reservation {name} lets in {', '.join(reservation.users) or 'nobody'}, not {user} alone"
    if not reservation.active(now):
        return f"reservation {name} is not active now"
    if reservation.end is not None:
        return f"reservation {name} ends at {reservation.end:%Y-%m-%d %H:%M} UTC, and users' jobs would start then"
    return ""


def partition_problem(partitions: Sequence[Partition], name: str, node: str) -> str:
    """Return why a burn-in in that partition cannot run on the node, "" when it can."""
    partition = next((one for one in partitions if one.name == name), None)
    if partition is None:
        known = ", ".join(one.name for one in partitions) or "none"
        return f"partition {name} does not exist (there are: {known}); set FLEET_SITE__BURN_IN_PARTITION"
    if partition.state != "UP":
        return f"partition {name} is {partition.state}"
    if node not in partition.nodes:
        return f"node {node} is not in partition {name}; set FLEET_SITE__BURN_IN_PARTITION or the role's features"
    return ""


def known_ids(holds: Sequence[Hold], ended: Sequence[str]) -> frozenset[str]:
    """Return the short ids that make a reason ours: of live holds, and of ended ones whose text may still stand."""
    return frozenset({hold.short_id for hold in holds} | {short_id(one) for one in ended})


NODE_KEY = "fm_node"
"""Key in the server's metadata: the SLURM node's name, for user-data of a server whose own name differs."""


def way_of_attempt(mark: str | None) -> Way | None:
    """Return how the present build came about, from the server's `fm_attempt` (as `create-1`), None if it says none."""
    word = (mark or "").partition("-")[0]
    return Way(word) if word in [way.value for way in Way] else None


def refuse_config(config: SlurmBootstrapConfig, birth_reason: str) -> Refusal | None:
    """Return why a role's configuration cannot be built from: site, role, field, and the call that mends it."""
    mend = f"Set it: PATCH /api/v1/sites/{config.site}/slurm-bootstrap-configs/{config.device_role}"
    missing = missing_fields(config)
    if missing:
        fields = " and ".join(missing)
        body = ", ".join(f'"{field}": ...' for field in missing)
        return Refusal(
            code="BootstrapConfigIncomplete",
            why=f"The configuration of role {config.device_role} at site {config.site} has no {fields}.",
            way_out=f"{mend} {{{body}}}",
        )
    wrong = check_user_data(config.user_data.reveal(), birth_reason)
    if wrong:
        return Refusal(
            code="BootstrapConfigIncomplete",
            why=f"The configuration of role {config.device_role} at site {config.site}: {' '.join(wrong)}",
            way_out=f'{mend} {{"user_data": ...}}',
        )
    return None


def cannot_gate(version: str) -> Refusal:
    """Return the refusal of a site whose SLURM has no reservations over REST, so that no gate can be kept there."""
    return Refusal(
        code="SiteCannotGate",
        why=f"SLURM {version} cannot make reservations over REST, so users' jobs could not be kept off.",
        way_out="Adoption needs SLURM 25.05 or newer (data_parser v0.0.43).",
    )


def words_of_build(state: BuildState) -> str:
    """Return where a build stands, in words."""
    match state:
        case Done():
            return "the server is ACTIVE"
        case Stopped():
            return "the server is SHUTOFF and is being started"
        case Building(phase=phase):
            return f"the server is {phase}"
        case NotThisBuild(found=found, busy=busy):
            return f"the server carries build {found or '(none)'}" + (" and Nova is at work" if busy else "")
        case Failed(reason=reason) | Lost(reason=reason):
            return reason
        case Elsewhere(wanted=wanted, found=found):
            return f"the server is on {found or 'a machine that is not shown'}, not on {wanted}"


def refuse_build(state: BuildState, device: str, server_id: str) -> Refusal | None:
    """Return why this build will never be the device's, or None while it may."""
    match state:
        case Failed(reason=reason, capacity=True):
            return Refusal(
                code="NoCapacity",
                why=f"Nova found no room for server {server_id} of device {device}: {reason}.",
                way_out="The node is not broken. Free its hypervisor, delete that server, then adopt the device again.",
            )
        case Failed(reason=reason):
            return Refusal(
                code="BuildFailed",
                why=f"Server {server_id} of device {device} was not built: {reason}.",
                way_out=f"See `openstack server show {server_id}`; mend the cause, then adopt with force_rebuild=true.",
            )
        case Lost(reason=reason):
            return Refusal(
                code="ServerLost",
                why=f"Server {server_id} of device {device} is lost: {reason}.",
                way_out="Somebody deleted it; adopt the device again to make a new one.",
            )
        case Elsewhere(wanted=wanted, found=found):
            return landed_elsewhere(device, server_id, wanted, found)
        case _:
            return None
