"""`fleet-manager devices`: what the hub knows of a site's machines."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from fleet_manager.cli.told import told
from fleet_manager.core.clients.fleet_manager import FleetManagerClient
from fleet_manager.core.clients.oauth import PrivateKeyJwtAuth
from fleet_manager.core.domain.device import Device
from fleet_manager.settings.clients.fleet_manager import FleetManagerSettings

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.callback()
def devices() -> None:
    """Keep `devices` a group: more commands come."""


@app.command("list")
def list_devices(
    site: Annotated[str, typer.Option(envvar="FLEET_SITE__ID", help="Site's id.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs: everything that the hub says.")] = False,
) -> None:
    """List the devices of a site."""
    with told():
        found = asyncio.run(_read(site))
    if as_json:
        typer.echo(TypeAdapter(tuple[Device, ...]).dump_json(found, indent=2).decode())
        return
    table = Table("device", "role", "machine", "server", "build", "config", title=f"devices of site {site}")
    for device in found:
        revision = "-" if device.config_revision is None else str(device.config_revision)
        table.add_row(
            device.name,
            device.role,
            device.hypervisor_hostname or "-",
            device.server_id or "-",
            device.build_id or "-",
            revision,
        )
    Console(width=150).print(table)


async def _read(site: str) -> tuple[Device, ...]:
    settings = FleetManagerSettings()
    auth = PrivateKeyJwtAuth.from_settings(settings, ["device:read"])
    async with FleetManagerClient(settings, auth=auth) as hub:
        return await hub.list_devices(site)
