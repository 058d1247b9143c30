"""Who may do what at a site: the dependency that every route of the API names its scope with.

A site that the caller may not see and a site that does not exist get the same answer, so that nothing of another
site can be learned, not even that it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Request, Security
from fastapi.openapi.models import OAuthFlowClientCredentials, OAuthFlows
from fastapi.security import OAuth2, SecurityScopes

from fleet_manager.hub.middleware import REALM
from fleet_manager.hub.oauth_routes import TOKEN_PATH
from fleet_manager.hub.problems import Problem, not_found
from fleet_manager.hub.scopes import ALL_SCOPES, Scope
from fleet_manager.hub.state import Hub, hub_of
from fleet_manager.hub.tables import Site
from fleet_manager.hub.tokens import Principal

_SCHEME = OAuth2(
    flows=OAuthFlows(
        clientCredentials=OAuthFlowClientCredentials(tokenUrl=TOKEN_PATH, scopes={name: name for name in ALL_SCOPES})
    ),
    scheme_name="fleet-manager",
    description="client_credentials with private_key_jwt",
    auto_error=False,
)
"""For the API's description only; the token was read by the middleware before the body."""


@dataclass(frozen=True)
class Access:
    """A caller with the right to what the route does, at a site that exists."""

    hub: Hub
    principal: Principal
    site: str

    @property
    def who(self) -> str:
        return self.principal.client_id

    def has(self, scope: Scope) -> bool:
        return scope in self.principal.scopes


async def check_access(
    request: Request,
    needed: SecurityScopes,
    site_id: Annotated[str, Path(max_length=63)],
    _token: Annotated[str | None, Security(_SCHEME)] = None,
) -> Access:
    """Return the caller's access, or refuse: 404 for the site, then 403 for the scope."""
    hub, principal = hub_of(request), request.state.principal
    if not principal.may_see(site_id) or not await _site_exists(hub, site_id):
        raise not_found(f"There is no site {site_id!r} that this client may see.")
    lacking = [scope for scope in needed.scopes if scope not in principal.scopes]
    if lacking:
        raise forbidden(principal, " ".join(lacking))
    return Access(hub, principal, site_id)


def forbidden(principal: Principal, scope: str) -> Problem:
    """Return the 403 that names the scope which is needed."""
    return Problem(
        HTTPStatus.FORBIDDEN,
        "insufficient-scope",
        f"This needs the scope {scope}, which the token of {principal.client_id} does not have.",
        headers={"WWW-Authenticate": f'{REALM}, error="insufficient_scope", scope="{scope}"'},
        scope=scope,
    )


async def _site_exists(hub: Hub, site_id: str) -> bool:
    async with hub.database.read() as session:
        return await session.get(Site, site_id) is not None
