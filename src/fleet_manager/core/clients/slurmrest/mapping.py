"""Which answer of slurmrestd is which error. The only place that knows SLURM's error numbers and its HTTP statuses.

The status belongs to the server and not to the API version (24.11 says 500 where 26.05 says 422), and says little:
"not found" comes as 200, a dead token as 511 or 500, and slurmctld's absence as 500, 502, 504 or 403. So the error
number decides first, then the status, and a 200 with anything in `errors` is an error as well. Numbers are those of
`slurm/slurm_errno.h`; what is answered when was seen on 24.11.5 and 26.05.5 (slurm-api.md 5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet_manager.core.clients import errors as tree
from fleet_manager.core.clients.slurmrest import errors as slurm
from fleet_manager.core.clients.slurmrest.wire import ErrorItem, WarningItem
from fleet_manager.core.domain.slurm_cluster import SlurmVersion

TOKEN_CODES = frozenset({1007, 6000, 6001, 9008})
"""SLURM_PROTOCOL_AUTHENTICATION_ERROR, ESLURM_AUTH_CRED_INVALID, ESLURM_AUTH_EXPIRED, ESLURM_REST_AUTH_FAIL."""

TOKEN_STATUSES = frozenset({401, 511})

TOKEN_CODES_BEFORE_24_11 = frozenset({-1, 7000})
"""What 23.11 and 24.05 said with 500 to a dead token; also what they say of other things (case 002)."""

UNANSWERED = frozenset({1003, 1023, 1802, 5003, 5004, 5005})
"""slurmctld got the call and its answer did not come."""

_AWAY = frozenset(
    {-1, 1, 1000, 1001, 1002, 1004, 1019, 1020, 1021, 1022, 1024, 1025}
    | {1800, 1801, 1803, 1804, 1805, 2027, 2131, 7000, 7008}
)
"""slurmctld or slurmdbd is not there. 1 is EPERM, which DELETE job says when slurmctld is away; -1 is "Unspecified"."""

_MEANING: dict[int, type[tree.ClientError]] = {
    2002: tree.Forbidden,
    2010: slurm.NotAnAdministrator,
    2016: slurm.NodeBusy,
    2017: slurm.JobNotFound,
    2018: slurm.NodeNotFound,
    2028: slurm.InvalidTransition,
    2053: slurm.ReservationNotFound,
    2055: slurm.ReservationBusy,
    2058: slurm.ReservationBusy,
    2082: slurm.ReservationExists,
    2104: slurm.ReservationExists,
    2180: slurm.InvalidTransition,
}

_BY_STATUS: dict[int, type[tree.ClientError]] = {
    403: tree.Forbidden,
    404: tree.NotFound,
    408: tree.Unavailable,
    409: tree.Conflict,
    429: tree.Unavailable,
    502: slurm.SlurmctldUnavailable,
    503: tree.Unavailable,
    504: slurm.SlurmctldTimeout,
}

_POINTER = re.compile(r"\s*\(0x[0-9a-f]+\)|0x[0-9a-f]+")
"""Addresses in slurmrestd's memory, other ones in each answer: a condition that held them would flap (case 004)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call asks for, as far as its errors depend on it."""

    missing: type[tree.NotFound] | None = None
    """What a 200 with an error, or a 404, says; None: it is unreadable."""
    codes: Mapping[int, type[tree.ClientError]] = field(default_factory=dict)
    """Numbers that mean something of their own here."""
    refused: type[tree.Rejected] = tree.BadRequest
    """What any other refusal is."""


NODES = Asked()
NODE = Asked(missing=slurm.NodeNotFound)
JOBS = Asked()
JOB = Asked(missing=slurm.JobNotFound)
RESERVATION = Asked(missing=slurm.ReservationNotFound, codes={9000: slurm.ReservationNotFound})
CREATE_RESERVATION = Asked(codes={-1: tree.BadRequest, 2053: tree.BadRequest})
"""-1 is what 26.05 says to a user that its host does not know; slurmctld's absence has a number of its own here."""
SUBMIT = Asked(refused=slurm.SubmitRefused, codes={code: slurm.SubmitRefused for code in _MEANING})
CANCEL = Asked(missing=slurm.JobNotFound, codes={2010: tree.Forbidden})
OTHER = Asked()


def endpoint_vanished(status: int, is_json: bool) -> bool:
    """Say whether the route itself is unknown there: a 404 in plain text (JSON is an answer about a thing)."""
    return status == 404 and not is_json


def token_rejected(status: int, errors: Iterable[ErrorItem]) -> bool:
    """Say whether the answer is about the token: 401, 511, or its number in `errors`, which may be empty (511)."""
    return status in TOKEN_STATUSES or any(item.error_number in TOKEN_CODES for item in errors)


def perhaps_token(status: int, errors: Iterable[ErrorItem], server: SlurmVersion | None) -> bool:
    """Say whether a server before 24.11 may mean the token by its 500: worth one fresh token, proves nothing."""
    old = server is not None and server.key < (24, 11, 0)
    return old and status == 500 and any(item.error_number in TOKEN_CODES_BEFORE_24_11 for item in errors)


def error_class(status: int, errors: list[ErrorItem], asked: Asked) -> type[tree.ClientError] | None:
    """Return what an answer means, or None if it is no error (its payload is not looked at here)."""
    if token_rejected(status, errors):
        return slurm.SlurmTokenRejected
    if not errors:
        return None if status == 200 else _by_status(status, asked)
    for item in errors:
        if item.error_number in UNANSWERED and item.error_number not in asked.codes:
            return slurm.SlurmctldTimeout
        if item.error_number in _AWAY and item.error_number not in asked.codes:
            return slurm.SlurmctldUnavailable
    return _by_number(errors[0].error_number or 0, status, asked)


def _by_number(code: int, status: int, asked: Asked) -> type[tree.ClientError]:
    if code in asked.codes:
        return asked.codes[code]
    if code in _MEANING:
        return _MEANING[code]
    if code == 0:
        if status in (200, 404):
            return asked.missing or slurm.UnreadableAnswer
        return _by_status(status, asked)
    if 1000 <= code < 2000:
        return slurm.SlurmctldUnavailable
    return asked.refused


def _by_status(status: int, asked: Asked) -> type[tree.ClientError]:
    if status == 404 and asked.missing:
        return asked.missing
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return slurm.SlurmctldUnavailable
    return asked.refused if 400 <= status < 500 else slurm.UnreadableAnswer


def steady(text: str) -> str:
    """Return a text of slurmrestd without what changes from one answer to the next."""
    return " ".join(_POINTER.sub("", text).split())


def sentence(errors: Iterable[ErrorItem]) -> str:
    """Put what the server complained of into one line."""
    parts = []
    for item in errors:
        said = [item.description or "", item.error if item.error and item.error != "No error" else ""]
        parts.append(": ".join(word for word in said if word))
    return steady("; ".join(part for part in parts if part))


def warning_texts(warnings: Iterable[WarningItem] | None) -> tuple[str, ...]:
    return tuple(steady(item.description or "") for item in warnings or () if item.description)


def ignored_fields(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings that say that something we sent was dropped: the write then did less than asked."""
    return tuple(text for text in warnings if text.startswith("Ignoring"))
