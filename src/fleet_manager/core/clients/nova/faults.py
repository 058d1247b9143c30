"""An answer that is not a success, as one of our errors.

The sentences are ours. Nova's text is only looked at, from its beginning, for what happened; of it nothing but single
words of a closed alphabet (a rule's name, a field's, a state) is taken over, since a 400 quotes what was sent:
user-data, or the whole request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    ClientError,
    Conflict,
    Forbidden,
    IncompatibleServer,
    NotFound,
    Unavailable,
)
from fleet_manager.core.clients.nova.errors import (
    PEER,
    FlavorNotFound,
    HostNotFound,
    ImageNotFound,
    NetworkNotFound,
    NovaBusy,
    PinForbidden,
    QuotaExceeded,
    ServerNotFound,
)
from fleet_manager.core.clients.nova.sdk import Reply, Request

_LOOKED_AT = 400
"""Characters of Nova's text that are matched; the patterns are anchored, so what it quotes cannot pose as a cause."""

Build = tuple[type[ClientError], str]

_BAD_REQUEST: tuple[tuple[str, Callable[[re.Match[str]], Build]], ...] = (
    (
        r"Invalid input for field/attribute user_data\b",
        lambda _: (BadRequest, "Nova refuses the user-data: it takes base64 of at most 65,535 characters"),
    ),
    (
        r"Invalid input for field/attribute (?:server|rebuild)\. ",
        lambda _: (BadRequest, "Nova does not know a field of the request, or misses one"),
    ),
    (
        r"Invalid input for field/attribute ([A-Za-z0-9_:.-]{1,64})\. ",
        lambda m: (BadRequest, f"Nova refuses the field {m[1]}"),
    ),
    (r"Can not find requested image|Cannot find image", lambda _: (ImageNotFound, "Nova does not find the image")),
    (r"Image [0-9a-f-]{1,64} could not be found", lambda _: (ImageNotFound, "Nova does not find the image")),
    (r"Flavor [\w.-]{1,64} could not be found", lambda _: (FlavorNotFound, "Nova does not find the flavor")),
    (
        r"Compute host ([\w.-]{1,255}) could not be found",
        lambda m: (HostNotFound, f"Nova knows no machine {m[1]}"),
    ),
    (
        r"(?:Network|Port id) ([0-9a-f-]{1,64}) could not be found",
        lambda m: (NetworkNotFound, f"Nova does not find network {m[1]}"),
    ),
    (r"The requested availability zone", lambda _: (BadRequest, "Nova does not have the availability zone")),
    (
        r"One mechanism with host and/or hypervisor_hostname",
        lambda _: (BadRequest, "the availability zone names a machine too; the pin is hypervisor_hostname alone"),
    ),
    (r"Invalid key_name provided", lambda _: (BadRequest, "Nova does not have the key pair")),
    (r"Not authorized for image", lambda _: (AuthRejected, "Glance refuses the token, a new one too")),
)

_FORBIDDEN: tuple[tuple[str, Callable[[re.Match[str]], Build]], ...] = (
    (
        r"Policy doesn't allow ([a-z0-9_:-]*(?:requested_destination|forced_host)) ",
        lambda m: (
            PinForbidden,
            f"this credential may not choose the machine (policy {m[1]}): it needs an operator's",
        ),
    ),
    (
        r"Policy doesn't allow ([a-z0-9_:-]{1,100}) ",
        lambda m: (Forbidden, f"this credential lacks the right (policy {m[1]})"),
    ),
    (
        r"Quota exceeded for ([a-z_, ]{1,60}):",
        lambda m: (QuotaExceeded, f"the project's quota of {m[1]} is used up"),
    ),
    (r"Quota exceeded|Maximum number", lambda _: (QuotaExceeded, "the project's quota is used up")),
)

_CONFLICT: tuple[tuple[str, Callable[[re.Match[str]], Build]], ...] = (
    (r"Instance [0-9a-f-]{1,64} is locked", lambda _: (Conflict, "the server is locked")),
    (
        r"Cannot '([\w -]{1,40})' instance [0-9a-f-]{1,64} while it is in (task_state|vm_state) ([\w-]{1,40})",
        lambda m: (Conflict, f"no {m[1]} while the server is in {m[2]} {m[3]}"),
    ),
    (
        r"Instance [0-9a-f-]{1,64} is in an invalid state for '([\w -]{1,40})'",
        lambda m: (Conflict, f"no {m[1]} of a server that never ran"),
    ),
    (r"Port [0-9a-f-]{1,64} is still in use", lambda _: (Conflict, "the port is in use")),
)


def fault(reply: Reply, request: Request) -> ClientError:
    """Return the error for a reply that is no success."""
    kind, message = _kind(reply, request)
    facts = {"method": request.method, "url": reply.url, "status": reply.status, "request_id": reply.request_id}
    if kind is NovaBusy:
        return NovaBusy(message, retry_after=_retry_after(reply), peer=_peer(request), **facts)  # type: ignore[arg-type]
    return kind(message, peer=_peer(request), **facts)  # type: ignore[arg-type]


def _peer(request: Request) -> str:
    return {"compute": PEER, "image": "glance", "network": "neutron"}[request.service]


def _kind(reply: Reply, request: Request) -> Build:
    match reply.status:
        case 400:
            return _by_text(reply, _BAD_REQUEST) or (
                BadRequest,
                "the request is refused (its text may quote user-data)",
            )
        case 401:
            return AuthRejected, "the token is refused, a new one too"
        case 403:
            return _by_text(reply, _FORBIDDEN) or (Forbidden, "the credential lacks the right")
        case 404:
            return _not_found(reply, request)
        case 406:
            return IncompatibleServer, "the microversion is not offered"
        case 409:
            return _by_text(reply, _CONFLICT) or (Conflict, "the state of the thing forbids the call")
        case 413 | 429 | 503:
            return NovaBusy, "asked to come back later"
        case status if status >= 500:
            return Unavailable, "an internal error; a write may have happened"
        case _:
            return Unavailable, "an answer that is not understood"


def _not_found(reply: Reply, request: Request) -> Build:
    """Read a 404, which is proof that something is gone, only from the handler itself: it says `itemNotFound`.

    A proxy that lost its backend, or a wrong path below the right Nova, answers 404 too and proves nothing.
    """
    if request.service != "compute":
        return NotFound, "it is not there"
    if not reply.content.lstrip().startswith(b'{"itemNotFound"'):
        return Unavailable, "a 404 that no Nova handler gave; is the endpoint right?"
    if request.path.startswith("/servers/"):
        return ServerNotFound, f"no server {request.path.split('/')[2]}"
    return NotFound, "it is not there"


def _by_text(reply: Reply, table: tuple[tuple[str, Callable[[re.Match[str]], Build]], ...]) -> Build | None:
    text = _text(reply)
    for pattern, build in table:
        if found := re.match(pattern, text):
            return build(found)
    return None


def _text(reply: Reply) -> str:
    """Return the beginning of Nova's message, or of Keystone's; "" when the body has none."""
    try:
        body = msgspec.json.decode(reply.content, type=dict[str, msgspec.Raw])
        for raw in body.values():
            return msgspec.json.decode(raw, type=_Message).message[:_LOOKED_AT]
    except msgspec.DecodeError:
        return ""
    return ""


class _Message(msgspec.Struct):
    message: str


def _retry_after(reply: Reply) -> timedelta | None:
    """Read Retry-After in seconds; its other form, a date, would need a clock, and no OpenStack proxy sends it."""
    value = (reply.retry_after or "").strip()
    return timedelta(seconds=int(value)) if value.isdecimal() and len(value) < 7 else None
