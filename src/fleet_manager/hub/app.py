"""The hub's application: `create_app(settings)`. Wiring only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import APIRouter, FastAPI, Request

from fleet_manager.hub import bootstrap_configs, conditions, devices, oauth_routes, problems
from fleet_manager.hub.middleware import BearerToken, BodyLimit, RequestLog
from fleet_manager.hub.problems import Problem
from fleet_manager.hub.state import Now, build, hub_of, utc_now
from fleet_manager.settings.hub import HubSettings

_log = logging.getLogger(__name__)

health = APIRouter(tags=["health"])


@health.get("/healthz")
async def healthz() -> dict[str, str]:
    """Tell that the process answers."""
    return {"status": "ok"}


@health.get("/readyz")
async def readyz(request: Request) -> dict[str, str]:
    """Tell that the database answers too."""
    try:
        await hub_of(request).database.ping()
    except Exception as error:
        _log.error("the database does not answer", exc_info=error)
        detail = "The hub's database does not answer."
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "database", detail, headers={"Retry-After": "2"}) from None
    return {"status": "ok"}


def create_app(settings: HubSettings, *, now: Now = utc_now) -> FastAPI:
    """Build the hub's application; its start runs the migrations.

    Raises:
        RosterError: the roster cannot be used.
        KeyFileError: the signing key cannot be used.
    """
    hub = build(settings, now)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await hub.database.migrate()
        _log.info("hub is ready", extra={"issuer": settings.issuer_id})
        yield
        await hub.database.close()

    app = FastAPI(
        title="Fleet Manager hub",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # the page would load its script from a public host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.hub = hub
    problems.install(app)
    for router in (oauth_routes.router, devices.router, conditions.router, bootstrap_configs.router, health):
        app.include_router(router)
    app.add_middleware(BearerToken, hub=hub)  # the last one added is the first one passed
    app.add_middleware(BodyLimit, hub=hub)
    app.add_middleware(RequestLog)
    return app
