"""`ReleaseNode`: drained, out of SLURM, the server deleted or kept as asked, the device free."""

from __future__ import annotations

from fleet_manager.temporal.contracts.common import Contract, DeviceRef, Payload, SiteId

WORKFLOW = "ReleaseNode"
QUERY_PROGRESS = "progress"


class ReleaseInput(Contract):
    """What to release."""

    site: SiteId
    device: DeviceRef
    keep_server: bool = False


class ReleaseResult(Payload):
    """What was done, and what had been done before."""

    node: str
    node_deleted: bool
    server_deleted: bool
    done_before: tuple[str, ...] = ()


def workflow_id(site: str, device: str) -> str:
    """Return the id of a device's release."""
    return f"release/{site}/{device}"
