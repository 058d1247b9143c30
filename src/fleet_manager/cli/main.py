"""`fleet-manager`: the command line of HPC engineers and SREs, and how the services start. One module a noun."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from fleet_manager.cli import adopt, devices, temporal, worker

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False, help=__doc__)
app.command("adopt")(adopt.adopt)
app.add_typer(devices.app, name="devices")
app.add_typer(temporal.app, name="temporal")
app.add_typer(worker.app, name="worker")


def main() -> NoReturn:
    """Run the command line.

    The process ends without the interpreter's own tear-down: Temporal's client has threads of its own that may call
    into Python at that moment, which aborts a command that has done its work (temporalio/sdk-python issue 300; seen
    here on a busy machine).
    """
    code: object = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
