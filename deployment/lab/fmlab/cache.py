"""The downloads and builds that the labs of this user share, in `${XDG_CACHE_HOME:-~/.cache}/fleet-manager/`.

Each thing has a folder named by what it is and a key over all that it is made of: another recipe is another folder,
and nothing is updated in place. A folder counts only with its `.complete` marker, which is written last: an interrupted
build is wiped and done again, and a lock lets two runs that want the same thing at once build it once.

Must not hold state of a running lab, and must not be needed to stop one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fmlab.procs import Say

COMPLETE = ".complete"


def cache_dir() -> Path:
    """Return the cache's folder, made if it is missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base).resolve() / "fleet-manager"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def key_of(*parts: str | bytes | Path) -> str:
    """Return a short hash over texts, bytes and the contents of files (a path stands for its file)."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        total.update(hashlib.sha256(data).digest())  # hashed one by one: ("ab", "c") and ("a", "bc") differ
    return total.hexdigest()[:12]


@contextmanager
def file_lock(path: Path, *, say: Say = print, what: str = "") -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel drops it when this process dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that has {what or path.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def locked_build(
    name: str, key: str, build: Callable[[Path], None], *, in_place: bool = False, say: Say = print
) -> Path:
    """Return the finished folder `NAME-KEY` of the cache, building it first if it is not there.

    Args:
        name: what it is ("slurm-sid", "nova").
        key: `key_of` everything it is made of.
        build: fills the empty folder that it is given; whatever it raises leaves nothing that counts.
        in_place: give `build` the final folder, for what holds its own absolute path inside (a virtualenv, an RPATH);
            else it builds beside and a rename puts it in place.
        say: told when another run has the lock.

    Returns:
        The folder, which nobody may change afterwards.
    """
    root = cache_dir()
    final = root / f"{name}-{key}"
    if (final / COMPLETE).exists():
        return final
    with file_lock(root / ".locks" / final.name, say=say, what=f"{final.name} under construction"):
        if (final / COMPLETE).exists():
            return final
        building = final if in_place else root / f".building-{final.name}"
        for leftover in {final, building}:
            if leftover.exists():
                shutil.rmtree(leftover)
        building.mkdir(parents=True)
        build(building)
        (building / COMPLETE).touch()
        if building != final:
            building.rename(final)
    return final
