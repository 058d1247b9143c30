"""`fleet-manager adopt`: turn devices into SLURM nodes, and wait for the verdicts."""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import quote

import typer
from pydantic import ValidationError
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError

from fleet_manager.cli.told import told
from fleet_manager.settings.temporal import TemporalSettings
from fleet_manager.temporal.client import connect, is_served
from fleet_manager.temporal.contracts import adopt as contract
from fleet_manager.temporal.contracts.common import task_queue


def adopt(
    devices: Annotated[list[str], typer.Argument(help="Devices by name or id.")],
    site: Annotated[str, typer.Option(envvar="FLEET_SITE__ID", help="Site's id.")],
    burn_in: Annotated[str, typer.Option(help="Burn-in suite.")] = "smoke",
    force_rebuild: Annotated[bool, typer.Option(help="Build anew although everything matches.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the end.")] = True,
) -> None:
    """Start or join the adoption of each device. Exit code 1 if any did not pass, 2 for a bad input."""
    try:
        inputs = [
            contract.AdoptInput(site=site, device=device, burn_in=burn_in, force_rebuild=force_rebuild)
            for device in devices
        ]
    except ValidationError as error:
        for item in error.errors(include_url=False):
            typer.echo(item["msg"].removeprefix("Value error, "), err=True)
        raise typer.Exit(2) from None
    with told():
        passed = asyncio.run(_adopt_all(inputs, wait=wait))
    if not passed:
        raise typer.Exit(1)


async def _adopt_all(inputs: list[contract.AdoptInput], *, wait: bool) -> bool:
    settings = TemporalSettings()
    client = await connect(settings)
    for site in {one.site for one in inputs}:
        if not await is_served(client, task_queue(site)):
            typer.echo(f"no worker serves site {site}: start one there, or correct --site", err=True)
            raise typer.Exit(2)
    handles = [await _start(client, one) for one in inputs]
    for one, handle in zip(inputs, handles, strict=True):
        typer.echo(f"{one.device}: {link(settings, handle.id)}")
    if not wait:
        return True
    return all(await asyncio.gather(*(_follow(one, handle) for one, handle in zip(inputs, handles, strict=True))))


async def _start(client: Client, one: contract.AdoptInput) -> WorkflowHandle[object, contract.AdoptResult]:
    return await client.start_workflow(
        contract.WORKFLOW,
        one,
        id=contract.workflow_id(one.site, one.device),
        task_queue=task_queue(one.site),
        # asked twice at once is one adoption: the second caller follows the first one's
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"adopt {one.device}",
        result_type=contract.AdoptResult,
    )


async def _follow(one: contract.AdoptInput, handle: WorkflowHandle[object, contract.AdoptResult]) -> bool:
    try:
        result = await handle.result()
    except WorkflowFailureError as error:
        cause = error.cause
        kind = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
        text = cause.message if isinstance(cause, ApplicationError) else str(cause)
        typer.echo(f"{one.device}: {kind}: {text}", err=True)
        return False
    held = f", held by {'; '.join(result.held_by)}" if result.held_by else ""
    typer.echo(f"{one.device}: {result.outcome}{held}: server {result.server_id} ({result.way}), {result.evidence}")
    for note in result.notes:
        typer.echo(f"{one.device}: note: {note}", err=True)
    return True


def link(settings: TemporalSettings, workflow_id: str) -> str:
    """Return where the Temporal UI shows a workflow."""
    return f"{settings.ui_url}/namespaces/{settings.namespace}/workflows/{quote(workflow_id, safe='')}"
