"""The hub's own signing keys (ES256), in the state folder with mode 0600, and the JWKS that publishes them.

Two files: the key that signs, and, after a rotation, the one before it, whose tokens are still about. Nothing here
logs or prints a key.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from fleet_manager.core.clients.client_key import jwk_thumbprint

CURRENT = "signing-key.pem"
PREVIOUS = "signing-key.previous.pem"


class KeyFileError(RuntimeError):
    """A key file cannot be used; the sentence says what to do."""


@dataclass(frozen=True)
class SigningKey:
    """One key pair of the hub; `kid` is the RFC 7638 thumbprint."""

    kid: str
    public_jwk: dict[str, Any]
    private: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(frozen=True)
class SigningKeys:
    """The key that signs, and all that verify."""

    current: SigningKey
    published: tuple[SigningKey, ...]

    def by_kid(self, kid: str) -> SigningKey | None:
        return next((key for key in self.published if key.kid == kid), None)

    def jwks(self) -> dict[str, Any]:
        return {"keys": [key.public_jwk for key in self.published]}


def load_or_create(state_dir: Path) -> SigningKeys:
    """Return the signing keys of a state folder; the first start makes one.

    Two hubs that start at once on one folder end up with the same key: it is linked into place, never overwritten.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state_dir / CURRENT
    if not path.exists():
        with suppress(FileExistsError):
            _write_new(path)
    current = _read(path)
    previous = state_dir / PREVIOUS
    return SigningKeys(current, (current, _read(previous)) if previous.exists() else (current,))


def rotate(state_dir: Path) -> SigningKeys:
    """Make a new signing key; the present one goes on verifying until the next rotation. Hubs take it at restart."""
    load_or_create(state_dir)
    path = state_dir / CURRENT
    fresh = state_dir / f".{uuid4().hex}.pem"
    _write_new(fresh)
    os.replace(path, state_dir / PREVIOUS)
    os.replace(fresh, path)
    return load_or_create(state_dir)


def write_private_pem(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key with mode 0600; never over a file that is there.

    Raises:
        FileExistsError: something is there already.
    """
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    beside = path.with_name(f".{uuid4().hex}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    finally:
        beside.unlink()


def public_jwk(key: ec.EllipticCurvePublicKey) -> dict[str, Any]:
    """Return a P-256 public key as a JWK with its thumbprint as kid."""
    jwk = ECAlgorithm.to_jwk(key, as_dict=True)
    return {"kid": jwk_thumbprint(jwk), **jwk}


def _write_new(path: Path) -> None:
    write_private_pem(path, ec.generate_private_key(ec.SECP256R1()))


def _read(path: Path) -> SigningKey:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise KeyFileError(f"{path} can be read by others (mode {mode:04o}); `chmod 600` it, and rotate the key")
    try:
        private = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"{path} is not a PEM private key; move it away and the hub makes a new one") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
        raise KeyFileError(f"{path} is not an EC P-256 key; move it away and the hub makes a new one")
    jwk = {**public_jwk(private.public_key()), "use": "sig", "alg": "ES256"}
    return SigningKey(kid=jwk["kid"], public_jwk=jwk, private=private)
