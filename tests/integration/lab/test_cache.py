"""The lab's cache: what counts is whole, whatever interrupted the run that made it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.slurm_site import LAB

from fmlab.cache import cache_dir, key_of, locked_build


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fleet-manager"


def test_the_cache_lies_where_xdg_says(cache: Path) -> None:
    assert cache_dir() == cache


@pytest.mark.parametrize("in_place", [False, True])
def test_a_thing_is_built_once(cache: Path, in_place: bool) -> None:
    built: list[Path] = []
    for _ in range(2):
        folder = locked_build("thing", "k", lambda where: built.append(where), in_place=in_place)
        assert folder == cache / "thing-k"
    assert len(built) == 1
    assert (built[0] == folder) is in_place


@pytest.mark.parametrize("in_place", [False, True])
def test_a_build_that_fails_leaves_nothing_that_counts(in_place: bool) -> None:
    def fail(where: Path) -> None:
        (where / "half").touch()
        raise KeyboardInterrupt

    def build(where: Path) -> None:
        assert list(where.iterdir()) == []
        (where / "whole").touch()

    with pytest.raises(KeyboardInterrupt):
        locked_build("thing", "k", fail, in_place=in_place)
    assert (locked_build("thing", "k", build, in_place=in_place) / "whole").exists()


def test_another_key_is_another_folder() -> None:
    assert locked_build("thing", "a", lambda _: None) != locked_build("thing", "b", lambda _: None)


def test_two_runs_at_once_build_once(tmp_path: Path) -> None:
    code = """
import time
from fmlab.cache import cache_dir, locked_build
def build(where):
    with (cache_dir() / "builds").open("a") as log:
        log.write("built\\n")
    time.sleep(0.5)
locked_build("thing", "k", build)
"""
    env = {**os.environ, "PYTHONPATH": str(LAB)}
    runs = [subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [run.wait(30) for run in runs] == [0, 0, 0]
    assert (cache_dir() / "builds").read_text() == "built\n"


def test_a_key_depends_on_every_part_and_on_where_it_ends(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    recipe.write_text("c")
    assert key_of("ab", recipe) == key_of("ab", b"c")
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("ab"), key_of("ab", "d")}) == 4
