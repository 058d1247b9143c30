"""Device conditions over the API: take reports, tell what became of each, read them back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Security
from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from fleet_manager.core.domain.device import (
    MAX_CLOCK_AHEAD,
    Condition,
    ConditionOutcome,
    ConditionReport,
    ConditionResult,
    apply_report,
    name_key,
)
from fleet_manager.hub.access import Access, check_access
from fleet_manager.hub.devices import find
from fleet_manager.hub.problems import invalid
from fleet_manager.hub.schemas import ConditionQuery, DeviceCondition, Page, ReportsIn, ReportsOut
from fleet_manager.hub.scopes import Scope
from fleet_manager.hub.tables import ConditionRow, DeviceRow, columns

router = APIRouter(prefix="/api/v1/sites/{site_id}", tags=["device conditions"])

CHUNK = 500
"""Names in one IN list: below what either database takes."""

Creator = Annotated[Access, Security(check_access, scopes=[Scope.CONDITION_CREATE])]
Reader = Annotated[Access, Security(check_access, scopes=[Scope.CONDITION_READ])]


@router.post("/device-conditions/", include_in_schema=False)
@router.post("/device-conditions")
async def create_conditions(access: Creator, body: ReportsIn) -> ReportsOut:
    """Take condition reports in their order; one of an unknown device, or older than what is known, harms no other."""
    now = access.hub.now()
    reports = [ConditionReport.model_validate(report.model_dump()) for report in body.conditions]
    _check_clock(reports, now)
    async with access.hub.database.write() as session:
        ids = await _device_ids(session, access.site, {report.device for report in reports})
        batch = _Batch(session, ids, await _condition_rows(session, set(ids.values())), now, access.who)
        return ReportsOut(results=[batch.take(report) for report in reports])


def _check_clock(reports: list[ConditionReport], now: datetime) -> None:
    latest = now + MAX_CLOCK_AHEAD
    early = sum(report.observed_at > latest for report in reports)
    if early:
        minutes = MAX_CLOCK_AHEAD.total_seconds() / 60
        sentence = f"{early} reports were observed over {minutes:.0f} minutes ahead of the hub's clock; set the clock."
        raise invalid([sentence], {"observed_at": f"at most {latest.isoformat()}"})


@dataclass(frozen=True)
class _Batch:
    """The reports of one call, in one transaction: what is known is read once, then each is applied in turn."""

    session: AsyncSession
    ids: dict[str, str]
    rows: dict[tuple[str, str], ConditionRow]
    now: datetime
    who: str

    def take(self, report: ConditionReport) -> ConditionResult:
        device_id = self.ids.get(report.device)
        if device_id is None:
            return _result(report, ConditionOutcome.UNKNOWN_DEVICE, None)
        row = self.rows.get((device_id, report.type))
        condition, outcome = apply_report(Condition.model_validate(columns(row)) if row else None, report)
        if outcome is not ConditionOutcome.STALE:
            self._write(row, device_id, condition)
        return _result(report, outcome, condition.last_transition_time)

    def _write(self, row: ConditionRow | None, device_id: str, condition: Condition) -> None:
        if row is None:
            row = ConditionRow(device_id=device_id, type=condition.type)
            self.session.add(row)
            self.rows[device_id, condition.type] = row
        row.status, row.reason, row.message = condition.status.value, condition.reason, condition.message
        row.last_transition_time, row.observed_at = condition.last_transition_time, condition.observed_at
        row.updated_at, row.updated_by = self.now, self.who


@router.get("/device-conditions/", include_in_schema=False)
@router.get("/device-conditions")
async def list_conditions(access: Reader, query: Annotated[ConditionQuery, Query()]) -> Page[DeviceCondition]:
    """List conditions by device name and type; `after` is NAME/TYPE of the last one seen."""
    after_name, _, after_type = query.after.partition("/")
    statement = (
        select(ConditionRow, DeviceRow.name)
        .join(DeviceRow, DeviceRow.id == ConditionRow.device_id)
        .where(DeviceRow.site == access.site)
        .where(
            or_(
                DeviceRow.name_key > name_key(after_name),
                and_(DeviceRow.name_key == name_key(after_name), ConditionRow.type > after_type),
            )
        )
        .order_by(DeviceRow.name_key, ConditionRow.type)
        .limit(query.limit + 1)
    )
    if query.type is not None:
        statement = statement.where(ConditionRow.type == query.type)
    if query.status is not None:
        statement = statement.where(ConditionRow.status == query.status.value)
    async with access.hub.database.read() as session:
        if query.device is not None:
            device = await find(session, access.site, query.device)
            statement = statement.where(ConditionRow.device_id == device.id)
        found = (await session.execute(statement)).all()
    items = [DeviceCondition.model_validate({**columns(row), "device": name}) for row, name in found[: query.limit]]
    more = len(found) > query.limit
    return Page(items=items, next_after=f"{items[-1].device}/{items[-1].type}" if more else None)


async def _device_ids(session: AsyncSession, site: str, names: set[str]) -> dict[str, str]:
    """Return id by what the reports call a device, its id or its name; locks the devices until the end."""
    by_id: set[str] = set()
    by_key: dict[str, str] = {}
    wanted = sorted(names)
    for start in range(0, len(wanted), CHUNK):
        part = wanted[start : start + CHUNK]
        matches = or_(DeviceRow.id.in_(part), DeviceRow.name_key.in_([name_key(name) for name in part]))
        found = select(DeviceRow.id, DeviceRow.name_key).where(DeviceRow.site == site, matches)
        for id_, key in await session.execute(found.order_by(DeviceRow.id).with_for_update()):
            by_id.add(id_)
            by_key[key] = id_
    resolved = {name: name if name in by_id else by_key.get(name_key(name)) for name in names}
    return {name: id_ for name, id_ in resolved.items() if id_ is not None}


async def _condition_rows(session: AsyncSession, device_ids: set[str]) -> dict[tuple[str, str], ConditionRow]:
    rows: dict[tuple[str, str], ConditionRow] = {}
    wanted = sorted(device_ids)
    for start in range(0, len(wanted), CHUNK):
        of_these = select(ConditionRow).where(ConditionRow.device_id.in_(wanted[start : start + CHUNK]))
        rows.update({(row.device_id, row.type): row for row in await session.scalars(of_these)})
    return rows


def _result(report: ConditionReport, outcome: ConditionOutcome, since: datetime | None) -> ConditionResult:
    return ConditionResult(device=report.device, type=report.type, outcome=outcome, last_transition_time=since)
