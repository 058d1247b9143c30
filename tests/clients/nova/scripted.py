"""An HTTP server that plays Keystone, Nova and Glance from a script: for what a real cloud will not do on demand.

Every answer is set by method and path; the last one of a path repeats. What came in is kept.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.clients.nova.recorded import answer


@dataclass(frozen=True)
class Answer:
    """One answer; `cut` closes the connection instead, `delay_s` comes before either."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    delay_s: float = 0


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    token: str
    microversion: str
    body: str


@dataclass
class Script:
    """The answers to come and the requests that came."""

    url: str = ""
    answers: dict[tuple[str, str], list[Answer]] = field(default_factory=lambda: defaultdict(list))
    seen: list[Seen] = field(default_factory=list)
    tokens: int = 0

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self.answers[method, path] += answers

    def calls(self, method: str, path: str) -> list[Seen]:
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def clouds_yaml(self, folder: Path, secret: str = "s3cret-hunter2") -> Path:
        file = folder / "clouds.yaml"
        auth = {
            "auth_url": f"{self.url}/v3",
            "application_credential_id": "app",
            "application_credential_secret": secret,
        }
        cloud = {"auth_type": "v3applicationcredential", "region_name": "RegionOne", "auth": auth}
        file.write_text(json.dumps({"clouds": {"scripted": cloud}}))  # JSON is YAML
        return file

    def _next(self, method: str, path: str) -> Answer:
        waiting = self.answers.get((method, path))
        if not waiting:
            return Answer(404, {"itemNotFound": {"code": 404, "message": f"the script has no {method} {path}"}})
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            query = dict(parse_qsl(parts.query))
            token, version = self.headers.get("X-Auth-Token", ""), self.headers.get("OpenStack-API-Version", "")
            script.seen.append(Seen(self.command, parts.path, query, token, version, sent))
            given = script._next(self.command, parts.path)
            time.sleep(given.delay_s)
            if given.cut:
                self.close_connection = True
                return
            self._give(given, parts.path)

        def _give(self, given: Answer, path: str) -> None:
            text = given.body if isinstance(given.body, str) else json.dumps(given.body)
            content = b"" if given.body is None else text.encode()
            headers = {"Content-Type": "application/json", "x-openstack-request-id": f"req-{len(script.seen)}"}
            if path == "/v3/auth/tokens" and given.status == 201:
                script.tokens += 1
                headers["X-Subject-Token"] = f"token-{script.tokens}"
            self.send_response(given.status)
            for name, value in (headers | given.headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            return

    return Handler


@contextmanager
def scripted() -> Iterator[Script]:
    """Serve a script on a free port, with a Keystone that gives a token and a catalog, and version documents."""
    script = Script()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    script.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    script.on("POST", "/v3/auth/tokens", Answer(201, _token(script.url)))
    script.on("GET", "/v2.1", Answer(200, version_document(script.url)))
    script.on("GET", "/v2.1/", Answer(200, version_document(script.url)))
    script.on("GET", "/v2", Answer(200, _glance(script.url)))
    script.on("GET", "/v2/", Answer(200, _glance(script.url)))
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _token(url: str) -> object:
    body = answer("token-appcred")["body"]
    paths = {"identity": "/v3", "compute": "/v2.1", "image": "/v2", "network": ""}
    body["token"]["expires_at"] = "2999-01-01T00:00:00.000000Z"
    body["token"]["catalog"] = [
        {
            "type": kind,
            "name": kind,
            "id": kind,
            "endpoints": [
                {"id": kind, "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": url + path}
            ],
        }
        for kind, path in paths.items()
    ]
    return body


def version_document(url: str, highest: str = "2.104") -> object:
    body = answer("nova-root")["body"]
    body["version"] |= {"version": highest, "links": [{"rel": "self", "href": f"{url}/v2.1/"}]}
    return body


def _glance(url: str) -> object:
    version = {"id": "v2.15", "status": "CURRENT", "links": [{"rel": "self", "href": f"{url}/v2/"}]}
    return {"versions": [version]}
