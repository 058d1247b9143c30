"""Recorded answers of a real cloud (`tests/data/nova`), as bytes and as replies."""

import json
from pathlib import Path
from typing import Any

from fleet_manager.core.clients.nova.sdk import Reply

DATA = Path(__file__).parents[2] / "data" / "nova"


def answer(name: str) -> dict[str, Any]:
    """Return a recorded response: status, headers, body."""
    response: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())["response"]
    return response


def body(name: str) -> bytes:
    return json.dumps(answer(name)["body"]).encode()


def reply(name: str) -> Reply:
    recorded = answer(name)
    headers = {key.lower(): value for key, value in recorded["headers"].items()}
    return Reply(
        status=recorded["status"],
        url="http://nova.test/v2.1/servers?tags=x",
        request_id=headers.get("x-openstack-request-id", ""),
        retry_after=headers.get("retry-after"),
        content=body(name),
    )
