"""What the hub's tests share: keys, rosters, a clock, user-data, and apps on either database."""

import base64
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from fastapi import FastAPI

from fleet_manager.core.clients.client_key import PrivateKey, jwk_thumbprint, public_jwk
from fleet_manager.hub.app import create_app
from fleet_manager.hub.scopes import ALL_SCOPES, Scope
from fleet_manager.hub.seed import SeedFile, seed
from fleet_manager.hub.tables import Base
from fleet_manager.settings.hub import HubSettings

SECRET = "munge-key-9f2c-never-seen"
"""Stands in the user-data of every test, so that a leak is found by looking for it."""

SCRIPT = f"""## template: jinja
#cloud-config
write_files:
  - path: /etc/munge/key
    content: {SECRET}
  - path: /etc/default/slurmd
    content: |
      SLURMD_OPTIONS='-Z -N {{{{ v1.local_hostname }}}} --instance-id {{{{ v1.instance_id }}}} --extra fm_build={{{{ ds.meta_data.meta.fm_build }}}} --conf "Gres=gpu:h100:8 State=DRAIN Reason=\\"fm:born new build\\""'
runcmd:
  - systemctl start slurmd
"""  # noqa: E501 - one line of an environment file

AGENT, WORKER, HPC, READER = "slurm-agent-lab", "temporal-worker-lab", "hpc-ada", "hpc-reader"
ROLES: dict[str, tuple[str, tuple[Scope, ...]]] = {
    AGENT: ("lab", (Scope.DEVICE_READ, Scope.DEVICE_UPDATE, Scope.CONDITION_CREATE)),
    WORKER: ("lab", (Scope.CONFIG_READ, Scope.DEVICE_READ, Scope.DEVICE_UPDATE, Scope.CONDITION_CREATE)),
    HPC: ("*", tuple(Scope(name) for name in ALL_SCOPES)),
    "hpc-writer": ("lab", (Scope.CONFIG_CREATE, Scope.CONFIG_UPDATE)),
    READER: ("other", tuple(Scope(name) for name in ALL_SCOPES)),
}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


USER_DATA = b64(SCRIPT)


class FakeClock:
    """A wall clock that stands until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self.now = start or datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **duration: float) -> None:
        self.now += timedelta(**duration)


def new_key(kind: str = "EC") -> PrivateKey:
    if kind == "EC":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "OKP":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def public_pem(key: Any) -> str:
    return str(
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def kid_of(key: PrivateKey) -> str:
    return jwk_thumbprint(public_jwk(key))


@dataclass
class Lab:
    """A folder with a roster of every role's client, and their private keys."""

    folder: Path
    keys: dict[str, PrivateKey] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> "Lab":
        lab = cls(folder)
        for client_id, (site, scopes) in ROLES.items():
            lab.add(client_id, site, scopes)
        return lab

    @property
    def roster(self) -> Path:
        return self.folder / "roster.json"

    def key_file(self, client_id: str) -> Path:
        return self.folder / f"{client_id}.pem"

    def add(self, client_id: str, site: str, scopes: Iterable[str], key: PrivateKey | None = None) -> None:
        key = key or new_key()
        self.keys[client_id] = key
        jwk = {"kid": kid_of(key), **public_jwk(key)}
        self.clients[client_id] = {
            "client_id": client_id,
            "site": site,
            "scopes": [str(scope) for scope in scopes],
            "keys": [jwk],
        }
        self.key_file(client_id).write_bytes(pem(key))
        self.key_file(client_id).chmod(0o600)
        self.write()

    def write(self) -> None:
        """Write the roster as a chart's update does: beside, then in its place."""
        beside = self.folder / "roster.new"
        beside.write_text(json.dumps({"clients": list(self.clients.values())}))
        beside.replace(self.roster)

    def settings(self, **changes: Any) -> HubSettings:
        values = {"roster_path": self.roster, "state_dir": self.folder / "state", "port": 18080}
        return HubSettings(**{**values, **changes})

    def assertion(self, client_id: str, now: datetime, issuer: str, **changes: Any) -> str:
        """Sign an assertion of a client; `header_...` changes the header, None takes a claim out."""
        claims: dict[str, Any] = {
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "jti": str(uuid4()),
            "exp": int(now.timestamp()) + 60,
        }
        headers: dict[str, Any] = {"kid": kid_of(self.keys[client_id])}
        for name, value in changes.items():
            target, key = (headers, name.removeprefix("header_")) if name.startswith("header_") else (claims, name)
            target[key] = value
        claims = {name: value for name, value in claims.items() if value is not None}
        headers = {name: value for name, value in headers.items() if value is not None}
        return jwt.encode(claims, self.keys[client_id], algorithm="ES256", headers=headers)


SITES = SeedFile.model_validate(
    {
        "sites": [{"id": "lab"}, {"id": "other"}],
        "devices": [
            {"site": "lab", "name": "gpu-001", "role": "gpu", "hypervisor_hostname": "cmp-001", "id": "dev-1"},
            {"site": "lab", "name": "gpu-002", "role": "gpu", "slurm_node": "Node02"},
            {"site": "lab", "name": "GPU-003", "role": "cpu"},
            {"site": "other", "name": "gpu-001", "role": "gpu", "id": "dev-other"},
        ],
    }
)


@dataclass
class Api:
    """The hub's API without a network: requests as one of the roster's clients."""

    app: FastAPI
    lab: Lab
    clock: FakeClock
    http: httpx.AsyncClient

    def token(self, client_id: str, *scopes: Scope) -> str:
        """Return a token as the token endpoint would give it, of some scopes or of all that the client has."""
        hub = self.app.state.hub
        client = hub.roster.get(client_id)
        return str(hub.tokens.issue(client, frozenset(scopes) or client.scopes, self.clock()))

    async def call(self, who: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token(who)}", **more.pop("headers", {})}
        return await self.http.request(method, f"/api/v1/sites/{path}", headers=headers, **more)


@asynccontextmanager
async def running(lab: Lab, clock: FakeClock, **changes: Any) -> AsyncIterator[Api]:
    """Run an app with the seeded sites on the database that the changes name, SQLite if none."""
    app = create_app(lab.settings(**changes), now=clock)
    async with app.router.lifespan_context(app):
        await seed(app.state.hub.database, SITES, clock())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://hub") as http:
            yield Api(app, lab, clock, http)


async def start_over(api: Api) -> None:
    """Bring the database back to the seeded sites, and the clock to the present."""
    api.clock.now = datetime.now(UTC).replace(microsecond=0)
    database = api.app.state.hub.database
    async with database.write() as session:
        for table in reversed(Base.metadata.sorted_tables):
            await session.execute(table.delete())
    await seed(database, SITES, api.clock())
