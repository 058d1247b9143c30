"""The work of the data hall's daemon: see what Nova does to the servers, and do it to the machines.

It wakes on the event log of the virt driver, which costs nothing, and believes only what Nova's API then says (a list
of servers costs Nova 85 ms of CPU); once a minute it looks at all servers. When the driver cuts a machine's power that
needs no confirmation: the driver is the power.

Must not log user-data, nor an answer of Nova.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from fmlab.hall import Hall, Record
from fmlab.machine import Machine
from fmlab.nova import NovaCloud
from fmlab.switches import Switches, load

_TICK_S = 0.1
_LOOK_AGAIN_S = 0.2  # at a server that something happens to; doubled each time up to the next
_LOOK_AGAIN_MAX_S = 3.0
_LOOK_AT_ALL_S = 60.0
_POWER_GONE = ("destroy", "power_off", "reboot")


class EventLog:
    """The virt driver's JSON lines from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def read(self) -> list[tuple[str, str]]:
        """Return what is new: (event, server id)."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size == self._offset:
            return []
        if size < self._offset:  # another cloud's
            self._offset = 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        lines = [json.loads(line) for line in whole.splitlines()]
        return [(str(line["event"]), str(line["uuid"])) for line in lines]


class Metal:
    """The daemon's work."""

    def __init__(self, hall: Hall, cloud: NovaCloud) -> None:
        self._hall = hall
        self._api = cloud.api("admin")
        self._events = EventLog(cloud.events)
        self._machines = {record.server: Machine(hall, record) for record in hall.records()}
        self._restless: dict[str, tuple[float, float]] = {}  # server -> (look at it when, and how long to wait then)
        self._next_look_at_all = 0.0
        self._switches: Mapping[str, Switches] = {}

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop. The machines stay on."""
        ready = self._hall.state / "ready"
        while not stop.is_set():
            try:
                self._round()
            except httpx.HTTPError as error:
                self._hall.say(f"Nova does not answer as it should: {type(error).__name__}; again in 2 s")
                self._next_look_at_all = 0.0
                stop.wait(2)
                continue
            ready.touch()
            stop.wait(_TICK_S)

    def _round(self) -> None:
        now = time.monotonic()
        for event, server in self._events.read():
            if event in _POWER_GONE and server in self._machines:
                self._machines[server].power_off()
            self._restless[server] = (now, _LOOK_AGAIN_S)
        switches = load(self._hall.folder)
        if switches != self._switches:
            self._switches = switches
            for machine in self._machines.values():
                machine.show_gpus(switches.get(machine.record.name, Switches()))
        if now >= self._next_look_at_all:
            self._look_at_all(switches)
            self._next_look_at_all = now + _LOOK_AT_ALL_S
        for server, (when, pause) in list(self._restless.items()):
            if now < when:
                continue
            if self._look(server, self._api.server(server), switches):
                del self._restless[server]
            else:
                self._restless[server] = (now + pause, min(2 * pause, _LOOK_AGAIN_MAX_S))
        for machine in self._machines.values():
            machine.tick(switches.get(machine.record.name, Switches()))

    def _look_at_all(self, switches: Mapping[str, Switches]) -> None:
        servers = {server["id"]: server for server in self._api.servers()}
        for gone in set(self._machines) - set(servers):
            self._look(gone, None, switches)
        for server_id, server in servers.items():
            if not self._look(server_id, server, switches):
                self._restless.setdefault(server_id, (0.0, _LOOK_AGAIN_S))

    def _look(self, server_id: str, server: dict[str, Any] | None, switches: Mapping[str, Switches]) -> bool:
        """Do to the machine what the server's state asks for; return whether nothing happens to the server any more."""
        machine = self._machines.get(server_id)
        if server is None:
            if machine is not None:
                machine.scrap()
                del self._machines[server_id]
            return True
        if server["OS-EXT-STS:task_state"] is not None or server["status"] in ("BUILD", "REBUILD"):
            return False
        if server["status"] == "SHUTOFF" and machine is not None and machine.record.state != "off":
            machine.power_off()
        if server["status"] == "ACTIVE":
            self._should_run(server, switches.get(server["name"], Switches()))
        return True

    def _should_run(self, server: dict[str, Any], switches: Switches) -> None:
        machine = self._machines.get(server["id"])
        if machine is None:
            machine = Machine(self._hall, Record(server["id"], server["name"], "", 0, 0))
            self._machines[server["id"]] = machine
        if machine.record.generation != server["OS-SRV-USG:launched_at"]:
            machine.boot(server, switches)
        elif machine.record.state == "off":
            machine.power_on(switches)
