"""`fleet-manager temporal`: make a Temporal namespace fit for us."""

from __future__ import annotations

import asyncio

import typer

from fleet_manager.cli.told import told
from fleet_manager.settings.temporal import TemporalSettings
from fleet_manager.temporal.client import prepare_namespace

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.callback()
def temporal() -> None:
    """Keep `temporal` a group: more commands come."""


@app.command("bootstrap")
def bootstrap() -> None:
    """Make the namespace and the search attributes that are missing. Safe to repeat."""
    settings = TemporalSettings()
    with told():
        made = asyncio.run(prepare_namespace(settings))
    for what in made:
        typer.echo(f"made {what}")
    if not made:
        typer.echo(f"namespace {settings.namespace} at {settings.address} has everything already")
