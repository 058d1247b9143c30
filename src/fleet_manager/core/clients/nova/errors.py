"""What Nova refuses, and the outcomes of a build that are errors, in the tree of `core.clients.errors`.

Unavailable
├── NovaBusy               429, 503 or 413, with the time it asks us to wait
└── NoCapacity             "No valid host was found": no room, which says nothing about a node (case 034)
Rejected
├── QuotaExceeded          the project may not have more
├── AmbiguousName          a name that two images, flavors or networks have
├── Misconfigured          clouds.yaml, the cloud's name or the catalog
├── BuildFailed            the build ended in ERROR, or in something that it must not leave behind
├── LandedElsewhere        the server is on another machine than the device's own
├── NotFound
│   ├── ServerNotFound, ImageNotFound, FlavorNotFound, NetworkNotFound, HostNotFound
├── Conflict
│   ├── DuplicateServers   two servers of one tag: a human decides, nothing is deleted (case 030)
│   └── CannotRebuild      the preflight of a rebuild said no; nothing was touched
└── Forbidden
    └── PinForbidden       the credential may not choose the machine: an operator's may
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from fleet_manager.core.clients.errors import ClientError, Conflict, Forbidden, NotFound, Rejected, Unavailable
from fleet_manager.core.domain.server import BuildState, Elsewhere, Failed, Lost

PEER = "nova"


class NovaBusy(Unavailable):
    """Nova, or a proxy before it, asks us to come back later; `retry_after` is None when it does not say when."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: timedelta | None = None,
        peer: str = PEER,
        method: str = "",
        url: str = "",
        status: int | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message, peer=peer, method=method, url=url, status=status, request_id=request_id)
        self.retry_after = retry_after


class NoCapacity(Unavailable):
    """There was no room for the server: delete it and try again later, the node is not broken."""


class QuotaExceeded(Rejected):
    """The project's quota is used up; somebody must raise it or free something."""


class AmbiguousName(Rejected):
    """More than one thing has this name; use the id."""


class Misconfigured(Rejected):
    """clouds.yaml, the cloud's name or the service catalog do not lead to a Nova."""


class BuildFailed(Rejected):
    """The build ended, and not in a machine."""


class LandedElsewhere(Rejected):
    """The server is not on the device's own machine, or cannot be seen to be."""


class ServerNotFound(NotFound):
    """Nova itself says that there is no such server."""


class ImageNotFound(NotFound):
    """No image of this name or id, or none that is active."""


class FlavorNotFound(NotFound):
    """No flavor of this name or id."""


class NetworkNotFound(NotFound):
    """No network of this name or id."""


class HostNotFound(NotFound):
    """No compute host or hypervisor of this name."""


class DuplicateServers(Conflict):
    """Two servers answer to one tag; `server_ids` names them all. Never deleted on our own."""

    def __init__(self, tag: str, server_ids: Iterable[str]) -> None:
        self.tag = tag
        self.server_ids = tuple(sorted(server_ids))
        super().__init__(
            f"{len(self.server_ids)} servers have the tag {tag}: {', '.join(self.server_ids)}; look at them and delete "
            "the wrong one by hand",
            peer=PEER,
        )


class CannotRebuild(Conflict):
    """The server cannot be rebuilt in place; nothing was touched."""


class PinForbidden(Forbidden):
    """The credential may not pin a server to a machine."""


def build_error(state: BuildState, server_id: str) -> ClientError | None:
    """Return the error that an ended build is, or None for one that is done, stopped or still on its way."""
    match state:
        case Failed(reason=reason, capacity=True):
            return NoCapacity(f"no room for server {server_id}: {reason}", peer=PEER)
        case Failed(reason=reason):
            return BuildFailed(f"server {server_id} was not built: {reason}", peer=PEER)
        case Lost(reason=reason):
            return ServerNotFound(f"server {server_id}: {reason}", peer=PEER)
        case Elsewhere(wanted=wanted, found=None):
            return LandedElsewhere(
                f"server {server_id} should be on {wanted}, and this credential is not shown where it is: it needs an "
                "operator's",
                peer=PEER,
            )
        case Elsewhere(wanted=wanted, found=found):
            return LandedElsewhere(f"server {server_id} is on {found} instead of {wanted}", peer=PEER)
        case _:
            return None
