"""What the hub says and logs when it fails itself: a problem with the request's id, and no text of an exception."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from tests.integration.hub.support import SECRET, Lab

from fleet_manager.hub.app import create_app
from fleet_manager.hub.logs import CONTEXT, JsonFormatter, PlainFormatter, RequestContext


class DriverError(Exception):
    """As a driver words it: the row that it refused is in the text."""


ROW = f"Failing row contains (dev-1, {SECRET})"


@asynccontextmanager
async def failing(tmp_path: Path, error: Exception) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Lab.make(tmp_path).settings())

    @app.get("/fail")
    async def fail() -> None:
        raise error

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://hub") as http:
        yield http
    await app.state.hub.database.close()


@pytest.mark.parametrize(
    "error,status,slug",
    [
        (RuntimeError(ROW), 500, "internal"),
        (IntegrityError("INSERT", {"user_data": SECRET}, DriverError(ROW)), 500, "internal"),
        (OperationalError("SELECT", {}, DriverError("connection refused")), 503, "database"),
    ],
)
async def test_a_failure_is_a_problem_and_its_text_is_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, status: int, slug: str
) -> None:
    async with failing(tmp_path, error) as http:
        answer = await http.get("/fail", headers={"X-Request-ID": "request-0001"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:fleet-manager:problem:{slug}"
    assert answer.headers["x-request-id"] == "request-0001"
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert SECRET not in answer.text + "".join(lines)
    told = next(json.loads(line) for line in lines if "request failed" in line)
    assert type(error).__name__ in told["error"]
    assert "test_faults.py" in told["error"]


async def test_a_database_that_is_away_says_when_to_try_again(tmp_path: Path) -> None:
    async with failing(tmp_path, OperationalError("SELECT", {}, DriverError("x"))) as http:
        answer = await http.get("/fail")
    assert answer.headers["retry-after"] == "2"


def record(**extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "%s done", "args": ("it",), "levelname": "INFO", "name": "hub"})
    vars(made).update(extra)
    return made


def test_a_line_carries_its_request_and_its_facts() -> None:
    token = CONTEXT.set(RequestContext("request-0001", "agent"))
    try:
        line = json.loads(JsonFormatter().format(record(duration_ms=3)))
    finally:
        CONTEXT.reset(token)
    assert (line["message"], line["request_id"], line["client_id"], line["duration_ms"]) == (
        "it done",
        "request-0001",
        "agent",
        3,
    )


def test_a_plain_line_has_the_same_facts() -> None:
    assert PlainFormatter().format(record(duration_ms=3)).endswith("INFO    it done  duration_ms=3")


def test_a_message_of_several_lines_stays_one_line_in_json() -> None:
    assert "\n" not in JsonFormatter().format(record(msg="a\nb", args=()))
