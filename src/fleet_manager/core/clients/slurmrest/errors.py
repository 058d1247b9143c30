"""SLURM's own errors, below the tree of `core.clients.errors`.

Unavailable
├── SlurmctldUnavailable     slurmrestd answers, slurmctld or slurmdbd behind it does not
├── UnreadableAnswer         the answer does not say what it should; nothing is known
└── UnavailableTimeout
    └── SubmitUnknown        a submit without an answer: a job may exist
NotFound                     NodeNotFound, JobNotFound, ReservationNotFound
Conflict                     InvalidTransition, NodeBusy, ReservationBusy, ReservationExists
AuthRejected                 SlurmTokenRejected
Forbidden                    NotAnAdministrator
BadRequest                   SubmitRefused
Rejected                     AmbiguousNode, NotSupportedHere
"""

from __future__ import annotations

from datetime import timedelta

from fleet_manager.core.clients.errors import (
    AuthRejected,
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    Unavailable,
    UnavailableTimeout,
)

PEER = "slurmrestd"


class SlurmctldUnavailable(Unavailable):
    """slurmctld (or slurmdbd) did not answer slurmrestd; seen 9 to 20 s after the call."""


class SlurmctldTimeout(SlurmctldUnavailable, UnavailableTimeout):
    """slurmctld got the call and did not answer in time: a write may be carried out later."""


class AnswerLost(UnavailableTimeout):
    """A write went out and the connection broke before its answer: it may have been carried out."""


class UnreadableAnswer(Unavailable):
    """An answer without its payload, or with one that does not fit: never read as empty, never as gone."""


class SubmitUnknown(UnavailableTimeout):
    """A submit went out and no answer came back: look for the job by its name before submitting again."""


class NodeNotFound(NotFound):
    """slurmctld answered and has no node of this name. The name may be wrong: nothing may be destroyed on it."""


class JobNotFound(NotFound):
    """slurmctld has no record of the job: forgotten after MinJobAge, or never there. Not an end."""


class ReservationNotFound(NotFound):
    """There is no reservation of this name."""


class InvalidTransition(Conflict):
    """The node's state forbids the new one, such as RESUME where nothing is to be resumed (case 011)."""


class NodeBusy(Conflict):
    """A job is on the node."""


class ReservationBusy(Conflict):
    """A job names the reservation, or it overlaps another one."""


class ReservationExists(Conflict):
    """A reservation of this name is there already."""


class SlurmTokenRejected(AuthRejected):
    """SLURM does not accept the token, not even after it was read again.

    Retried, slowly: somebody renews the token, and no running operation is worth losing for that.
    """

    retryable = True
    retry_after = timedelta(seconds=30)


class NotAnAdministrator(Forbidden):
    """The token's user lacks AdminLevel=Administrator (Operator is not enough for nodes)."""


class SubmitRefused(BadRequest):
    """slurmctld did not take the job."""


class AmbiguousNode(Rejected):
    """Two or more nodes differ from the name only in case (case 027)."""


class NotSupportedHere(Rejected):
    """This server, or the newest version of its API that we know, cannot do it."""
