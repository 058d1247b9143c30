"""What an adoption decides: refuse or go on, create or rebuild or leave, is this the build, is it the whole machine.

Each function takes what was read and returns a decision or a `Refusal`; the activities read, ask here, and write.
Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.server import (
    Server,
)
from fleet_manager.core.domain.slurm_build import landed_elsewhere
from fleet_manager.core.domain.slurm_cluster import Reservation
from fleet_manager.core.domain.slurm_holds import Hold, HoldKind, Ownership, ReasonClass, classify, live, short_id
from fleet_manager.core.domain.slurm_job import SlurmJob
from fleet_manager.core.domain.slurm_node import NodeFlag, SlurmNode
from fleet_manager.core.domain.slurm_registration import reservation_name


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
    elsewhere: tuple[str, ...] = ()
    """Nodes of other names that say they run on one of the device's servers; looked for when the node is not there."""


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
    if seen.elsewhere:
        return Refusal(
            code="AmbiguousNode",
            why=f"SLURM has no node {seen.node_name}, but {', '.join(seen.elsewhere)} runs on the device's server.",
            way_out=f"Set the device's slurm_node to {seen.elsewhere[0]} in the hub, if that is its name.",
        )
    if seen.node is not None and _on_another_server(seen.node, seen.servers):
        return Refusal(
            code="AmbiguousNode",
            why=f"Node {seen.node.name} says that it runs on server {seen.node.instance_id}, which is none of device "
            f"{seen.device}'s in Nova.",
            way_out="Find out whose it is: set the device's server_id in the hub, or delete that server and wait until "
            "SLURM has noticed (the node is DOWN), then adopt again.",
        )
    if seen.node is not None and seen.node.name != seen.node_name:
        return Refusal(
            code="AmbiguousNode",
            why=f"SLURM has the node as {seen.node.name}, the hub as {seen.node_name}; SLURM tells cases apart.",
            way_out=f"Set the device's slurm_node to {seen.node.name} in the hub.",
        )
    return None


def _on_another_server(node: SlurmNode, servers: Sequence[Server]) -> bool:
    """Say whether a living node names a server that is not the device's; a dead one names what was."""
    if not node.instance_id or node.state.dead:
        return False
    return node.instance_id not in {server.id for server in servers}


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
            way_out="If a new build is the cure, adopt it with --force-rebuild; else mend it and resume it.",
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


def known_ids(holds: Sequence[Hold], ended: Sequence[str]) -> frozenset[str]:
    """Return the short ids that make a reason ours: of live holds, and of ended ones whose text may still stand."""
    return frozenset({hold.short_id for hold in holds} | {short_id(one) for one in ended})


def cannot_gate(version: str) -> Refusal:
    """Return the refusal of a site whose SLURM has no reservations over REST, so that no gate can be kept there."""
    return Refusal(
        code="SiteCannotGate",
        why=f"SLURM {version} cannot make reservations over REST, so users' jobs could not be kept off.",
        way_out="Adoption needs SLURM 25.05 or newer (data_parser v0.0.43).",
    )
