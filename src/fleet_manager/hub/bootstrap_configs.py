"""SLURM bootstrap configurations over the API: HPC writes them, adoption reads one by its role.

User-data is given only to `slurm-bootstrap-config:read`, one row at a time; every other answer has its digest. What
the user-data must hold is the domain's rule, asked on every write. A change needs If-Match, because two people who
edit the same user-data would otherwise undo each other unseen.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Header, Query, Response, Security
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from fleet_manager.core.domain.slurm_bootstrap_config import (
    MAX_USER_DATA_CHARS,
    check_features,
    check_gres,
    check_user_data,
    without_breaks,
)
from fleet_manager.hub.access import Access, check_access
from fleet_manager.hub.etags import check_if_match, etag
from fleet_manager.hub.problems import Problem, invalid, not_found
from fleet_manager.hub.schemas import ConfigCreate, ConfigOut, ConfigPatch, ConfigQuery, ConfigWithUserData, Page
from fleet_manager.hub.scopes import Scope
from fleet_manager.hub.tables import ConfigRow, columns

router = APIRouter(prefix="/api/v1/sites/{site_id}", tags=["SLURM bootstrap configurations"])

Reader = Annotated[Access, Security(check_access, scopes=[Scope.CONFIG_READ])]
Creator = Annotated[Access, Security(check_access, scopes=[Scope.CONFIG_CREATE])]
Updater = Annotated[Access, Security(check_access, scopes=[Scope.CONFIG_UPDATE])]


@router.get("/slurm-bootstrap-configs/")
@router.get("/slurm-bootstrap-configs", include_in_schema=False)
async def list_configs(access: Reader, query: Annotated[ConfigQuery, Query()]) -> Page[ConfigOut]:
    """List the site's configurations by device role, without user-data."""
    statement = select(ConfigRow).where(ConfigRow.site == access.site, ConfigRow.device_role > query.after)
    if query.device_role is not None:
        statement = statement.where(ConfigRow.device_role == query.device_role)
    async with access.hub.database.read() as session:
        found = (await session.scalars(statement.order_by(ConfigRow.device_role).limit(query.limit + 1))).all()
    items = [_without_user_data(row) for row in found[: query.limit]]
    return Page(items=items, next_after=items[-1].device_role if len(found) > query.limit else None)


@router.post("/slurm-bootstrap-configs/", status_code=HTTPStatus.CREATED)
@router.post("/slurm-bootstrap-configs", status_code=HTTPStatus.CREATED, include_in_schema=False)
async def create_config(access: Creator, body: ConfigCreate, response: Response) -> ConfigWithUserData | ConfigOut:
    """Make the configuration of a device role, which has at most one at a site."""
    values = body.model_dump()
    _check(access, values)
    now = access.hub.now()
    row = ConfigRow(
        **_stored(values),
        id=str(uuid4()),
        site=access.site,
        revision=1,
        created_at=now,
        created_by=access.who,
        updated_at=now,
        updated_by=access.who,
    )
    try:
        async with access.hub.database.write() as session:
            session.add(row)
    except IntegrityError as error:
        raise await _exists_already(access, body.device_role) from error
    response.headers["Location"] = f"/api/v1/sites/{access.site}/slurm-bootstrap-configs/{row.id}"
    response.headers["ETag"] = etag(row.revision)
    return _told(access, row)


@router.get("/slurm-bootstrap-configs/{config}")
async def get_config(access: Reader, config: str, response: Response) -> ConfigWithUserData:
    """Return one configuration, by its id or its device role, with its user-data."""
    async with access.hub.database.read() as session:
        row = await _find(session, access.site, config)
    response.headers["ETag"] = etag(row.revision)
    response.headers["Cache-Control"] = "no-store"
    return _with_user_data(row)


@router.patch("/slurm-bootstrap-configs/{config}")
async def patch_config(
    access: Updater,
    config: str,
    body: ConfigPatch,
    response: Response,
    if_match: Annotated[str | None, Header()] = None,
) -> ConfigWithUserData | ConfigOut:
    """Change the fields that are given; the revision grows by one unless nothing differs."""
    values = body.model_dump(include=body.model_fields_set)
    _check(access, values)
    async with access.hub.database.write() as session:
        row = await _find(session, access.site, config, lock=True)
        check_if_match(if_match, row.revision, required=True)
        changed = {name: value for name, value in _stored(values).items() if value != getattr(row, name)}
        if changed:
            for name, value in changed.items():
                setattr(row, name, value)
            row.revision += 1
            row.updated_at, row.updated_by = access.hub.now(), access.who
    response.headers["ETag"] = etag(row.revision)
    return _told(access, row)


def _check(access: Access, values: Mapping[str, Any]) -> None:
    """Refuse values that the domain's rules refuse, with every sentence at once."""
    sentences = [*check_features(tuple(values.get("features", ()))), *check_gres(values.get("gres", ""))]
    allowed: dict[str, Any] = {}
    if "user_data" in values:
        reason = access.hub.settings.birth_reason
        wrong = check_user_data(values["user_data"], reason)
        sentences += wrong
        if wrong:
            allowed = {"user_data": {"max_base64_characters": MAX_USER_DATA_CHARS, "conf": _conf(reason)}}
    if sentences:
        raise invalid(sentences, allowed)


def _conf(birth_reason: str) -> str:
    return f'State=DRAIN Reason="{birth_reason}"'


def _stored(values: Mapping[str, Any]) -> dict[str, Any]:
    stored = dict(values)
    if "user_data" in stored:
        stored["user_data"] = base64.b64decode(without_breaks(stored["user_data"]), validate=True)
    return stored


async def _find(session: AsyncSession, site: str, config: str, *, lock: bool = False) -> ConfigRow:
    for matches in (ConfigRow.id == config, ConfigRow.device_role == config):
        found = select(ConfigRow).where(ConfigRow.site == site, matches)
        row = await session.scalar(found.with_for_update() if lock else found)
        if row is not None:
            return row
    raise not_found(
        f"Site {site!r} has no SLURM bootstrap configuration of id or device role {config!r}; "
        f"make one with POST /api/v1/sites/{site}/slurm-bootstrap-configs/ (scope {Scope.CONFIG_CREATE})."
    )


async def _exists_already(access: Access, device_role: str) -> Problem:
    async with access.hub.database.read() as session:
        row = await _find(session, access.site, device_role)
    detail = (
        f"Site {access.site!r} has a configuration of device role {device_role!r} already, at revision {row.revision}; "
        f"change it with PATCH /api/v1/sites/{access.site}/slurm-bootstrap-configs/{row.id}."
    )
    return Problem(HTTPStatus.CONFLICT, "exists", detail, existing_id=row.id, revision=row.revision)


def _without_user_data(row: ConfigRow) -> ConfigOut:
    return ConfigOut.model_validate(_facts(row))


def _with_user_data(row: ConfigRow) -> ConfigWithUserData:
    return ConfigWithUserData.model_validate({**_facts(row), "user_data": base64.b64encode(row.user_data).decode()})


def _facts(row: ConfigRow) -> dict[str, Any]:
    facts = columns(row)
    raw = facts.pop("user_data")
    return {**facts, "user_data_sha256": hashlib.sha256(raw).hexdigest(), "user_data_bytes": len(raw)}


def _told(access: Access, row: ConfigRow) -> ConfigWithUserData | ConfigOut:
    """Return what the writer may read: who may not read user-data is not given back his own either."""
    return _with_user_data(row) if access.has(Scope.CONFIG_READ) else _without_user_data(row)
