"""Access tokens of the hub: JWTs in the form of RFC 9068, signed by the hub, read only by the hub. Never logged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import jwt
from jwt.api_jws import PyJWS

from fleet_manager.core.domain.device import ANY_SITE
from fleet_manager.hub.keys import SigningKeys
from fleet_manager.hub.roster import Client, Roster
from fleet_manager.hub.scopes import Scope

TOKEN_TYPE = "at+jwt"  # noqa: S105 - the media type, not a secret


class TokenRefused(Exception):
    """The bearer token is not accepted; the sentence says why, without the token."""


@dataclass(frozen=True)
class Principal:
    """Who calls, at which site, with which rights."""

    client_id: str
    site: str
    scopes: frozenset[Scope]

    def may_see(self, site: str) -> bool:
        return self.site in (ANY_SITE, site)


@dataclass(frozen=True)
class TokenService:
    """Issues and reads access tokens."""

    keys: SigningKeys
    roster: Roster
    issuer: str
    audience: str
    ttl: timedelta

    def issue(self, client: Client, scopes: frozenset[Scope], now: datetime) -> str:
        claims = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": client.client_id,
            "client_id": client.client_id,
            "site": client.site,
            "scope": " ".join(sorted(scopes)),
            "iat": int(now.timestamp()),
            "exp": int((now + self.ttl).timestamp()),
            "jti": str(uuid4()),
        }
        key = self.keys.current
        return jwt.encode(claims, key.private, algorithm="ES256", headers={"kid": key.kid, "typ": TOKEN_TYPE})

    def read(self, token: str, now: datetime) -> Principal:
        """Return who a token speaks for.

        A client that was struck off the roster, moved or lost a scope loses it at once, not when its token expires.

        Raises:
            TokenRefused: forged, expired, for somebody else, or of a client that is no longer there.
        """
        claims = self._claims(token)
        if claims.get("iss") != self.issuer or claims.get("aud") != self.audience:
            raise TokenRefused("the token is not for this API")
        if not isinstance(claims.get("exp"), int) or claims["exp"] <= now.timestamp():
            raise TokenRefused("the token has expired")
        client = self.roster.get(str(claims.get("client_id")))
        if client is None or client.site != claims.get("site"):
            raise TokenRefused("the client is no longer in the roster as it was")
        granted = frozenset(scope for scope in client.scopes if scope in str(claims.get("scope", "")).split())
        return Principal(client.client_id, client.site, granted)

    def _claims(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = self.keys.by_kid(str(header.get("kid")))
            if key is None or header.get("typ") != TOKEN_TYPE:
                raise TokenRefused("the token is not one of this hub's")
            payload = PyJWS().decode(token, key.private.public_key(), algorithms=["ES256"])
            claims: dict[str, Any] = json.loads(payload)
            return claims
        except jwt.PyJWTError as error:
            raise TokenRefused("the token is not one of this hub's") from error
