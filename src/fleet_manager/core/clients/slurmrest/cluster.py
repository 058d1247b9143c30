"""The calls about the cluster itself: ping, reservations, partitions, configuration. See `protocol.py`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import UnsetType

from fleet_manager.core.clients.errors import BadRequest
from fleet_manager.core.clients.slurmrest import bodies, mapping, names, normalise, wire
from fleet_manager.core.clients.slurmrest.errors import PEER, ReservationExists, ReservationNotFound
from fleet_manager.core.clients.slurmrest.nodes import NodeCalls
from fleet_manager.core.clients.slurmrest.protocol import Capabilities
from fleet_manager.core.domain.slurm_cluster import ClusterConfig, Partition, Ping, Reservation, SlurmVersion


class ClusterCalls(NodeCalls):
    """Reads what the cluster is, and makes and drops reservations."""

    _clock: Callable[[], datetime]

    async def capabilities(self) -> Capabilities:
        return await self._api.capabilities()

    async def version(self) -> SlurmVersion:
        return (await self._api.capabilities()).slurm_version

    async def ping(self) -> tuple[Ping, ...]:
        path = "/slurm/API/ping/"
        answer = await self._api.call("GET", path, wire.PingAnswer, mapping.OTHER)
        pings = self._api.each(normalise.ping, answer.pings, path)
        if not pings:
            raise self._api.unreadable("a ping of no slurmctld", "GET", path)
        return pings

    async def reservations(self) -> tuple[Reservation, ...]:
        path = "/slurm/API/reservations/"
        answer = await self._api.call("GET", path, wire.ReservationsAnswer, mapping.OTHER)
        return self._api.each(normalise.reservation, answer.reservations, path)

    async def reservation(self, name: str) -> Reservation:
        path = f"/slurm/API/reservation/{names.reservation_name(name)}"
        answer = await self._api.call("GET", path, wire.ReservationsAnswer, mapping.RESERVATION)
        found = self._api.each(normalise.reservation, answer.reservations, path)
        if len(found) != 1 or found[0].name != name:
            said = ", ".join(one.name for one in found) or "none"
            raise self._api.unreadable(f"asked for reservation {name}, answered {said}", "GET", path)
        return found[0]

    async def create_reservation(
        self,
        name: str,
        *,
        nodes: tuple[str, ...],
        users: tuple[str, ...],
        flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS"),
        start: datetime | None = None,
        duration: timedelta | None = None,
    ) -> None:
        path = "/slurm/API/reservation"
        body = bodies.reservation(name, nodes, users, flags, start or self._clock(), duration)
        await self._api.need("reservations_writable", "creating a reservation")
        for node in nodes:
            await self.prove_one_node(node)
        try:
            await self.reservation(name)
        except ReservationNotFound:
            pass
        else:
            raise ReservationExists(f"reservation {name} is there already", peer=PEER)
        try:
            await self._api.call("POST", path, wire.Envelope, mapping.CREATE_RESERVATION, body=body)
        except BadRequest as error:
            if error.code != -1:
                raise
            why = f"{error.message}: SLURM says this of a user that its host does not know ({', '.join(users)})"
            raise BadRequest(
                why, peer=PEER, method=error.method, url=error.url, status=error.status, code=error.code
            ) from error

    async def delete_reservation(self, name: str) -> None:
        path = f"/slurm/API/reservation/{names.reservation_name(name)}"
        await self._api.need("reservations_writable", "deleting a reservation")
        await self._api.call("DELETE", path, wire.Envelope, mapping.RESERVATION)

    async def partitions(self) -> tuple[Partition, ...]:
        path = "/slurm/API/partitions/"
        answer = await self._api.call("GET", path, wire.PartitionsAnswer, mapping.OTHER)
        return self._api.each(normalise.partition, answer.partitions, path)

    async def config(self) -> ClusterConfig:
        await self._api.need("conf", "reading slurm.conf")
        path = "/slurm/API/conf"
        answer = await self._api.call("GET", path, wire.ConfAnswer, mapping.OTHER)
        if answer.slurm_conf is None or isinstance(answer.slurm_conf, UnsetType):
            raise self._api.unreadable("no slurm_conf in the answer", "GET", path)
        return normalise.config(answer.slurm_conf)
