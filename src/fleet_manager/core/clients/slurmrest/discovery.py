"""What a slurmrestd can do, read from its own OpenAPI document: its data_parser versions, methods and release.

Decides nothing about SLURM; picks the newest version that we know (case 045).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleet_manager.core.clients.errors import IncompatibleServer
from fleet_manager.core.clients.slurmrest import normalise, wire
from fleet_manager.core.clients.slurmrest.errors import PEER
from fleet_manager.core.clients.slurmrest.protocol import Capabilities
from fleet_manager.core.domain.slurm_cluster import SlurmVersion

PATH = "/openapi/v3"

KNOWN_VERSIONS = ("v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")
"""Oldest first: 23.11 to 26.05."""

SOUND_304_FROM = SlurmVersion(26, 5)
"""From here `update_time` is right. 24.11 answers 500 once anything changed; what lies between was never seen."""

_VERSION = re.compile(r"/slurm/(v\d+\.\d+\.\d+)/")
_PARAMETER = re.compile(r"\{[^}]*\}")


def endpoints(document: wire.OpenApi) -> frozenset[str]:
    """Return every `METHOD path` of the document, parameters written `{}`, no slash at the end."""
    return frozenset(
        f"{method.upper()} {_PARAMETER.sub('{}', path).rstrip('/')}"
        for path, methods in document.paths.items()
        for method in methods
    )


def choose(document: wire.OpenApi) -> str:
    """Return the newest version that both sides know.

    Raises:
        IncompatibleServer: there is none.
    """
    offered = {found[1] for path in document.paths if (found := _VERSION.match(path))}
    both = [version for version in KNOWN_VERSIONS if version in offered]
    if not both:
        raise IncompatibleServer(
            f"it offers data_parser {_listed(offered)}; this client knows {_listed(KNOWN_VERSIONS)}",
            peer=PEER,
            method="GET",
            url=PATH,
        )
    return both[-1]


def release(document: wire.OpenApi) -> SlurmVersion | None:
    """Return the server's release: 26.05 has a field for it, 24.11 hides it in `info.version`."""
    if document.info is None:
        return None
    told = document.info.x_slurm.release if document.info.x_slurm else None
    return normalise.version(told or document.info.version or "")


def capabilities(document: wire.OpenApi, slurm_version: SlurmVersion) -> Capabilities:
    """Read what the chosen version can do. Raises IncompatibleServer."""
    api = choose(document)
    there = endpoints(document)

    def has(*wanted: str) -> bool:
        return there.issuperset(one.replace("API", api) for one in wanted)

    return Capabilities(
        api_version=api,
        slurm_version=slurm_version,
        reservations_writable=has("POST /slurm/API/reservation", "DELETE /slurm/API/reservation/{}"),
        requeue=has("GET /slurm/API/job/{}/requeue") or has("POST /slurm/API/job/{}/requeue"),
        conf=has("GET /slurm/API/conf"),
        new_node=has("POST /slurm/API/new/node"),
        cancel_tells=KNOWN_VERSIONS.index(api) >= KNOWN_VERSIONS.index("v0.0.42"),
        job_records=has("GET /slurmdb/API/job/{}"),
        sound_304=slurm_version.key >= SOUND_304_FROM.key,
    )


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions)) or "nothing"
