"""Talk to the lab's cloud as one of the clouds of its clouds.yaml: raw requests, raw answers.

For the lab's own programs and tests, which want to see exactly what Nova says. Production code has its own client
(`fleet_manager.core.clients.nova`); this must not be used there, and must not log what it is told: answers hold
user-data and passwords.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

MICROVERSION = "2.74"  # create with tags and a host, rebuild with user-data


class NovaApi:
    """One user of the cloud. Authenticates at the first request and again after a 401; closes as a context manager."""

    def __init__(self, clouds_yaml: Path, cloud: str) -> None:
        self._config: dict[str, Any] = json.loads(clouds_yaml.read_text())["clouds"][cloud]
        self._http = httpx.Client(timeout=60, trust_env=False)
        self._token = ""
        self._catalog: dict[str, str] = {}

    def __enter__(self) -> NovaApi:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(
        self, method: str, path: str, body: object = None, *, service: str = "compute", version: str = MICROVERSION
    ) -> httpx.Response:
        """Send one request to a service of the catalog ("compute", "image", "network", "placement")."""
        if not self._token:
            self._authenticate()
        answer = self._send(method, path, body, service, version)
        if answer.status_code == 401:
            self._authenticate()
            answer = self._send(method, path, body, service, version)
        return answer

    def get(self, path: str, *, service: str = "compute") -> Any:
        """GET a JSON document.

        Raises:
            httpx.HTTPStatusError: the answer is an error; its text holds no body.
        """
        return self.request("GET", path, service=service).raise_for_status().json()

    def server(self, server_id: str) -> dict[str, Any] | None:
        """Return the server, or None when it is gone: 404, or DELETED for a moment before that."""
        answer = self.request("GET", f"/servers/{server_id}")
        if answer.status_code == 404:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()["server"]
        return None if found["status"] == "DELETED" else found

    def servers(self) -> list[dict[str, Any]]:
        """List the servers of all projects, with their details; for the admin only."""
        return list(self.get("/servers/detail?all_tenants=1")["servers"])

    def id_of(self, service: str, path: str, name: str) -> str:
        """Return the id of the one thing with that name in a list, e.g. ("image", "/v2/images", "slurm-node-a")."""
        things = self.get(path, service=service)[path.rsplit("/", 1)[-1]]
        [found] = [thing["id"] for thing in things if thing["name"] == name]
        return str(found)

    def _send(self, method: str, path: str, body: object, service: str, version: str) -> httpx.Response:
        headers = {"X-Auth-Token": self._token}
        if service == "compute":
            headers["OpenStack-API-Version"] = f"compute {version}"
        return self._http.request(method, self._catalog[service] + path, json=body, headers=headers)

    def _authenticate(self) -> None:
        auth = self._config["auth"]
        body: dict[str, Any]
        if "application_credential_id" in auth:  # has its project; a scope beside it would be a 401
            credential = {"id": auth["application_credential_id"], "secret": auth["application_credential_secret"]}
            body = {"identity": {"methods": ["application_credential"], "application_credential": credential}}
        else:
            user = {"name": auth["username"], "domain": {"id": "default"}, "password": auth["password"]}
            scope = {"project": {"name": auth["project_name"], "domain": {"id": "default"}}}
            body = {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}
        answer = self._http.post(f"{auth['auth_url']}/auth/tokens", json={"auth": body}).raise_for_status()
        self._token = answer.headers["X-Subject-Token"]
        for entry in answer.json()["token"]["catalog"]:
            urls = [e["url"] for e in entry["endpoints"] if e["interface"] == "public"]
            self._catalog[entry["type"]] = urls[0]
