"""The hub's log: one line an event, with the request's id. Never a body, a query, a header or an exception's text."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass
class RequestContext:
    """What every line of one request carries; the caller is known once its token has been read."""

    request_id: str
    client_id: str = ""


CONTEXT: ContextVar[RequestContext | None] = ContextVar("hub_request", default=None)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    context = CONTEXT.get()
    facts: dict[str, object] = {"request_id": context.request_id, "client_id": context.client_id} if context else {}
    facts.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
    return {name: value for name, value in facts.items() if value != ""}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info and record.exc_info[1]:
            line["error"] = outline(record.exc_info[1])
        return json.dumps(line, default=str)


class PlainFormatter(logging.Formatter):
    """The same facts for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        facts = " ".join(f"{name}={value}" for name, value in _facts(record).items())
        line = f"{when} {record.levelname:<7} {record.getMessage()}" + (f"  {facts}" if facts else "")
        if record.exc_info and record.exc_info[1]:
            line += "\n" + outline(record.exc_info[1])
        return line


def outline(error: BaseException) -> str:
    """Return where an exception came from and of which class it is, without its text.

    A database's message quotes the row it refused ("Failing row contains ..."), pydantic's quotes its input: both may
    hold user-data.
    """
    lines = []
    seen: BaseException | None = error
    while seen is not None:
        lines.append(
            "".join(traceback.format_tb(seen.__traceback__)) + f"{type(seen).__module__}.{type(seen).__qualname__}"
        )
        seen = seen.__cause__ or seen.__context__
    return "\ncaused by\n".join(lines)


def configure(log_format: str, level: str) -> None:
    """Send every logger of the process to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("alembic", "sqlalchemy", "aiosqlite", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
