"""A machine's slurmd is started with the user-data's options and what the hardware adds."""

from dataclasses import replace
from pathlib import Path

import pytest

from fmlab.cloud_init import NotUnderstood
from fmlab.slurmd import Hardware, Options, command, describe, misbehave
from fmlab.switches import Switches, load, parse, switch

CONF = 'Gres=gpu:h100:8 Feature=dynamic,h100 State=DRAIN Reason="fm:born new build"'
WORDS = ["-Z", "-N", "n1", "--instance-id", "i1", "--extra", "fm_build=b1", "--conf", CONF]
HARDWARE = Hardware(hostname="h", port=7, cpus=16, memory_mib=4000, gpus=8)


def test_options_are_read_in_both_spellings() -> None:
    assert Options.of(WORDS) == Options(dynamic=True, node="n1", conf=CONF, instance_id="i1", extra="fm_build=b1")
    assert Options.of(["-N", "n1", "--extra=fm_build=b1"]).extra == "fm_build=b1"


def test_an_unknown_option_is_refused_without_showing_it() -> None:
    with pytest.raises(NotUnderstood, match="word 3 of 3") as refused:
        Options.of(["-N", "n1", "--s3cret"])
    assert "s3cret" not in str(refused.value)


def test_options_without_a_node_are_refused() -> None:
    with pytest.raises(NotUnderstood, match="names no node"):
        Options.of(["-Z"])


def test_the_hardware_adds_what_the_user_data_does_not_say() -> None:
    assert describe(CONF, HARDWARE) == CONF + " NodeHostname=h NodeAddr=127.0.0.1 Port=7 CPUs=16 RealMemory=4000"


def test_the_user_datas_own_cpus_and_memory_stay() -> None:
    assert describe("cpus=2 RealMemory=9", HARDWARE) == "cpus=2 RealMemory=9 NodeHostname=h NodeAddr=127.0.0.1 Port=7"
    assert "CPUs" not in describe("Sockets=2 CoresPerSocket=8", HARDWARE)


def test_a_reasons_words_are_not_taken_for_facts() -> None:
    assert "CPUs=16" in describe('Reason="no CPUs=4 here"', HARDWARE)


def test_a_dynamic_node_describes_itself_and_a_static_one_does_not() -> None:
    options = Options.of(WORDS)
    assert command(options, HARDWARE, Path("/s"))[:7] == ["/s/slurmd", "-D", "-d", "/s/slurmstepd", "-b", "-N", "n1"]
    assert command(options, HARDWARE, Path("/s"))[7:9] == ["-Z", "--conf"]
    static = command(replace(options, dynamic=False), HARDWARE, Path("/s"))
    assert static[7:] == ["--instance-id", "i1", "--extra", "fm_build=b1"]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("registers-as=n2", "node", "n2"),
        ("old-build", "extra", "fm_build=b0"),
        ("gpus-counted=7", "conf", CONF.replace("h100:8", "h100:7")),
        ("gpus=7", "conf", CONF),
        ("fails-burn-in", "conf", CONF),
    ],
)
def test_a_switch_changes_what_the_node_says(kind: str, field: str, value: str) -> None:
    told = misbehave(Options.of(WORDS), parse([kind]), previous_extra="fm_build=b0")
    assert getattr(told, field) == value


def test_an_old_build_without_a_boot_before_says_that_there_was_none() -> None:
    assert misbehave(Options.of(WORDS), Switches(old_build=True), "").extra == "fm_build=none-before"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("explodes", "there are never-boots"),
        ("gpus", "takes a value"),
        ("gpus=x", "number"),
        ("old-build=1", "takes no"),
    ],
)
def test_a_switch_that_is_none_says_what_is(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([kind])


def test_switches_are_kept_by_name_and_none_mends(tmp_path: Path) -> None:
    switch(tmp_path, "n1", "gpus=7", "boots-late=2.5")
    switch(tmp_path, "n2", "never-boots")
    assert load(tmp_path) == {"n1": Switches(gpus=7, boots_late=2.5), "n2": Switches(never_boots=True)}
    switch(tmp_path, "n1")
    assert set(load(tmp_path)) == {"n2"}
