"""The `nvidia-smi` of the lab's machines: a small shell program, and what it reads.

A burn-in job has the program's folder in its PATH. It answers for the machine named by $SLURMD_NODENAME out of one file
a node, which the metal writes, and fails as a broken GPU does when that file says so. Jobs run as ordinary users, so
folder, program and files are readable by everybody; nothing secret is in them.
"""

from __future__ import annotations

import uuid
from pathlib import Path

_PROGRAM = r"""#!/bin/sh
# What nvidia-smi says on the machine of the lab that $SLURMD_NODENAME names. Written by fmlab.nvidia_smi.
# Known: -L and --query-gpu=FIELD,... with --format=csv,noheader.
facts="@GPUS@/${SLURMD_NODENAME:-none}"
if [ ! -r "$facts" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." >&2
    exit 9
fi
fields= list= format=
for argument; do
    case $argument in
        --query-gpu=*) fields=$(echo "${argument#*=}" | tr , ' ') ;;
        --format=csv,noheader | --format=csv,noheader,nounits) format=$argument ;;
        -L | --list-gpus) list=1 ;;
        *) echo "Invalid combination of input arguments: $argument (a lab's nvidia-smi)." >&2; exit 2 ;;
    esac
done
read -r health < "$facts"
if [ "$health" = slow ]; then
    sleep 20
elif [ "$health" != ok ]; then
    echo "ERR!"
    exit 1
fi
value() {
    case $1 in
        index) echo "$index" ;;
        uuid | gpu_uuid) echo "$uuid" ;;
        name | gpu_name) echo "$name" ;;
        count) echo "$count" ;;
        driver_version) echo 570.86.15 ;;
        temperature.gpu) echo 34 ;;
        memory.total) case $format in *nounits) echo 81559 ;; *) echo 81559 MiB ;; esac ;;
        ecc.mode.current) echo Enabled ;;
        ecc.errors.corrected.*.total | ecc.errors.uncorrected.*.total) echo 0 ;;
        *) echo "Field \"$1\" is not a valid field to query." >&2; return 2 ;;
    esac
}
[ -n "$list$fields" ] || { echo "say -L or --query-gpu=FIELD,... (a lab's nvidia-smi)" >&2; exit 2; }
[ -n "$list$format" ] || { echo "\"--format=\" must be csv,noheader (a lab's nvidia-smi)" >&2; exit 2; }
count=$(($(wc -l < "$facts") - 1))
tail -n +2 "$facts" | while read -r index uuid name; do
    if [ -n "$list" ]; then
        echo "GPU $index: $name (UUID: $uuid)"
        continue
    fi
    line=
    for field in $fields; do
        got=$(value "$field") || exit 2
        line="${line:+$line, }$got"
    done
    echo "$line"
done
"""


class NvidiaSmi:
    """The program and its facts below one folder that every user can enter."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self._facts = folder / "gpus"

    def install(self) -> None:
        for folder in (self.bin.parent, self.bin, self._facts):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        program = self.bin / "nvidia-smi"
        self._write(program, _PROGRAM.replace("@GPUS@", str(self._facts)), 0o755)

    def describe(self, node: str, gpus: int, healthy: bool, *, slow: bool = False) -> None:
        """Say how many GPUs a node has; not healthy makes every query fail with "ERR!", slow makes it take a while."""
        lines = [f"{n} GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{n}')} NVIDIA H100 80GB HBM3" for n in range(gpus)]
        self._write(
            self._facts / node, "\n".join(["slow" if slow else "ok" if healthy else "broken", *lines]) + "\n", 0o644
        )

    def forget(self, node: str) -> None:
        (self._facts / node).unlink(missing_ok=True)

    @staticmethod
    def _write(path: Path, text: str, mode: int) -> None:
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        new.chmod(mode)
        new.rename(path)
