"""Whether the machine that registered is this build and whole; and what keeps users off it until its verdict.

The activities read, ask here, and write. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet_manager.core.domain.refusal import Refusal
from fleet_manager.core.domain.slurm_cluster import Partition, Reservation
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
        way_out="Repair the machine (or correct the configuration), then adopt it again with --force-rebuild.",
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


def refuse_reached(node: str, jobs: Sequence[SlurmJob]) -> Refusal | None:
    """Return the refusal of a node that jobs have reached before its verdict (somebody took its DRAIN off), or None."""
    if not jobs:
        return None
    ids = ", ".join(str(job.id) for job in jobs[:10])
    return Refusal(
        code="NodeReached",
        why=f"Job(s) {ids} started on node {node} before any burn-in: somebody took its DRAIN off.",
        way_out="The node is drained again and the jobs are left alone; adopt it once they have ended.",
    )


def refuse_replaced(node: SlurmNode, passed: Build) -> Refusal:
    """Return the refusal of a node that does not run the build that passed."""
    return Refusal(
        code="BuildReplaced",
        why=f"Build {passed.build_id} passed, but node {node.name} now runs instance {node.instance_id or '(none)'}, "
        f"{node.extra or '(no build)'}: it was built anew meanwhile.",
        way_out="Adopt it again with --force-rebuild.",
    )
