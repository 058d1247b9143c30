"""ETag and If-Match over a row's revision (RFC 9110 section 13): nobody overwrites what he has not seen."""

from __future__ import annotations

from http import HTTPStatus

from fleet_manager.hub.problems import Problem


def etag(revision: int) -> str:
    return f'"{revision}"'


def check_if_match(if_match: str | None, revision: int, *, required: bool) -> None:
    """Refuse a change of a revision that the caller has not seen; `*` takes any, knowingly.

    Raises:
        Problem: 428 where the header is required and missing, 412 where it names another revision.
    """
    if if_match is None:
        if required:
            raise Problem(
                HTTPStatus.PRECONDITION_REQUIRED,
                "precondition-required",
                "Send If-Match with the ETag of the revision that you read, or If-Match: * to change any revision.",
            )
        return
    tags = [tag.strip() for tag in if_match.split(",")]
    if "*" not in tags and etag(revision) not in tags:
        raise Problem(
            HTTPStatus.PRECONDITION_FAILED,
            "changed-since",
            f"The row is at revision {revision} by now, not at what If-Match names; read it again and decide.",
            headers={"ETag": etag(revision)},
            revision=revision,
        )
