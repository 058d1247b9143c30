"""Make the sites and devices of a JSON file, until the hub is their full authority. Safe to repeat.

    {"sites": [{"id": "ams1"}],
     "devices": [{"site": "ams1", "name": "gpu-001", "role": "gpu-h100", "hypervisor_hostname": "cmp-001"}]}

What the file says of a device's role, SLURM name and hypervisor is written over what is there. `id`, `server_id`,
`build_id` and `config_revision` are taken only when the device is made: later they belong to the workflows. A device
that is not in the file stays.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from fleet_manager.core.domain.device import SITE_PATTERN, name_key
from fleet_manager.hub.database import Database
from fleet_manager.hub.schemas import Name, Token64
from fleet_manager.hub.tables import DeviceRow, Site

WRITER = "seed"

SiteId = Annotated[str, StringConstraints(pattern=SITE_PATTERN)]
DeviceId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,36}$")]


class SeedError(ValueError):
    """The file cannot be taken; the sentence says where and why. Nothing was written."""


class SeedSite(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: SiteId


class SeedDevice(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    site: SiteId
    name: Name
    role: Name
    id: DeviceId | None = None
    slurm_node: Name | None = None
    hypervisor_hostname: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    server_id: Token64 | None = None
    build_id: Token64 | None = None
    config_revision: int | None = None


class SeedFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    sites: tuple[SeedSite, ...] = ()
    devices: tuple[SeedDevice, ...] = ()


def read_file(path: Path) -> SeedFile:
    """Read a seed file.

    Raises:
        SeedError: it is not there, not JSON, or breaks a rule.
    """
    try:
        return SeedFile.model_validate(json.loads(path.read_text()))
    except OSError as error:
        raise SeedError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise SeedError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        raise SeedError(f"{path}: {'.'.join(str(part) for part in item['loc'])}: {item['msg']}") from error


async def seed(database: Database, file: SeedFile, now: datetime) -> Counter[str]:
    """Bring sites and devices to what the file says, all or nothing.

    Returns:
        How many were "site created", "device created", "device updated", "device unchanged".

    Raises:
        SeedError: a site that is not there, or a name or SLURM node that another device of the site has.
    """
    done: Counter[str] = Counter()
    try:
        async with database.write() as session:
            for site in file.sites:
                if await session.get(Site, site.id) is None:
                    session.add(Site(id=site.id, created_at=now))
                    done["site created"] += 1
            await session.flush()
            for device in file.devices:
                done[await _seed_device(session, device, now)] += 1
                await session.flush()
    except IntegrityError as error:
        raise SeedError(
            "two devices of a site share an id, a name or a SLURM node name (whatever the case); name each once"
        ) from error
    return done


async def _seed_device(session: AsyncSession, device: SeedDevice, now: datetime) -> str:
    if await session.get(Site, device.site) is None:
        raise SeedError(f"device {device.name!r} is of site {device.site!r}, which is neither known nor in the file")
    here = select(DeviceRow).where(DeviceRow.site == device.site, DeviceRow.name_key == name_key(device.name))
    row = await session.scalar(here.with_for_update())
    wanted = {
        "name": device.name,
        "role": device.role,
        "slurm_node": device.slurm_node,
        "node_key": name_key(device.slurm_node or device.name),
        "hypervisor_hostname": device.hypervisor_hostname,
    }
    if row is None:
        made = device.model_dump(include={"site", "server_id", "build_id", "config_revision"})
        stamps = {"revision": 1, "created_at": now, "updated_at": now, "updated_by": WRITER}
        key = name_key(device.name)
        session.add(DeviceRow(**wanted, **made, **stamps, name_key=key, id=device.id or str(uuid4())))
        return "device created"
    if device.id not in (None, row.id):
        raise SeedError(f"device {device.name!r} of site {device.site!r} has id {row.id} already; an id never changes")
    changed = {name: value for name, value in wanted.items() if getattr(row, name) != value}
    if not changed:
        return "device unchanged"
    for name, value in changed.items():
        setattr(row, name, value)
    row.revision += 1
    row.updated_at, row.updated_by = now, WRITER
    return "device updated"
