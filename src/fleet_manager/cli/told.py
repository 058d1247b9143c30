"""What an operator can mend is told in a sentence, not in a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError

from fleet_manager.core.clients.errors import ClientError
from fleet_manager.settings.temporal import TemporalSettings

PREFIXES = {
    "FleetManagerSettings": "FLEET_MANAGER__",
    "SlurmSettings": "FLEET_SLURM__",
    "SiteSettings": "FLEET_SITE__",
    "NovaSettings": "FLEET_NOVA__",
    "TemporalSettings": "FLEET_TEMPORAL__",
}
"""Settings class -> how its fields begin in the environment."""


@contextmanager
def told() -> Iterator[None]:
    """Turn a missing setting, a peer that does not answer or a refusal into a line and an exit code.

    2: a setting is missing or wrong; 1: a peer said no or cannot be reached.
    """
    try:
        yield
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            name = PREFIXES.get(error.title, f"{error.title}: ") + "__".join(str(part).upper() for part in item["loc"])
            typer.echo(f"{name}: {item['msg']}", err=True)
        typer.echo("Settings come from the environment; of the lab: . .lab/site/state/env", err=True)
        raise typer.Exit(2) from None
    except ClientError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    except RuntimeError as error:  # what the Temporal SDK raises when nobody answers
        if "connect" not in str(error).lower():
            raise
        address = TemporalSettings().address
        typer.echo(f"Temporal does not answer at {address}; it is set by FLEET_TEMPORAL__ADDRESS", err=True)
        raise typer.Exit(1) from None
