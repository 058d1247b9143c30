"""What one machine of the lab starts as slurmd: the user-data's options, and what hardware and image add to them.

Pure: texts in, argument list out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from fmlab.cloud_init import NotUnderstood
from fmlab.switches import Switches

_WITH_VALUE = ("-N", "--conf", "--instance-id", "--instance-type", "--extra")
_FLAGS = ("-Z", "-b", "-v", "-vv", "-vvv")
_SAID = re.compile(r'(\w+)=("[^"]*"|\S*)')


@dataclass(frozen=True)
class Options:
    """$SLURMD_OPTIONS of the machine's /etc/default/slurmd, split.

    Attributes:
        dynamic: -Z, the node tells slurmctld what it is; else slurm.conf does.
        node: -N.
        conf: --conf, only with -Z.
        instance_id: --instance-id: which server this is.
        extra: --extra: which build this is.
        rest: other options, as they are.
    """

    dynamic: bool
    node: str
    conf: str
    instance_id: str
    extra: str
    rest: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: list[str]) -> Options:
        """Read the words that systemd made of the variable.

        Raises:
            NotUnderstood: an option that this image's slurmd is not known to have, or no node name.
        """
        values = dict.fromkeys(_WITH_VALUE, "")
        flags: list[str] = []
        remaining = iter(words)
        for word in remaining:
            name, equals, value = word.partition("=")
            if word in _FLAGS:
                flags.append(word)
            elif word in _WITH_VALUE:
                values[word] = next(remaining, "")
            elif equals and name.startswith("--") and name in _WITH_VALUE:
                values[name] = value
            else:
                raise NotUnderstood(
                    f"SLURMD_OPTIONS: word {words.index(word) + 1} of {len(words)} is no option known here"
                )
        if not values["-N"]:
            raise NotUnderstood("SLURMD_OPTIONS names no node (-N)")
        rest = [flag for flag in flags if flag not in ("-Z", "-b")]
        if values["--instance-type"]:
            rest += ["--instance-type", values["--instance-type"]]
        conf, instance_id, extra = values["--conf"], values["--instance-id"], values["--extra"]
        return cls("-Z" in flags, values["-N"], conf, instance_id, extra, tuple(rest))


@dataclass(frozen=True)
class Hardware:
    """What the machine is and where it stands.

    Attributes:
        hostname: of this computer; all machines of the lab are on it.
        port: of its slurmd on 127.0.0.1 (a node of slurm.conf has it from there).
        cpus: as the flavor says.
        memory_mib: as the flavor says.
        gpus: how many GPUs are in it.
    """

    hostname: str
    port: int
    cpus: int
    memory_mib: int
    gpus: int


def misbehave(options: Options, switches: Switches, previous_extra: str) -> Options:
    """Return the options of a machine with these switches; `previous_extra` is what it said at the boot before."""
    if switches.registers_as:
        options = replace(options, node=switches.registers_as)
    if switches.old_build:
        options = replace(options, extra=previous_extra or "fm_build=none-before")
    if switches.gpus_counted is not None:
        conf = re.sub(r"(?i)\b(gres=gpu(?::[a-z]\w*)?):\d+", rf"\g<1>:{switches.gpus_counted}", options.conf)
        options = replace(options, conf=conf)
    return options


def describe(conf: str, hardware: Hardware) -> str:
    """Return --conf with the facts of the hardware; what the user-data says itself stays."""
    said = {key.lower() for key, _ in _SAID.findall(conf)}
    facts = {"NodeHostname": hardware.hostname, "NodeAddr": "127.0.0.1", "Port": hardware.port}
    if not said & {"cpus", "boards", "sockets", "socketsperboard"}:
        facts["CPUs"] = hardware.cpus
    facts["RealMemory"] = hardware.memory_mib
    more = " ".join(f"{key}={value}" for key, value in facts.items() if key.lower() not in said)
    return f"{conf} {more}".strip()


def command(options: Options, hardware: Hardware, sbin: Path) -> list[str]:
    """Return the argv of the machine's slurmd.

    -D keeps it in the foreground, -d names the slurmstepd that belongs to it, -b makes it report that its node booted.
    """
    argv = [str(sbin / "slurmd"), "-D", "-d", str(sbin / "slurmstepd"), "-b", "-N", options.node, *options.rest]
    if options.dynamic:
        argv += ["-Z", "--conf", describe(options.conf, hardware)]
    if options.instance_id:
        argv += ["--instance-id", options.instance_id]
    if options.extra:
        argv += ["--extra", options.extra]
    return argv
