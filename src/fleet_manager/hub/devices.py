"""Devices over the API: list, one by id or name, and the record of what one was built as."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response, Security
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from fleet_manager.core.domain.device import Condition, Device, name_key
from fleet_manager.hub.access import Access, check_access
from fleet_manager.hub.etags import check_if_match, etag
from fleet_manager.hub.problems import not_found
from fleet_manager.hub.schemas import DevicePatch, DeviceQuery, Page
from fleet_manager.hub.scopes import Scope
from fleet_manager.hub.tables import ConditionRow, DeviceRow, columns

router = APIRouter(prefix="/api/v1/sites/{site_id}", tags=["devices"])

Reader = Annotated[Access, Security(check_access, scopes=[Scope.DEVICE_READ])]
Writer = Annotated[Access, Security(check_access, scopes=[Scope.DEVICE_UPDATE])]


@router.get("/devices/", include_in_schema=False)
@router.get("/devices")
async def list_devices(access: Reader, query: Annotated[DeviceQuery, Query()]) -> Page[Device]:
    """List the site's devices by name, with their conditions."""
    async with access.hub.database.read() as session:
        rows = list((await session.scalars(_filtered(access.site, query))).all())
        items = await with_conditions(session, rows[: query.limit])
    more = len(rows) > query.limit
    return Page(items=items, next_after=items[-1].name if more else None)


@router.get("/devices/{device}")
async def get_device(access: Reader, device: str, response: Response) -> Device:
    """Return one device by its id or its name."""
    async with access.hub.database.read() as session:
        row = await find(session, access.site, device)
        response.headers["ETag"] = etag(row.revision)
        return (await with_conditions(session, [row]))[0]


@router.patch("/devices/{device}")
async def patch_device(
    access: Writer,
    device: str,
    patch: DevicePatch,
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> Device:
    """Record what the device was built as. The same record again changes nothing. If-Match is optional."""
    async with access.hub.database.write() as session:
        row = await find(session, access.site, device, lock=True)
        check_if_match(if_match, row.revision, required=False)
        changed = {
            name: getattr(patch, name) for name in patch.model_fields_set if getattr(patch, name) != getattr(row, name)
        }
        if changed:
            for name, value in changed.items():
                setattr(row, name, value)
            row.revision += 1
            row.updated_at, row.updated_by = access.hub.now(), access.who
        response.headers["ETag"] = etag(row.revision)
        return (await with_conditions(session, [row]))[0]


async def find(session: AsyncSession, site: str, device: str, *, lock: bool = False) -> DeviceRow:
    """Return a site's device by id, else by name whatever its case.

    Raises:
        Problem: 404.
    """
    for matches in (DeviceRow.id == device, DeviceRow.name_key == name_key(device)):
        found = select(DeviceRow).where(DeviceRow.site == site, matches)
        row = await session.scalar(found.with_for_update() if lock else found)
        if row is not None:
            return row
    raise not_found(f"Site {site!r} has no device of id or name {device!r}.")


async def with_conditions(session: AsyncSession, rows: list[DeviceRow]) -> list[Device]:
    """Return the devices of some rows, each with its conditions by type."""
    found: dict[str, list[Condition]] = {row.id: [] for row in rows}
    of_these = select(ConditionRow).where(ConditionRow.device_id.in_(list(found))).order_by(ConditionRow.type)
    for condition in await session.scalars(of_these):
        found[condition.device_id].append(Condition.model_validate(columns(condition)))
    return [Device(**columns(row), conditions=tuple(found[row.id])) for row in rows]


def _filtered(site: str, query: DeviceQuery) -> Select[DeviceRow]:
    statement = select(DeviceRow).where(DeviceRow.site == site, DeviceRow.name_key > name_key(query.after))
    if query.name is not None:
        statement = statement.where(DeviceRow.name_key == name_key(query.name))
    if query.slurm_node is not None:
        statement = statement.where(DeviceRow.node_key == name_key(query.slurm_node))
    if query.role is not None:
        statement = statement.where(DeviceRow.role == query.role)
    if query.server_id is not None:
        statement = statement.where(DeviceRow.server_id == query.server_id)
    return statement.order_by(DeviceRow.name_key).limit(query.limit + 1)
