"""The authorization server: RFC 8414 metadata, JWKS, and tokens for client_credentials by private_key_jwt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError

from fleet_manager.hub import assertions
from fleet_manager.hub.assertions import OAuthError, VerifiedAssertion
from fleet_manager.hub.roster import Client
from fleet_manager.hub.scopes import ALL_SCOPES, Scope
from fleet_manager.hub.state import Hub, hub_of
from fleet_manager.hub.tables import UsedAssertion

METADATA_PATH = "/.well-known/oauth-authorization-server"
JWKS_PATH = "/oauth/jwks"
TOKEN_PATH = "/oauth/token"  # noqa: S105 - a path

router = APIRouter(tags=["oauth"])


@router.get(METADATA_PATH)
async def metadata(request: Request) -> dict[str, Any]:
    """Say where the endpoints are and what they take (RFC 8414)."""
    issuer = hub_of(request).settings.issuer_id
    return {
        "issuer": issuer,
        "token_endpoint": issuer + TOKEN_PATH,
        "jwks_uri": issuer + JWKS_PATH,
        "response_types_supported": [],
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["private_key_jwt"],
        "token_endpoint_auth_signing_alg_values_supported": list(assertions.ALGORITHMS),
        "scopes_supported": list(ALL_SCOPES),
    }


@router.get(JWKS_PATH)
async def jwks(request: Request) -> dict[str, Any]:
    """Publish the public keys of the access tokens."""
    return hub_of(request).keys.jwks()


@router.post(TOKEN_PATH)
async def token(request: Request) -> JSONResponse:
    """Give an access token for a client assertion. The form is application/x-www-form-urlencoded (RFC 6749 4.4)."""
    hub = hub_of(request)
    try:
        form = _form(request.headers.get("content-type", ""), await request.body())
        verified = _authenticate(hub, form)
        scopes = _scopes(form.get("scope"), verified.client)
        await _use_once(hub, verified)
    except OAuthError as error:
        body = {"error": error.code, "error_description": error.description}
        return _answer(body, int(error.status))
    return _answer(
        {
            "access_token": hub.tokens.issue(verified.client, scopes, hub.now()),
            "token_type": "Bearer",
            "expires_in": int(hub.settings.access_token_ttl.total_seconds()),
            "scope": " ".join(sorted(scopes)),
        }
    )


def _answer(body: Mapping[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(dict(body), status, headers={"Cache-Control": "no-store", "Pragma": "no-cache"})


def _form(content_type: str, body: bytes) -> dict[str, str]:
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "send application/x-www-form-urlencoded")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=False, max_num_fields=20)
    except ValueError as error:
        raise OAuthError("invalid_request", "the form cannot be read") from error
    if any(len(values) > 1 for values in fields.values()):
        raise OAuthError("invalid_request", "a parameter is there twice")
    return {name: values[0] for name, values in fields.items()}


def _authenticate(hub: Hub, form: Mapping[str, str]) -> VerifiedAssertion:
    grant = form.get("grant_type")
    if grant is None:
        raise OAuthError("invalid_request", "grant_type is missing; it must be client_credentials")
    if grant != "client_credentials":
        raise OAuthError("unsupported_grant_type", "grant_type must be client_credentials")
    if form.get("client_assertion_type") != assertions.ASSERTION_TYPE:
        raise assertions.invalid_client(f"client_assertion_type must be {assertions.ASSERTION_TYPE}")
    if "client_assertion" not in form:
        raise assertions.invalid_client("client_assertion is missing; this server takes private_key_jwt only")
    settings = hub.settings
    verified = assertions.verify(
        form["client_assertion"],
        roster=hub.roster,
        issuer=settings.issuer_id,
        now=hub.now(),
        max_ttl=settings.assertion_max_ttl,
        leeway=settings.clock_leeway,
    )
    if form.get("client_id", verified.client.client_id) != verified.client.client_id:
        raise assertions.invalid_client("client_id is not the assertion's sub")
    return verified


def _scopes(asked: str | None, client: Client) -> frozenset[Scope]:
    """Return the scopes asked for, or all of the client's when none are; one that it does not have refuses all."""
    if asked is None:
        return client.scopes
    names = frozenset(asked.split())
    if not names or not names <= client.scopes:
        has = " ".join(sorted(client.scopes))
        raise OAuthError("invalid_scope", f"the client has only these scopes: {has}")
    return frozenset(Scope(name) for name in names)


async def _use_once(hub: Hub, verified: VerifiedAssertion) -> None:
    """Record the jti until the assertion has expired; the database refuses the second of two at once."""
    row = UsedAssertion(client_id=verified.client.client_id, jti=verified.jti, expires_at=verified.expires_at)
    try:
        async with hub.database.write() as session:
            await session.execute(delete(UsedAssertion).where(UsedAssertion.expires_at < hub.now()))
            session.add(row)
    except IntegrityError as error:
        raise assertions.invalid_client("this assertion was used before; make one for each request") from error
