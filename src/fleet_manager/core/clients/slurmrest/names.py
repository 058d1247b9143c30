"""Names as they may stand in a path of slurmrestd.

POST and DELETE node/X take a hostlist, the name of a NodeSet, and ALL for X, and then change all of those nodes (seen
on 24.11 and 26.05: `POST node/ALL` drains the whole cluster), while GET says "not found" to the same X. So a name of
one thing is checked here, and the client proves by a GET that it is a node before it writes.
"""

from __future__ import annotations

import re

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest.errors import PEER

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_EVERY_NODE = "ALL"


def node_name(name: str) -> str:
    """Return the name if it can only be one node's.

    Raises:
        BadRequest: it is a hostlist, ALL, empty, or has a character that no node name has.
    """
    if name.upper() == _EVERY_NODE:
        raise BadRequest("ALL is every node of the cluster, not a node's name", peer=PEER)
    return _plain(name, "node")


def reservation_name(name: str) -> str:
    """Return the name if it may stand in a path. Raises BadRequest."""
    return _plain(name, "reservation")


def job_id(value: int) -> int:
    """Return the id if it is one. Raises BadRequest."""
    if value <= 0:
        raise BadRequest(f"{value} is not a job id", peer=PEER)
    return value


def _plain(name: str, what: str) -> str:
    if not _PLAIN.fullmatch(name):
        raise BadRequest(f"{name[:80]!r} is not the name of one {what}", peer=PEER)
    return name
