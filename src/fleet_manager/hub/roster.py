"""The roster: which OAuth clients there are, by which public keys, with which scopes, at which site.

A JSON file, so that a chart can render it and nothing parses YAML:

    {"clients": [{"client_id": "slurm-agent-ams1", "site": "ams1", "scopes": ["device:read"],
                  "keys": [{"kid": "2026-11", "kty": "EC", "crv": "P-256", "x": "...", "y": "..."},
                           {"kid": "old", "pem": "-----BEGIN PUBLIC KEY-----..."}]}]}

It holds public keys only and says so when it is given a private one. A roster that turns bad while the hub runs is
logged and the last good one stays: a typing error must not lock a site out.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import PyJWK
from jwt.exceptions import PyJWTError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from fleet_manager.core.domain.device import ANY_SITE, is_site_id
from fleet_manager.hub.scopes import Scope

PublicKey = EllipticCurvePublicKey | Ed25519PublicKey | RSAPublicKey

MIN_RSA_BITS = 2048

_log = logging.getLogger(__name__)


class RosterError(ValueError):
    """The roster cannot be used; the sentence says which client and what is allowed."""


class RosterKey(BaseModel):
    """One public key, as JWK members or as PEM, with the kid by which assertions name it."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    kid: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    pem: str | None = None

    def load(self) -> tuple[str, PublicKey]:
        """Return the algorithm that assertions by this key use, and the key."""
        members: dict[str, Any] = self.model_extra or {}
        if "d" in members or (self.pem and "PRIVATE" in self.pem):
            raise RosterError(f"key {self.kid!r} is a private key; the roster takes the public one only")
        try:
            key: Any = load_pem_public_key(self.pem.encode()) if self.pem else PyJWK(members, _alg(members)).key
        except (PyJWTError, ValueError, TypeError) as error:
            raise RosterError(f"key {self.kid!r} cannot be read as a public JWK or PEM: {error}") from error
        return algorithm_of(key, self.kid), key


class RosterClient(BaseModel):
    """One client. `site` is a site's id, or `*` for people who work at every site."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    client_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")]
    site: str
    scopes: frozenset[Scope]
    keys: tuple[RosterKey, ...] = Field(min_length=1)

    @field_validator("site")
    @classmethod
    def _site(cls, value: str) -> str:
        if value != ANY_SITE and not is_site_id(value):
            raise ValueError("a site id is a DNS label in lower case, or * for every site")
        return value


class _RosterFile(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    clients: tuple[RosterClient, ...]


class Client(BaseModel):
    """A roster client with its keys loaded: kid -> (algorithm, key)."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    client_id: str
    site: str
    scopes: frozenset[Scope]
    keys: dict[str, tuple[str, Any]]


class Roster:
    """The clients of one file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._clients = load(path)

    def get(self, client_id: str) -> Client | None:
        self._refresh()
        return self._clients.get(client_id)

    def _refresh(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                self._clients = load(self._path)
                _log.info("roster read again", extra={"clients": len(self._clients)})
        except (RosterError, OSError) as error:
            _log.error("roster cannot be read, the last good one stays: %s", error)


def load(path: Path) -> dict[str, Client]:
    """Read a roster file into client id -> client.

    Raises:
        RosterError: the file is not there or breaks a rule; the text says which.
    """
    try:
        parsed = _RosterFile.model_validate(json.loads(path.read_text()))
    except OSError as error:
        raise RosterError(f"no roster at {path}: {error.strerror}; set FLEET_HUB__ROSTER_PATH") from error
    except json.JSONDecodeError as error:
        raise RosterError(f"roster {path} is not JSON: line {error.lineno}: {error.msg}") from error
    except ValidationError as error:
        raise RosterError(f"roster {path}: {_first(error)}") from error
    clients: dict[str, Client] = {}
    for entry in parsed.clients:
        if entry.client_id in clients:
            raise RosterError(f"roster {path}: client {entry.client_id!r} is there twice")
        clients[entry.client_id] = _load_client(entry)
    return clients


def _load_client(entry: RosterClient) -> Client:
    keys: dict[str, tuple[str, PublicKey]] = {}
    for key in entry.keys:
        if key.kid in keys:
            raise RosterError(f"client {entry.client_id!r} has two keys of kid {key.kid!r}")
        try:
            keys[key.kid] = key.load()
        except RosterError as error:
            raise RosterError(f"client {entry.client_id!r}: {error}") from error
    return Client(client_id=entry.client_id, site=entry.site, scopes=entry.scopes, keys=keys)


def algorithm_of(key: object, kid: str) -> str:
    """Return the one algorithm a public key may sign with.

    Raises:
        RosterError: a kind of key that is not on the list.
    """
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return "ES256"
    if isinstance(key, Ed25519PublicKey):
        return "EdDSA"
    if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS:
        return "RS256"
    raise RosterError(f"key {kid!r} is not allowed; use EC P-256, Ed25519, or RSA of {MIN_RSA_BITS} bits or more")


def _alg(members: dict[str, Any]) -> str | None:
    """Name PyJWT's loader by key type, so that a JWK's own `alg` never decides."""
    return {"EC": "ES256", "OKP": "EdDSA", "RSA": "RS256"}.get(str(members.get("kty")))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _first(error: ValidationError) -> str:
    item = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
