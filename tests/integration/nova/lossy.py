"""A proxy before the real Nova that loses answers: the write happens, and who sent it does not hear of it."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_HOP = frozenset({"connection", "transfer-encoding", "content-length", "date", "server"})


@dataclass
class Lossy:
    """The proxy: answers of the next writes to `/servers` are lost, one for each entry of `lose`.

    "503": a proxy's page instead. "cut": the connection closes. "hold": it comes after `release`; `reached` says that
    Nova has done its part.
    """

    nova: str
    url: str = ""
    lose: list[str] = field(default_factory=list)
    lost: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def clouds_yaml(self, real: Path, folder: Path) -> Path:
        """Write a clouds.yaml whose clouds reach Nova through the proxy."""
        config = json.loads(real.read_text())
        for cloud in config["clouds"].values():
            cloud["compute_endpoint_override"] = self.url
        file = folder / "clouds.yaml"
        file.write_text(json.dumps(config))
        return file


def _handler(lossy: Lossy) -> type[BaseHTTPRequestHandler]:
    where = urlsplit(lossy.nova)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            nova = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
            try:
                nova.request(self.command, self.path, body, {**dict(self.headers), "Connection": "close"})
                answer = nova.getresponse()
                content = answer.read()
            finally:
                nova.close()
            how = lossy.lose.pop(0) if lossy.lose and self.command == "POST" and answer.status == 202 else ""
            lossy.lost += bool(how)
            if how == "hold":
                lossy.reached.set()
                lossy.release.wait(60)
            if how == "cut":
                self.close_connection = True
            elif how == "503":
                self._give(503, [], b"<html>no backend</html>")
            else:
                self._give(answer.status, answer.getheaders(), content)

        def _give(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = forward

        def log_message(self, *_: object) -> None:
            return

    return Handler


@contextmanager
def lossy_proxy(nova: str) -> Iterator[Lossy]:
    """Serve a proxy before the Nova of that address, on a free port."""
    lossy = Lossy(nova)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lossy))
    lossy.url = f"http://127.0.0.1:{server.server_address[1]}{urlsplit(nova).path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield lossy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
