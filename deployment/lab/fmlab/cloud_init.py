"""Read user-data as cloud-init does on a machine of OpenStack, as far as the lab's image needs it.

Understood: plain text or gzip; `#cloud-config`, also as `## template: jinja` with the variables of cloud-init's
instance data; `write_files` and `runcmd`. Everything else is refused: a machine that would boot differently from a real
one is worse than one that does not boot.

User-data holds secrets: an error names the place and the kind of fault, and must never hold a piece of the text.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import jinja2
import jinja2.sandbox
import yaml

_TEMPLATE = re.compile(r"##\s*template:\s*jinja\s*(\r?\n|$)", re.IGNORECASE)
_GZIP, _BASE64 = {"gz", "gzip"}, {"b64", "base64"}


class NotUnderstood(ValueError):
    """The user-data asks for something that this lab's machines cannot do."""


@dataclass(frozen=True)
class WrittenFile:
    """One entry of write_files."""

    path: PurePosixPath
    content: bytes
    mode: int
    append: bool = False


@dataclass(frozen=True)
class CloudConfig:
    """What the machine does at its first boot: write the files, then run the commands."""

    files: tuple[WrittenFile, ...]
    commands: tuple[tuple[str, ...], ...]


def instance_data(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return the jinja variables that cloud-init has on this server.

    Args:
        server: as Nova shows it to an administrator (2.3 and later for `OS-EXT-SRV-ATTR:hostname`).

    Returns:
        `ds.meta_data` with uuid, name, hostname, meta (the server's metadata) ..., and `v1` with instance_id,
        local_hostname ..., whose keys are at the top level too. A key with "-" or "." has an alias with "_" instead.
    """
    hostname = server.get("OS-EXT-SRV-ATTR:hostname") or server["name"]
    zone = server.get("OS-EXT-AZ:availability_zone") or "nova"
    meta_data = {
        "uuid": server["id"],
        "name": server["name"],
        "hostname": f"{hostname}.novalocal",
        "instance-id": server["id"],
        "local-hostname": f"{hostname}.novalocal",
        "availability_zone": zone,
        "project_id": server["tenant_id"],
        "launch_index": 0,
        "meta": dict(server["metadata"]),
    }
    v1 = {"instance-id": server["id"], "local-hostname": hostname, "cloud-name": "openstack", "availability-zone": zone}
    return _with_aliases({**v1, "v1": v1, "ds": {"meta_data": meta_data}})


def _with_aliases(data: Mapping[str, Any]) -> dict[str, Any]:
    named = {key: _with_aliases(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    return named | {re.sub("[-.]", "_", key): value for key, value in named.items()}


def decode(user_data: str) -> bytes:
    """Return the bytes that Nova's base64 stands for (line breaks are allowed), unzipped."""
    try:
        data = base64.b64decode(user_data, validate=False)
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (binascii.Error, OSError, zlib.error):
        raise NotUnderstood("the user-data is no base64, or damaged gzip") from None


def read(user_data: bytes, variables: Mapping[str, Any]) -> CloudConfig:
    """Return what the user-data asks for.

    Raises:
        NotUnderstood: any part of it is not understood.
    """
    try:
        text = user_data.decode()
    except UnicodeDecodeError:
        raise NotUnderstood("the user-data is no text") from None
    header = _TEMPLATE.match(text)
    if header is not None:
        text = _render(text[header.end() :], variables)
    if not re.match(r"#cloud-config\s*(\n|$)", text):
        where = "after the template line" if header is not None else "at its beginning"
        raise NotUnderstood(f"the user-data has no #cloud-config {where}")
    config = _yaml(text)
    if unknown := set(config) - {"write_files", "runcmd"}:
        raise NotUnderstood(f"cloud-config modules {sorted(map(str, unknown))}")
    files = _entries(config, "write_files")
    commands = _entries(config, "runcmd")
    return CloudConfig(
        tuple(_written_file(entry, n) for n, entry in enumerate(files, 1)),
        tuple(_command(entry, n) for n, entry in enumerate(commands, 1)),
    )


def _render(text: str, variables: Mapping[str, Any]) -> str:
    environment = jinja2.sandbox.SandboxedEnvironment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True, extensions=["jinja2.ext.do"]
    )
    try:
        return environment.from_string(text).render(variables)
    except jinja2.UndefinedError as error:
        # cloud-init would warn and leave CI_MISSING_JINJA_VAR/... there; the message holds names of variables only
        raise NotUnderstood(f"a template variable is not there: {error.message}") from None
    except jinja2.TemplateSyntaxError as error:
        raise NotUnderstood(f"the template is no jinja (line {error.lineno + 1})") from None
    except Exception as error:  # whatever an expression in the template raises
        raise NotUnderstood(f"the template fails with {type(error).__name__}") from None


def _yaml(text: str) -> dict[Any, Any]:
    try:
        config = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise NotUnderstood(f"the cloud-config is no YAML (line {line})") from None
    except yaml.YAMLError:
        raise NotUnderstood("the cloud-config is no YAML") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise NotUnderstood("the cloud-config is no mapping")
    return config


def _entries(config: dict[Any, Any], module: str) -> list[Any]:
    entries = config.get(module, [])
    if not isinstance(entries, list):
        raise NotUnderstood(f"{module} is no list")
    return entries


def _written_file(entry: object, number: int) -> WrittenFile:
    where = f"write_files entry {number}"
    if not isinstance(entry, dict):
        raise NotUnderstood(f"{where} is no mapping")
    if unknown := set(entry) - {"path", "content", "permissions", "encoding", "owner", "append"}:
        raise NotUnderstood(f"{where}: keys {sorted(map(str, unknown))}")
    path = PurePosixPath(str(entry.get("path", "")))
    if not path.is_absolute() or ".." in path.parts:
        raise NotUnderstood(f"{where}: its path is not absolute")
    if entry.get("owner", "root:root") not in ("root", "root:root"):
        raise NotUnderstood(f"{where}: an owner other than root")
    content = _decoded(entry.get("content", ""), str(entry.get("encoding", "text/plain")).lower(), where)
    return WrittenFile(path, content, _mode(entry.get("permissions", 0o644), where), entry.get("append") is True)


def _decoded(content: object, encoding: str, where: str) -> bytes:
    data = content if isinstance(content, bytes) else str(content if content is not None else "").encode()
    if encoding == "text/plain":
        return data
    steps = set(encoding.split("+"))
    if not steps or steps - _GZIP - _BASE64:
        raise NotUnderstood(f"{where}: its encoding")
    try:
        if steps & _BASE64:
            data = base64.b64decode(data)
        return gzip.decompress(data) if steps & _GZIP else data
    except (binascii.Error, OSError, zlib.error, EOFError):
        raise NotUnderstood(f"{where}: its content is not in its encoding") from None


def _mode(permissions: object, where: str) -> int:
    try:
        # a number is what YAML made of 0600; a text is octal digits
        mode = permissions if isinstance(permissions, int) else int(str(permissions), 8)
    except ValueError:
        raise NotUnderstood(f"{where}: its permissions") from None
    if not 0 <= mode <= 0o7777:
        raise NotUnderstood(f"{where}: its permissions")
    return mode


def _command(entry: object, number: int) -> tuple[str, ...]:
    if isinstance(entry, list):
        return tuple(str(word) for word in entry)
    if isinstance(entry, str):
        try:
            return tuple(shlex.split(entry))
        except ValueError:
            pass
    raise NotUnderstood(f"runcmd entry {number}")
