"""A client's private key: read from its file when it signs, held nowhere. What it signs is a client assertion."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from fleet_manager.core.clients.errors import AuthRejected

MIN_RSA_BITS = 2048

PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey | RSAPrivateKey

_FORBIDDEN_MODE = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""Others may do nothing; a group may read, since a pod's secret is mounted as root:fsGroup 0440."""


class ClientKey:
    """The key in one file, under one kid (None: its RFC 7638 thumbprint)."""

    def __init__(self, path: Path, *, kid: str | None = None, peer: str = "hub") -> None:
        self._path = path
        self._kid = kid
        self._peer = peer

    def __repr__(self) -> str:
        return f"ClientKey({self._path})"

    def assertion(self, *, client_id: str, audience: str, now: datetime, ttl: timedelta) -> str:
        """Sign a new client assertion (RFC 7523 section 3): iss = sub = client, a short exp, a jti of its own.

        Raises:
            AuthRejected: the file cannot be read, is open to others, or holds no key that is allowed.
        """
        key, algorithm = self._load()
        issued = int(now.timestamp())
        claims = {
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "jti": str(uuid4()),
            "iat": issued,
            "exp": issued + int(ttl.total_seconds()),
        }
        kid = self._kid or jwk_thumbprint(public_jwk(key))
        return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid})

    def _load(self) -> tuple[PrivateKey, str]:
        try:
            mode = stat.S_IMODE(self._path.stat().st_mode)
            pem = self._path.read_bytes()
        except OSError as error:
            raise self._rejected(f"cannot be read: {error.strerror}") from error
        if mode & _FORBIDDEN_MODE:
            raise self._rejected(f"is open to others (mode {mode:04o}); set 0600, or 0440 for a group that reads it")
        try:
            key = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        algorithm = _algorithm(key)
        if algorithm is None or not isinstance(key, PrivateKey):
            raise self._rejected(f"is no PEM key of EC P-256, Ed25519 or RSA of {MIN_RSA_BITS} bits without password")
        return key, algorithm

    def _rejected(self, what: str) -> AuthRejected:
        return AuthRejected(f"private key {self._path} {what}", peer=self._peer, method="sign assertion")


def public_jwk(key: PrivateKey) -> dict[str, Any]:
    """Return the public half as a JWK."""
    if isinstance(key, EllipticCurvePrivateKey):
        return dict(ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    if isinstance(key, Ed25519PrivateKey):
        return dict(OKPAlgorithm.to_jwk(key.public_key(), as_dict=True))
    return dict(RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))


def jwk_thumbprint(jwk: dict[str, Any]) -> str:
    """Return the RFC 7638 thumbprint (SHA-256, base64url) of a public JWK of type EC, OKP or RSA."""
    members = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}[jwk["kty"]]
    text = json.dumps({name: jwk[name] for name in sorted(members)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _algorithm(key: object) -> str | None:
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return "ES256"
    if isinstance(key, Ed25519PrivateKey):
        return "EdDSA"
    if isinstance(key, RSAPrivateKey) and key.key_size >= MIN_RSA_BITS:
        return "RS256"
    return None
