"""The hub's devices and their conditions, as domain models. Knows the wire; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel

from fleet_manager.core.clients.http import HubClient
from fleet_manager.core.domain.device import ConditionReport, ConditionResult, Device, DeviceBuild

PAGE = 1000
"""Devices in one page: the most that the hub gives."""

REPORTS_A_CALL = 1000
"""Condition reports in one call: well below the hub's 5,000, so that one call takes about a second."""

MAX_MESSAGE = 1024
"""Characters of a condition's message that the hub takes; the rest is cut here."""


class FleetManager(Protocol):
    """What the satellite asks of the hub about devices; the fakes of tests implement it too.

    Every method raises a `ClientError`: Unavailable (try again), NotFound (no such site or device, or not for us),
    Forbidden (the sentence names the scope), AuthRejected, BadRequest, IncompatibleServer.
    """

    async def list_devices(self, site: str, *, role: str | None = None) -> tuple[Device, ...]:
        """Return all devices of a site, by name; all pages or an error, never a part."""
        ...

    async def get_device(self, site: str, id_or_name: str) -> Device:
        """Return one device by id or by name, whatever the name's case."""
        ...

    async def record_build(self, site: str, device_id: str, build: DeviceBuild) -> Device:
        """Record what a device was built as, all three fields; the same again changes nothing."""
        ...

    async def write_conditions(self, site: str, reports: Sequence[ConditionReport]) -> tuple[ConditionResult, ...]:
        """Report conditions; returns one result a report, in order. Reports that came before a failure are written."""
        ...


class _DevicePage(BaseModel):
    items: list[Device]
    next_after: str | None


class _Results(BaseModel):
    results: list[ConditionResult]


class FleetManagerClient(HubClient):
    """The hub over HTTP.

    Example:
        async with FleetManagerClient(settings, auth=PrivateKeyJwtAuth(source, ["device:read"])) as hub:
            device = await hub.get_device("ams1", "gpu-001")
    """

    async def list_devices(self, site: str, *, role: str | None = None) -> tuple[Device, ...]:
        found: list[Device] = []
        params = {"limit": str(PAGE)} | ({"role": role} if role is not None else {})
        while True:
            answer = await self._http.get("api", "v1", "sites", site, "devices", params=params)
            page = self._http.parse(_DevicePage, answer)
            found += page.items
            if page.next_after is None:
                break
            if page.next_after == params.get("after") or not page.items:
                raise self._http.unfit(answer, "its pages do not end")
            params["after"] = page.next_after
        if any(device.site != site for device in found):
            raise self._http.unfit(answer, f"it listed devices of another site than {site}")
        return tuple(found)

    async def get_device(self, site: str, id_or_name: str) -> Device:
        answer = await self._http.get("api", "v1", "sites", site, "devices", id_or_name)
        device = self._http.parse(Device, answer)
        if device.site != site or id_or_name.lower() not in (device.id.lower(), device.name.lower()):
            raise self._http.unfit(answer, f"it answered with another device than {id_or_name} of {site}")
        return device

    async def record_build(self, site: str, device_id: str, build: DeviceBuild) -> Device:
        body = build.model_dump(mode="json")
        answer = await self._http.send("PATCH", "api", "v1", "sites", site, "devices", device_id, json=body)
        return self._http.parse(Device, answer)

    async def write_conditions(self, site: str, reports: Sequence[ConditionReport]) -> tuple[ConditionResult, ...]:
        results: list[ConditionResult] = []
        for start in range(0, len(reports), REPORTS_A_CALL):
            part = reports[start : start + REPORTS_A_CALL]
            body = {"conditions": [_on_the_wire(report) for report in part]}
            answer = await self._http.send("POST", "api", "v1", "sites", site, "device-conditions", json=body)
            told = self._http.parse(_Results, answer).results
            if [(result.device, result.type) for result in told] != [(report.device, report.type) for report in part]:
                raise self._http.unfit(answer, "its results are not those of the reports")
            results += told
        return tuple(results)


def _on_the_wire(report: ConditionReport) -> dict[str, object]:
    body = report.model_dump(mode="json")
    if len(report.message) > MAX_MESSAGE:
        body["message"] = report.message[: MAX_MESSAGE - 1] + "…"
    return body
