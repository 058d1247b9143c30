"""The error tree of every client, so that callers decide by class and never by text.

    ClientError
    ├── Unavailable              the peer could not answer: try again later
    │   └── UnavailableTimeout   it did not answer in time; a write may have happened
    └── Rejected                 the peer answered no: trying the same again is pointless
        ├── NotFound             the thing named is not there
        ├── Conflict             it is there, in a state that forbids the call
        ├── AuthRejected         the credential is not accepted (expired, forged, revoked)
        ├── Forbidden            the credential is accepted and lacks the right
        ├── BadRequest           the call itself is wrong
        └── IncompatibleServer   the server speaks no version that we know

Clients raise these `from` their library's exception; no httpx or openstacksdk type leaves `core.clients`. Texts are
cut and never hold a request or response body of a peer whose bodies carry secrets (Nova's do: `nova-api.md` 2).
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

MAX_TEXT = 500
"""Characters of a message that are kept: a failure travels through a workflow's history (limit 2 MiB a payload)."""


def without_query(url: str) -> str:
    """Return the address without user, query and fragment, where tokens and names of people hide."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    netloc = f"{host}:{parts.port}" if parts.port else host
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


class ClientError(Exception):
    """A call to a peer failed.

    Attributes:
        peer: who was asked ("slurmrestd", "nova", "hub", "1password").
        method: HTTP method or the call's name.
        url: address without query.
        status: HTTP status, or None when there was no answer.
        request_id: the peer's own id of the request, "" if it gave none.
        code: the peer's own error number (slurmrestd's `error_number`), or None.
    """

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        peer: str,
        method: str = "",
        url: str = "",
        status: int | None = None,
        request_id: str = "",
        code: int | None = None,
    ) -> None:
        self.message = message if len(message) <= MAX_TEXT else message[: MAX_TEXT - 1] + "…"
        self.peer = peer
        self.method = method
        self.url = without_query(url) if url else ""
        self.status = status
        self.request_id = request_id
        self.code = code
        super().__init__(self.message)

    def __str__(self) -> str:
        facts = [f"{self.method} {self.url}".strip()]
        if self.status is not None:
            facts.append(f"status {self.status}")
        if self.code is not None:
            facts.append(f"code {self.code}")
        if self.request_id:
            facts.append(f"request {self.request_id}")
        tail = ", ".join(fact for fact in facts if fact)
        return f"{self.peer}: {self.message}" + (f" ({tail})" if tail else "")


class Unavailable(ClientError):
    """The peer could not answer; the same call may succeed later."""

    retryable = True


class UnavailableTimeout(Unavailable):
    """No answer in time: a write may have been carried out, so look before sending it again."""


class Rejected(ClientError):
    """The peer answered no; the same call will get the same answer."""


class NotFound(Rejected):
    """The thing named does not exist, or cannot be seen with this credential."""


class Conflict(Rejected):
    """The thing is in a state that forbids the call; read it again and decide."""


class AuthRejected(Rejected):
    """The credential itself is not accepted."""


class Forbidden(Rejected):
    """The credential is known and lacks the right."""


class BadRequest(Rejected):
    """The call is wrong: name, type or value."""


class IncompatibleServer(Rejected):
    """The server offers no version of its API that this client knows."""
