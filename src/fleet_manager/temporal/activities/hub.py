"""Writing to the hub what an operation left behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from fleet_manager.core.domain.device import Device, DeviceBuild
from fleet_manager.temporal.contracts.common import Payload


class BuildRecorder(Protocol):
    """What of the hub's client is used here."""

    async def record_build(self, site: str, device_id: str, build: DeviceBuild) -> Device: ...


class RecordParams(Payload):
    """The build that a device has now."""

    site: str
    device_id: str
    build: DeviceBuild


@dataclass
class HubActivities:
    """Needs the hub alone."""

    devices: BuildRecorder

    @activity.defn
    async def record_build(self, params: RecordParams) -> None:
        """Write server, build and configuration revision to the device. Writing the same again changes nothing."""
        await self.devices.record_build(params.site, params.device_id, params.build)
