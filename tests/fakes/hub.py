"""Fakes of the hub's clients, for tests of what stands above them. The same test body runs on them and on the hub."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleet_manager.core.clients.errors import NotFound
from fleet_manager.core.domain.device import (
    Condition,
    ConditionOutcome,
    ConditionReport,
    ConditionResult,
    Device,
    DeviceBuild,
    apply_report,
)
from fleet_manager.core.domain.slurm_bootstrap_config import SlurmBootstrapConfig


@dataclass
class FakeFleetManager:
    """Devices in memory; it knows the sites of its devices and no other."""

    devices: list[Device] = field(default_factory=list)
    writer: str = "fake"

    async def list_devices(self, site: str, *, role: str | None = None) -> tuple[Device, ...]:
        here = [device for device in self.devices if device.site == site]
        if not here:
            raise NotFound(f"There is no site {site!r} that this client may see.", peer="hub")
        found = [device for device in here if role in (None, device.role)]
        return tuple(sorted(found, key=lambda device: device.name.lower()))

    async def get_device(self, site: str, id_or_name: str) -> Device:
        for device in await self.list_devices(site):
            if id_or_name == device.id or id_or_name.lower() == device.name.lower():
                return device
        raise NotFound(f"Site {site!r} has no device of id or name {id_or_name!r}.", peer="hub")

    async def record_build(self, site: str, device_id: str, build: DeviceBuild) -> Device:
        device = await self.get_device(site, device_id)
        if device.build == build:
            return device
        stamps = {"revision": device.revision + 1, "updated_at": datetime.now(UTC), "updated_by": self.writer}
        return self._replace(device, {**build.model_dump(), **stamps})

    async def write_conditions(self, site: str, reports: Sequence[ConditionReport]) -> tuple[ConditionResult, ...]:
        return tuple([await self._write(site, report) for report in reports])

    async def _write(self, site: str, report: ConditionReport) -> ConditionResult:
        try:
            device = await self.get_device(site, report.device)
        except NotFound:
            return ConditionResult(device=report.device, type=report.type, outcome=ConditionOutcome.UNKNOWN_DEVICE)
        condition, outcome = apply_report(device.condition(report.type), report)
        kept = {known.type: known for known in device.conditions} | {report.type: condition}
        self._replace(device, {"conditions": _in_order(kept)})
        since = condition.last_transition_time
        return ConditionResult(device=report.device, type=report.type, outcome=outcome, last_transition_time=since)

    def _replace(self, device: Device, changes: dict[str, object]) -> Device:
        changed = device.model_copy(update=changes)
        self.devices[self.devices.index(device)] = changed
        return changed


@dataclass
class FakeSlurmBootstrapConfigs:
    """Configurations in memory."""

    configs: list[SlurmBootstrapConfig] = field(default_factory=list)

    async def get(self, site: str, role: str) -> SlurmBootstrapConfig:
        for config in self.configs:
            if (config.site, config.device_role) == (site, role):
                return config
        raise NotFound(
            f"site {site} has no SLURM bootstrap configuration for device role {role}; make one with "
            f"POST /api/v1/sites/{site}/slurm-bootstrap-configs/ (scope slurm-bootstrap-config:create)",
            peer="hub",
        )


def _in_order(conditions: dict[str, Condition]) -> tuple[Condition, ...]:
    return tuple(conditions[type_] for type_ in sorted(conditions))
