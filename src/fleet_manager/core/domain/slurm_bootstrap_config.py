"""What a SLURM node of one device role at one site is built from, and the rules its user-data must keep.

The hub is the authority; HPC writes it, adoption reads it there and then. Pure: no I/O. The user-data holds secrets:
it is wrapped so that no repr, log line or Temporal payload can carry it, and no rule's sentence quotes it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Any, NoReturn

from pydantic import AwareDatetime, BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

BIRTH_REASON = "fm:born new build"
"""The reason a new node registers with, unless the site's settings name another; recognised only before a verdict."""

MAX_USER_DATA_CHARS = 65_535
"""Nova refuses more base64 characters than this (seen: 65,532 -> 202, 65,536 -> 400)."""

MAX_USER_DATA_BYTES = 49_149
"""The most raw bytes whose base64 fits: 65,532 characters, as base64 comes in fours."""

_FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,62}")
_GRES = re.compile(r"[A-Za-z][A-Za-z0-9_]*(:[A-Za-z][A-Za-z0-9_.-]*)?:[1-9][0-9]{0,5}")
_QUOTES = r"\\*\""
_STATE = re.compile(r"(?<![A-Za-z])State=\s*([A-Za-z]+)", re.IGNORECASE)
_REASON = re.compile(r"(?<![A-Za-z])Reason=", re.IGNORECASE)
_INSTANCE_ID = re.compile(r"--instance-id[\s=,\"'\\]+[^\s\"'\\,-]")
_EXTRA = re.compile(r"--extra[\s=,\"'\\]+fm_build=[^\s\"'\\,]")
_JINJA_USED = re.compile(r"\{\{|\{%")
_JINJA_HEADER = re.compile(r"##\s*template:\s*jinja", re.IGNORECASE)


class UserData:
    """Base64 user-data that shows itself only to `reveal()`.

    repr and str are masked; pickling and JSON raise instead of writing stars, since stars that come back from a
    payload would be booted. Equal and hashable by what it decodes to.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = without_breaks(text)

    def reveal(self) -> str:
        """Return the base64 text without line breaks; only for the call to Nova or to the hub."""
        return self._text

    def __repr__(self) -> str:
        return "UserData(**********)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserData) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> UserData:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UserData:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("user-data is never pickled: read the configuration where it is used")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from_text = core_schema.no_info_after_validator_function(cls, core_schema.str_schema())
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.plain_serializer_function_ser_schema(_never_json, when_used="json"),
        )


def _never_json(value: UserData) -> NoReturn:
    raise ValueError("user-data is never serialised: read the configuration where it is used")


class SlurmBootstrapConfig(BaseModel):
    """The provisioning configuration of one device role at one site.

    Attributes:
        id: the hub's id of the row.
        site: the site's id.
        device_role: unique in its site.
        image: Glance image, by name or id; None fails adoption for the role.
        flavor: Nova flavor, by name or id; None fails adoption for the role.
        features: SLURM features that its nodes carry.
        gres: SLURM's own notation ("gpu:h100:8", a comma between several), "" for none.
        user_data: base64 cloud-init user-data.
        revision: counts the changes; a device records the one it was built from.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: str
    site: str
    device_role: str
    image: str | None
    flavor: str | None
    features: tuple[str, ...] = ()
    gres: str = ""
    user_data: UserData
    revision: int
    created_at: AwareDatetime | None = None
    created_by: str | None = None
    updated_at: AwareDatetime | None = None
    updated_by: str | None = None

    @property
    def user_data_sha256(self) -> str:
        return user_data_sha256(self.user_data.reveal())


def missing_fields(config: SlurmBootstrapConfig) -> tuple[str, ...]:
    """Return which of image and flavor are null or empty; any of them fails adoption for the role."""
    return tuple(name for name, value in (("image", config.image), ("flavor", config.flavor)) if not value)


def without_breaks(text: str) -> str:
    """Return base64 text without the white space that `base64` and YAML fold it with (Nova accepts both forms)."""
    return "".join(text.split())


def user_data_sha256(text: str) -> str:
    """Return the SHA-256 (hex) of what the base64 text decodes to, so that folding does not change it.

    Raises:
        ValueError: the text is not base64.
    """
    return hashlib.sha256(base64.b64decode(without_breaks(text), validate=True)).hexdigest()


def check_user_data(text: str, birth_reason: str = BIRTH_REASON) -> list[str]:
    """Return what is wrong with base64 user-data, a sentence each that says what to write; empty when it may boot.

    The rules: base64 of UTF-8 text within Nova's limit; slurmd is started with `State=DRAIN` and a double-quoted
    reason that is exactly the site's (unquoted, slurmd keeps the first word silently; single quotes break it), and
    with the instance id and build id of the machine's own metadata, which are what proves a build. Comment lines do
    not count. No sentence holds a part of the user-data.
    """
    folded = without_breaks(text)
    if len(folded) > MAX_USER_DATA_CHARS:
        return [
            f"user_data has {len(folded):,} base64 characters; Nova allows at most {MAX_USER_DATA_CHARS:,} "
            f"({MAX_USER_DATA_BYTES:,} bytes before base64): fetch large files at boot instead of carrying them."
        ]
    try:
        script = base64.b64decode(folded, validate=True).decode()
    except (binascii.Error, ValueError):
        return [
            "user_data is not base64 of plain UTF-8 text; write the output of `base64 -w0 FILE`, "
            "not compressed and not the text itself."
        ]
    if not script.strip():
        return ["user_data is empty; write base64 cloud-init user-data that starts slurmd with State=DRAIN."]
    return _check_script(script, birth_reason)


def _check_script(script: str, birth_reason: str) -> list[str]:
    live = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    found = [*_check_state(live), *_check_reason(live, birth_reason)]
    if not _INSTANCE_ID.search(live):
        found.append(
            "user_data does not start slurmd with --instance-id; write `--instance-id {{ v1.instance_id }}` "
            "so that the node says which server it runs on."
        )
    if not _EXTRA.search(live):
        found.append(
            "user_data does not start slurmd with --extra fm_build=; write "
            "`--extra fm_build={{ ds.meta_data.meta.fm_build }}` so that the node says which build it is."
        )
    if _JINJA_USED.search(live) and not _JINJA_HEADER.match(script):
        found.append(
            "user_data uses {{ }} but cloud-init renders templates only when the first line is `## template: jinja`; "
            "write that line first."
        )
    return found


def _check_state(live: str) -> list[str]:
    if not any(value.upper() == "DRAIN" for value in _STATE.findall(live)):
        return [
            "user_data does not start slurmd with State=DRAIN, so a user's job could land before burn-in; "
            "write State=DRAIN in slurmd's --conf."
        ]
    for line in live.splitlines():
        if "--conf" in line and any(value.upper() != "DRAIN" for value in _STATE.findall(line)):
            return ["user_data gives slurmd's --conf a State= other than DRAIN; write State=DRAIN there and no other."]
    return []


def _check_reason(live: str, birth_reason: str) -> list[str]:
    exact = re.compile(rf"(?<![A-Za-z])(?i:Reason)={_QUOTES}{re.escape(birth_reason)}{_QUOTES}")
    conf_lines = [line for line in live.splitlines() if "--conf" in line]
    if exact.search(live) and all(len(exact.findall(line)) == len(_REASON.findall(line)) for line in conf_lines):
        return []
    wrong = (
        "gives slurmd another reason, or one without double quotes"
        if _REASON.search(live)
        else "gives slurmd no reason"
    )
    return [
        f'user_data {wrong}; write exactly Reason="{birth_reason}" in slurmd\'s --conf, in double quotes '
        "(slurmd keeps only the first word of an unquoted reason)."
    ]


def check_features(features: tuple[str, ...]) -> list[str]:
    """Return a sentence for each feature that SLURM would not take, or that is there twice."""
    found = [
        f"feature {feature!r} is not a SLURM feature; allowed are letters, digits and _ . : + -, at most 63 characters."
        for feature in features
        if not _FEATURE.fullmatch(feature)
    ]
    twice = sorted({feature for feature in features if features.count(feature) > 1})
    return found + [f"feature {feature!r} is there twice; write it once." for feature in twice]


def check_gres(gres: str) -> list[str]:
    """Return a sentence for each part of a GRES text that has no name or no count ("gpu:h100:8" has both)."""
    parts = gres.split(",") if gres else []
    return [
        f"gres {part!r} is not name:count or name:type:count with a count of 1 or more; write for example gpu:h100:8."
        for part in parts
        if not _GRES.fullmatch(part)
    ]
