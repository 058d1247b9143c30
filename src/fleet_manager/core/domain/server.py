"""A Nova server as the satellite sees it, and what may be concluded from one reading of it.

Pure: the client fills `Server`, everything here only looks at it. It must not hold user-data (only its hash), nor any
text of Nova's that was not cut. The rules come from `nova-api.md` 2 and 5, seen on Nova 34:

- BUILD with task_state None is normal between two steps, so it is never "done";
- one reading is not enough for Done: a server deleted while it was built shows ACTIVE, no task, launched and running
  for a moment before it is DELETED, and one rebuilt from SHUTOFF may show ACTIVE before it stops. Callers believe a
  Done when the next reading, a poll later, says it again;
- gone is 404 or DELETED, nothing else;
- a rebuild keeps id, created, host and flavor; image, metadata and launched_at change. Its marker is the metadata
  (`fm_build`), which Nova writes in the same transaction as the image, so a marker that is there proves that the
  rebuild was taken. The tag `fm-build-<id>` only finds the server: it is set before the rebuild is sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

TAG_MAX = 60
"""Characters Nova keeps of a tag (objects/fields: MAX_TAG_LENGTH)."""
USER_DATA_MAX = 65_535
"""Base64 characters Nova takes as user-data: 49,149 raw bytes."""
METADATA_MAX = 255
"""Characters of a metadata value."""

DEVICE_KEY = "fm_device"
BUILD_KEY = "fm_build"
CONFIG_REVISION_KEY = "fm_config_revision"
USER_DATA_KEY = "fm_user_data_sha256"
ATTEMPT_KEY = "fm_attempt"
METADATA_KEYS = (DEVICE_KEY, BUILD_KEY, CONFIG_REVISION_KEY, USER_DATA_KEY, ATTEMPT_KEY)

DEVICE_TAG_PREFIX = "fm-device-"
BUILD_TAG_PREFIX = "fm-build-"

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]*")
_FAULT_MAX = 300
_BLOB = re.compile(r"[A-Za-z0-9+/=_]{40,}")


class ServerStatus(StrEnum):
    """The closed list of Nova's `status` words (api/openstack/common.py); a new word reads as UNKNOWN."""

    ACTIVE = "ACTIVE"
    BUILD = "BUILD"
    DELETED = "DELETED"
    ERROR = "ERROR"
    HARD_REBOOT = "HARD_REBOOT"
    MIGRATING = "MIGRATING"
    PASSWORD = "PASSWORD"  # noqa: S105 - Nova's word for a password being set
    PAUSED = "PAUSED"
    REBOOT = "REBOOT"
    REBUILD = "REBUILD"
    RESCUE = "RESCUE"
    RESIZE = "RESIZE"
    REVERT_RESIZE = "REVERT_RESIZE"
    SHELVED = "SHELVED"
    SHELVED_OFFLOADED = "SHELVED_OFFLOADED"
    SHUTOFF = "SHUTOFF"
    SOFT_DELETED = "SOFT_DELETED"
    SUSPENDED = "SUSPENDED"
    UNKNOWN = "UNKNOWN"
    VERIFY_RESIZE = "VERIFY_RESIZE"

    @classmethod
    def of(cls, word: str) -> ServerStatus:
        """Return the status for Nova's word; one that is not in the list is UNKNOWN, which is never done nor gone."""
        return cls(word) if word in cls.__members__ else cls.UNKNOWN


class PowerState(StrEnum):
    """Nova's `power_state` numbers as words (objects/fields: InstancePowerState)."""

    NOSTATE = "nostate"
    RUNNING = "running"
    PAUSED = "paused"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"
    SUSPENDED = "suspended"

    @classmethod
    def of(cls, number: int | None) -> PowerState:
        """Return the word of a number; an unknown one, or none, is NOSTATE."""
        return _POWER.get(number if number is not None else 0, cls.NOSTATE)


_POWER = {
    0: PowerState.NOSTATE,
    1: PowerState.RUNNING,
    3: PowerState.PAUSED,
    4: PowerState.SHUTDOWN,
    6: PowerState.CRASHED,
    7: PowerState.SUSPENDED,
}


@dataclass(frozen=True, kw_only=True)
class Server:
    """One reading of a server.

    Attributes:
        task_state: what Nova is doing with it; None when nothing.
        image_id: None when it boots from a volume (`volume_booted`).
        flavor_name: the embedded flavor's `original_name` (Nova shows no flavor id from 2.47 on).
        hypervisor_hostname: shown to operators only; None for a member, or before it is scheduled.
        host: the compute service's host, likewise.
        user_data_sha256: of the decoded user-data, only when the cloud shows user-data (operators); never the data.
        fault_message: cut and with long unbroken runs taken out.
        launched_at: end of the last build or rebuild; None when it never ran, and such a server cannot be rebuilt.
    """

    id: str
    name: str
    status: ServerStatus
    task_state: str | None = None
    image_id: str | None = None
    flavor_name: str = ""
    flavor_vcpus: int = 0
    flavor_ram_mib: int = 0
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    hypervisor_hostname: str | None = None
    host: str | None = None
    user_data_sha256: str | None = None
    power_state: PowerState = PowerState.NOSTATE
    fault_code: int | None = None
    fault_message: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    launched_at: datetime | None = None
    volume_booted: bool = False
    locked: bool = False

    @property
    def build_id(self) -> str | None:
        """The build that this server carries, by its metadata: what it boots, not what somebody meant it to."""
        return self.metadata.get(BUILD_KEY)

    @property
    def known_user_data_sha256(self) -> str | None:
        """The user-data's hash: what the cloud shows where it does, else what we wrote beside the build."""
        return self.user_data_sha256 or self.metadata.get(USER_DATA_KEY)


@dataclass(frozen=True)
class Building:
    """Nova is at work; look again."""

    phase: str


@dataclass(frozen=True)
class Done:
    """The build is there: expected status, no task, the wanted image and marker, on the wanted machine.

    To be believed when two readings in a row say so (see the module).
    """


@dataclass(frozen=True)
class Stopped:
    """The build is there and switched off: a rebuild from SHUTOFF ends in SHUTOFF, it must be started."""


@dataclass(frozen=True)
class Failed:
    """The build ended without a machine; `capacity` when there was no room, which says nothing about a node."""

    reason: str
    capacity: bool = False


@dataclass(frozen=True)
class Lost:
    """The server is gone or on its way out."""

    reason: str


@dataclass(frozen=True)
class NotThisBuild:
    """The server carries another build: the rebuild was not taken (or not yet seen); read again, then decide."""

    found: str | None
    busy: bool


@dataclass(frozen=True)
class Elsewhere:
    """The server is on another machine than the device's own; `found` is None when this credential cannot see it."""

    wanted: str
    found: str | None


BuildState = Building | Done | Stopped | Failed | Lost | NotThisBuild | Elsewhere

_MOVING = frozenset(
    {
        ServerStatus.BUILD,
        ServerStatus.REBUILD,
        ServerStatus.REBOOT,
        ServerStatus.HARD_REBOOT,
        ServerStatus.PASSWORD,
        ServerStatus.MIGRATING,
        ServerStatus.RESIZE,
        ServerStatus.REVERT_RESIZE,
        ServerStatus.UNKNOWN,
    }
)
_DELETING = frozenset({"deleting", "soft-deleting"})


def device_tag(device_id: str) -> str:
    """Return the tag that finds a device's server; ValueError when Nova would refuse it."""
    return _tag(DEVICE_TAG_PREFIX, device_id)


def build_tag(build_id: str) -> str:
    """Return the tag that finds what a build made; ValueError when Nova would refuse it."""
    return _tag(BUILD_TAG_PREFIX, build_id)


def _tag(prefix: str, value: str) -> str:
    tag = prefix + value
    if not _TAG.fullmatch(value):
        raise ValueError(f"{value!r} cannot be a server tag: letters, digits and _ . : @ + - only")
    if len(tag) > TAG_MAX:
        raise ValueError(f"{tag!r} has {len(tag)} characters; Nova keeps {TAG_MAX} of a tag")
    return tag


def user_data_sha256(user_data_b64: str) -> str:
    """Return the hash of the decoded user-data, so that line breaks in the base64 make no difference.

    Raises ValueError, without the text, when it is not base64.
    """
    try:
        raw = base64.b64decode("".join(user_data_b64.split()), validate=True)
    except (binascii.Error, ValueError):
        raw = None
    if raw is None:
        raise ValueError("the user-data is not base64")
    return hashlib.sha256(raw).hexdigest()


def clean_fault(text: str) -> str:
    """Return a fault's message on one line, cut, without long unbroken runs: a driver may quote what it was given."""
    line = _BLOB.sub("…", " ".join(text.split()))
    return line if len(line) <= _FAULT_MAX else line[: _FAULT_MAX - 1] + "…"


def is_settled(server: Server) -> bool:
    """Say whether Nova has nothing under way with it. BUILD with no task is between two steps, not settled."""
    return server.task_state is None and server.status not in _MOVING


def is_gone(server: Server | None) -> bool:
    """Say whether the server is gone: 404 (None here) or DELETED, nothing else."""
    return server is None or server.status is ServerStatus.DELETED


def is_leaving(server: Server) -> bool:
    """Say whether it is being deleted, or was deleted and can still be restored."""
    return server.status is ServerStatus.SOFT_DELETED or server.task_state in _DELETING


def capacity_failure(server: Server) -> bool:
    """Say whether the build failed for want of room ("No valid host was found"): not a broken node (case 034)."""
    return server.status is ServerStatus.ERROR and "no valid host was found" in server.fault_message.lower()


def build_state(
    server: Server | None, build_id: str, image_id: str, *, hypervisor_hostname: str | None = None
) -> BuildState:
    """Say where a build stands, from one reading of its server (None: Nova said 404).

    With `hypervisor_hostname`, a finished server is Done only when it is seen on that machine: one that cannot be seen
    (a member's credential) is Elsewhere, as "not shown" proves nothing.
    """
    if server is None or is_gone(server):
        return Lost("the server is gone")
    if is_leaving(server):
        return Lost("the server is being deleted")
    if server.build_id != build_id:
        return NotThisBuild(server.build_id, busy=not is_settled(server))
    if not is_settled(server):
        return Building(_phase(server))
    if server.status is ServerStatus.ERROR:
        return Failed(_fault(server), capacity=capacity_failure(server))
    if server.image_id != image_id:
        return Failed(f"it boots image {server.image_id or 'of its volume'} instead of {image_id}")
    return _ended(server, hypervisor_hostname)


def _ended(server: Server, hypervisor_hostname: str | None) -> BuildState:
    if server.status not in (ServerStatus.ACTIVE, ServerStatus.SHUTOFF):
        return Failed(f"the server is {server.status}, which no build leaves behind")
    if hypervisor_hostname is not None and server.hypervisor_hostname != hypervisor_hostname:
        return Elsewhere(hypervisor_hostname, server.hypervisor_hostname)
    return Done() if server.status is ServerStatus.ACTIVE else Stopped()


def _phase(server: Server) -> str:
    return f"{server.status}/{server.task_state}" if server.task_state else str(server.status)


def _fault(server: Server) -> str:
    return server.fault_message or "the server is in ERROR and Nova gives no fault"


def rebuild_refusal(server: Server) -> str | None:
    """Say why this server cannot be rebuilt in place, or None; asked before anything is touched.

    A locked server is refused here even for an operator, whose credential would bypass the lock: somebody set it.
    """
    if server.volume_booted or server.image_id is None:
        return "it boots from a volume, which a rebuild would keep or need microversion 2.93 to replace"
    if server.locked:
        return "it is locked; unlock it first (openstack server unlock)"
    if is_gone(server) or is_leaving(server):
        return "it is deleted or being deleted"
    if not is_settled(server):
        return f"Nova is busy with it ({_phase(server)})"
    if server.launched_at is None:
        return "it never ran, which Nova does not rebuild (409): delete it and create it anew"
    if server.status not in (ServerStatus.ACTIVE, ServerStatus.SHUTOFF, ServerStatus.ERROR):
        return f"it is {server.status}; a rebuild is taken from ACTIVE, SHUTOFF or ERROR only"
    return None
