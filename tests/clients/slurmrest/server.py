"""A real HTTP server on loopback that answers as a test says: late, wrongly, never, or with a recorded answer.

Written on asyncio's streams and not on a web framework, because the tests are about what frameworks hide: connections
that are counted, dropped and kept, bodies that end early, headers that are exactly these.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "slurmrestd"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def token(self) -> str:
        return self.headers.get("x-slurm-user-token", "")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: bool = False
    """Close the connection instead of answering."""
    close: bool = False
    """Answer, and close it then, as slurmrestd does after every error."""

    @property
    def wire(self) -> bytes:
        text = self.body if isinstance(self.body, str | bytes) else json.dumps(self.body)
        data = text.encode() if isinstance(text, str) else text
        kind = "text/plain" if isinstance(self.body, str | bytes) else "application/json"
        headers = {"Content-Type": kind, "Content-Length": str(len(data)), **self.headers}
        if self.close:
            headers["Connection"] = "Close"
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items() if value)
        return f"HTTP/1.1 {self.status} X\r\n{head}\r\n".encode() + data


Handler = Callable[[Request], Reply | Awaitable[Reply]]


@dataclass
class Server:
    """Who was asked what, over how many connections."""

    handler: Handler
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    opened: int = 0
    open_now: int = 0
    most_open: int = 0
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def asked(self, method: str, part: str = "") -> list[Request]:
        return [one for one in self.requests if one.method == method and part in one.path]

    def drop_idle(self) -> None:
        """Close every connection, as a restarted server does."""
        for writer in self.writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        self.writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        finally:
            self.open_now -= 1
            self.writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, path, headers, body)
        self.requests.append(request)
        found = self.handler(request)
        reply = found if isinstance(found, Reply) else await found
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.drop:
            writer.transport.abort()
            return False
        writer.write(reply.wire)
        await writer.drain()
        return not reply.close


@contextlib.asynccontextmanager
async def running(handler: Handler) -> AsyncIterator[Server]:
    """Serve on a free port of loopback."""
    server = Server(handler)
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def recorded(server: str, version: str, name: str) -> dict[str, Any]:
    """Return one recorded answer: its `request` and its `response`."""
    found: dict[str, Any] = json.loads((DATA / server / version / f"{name}.json").read_text())
    return found


def reply_of(record: dict[str, Any]) -> Reply:
    response = record["response"]
    return Reply(response["status"], response["body"], close=response["headers"].get("Connection") == "Close")


OPENAPI_26_05 = {
    "info": {"x-slurm": {"release": "26.05.5"}},
    "paths": {
        "/slurm/v0.0.45/nodes/": {"get": {}, "post": {}},
        "/slurm/v0.0.45/node/{node_name}": {"get": {}, "post": {}, "delete": {}},
        "/slurm/v0.0.45/job/submit": {"post": {}},
        "/slurm/v0.0.45/job/{job_id}": {"get": {}, "delete": {}},
        "/slurm/v0.0.45/reservation/{reservation_name}": {"get": {}, "delete": {}},
        "/slurm/v0.0.45/reservation": {"post": {}},
        "/slurm/v0.0.45/conf": {"get": {}},
        "/slurmdb/v0.0.45/job/{job_id}": {"get": {}},
    },
}


def openapi(version: str, release: str) -> dict[str, Any]:
    """Return the document of a server of one data_parser version and a release."""
    text = json.dumps(OPENAPI_26_05).replace("v0.0.45", version).replace("26.05.5", release)
    found: dict[str, Any] = json.loads(text)
    return found


def envelope(release: str = "26.05.5", **payload: Any) -> dict[str, Any]:
    """Return an answer's body with what stands around the payload."""
    major, minor, micro = release.split(".")
    version = {"major": major, "minor": minor, "micro": micro}
    meta = {"slurm": {"version": version, "release": release, "cluster": "c"}}
    return {"errors": [], "warnings": [], "meta": meta, **payload}


def complaint(number: int, description: str = "Unable", error: str = "because") -> dict[str, Any]:
    return {"description": description, "error_number": number, "error": error, "source": "test"}
