"""The calls about nodes. `protocol.py` says what each returns and raises."""

from __future__ import annotations

from fleet_manager.core.clients.slurmrest import bodies, mapping, names, normalise, wire
from fleet_manager.core.clients.slurmrest.caller import Caller
from fleet_manager.core.clients.slurmrest.errors import PEER, AmbiguousNode, NodeNotFound, NotSupportedHere
from fleet_manager.core.clients.slurmrest.protocol import ChangeMark, NodesReading, NodeUpdate
from fleet_manager.core.domain.slurm_node import SlurmNode


class NodeCalls:
    """Reads and writes nodes; a write is preceded by a read that proves that the name is one node's."""

    _api: Caller

    async def tells_changes(self) -> bool:
        return (await self._api.capabilities()).sound_304

    async def read_node(self, name: str) -> SlurmNode:
        path = f"/slurm/API/node/{names.node_name(name)}"
        answer = await self._api.call("GET", path, wire.NodesAnswer, mapping.NODE)
        found = self._api.each(normalise.node, answer.nodes, path)
        if len(found) != 1 or found[0].name != name:
            said = ", ".join(one.name for one in found) or "no node"
            raise self._api.unreadable(f"asked for node {name}, answered {said}", "GET", path)
        return found[0]

    async def read_nodes(self) -> NodesReading:
        path = "/slurm/API/nodes/"
        answer = await self._api.call("GET", path, wire.NodesAnswer, mapping.NODES)
        return self._reading(answer, path, marked=await self.tells_changes())

    async def read_nodes_if_changed(self, since: ChangeMark) -> NodesReading | None:
        await self._api.need("sound_304", "telling whether nodes changed")
        path, query = "/slurm/API/nodes/", {"update_time": str(since)}
        answer = await self._api.call_or_unchanged("GET", path, wire.NodesAnswer, mapping.NODES, query=query)
        return None if answer is None else self._reading(answer, path, marked=True)

    async def nodes(self) -> tuple[SlurmNode, ...]:
        return (await self.read_nodes()).nodes

    async def node(self, name: str) -> SlurmNode:
        try:
            return await self.read_node(name)
        except NodeNotFound as missing:
            wanted = name.casefold()
            alike = [one for one in await self.nodes() if one.name.casefold() == wanted]
            if not alike:
                raise missing from None
        if len(alike) > 1:
            spellings = ", ".join(sorted(one.name for one in alike))
            raise AmbiguousNode(f"there is no node {name}, and {spellings} differ only in case", peer=PEER)
        return await self.read_node(alike[0].name)

    async def update_node(self, name: str, update: NodeUpdate) -> None:
        body = bodies.node_update(update)
        await self.prove_one_node(name)
        path = f"/slurm/API/node/{name}"
        answer = await self._api.call("POST", path, wire.Envelope, mapping.NODE, body=body)
        ignored = mapping.ignored_fields(mapping.warning_texts(answer.warnings))
        if ignored:
            raise self._api.error(NotSupportedHere, "; ".join(ignored), "POST", path)

    async def delete_node(self, name: str) -> None:
        await self.prove_one_node(name)
        await self._api.call("DELETE", f"/slurm/API/node/{name}", wire.Envelope, mapping.NODE)

    async def prove_one_node(self, name: str) -> None:
        """Read before a write: POST and DELETE take a NodeSet's name for all of its nodes (see `names`)."""
        await self.read_node(name)

    def _reading(self, answer: wire.NodesAnswer, path: str, *, marked: bool) -> NodesReading:
        nodes = self._api.each(normalise.node, answer.nodes, path)
        if len({one.name for one in nodes}) != len(nodes):
            raise self._api.unreadable("a node is in the list twice", "GET", path)
        mark = normalise.number(answer.last_update) if marked else None
        return NodesReading(nodes, ChangeMark(mark) if mark else None)
