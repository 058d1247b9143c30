"""A machine's files are written below its own root."""

from pathlib import Path, PurePosixPath

import pytest

from fmlab.cloud_init import CloudConfig, NotUnderstood, WrittenFile
from fmlab.machine import write_files


def config(*files: WrittenFile) -> CloudConfig:
    return CloudConfig(files, ())


def test_a_file_is_written_with_its_mode(tmp_path: Path) -> None:
    write_files(tmp_path, config(WrittenFile(PurePosixPath("/etc/a/b"), b"x", 0o640)))
    assert (tmp_path / "etc/a/b").read_bytes() == b"x"
    assert (tmp_path / "etc/a/b").stat().st_mode & 0o777 == 0o640


def test_a_later_entry_replaces_or_appends(tmp_path: Path) -> None:
    path = PurePosixPath("/a")
    write_files(tmp_path, config(WrittenFile(path, b"long", 0o600), WrittenFile(path, b"x", 0o600)))
    assert (tmp_path / "a").read_bytes() == b"x"
    write_files(tmp_path, config(WrittenFile(path, b"y", 0o600, append=True)))
    assert (tmp_path / "a").read_bytes() == b"xy"


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    files = [WrittenFile(PurePosixPath("/a"), b"", 0o600), WrittenFile(PurePosixPath("/a/b"), b"", 0o600)]
    with pytest.raises(NotUnderstood, match="write_files: /a/b"):
        write_files(tmp_path, config(*files))
