"""`python -m fleet_manager.hub`: serve the hub, seed it, and handle its keys. Settings: FLEET_HUB__... ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from fleet_manager.hub import keys
from fleet_manager.hub.database import Database
from fleet_manager.hub.keys import KeyFileError
from fleet_manager.hub.roster import RosterError
from fleet_manager.hub.seed import SeedError, read_file, seed
from fleet_manager.hub.server import serve
from fleet_manager.hub.state import utc_now
from fleet_manager.settings.hub import HubSettings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)


def _stop(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(2)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what an operator can mend into a sentence and exit code 2."""
    try:
        yield
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            name = "FLEET_HUB__" + "__".join(str(part).upper() for part in item["loc"])
            typer.echo(f"{name if item['loc'] else 'settings'}: {item['msg']}", err=True)
        raise typer.Exit(2) from error
    except (RosterError, KeyFileError, SeedError) as error:
        _stop(str(error))
    except SQLAlchemyError as error:
        _stop(f"the database refused or does not answer ({type(error).__name__}); see FLEET_HUB__DATABASE_URL")


@app.command("serve")
def serve_command() -> None:
    """Serve the hub until SIGTERM; migrations run first."""
    with _told():
        raise typer.Exit(serve(HubSettings()))


@app.command("seed")
def seed_command(file: Annotated[Path, typer.Argument(help="JSON file of sites and devices.")]) -> None:
    """Make the sites and devices of FILE; safe to repeat, also while the hub runs."""
    with _told():
        done = asyncio.run(_seed(HubSettings(), file))
        typer.echo(", ".join(f"{count} {what}" for what, count in sorted(done.items())) or "nothing in the file")


async def _seed(settings: HubSettings, path: Path) -> dict[str, int]:
    file = read_file(path)
    database = Database(settings.sqlalchemy_url)
    try:
        await database.migrate()
        return await seed(database, file, utc_now())
    finally:
        await database.close()


@app.command("migrate")
def migrate_command() -> None:
    """Bring the database to the newest schema, as `serve` does at its start."""
    with _told():
        asyncio.run(_migrate(HubSettings()))
        typer.echo("the schema is the newest")


async def _migrate(settings: HubSettings) -> None:
    database = Database(settings.sqlalchemy_url)
    try:
        await database.migrate()
    finally:
        await database.close()


@app.command("rotate-key")
def rotate_key_command() -> None:
    """Make a new signing key; tokens of the present one stay good. Restart the hub to use it."""
    with _told():
        typer.echo(f"new signing key {keys.rotate(HubSettings().state_dir).current.kid}; restart the hub")


@app.command("make-key")
def make_key_command(
    path: Annotated[Path, typer.Argument(help="Where the private key goes (PEM, mode 0600).")],
) -> None:
    """Make a client's key pair; prints the public half as it goes into the roster's `keys`."""
    private = ec.generate_private_key(ec.SECP256R1())
    try:
        keys.write_private_pem(path, private)
    except FileExistsError:
        _stop(f"{path} is there already; a key is never written over")
    except OSError as error:
        _stop(f"cannot write {path}: {error.strerror}")
    typer.echo(json.dumps(keys.public_jwk(private.public_key())))


if __name__ == "__main__":
    app()
