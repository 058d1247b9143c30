"""Check a client assertion (private_key_jwt, RFC 7521 and 7523) against the roster. Says who it is, or refuses.

Everything is compared with what the roster and the settings say, never with what the assertion claims about itself:
the algorithm is the key's own, the audience is the issuer identifier letter by letter. What cannot be verified gets
one sentence for every cause; the hub's log names the cause.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import jwt
from jwt.api_jws import PyJWS

from fleet_manager.hub.roster import Client, Roster

ALGORITHMS = ("ES256", "EdDSA", "RS256")
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_ASSERTION_CHARS = 8192
MAX_JTI_CHARS = 128

_TYPES = (None, "JWT", "client-authentication+jwt")
_UNVERIFIED = "the assertion is not signed by a key that the roster has for its client (client id, kid, alg, signature)"

_log = logging.getLogger(__name__)


class OAuthError(Exception):
    """An error answer of RFC 6749 section 5.2."""

    def __init__(self, code: str, description: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.status = status


@dataclass(frozen=True)
class VerifiedAssertion:
    """Who signed it, and what makes it unique until it expires."""

    client: Client
    jti: str
    expires_at: datetime


def invalid_client(description: str) -> OAuthError:
    return OAuthError("invalid_client", description, HTTPStatus.UNAUTHORIZED)


def verify(
    assertion: str, *, roster: Roster, issuer: str, now: datetime, max_ttl: timedelta, leeway: timedelta
) -> VerifiedAssertion:
    """Return whose assertion it is.

    The caller still has to refuse a jti that was used before.

    Raises:
        OAuthError: invalid_client, with the claim that is wrong and what it must be.
    """
    client, claims = _verified_claims(assertion, roster)
    if claims.get("iss") != client.client_id or claims.get("sub") != client.client_id:
        raise invalid_client("iss and sub must both be the client id")
    if claims.get("aud") not in (issuer, [issuer]):
        raise invalid_client(f"aud must be the issuer identifier {issuer} and nothing else")
    jti = claims.get("jti")
    if not isinstance(jti, str) or not 1 <= len(jti) <= MAX_JTI_CHARS:
        raise invalid_client(f"jti must be a text of 1 to {MAX_JTI_CHARS} characters, new for each assertion")
    expires_at = _check_times(claims, now, max_ttl, leeway)
    return VerifiedAssertion(client, jti, expires_at + leeway)


def _verified_claims(assertion: str, roster: Roster) -> tuple[Client, dict[str, Any]]:
    """Return the client that the assertion names and its claims, once its signature is known to be the client's."""
    if len(assertion) > MAX_ASSERTION_CHARS:
        raise invalid_client(f"the assertion is longer than {MAX_ASSERTION_CHARS} characters")
    try:
        header = jwt.get_unverified_header(assertion)
        claimed = jwt.decode(assertion, options={"verify_signature": False}).get("sub")
    except jwt.PyJWTError as error:
        raise invalid_client("the assertion is not a JWT") from error
    if header.get("alg") not in ALGORITHMS:
        raise invalid_client(f"alg must be one of {', '.join(ALGORITHMS)}")
    if header.get("typ") not in _TYPES or "crit" in header:
        raise invalid_client("the header's typ must be JWT or client-authentication+jwt, and it may hold no crit")
    if not isinstance(header.get("kid"), str):
        raise invalid_client("the header must hold the kid of the key that signed")
    client = roster.get(claimed) if isinstance(claimed, str) else None
    if client is None:
        raise _unverified("no such client in the roster", claimed)
    algorithm, key = client.keys.get(header["kid"], ("", None))
    if algorithm != header["alg"]:
        raise _unverified("the client has no key of that kid and alg", client.client_id)
    try:
        payload = PyJWS().decode(assertion, key, algorithms=[algorithm])
    except jwt.PyJWTError as error:
        raise _unverified("the signature is not that key's", client.client_id) from error
    claims: dict[str, Any] = json.loads(payload)
    return client, claims


def _unverified(cause: str, claimed: object) -> OAuthError:
    _log.warning("client assertion refused: %s", cause, extra={"claimed_client": str(claimed)[:128]})
    return invalid_client(_UNVERIFIED)


def _check_times(claims: dict[str, Any], now: datetime, max_ttl: timedelta, leeway: timedelta) -> datetime:
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise invalid_client("exp must be there, in seconds since 1970")
    if expires_at + leeway <= now:
        raise invalid_client("exp has passed; make an assertion for each request, and compare the clocks")
    if expires_at > now + max_ttl + leeway:
        raise invalid_client(f"exp must be at most {max_ttl.total_seconds():.0f} s ahead")
    for name in ("iat", "nbf"):
        when = _time(claims, name)
        if when is not None and when > now + leeway:
            raise invalid_client(f"{name} lies in the future; compare the clocks")
    return expires_at


def _time(claims: dict[str, Any], name: str) -> datetime | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_client(f"{name} must be a number of seconds since 1970")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise invalid_client(f"{name} is out of range") from error
