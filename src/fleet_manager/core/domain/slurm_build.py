"""How a device gets its build: create, rebuild or leave, and what one reading of its server means for that.

The activities read, ask here, and write. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
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
                way_out=f"See `openstack server show {server_id}`; mend the cause, then adopt with --force-rebuild.",
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
