"""One call of slurmrestd's API: version into the path, token into the header, the answer read to its end or refused.

An answer is good only if its status is 200, `errors` is empty and its payload is there. Sent again are only calls that
certainly did nothing: those whose token was rejected (once, with another token) and those whose endpoint was not there
(once, after asking what is).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, TypeVar

import msgspec
from msgspec import UnsetType

from fleet_manager.core.clients.errors import ClientError, IncompatibleServer
from fleet_manager.core.clients.slurmrest import discovery, mapping, normalise, wire
from fleet_manager.core.clients.slurmrest.errors import PEER, NotSupportedHere, SlurmTokenRejected, UnreadableAnswer
from fleet_manager.core.clients.slurmrest.mapping import Asked
from fleet_manager.core.clients.slurmrest.protocol import Capabilities
from fleet_manager.core.clients.slurmrest.token import SlurmToken
from fleet_manager.core.clients.slurmrest.transport import Answer, Transport
from fleet_manager.core.domain.slurm_cluster import SlurmVersion

E = TypeVar("E", bound=wire.Envelope)
Raw = TypeVar("Raw")
Model = TypeVar("Model")

NOT_MODIFIED = 304


class Caller:
    """Calls endpoints by their name without version, such as `/slurm/API/nodes/`."""

    def __init__(self, transport: Transport, token: SlurmToken) -> None:
        self._transport = transport
        self._token = token
        self._known: Capabilities | None = None
        self._discovering = asyncio.Lock()

    async def capabilities(self) -> Capabilities:
        """Return what the server can do, asking it once for all who come at the same time."""
        if self._known is None:
            async with self._discovering:
                if self._known is None:
                    self._known = await self._discover()
        return self._known

    async def call(
        self,
        method: str,
        path: str,
        shape: type[E],
        asked: Asked,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> E:
        """Return the envelope of a good answer. Raises what `mapping` makes of any other."""
        found = await self.call_or_unchanged(method, path, shape, asked, body=body, query=query)
        if found is None:
            raise self.unreadable("304 to a call that did not ask for changes", method, path)
        return found

    async def call_or_unchanged(
        self,
        method: str,
        path: str,
        shape: type[E],
        asked: Asked,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> E | None:
        """As `call`; None if the server says 304."""
        answer, envelope = await self.exchange(method, path, shape, body=body, query=query)
        if answer.status == NOT_MODIFIED:
            return None
        errors = envelope.errors or []
        kind = mapping.error_class(answer.status, errors, asked)
        if kind is not None:
            raise self.failure(kind, answer, errors, method, path)
        self._watch_release(envelope)
        if not answer.is_json or not isinstance(envelope, shape):
            raise self.unreadable("200, and no JSON", method, path)
        return envelope

    async def exchange(
        self, method: str, path: str, shape: type[E], *, body: object = None, query: Mapping[str, str] | None = None
    ) -> tuple[Answer, E | wire.Envelope]:
        """Return status and envelope of any answer that is not about the token or the route.

        Raises:
            SlurmTokenRejected: SLURM does not accept the token, nor another one if its source had one.
            IncompatibleServer: the endpoint is not there, also after asking what is.
        """
        payload = None if body is None else msgspec.json.encode(body)
        token = await self._token.current()
        answer = await self._send(method, path, token, payload, query)
        envelope = self._read(answer, shape, method, path)
        errors = envelope.errors or []
        rejected = mapping.token_rejected(answer.status, errors)
        doubtful = method == "GET" and mapping.perhaps_token(answer.status, errors, self._release_of(envelope))
        if not (rejected or doubtful):
            return answer, envelope
        other = await self._token.after_rejection(token)
        if other is not None:
            answer = await self._send(method, path, other, payload, query)
            envelope = self._read(answer, shape, method, path)
            rejected = mapping.token_rejected(answer.status, envelope.errors or [])
        if rejected:
            raise self.failure(SlurmTokenRejected, answer, envelope.errors or [], method, path)
        return answer, envelope

    async def need(self, capability: str, what: str) -> None:
        """Refuse what the server has no way of. Raises NotSupportedHere."""
        can = await self.capabilities()
        if not getattr(can, capability):
            why = f"slurmrestd {can.slurm_version} ({can.api_version}) has no way of {what}"
            raise NotSupportedHere(why, peer=PEER)

    def each(
        self, read: Callable[[Raw], Model], items: Iterable[Raw] | UnsetType | None, path: str
    ) -> tuple[Model, ...]:
        """Normalise a payload; one that is missing, null or odd in any item is refused whole."""
        if items is None or isinstance(items, UnsetType):
            raise self.unreadable("the payload is missing", "GET", path)
        try:
            return tuple(map(read, items))
        except ValueError as error:
            raise self.unreadable(str(error), "GET", path) from error

    def unreadable(self, why: str, method: str, path: str) -> UnreadableAnswer:
        return UnreadableAnswer(why, peer=PEER, method=method, url=self._transport.address(path))

    def error(self, kind: type[ClientError], why: str, method: str, path: str, code: int | None = None) -> ClientError:
        return kind(
            self._token.without_token(why), peer=PEER, method=method, url=self._transport.address(path), code=code
        )

    async def _send(
        self, method: str, path: str, token: str, payload: bytes | None, query: Mapping[str, str] | None
    ) -> Answer:
        """Send to the version that we know; if its route is gone, ask again what there is and send once more."""
        before = await self.capabilities()
        answer = await self._transport.send(method, _versioned(path, before), token, body=payload, query=query)
        if not mapping.endpoint_vanished(answer.status, answer.is_json):
            return answer
        async with self._discovering:
            if self._known is before or self._known is None:
                self._known = await self._discover()
            now = self._known
        answer = await self._transport.send(method, _versioned(path, now), token, body=payload, query=query)
        if mapping.endpoint_vanished(answer.status, answer.is_json):
            self._refuse_vanished(method, path, now)
        return answer

    def _refuse_vanished(self, method: str, path: str, now: Capabilities) -> NoReturn:
        why = f"no {method} {_versioned(path, now)} here: slurmrestd {now.slurm_version} offers {now.api_version}"
        raise self.error(IncompatibleServer, why, method, _versioned(path, now))

    def _read(self, answer: Answer, shape: type[E], method: str, path: str) -> E | wire.Envelope:
        """Read a body as far as it counts: whole for 200, else only what stands around the payload."""
        if not answer.is_json or answer.status == NOT_MODIFIED:
            return wire.Envelope()
        whole = answer.status == 200 or issubclass(shape, wire.SubmitAnswer)
        try:
            return wire.decode(answer.body, shape if whole else wire.Envelope)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # An error's body that cannot be read still has its status; a good one's is all there is.
            if answer.status != 200:
                return wire.Envelope()
            raise self.unreadable(f"200, and a body that does not fit: {error}", method, path) from error

    def failure(
        self, kind: type[ClientError], answer: Answer, errors: list[wire.ErrorItem], method: str, path: str
    ) -> ClientError:
        said = mapping.sentence(errors) or ("" if answer.is_json else mapping.steady(answer.text))
        address = self._transport.address(_versioned(path, self._known) if self._known else path)
        return kind(
            self._token.without_token(said or "no reason given"),
            peer=PEER,
            method=method,
            url=address,
            status=answer.status,
            code=errors[0].error_number if errors else None,
        )

    async def _discover(self) -> Capabilities:
        """Ask the server which versions, methods and release it has."""
        path = discovery.PATH
        token = await self._token.current()
        answer = await self._transport.send("GET", path, token)
        if mapping.token_rejected(answer.status, []):
            other = await self._token.after_rejection(token)
            if other is None:
                raise self.failure(SlurmTokenRejected, answer, [], "GET", path)
            token, answer = other, await self._transport.send("GET", path, other)
        if answer.status != 200:
            kind = mapping.error_class(answer.status, [], mapping.OTHER) or UnreadableAnswer
            raise self.failure(kind, answer, [], "GET", path)
        try:
            document = wire.decode(answer.body, wire.OpenApi)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.unreadable(f"not an OpenAPI document: {error}", "GET", path) from error
        release = discovery.release(document) or await self._pinged_release(discovery.choose(document), token)
        return discovery.capabilities(document, release)

    async def _pinged_release(self, api: str, token: str) -> SlurmVersion:
        """Ask a server whose document does not tell its release; ping's `meta` does."""
        path = f"/slurm/{api}/ping/"
        answer = await self._transport.send("GET", path, token)
        found = normalise.meta_version(self._read(answer, wire.PingAnswer, "GET", path).meta)
        if found is None:
            raise self.unreadable("it does not tell its release", "GET", path)
        return found

    def _release_of(self, envelope: wire.Envelope) -> SlurmVersion | None:
        return normalise.meta_version(envelope.meta) or (self._known.slurm_version if self._known else None)

    def _watch_release(self, envelope: wire.Envelope) -> None:
        """Forget what is known once an answer comes from another release than the one that was asked."""
        told = normalise.meta_version(envelope.meta)
        if told and self._known and told != self._known.slurm_version:
            self._known = None


def _versioned(path: str, capabilities: Capabilities) -> str:
    return path.replace("/API/", f"/{capabilities.api_version}/", 1)
