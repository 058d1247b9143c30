"""Serve the hub until SIGTERM or SIGINT: open requests get the settings' grace, then the process ends with 0."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from fleet_manager.hub import logs
from fleet_manager.hub.app import create_app
from fleet_manager.settings.hub import HubSettings


class _Server(uvicorn.Server):
    """uvicorn without its habit of raising the signal again once it has stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.should_exit = True


def serve(settings: HubSettings) -> int:
    """Serve until told to stop; returns the exit code, 3 when the start failed (uvicorn has logged why)."""
    app = create_app(settings)
    logs.configure(settings.log_format, settings.log_level)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace.total_seconds()),
    )
    server = _Server(config)
    asyncio.run(server.serve())
    return 0 if server.started else 3
