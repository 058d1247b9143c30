"""The switches that make a machine of the lab misbehave, by server name, in DIR/state/metal/switches.json.

A switch acts on boots that begin after it is set; `fails-burn-in` acts at once. Several can be set for one machine.

    never-boots          the server is ACTIVE, nothing ever registers
    boots-late=SECONDS   slurmd starts that much later
    gpus=N               N GPUs are in the machine; the user-data still claims its own number, so SLURM refuses the
                         registration: INVALID_REG, "gres/gpu count reported lower than configured (7 < 8)"
    gpus-counted=N       the same, and the image counts its GPUs: the node says gpu:...:N of itself
    registers-as=NAME    the node has another name than the server
    reboots-in-burn-in   slurmd and its steps die when a job runs there, once per boot, and slurmd starts anew
    fails-burn-in        nvidia-smi fails on it
    old-build            the node says the build id of the boot before
    less-memory=MIB      so much less memory than the flavor's
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Switches:
    """What is wrong with one machine; nothing by default."""

    never_boots: bool = False
    boots_late: float = 0.0
    gpus: int | None = None
    gpus_counted: int | None = None
    registers_as: str = ""
    reboots_in_burn_in: bool = False
    fails_burn_in: bool = False
    old_build: bool = False
    less_memory: int = 0


_PARSERS = {
    "never-boots": bool,
    "boots-late": float,
    "gpus": int,
    "gpus-counted": int,
    "registers-as": str,
    "reboots-in-burn-in": bool,
    "fails-burn-in": bool,
    "old-build": bool,
    "less-memory": int,
}
assert {kind.replace("-", "_") for kind in _PARSERS} == {field.name for field in fields(Switches)}


def parse(kinds: list[str]) -> Switches:
    """Return the switches that are written like `gpus=7`.

    Raises:
        ValueError: an unknown kind, or a value that is missing, superfluous or no number; says which are known.
    """
    found: dict[str, object] = {}
    for text in kinds:
        kind, given, value = text.partition("=")
        kind_parser = _PARSERS.get(kind)
        if kind_parser is None:
            raise ValueError(f"no switch {kind!r}: there are {', '.join(_PARSERS)}")
        if (kind_parser is bool) == bool(given) or (given and not value):
            raise ValueError(f"{kind} takes {'no' if kind_parser is bool else 'a'} value: {text!r}")
        try:
            found[kind.replace("-", "_")] = kind_parser(value) if given else True
        except ValueError:
            raise ValueError(f"{kind} takes a number, not {value!r}") from None
    return Switches(**found)  # type: ignore[arg-type]


def switches_file(folder: Path) -> Path:
    return folder / "state" / "metal" / "switches.json"


def load(folder: Path) -> Mapping[str, Switches]:
    """Return the switches of each server name that has any."""
    try:
        written = json.loads(switches_file(folder).read_text())
    except FileNotFoundError:
        return {}
    return {name: parse(kinds) for name, kinds in written.items()}


def switch(folder: Path, name: str, *kinds: str) -> None:
    """Set the switches of a server name to exactly these; none sets the machine right again.

    Raises:
        ValueError: see `parse`; nothing is changed then.
    """
    parse(list(kinds))
    file = switches_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = json.loads(file.read_text()) if file.exists() else {}
    written = {**written, name: list(kinds)} if kinds else {k: v for k, v in written.items() if k != name}
    new = file.with_suffix(".new")
    new.write_text(json.dumps(written, indent=2) + "\n")
    new.rename(file)
