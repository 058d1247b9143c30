"""`fleet-manager`: the command line of HPC engineers and SREs, and how the services start. One module a noun."""

from __future__ import annotations

import typer

from fleet_manager.cli import adopt, devices, temporal, worker

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False, help=__doc__)
app.command("adopt")(adopt.adopt)
app.add_typer(devices.app, name="devices")
app.add_typer(temporal.app, name="temporal")
app.add_typer(worker.app, name="worker")

if __name__ == "__main__":
    app()
