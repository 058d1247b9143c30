"""RFC 9457 problems: the one form of every error of the hub's API. No problem quotes a secret or a request's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An answer of no, told in a sentence that says what is allowed.

    Attributes:
        extra: further members of the problem, such as `allowed`, `errors` or `scope`.
    """

    def __init__(
        self,
        status: HTTPStatus,
        slug: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self) -> JSONResponse:
        body = {
            "type": f"urn:fleet-manager:problem:{self.slug}",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
            **self.extra,
        }
        return JSONResponse(body, int(self.status), headers=self.headers, media_type=MEDIA_TYPE)


def not_found(detail: str) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "not-found", detail)


def invalid(sentences: Sequence[str], allowed: Mapping[str, Any] | None = None) -> Problem:
    """Return a 422 that joins the sentences in `detail` and lists them in `errors`."""
    extra: dict[str, Any] = {"errors": list(sentences)}
    if allowed:
        extra["allowed"] = dict(allowed)
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", " ".join(sentences), **extra)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this class only
    return error.response()


async def _on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    return Problem(status, slug, str(error.detail), headers=error.headers).response()


async def _on_validation(request: Request, error: Exception) -> JSONResponse:
    """Tell what is wrong and where, never what was sent: pydantic's own errors quote the input."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    if request.method in ("POST", "PATCH") and "json" not in request.headers.get("content-type", ""):
        detail = (
            "Send the body as JSON with Content-Type: application/json (curl: -H 'Content-Type: application/json')."
        )
        return Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-json", detail).response()
    sentences = [_sentence(item) for item in error.errors()[:20]]
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return Problem(HTTPStatus.BAD_REQUEST, "not-json", "The body is not JSON; send application/json.").response()
    return invalid(sentences).response()


def _sentence(item: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"] if part not in ("body", "query", "path"))
    if item["type"] == "extra_forbidden":
        return f"{where}: there is no such field."
    if item["type"] == "missing":
        return f"{where or 'body'}: required and not there."
    message = str(item["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where}: {message}." if where else f"{message}."
