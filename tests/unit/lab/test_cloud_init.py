"""User-data is read as cloud-init reads it, or refused; an error never holds a piece of it."""

import base64
import gzip
from pathlib import PurePosixPath
from typing import Any

import pytest

from fmlab.cloud_init import NotUnderstood, decode, instance_data, read

SERVER: dict[str, Any] = {
    "id": "0e0f-uuid",
    "name": "gpu-a-1",
    "tenant_id": "p1",
    "metadata": {"fm_build": "b-7", "with-hyphen": "h"},
    "OS-EXT-SRV-ATTR:hostname": "gpu-a-1",
    "OS-EXT-AZ:availability_zone": "nova",
}
HEAD = "## template: jinja\n#cloud-config\n"


def read_text(text: str) -> Any:
    return read(text.encode(), instance_data(SERVER))


def content(body: str) -> str:
    """Return what the one file of the cloud-config holds."""
    [file] = read_text(f"{HEAD}write_files:\n- path: /f\n  content: |\n    {body}\n").files
    return str(file.content.decode()).removesuffix("\n")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("ds.meta_data.uuid", "0e0f-uuid"),
        ("ds.meta_data.name", "gpu-a-1"),
        ("ds.meta_data.meta.fm_build", "b-7"),
        ("ds.meta_data.meta['fm_build']", "b-7"),
        ("ds.meta_data.meta.with_hyphen", "h"),
        ("ds.meta_data.hostname", "gpu-a-1.novalocal"),
        ("ds.meta_data.local_hostname", "gpu-a-1.novalocal"),
        ("v1.instance_id", "0e0f-uuid"),
        ("v1.local_hostname", "gpu-a-1"),
        ("instance_id", "0e0f-uuid"),
        ("v1.cloud_name", "openstack"),
    ],
)
def test_a_template_has_the_variables_of_instance_data(expression: str, value: str) -> None:
    assert content("{{ " + expression + " }}") == value


def test_without_the_template_line_braces_are_plain_text() -> None:
    [file] = read_text("#cloud-config\nwrite_files: [{path: /f, content: '{{ x }}'}]").files
    assert file.content == b"{{ x }}"


def test_a_file_has_its_path_content_and_permissions() -> None:
    [file] = read_text('#cloud-config\nwrite_files:\n- {path: /etc/a, content: x, permissions: "0600"}').files
    assert (file.path, file.content, file.mode, file.append) == (PurePosixPath("/etc/a"), b"x", 0o600, False)


def test_permissions_are_0644_by_default_and_may_be_a_yaml_number() -> None:
    files = read_text("#cloud-config\nwrite_files: [{path: /a}, {path: /b, permissions: 0640}]").files
    assert [file.mode for file in files] == [0o644, 0o640]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("b64", base64.b64encode(b"x y").decode()),
        ("base64", base64.b64encode(b"x y").decode()),
        ("gz+b64", base64.b64encode(gzip.compress(b"x y", mtime=0)).decode()),
    ],
)
def test_a_files_content_may_be_encoded(encoding: str, data: str) -> None:
    [file] = read_text(f"#cloud-config\nwrite_files: [{{path: /f, encoding: {encoding}, content: {data}}}]").files
    assert file.content == b"x y"


def test_a_command_is_a_list_or_a_line() -> None:
    config = read_text("#cloud-config\nruncmd:\n- [systemctl, start, slurmd]\n- systemctl start slurmd\n")
    assert config.commands == (("systemctl", "start", "slurmd"), ("systemctl", "start", "slurmd"))


def test_novas_base64_may_have_line_breaks_and_hold_gzip() -> None:
    zipped = base64.encodebytes(gzip.compress(b"#cloud-config\n" + bytes(range(48, 123)) * 9)).decode()
    assert "\n" in zipped.strip()
    assert decode(zipped).startswith(b"#cloud-config\n0123")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho s3cret\n", "no #cloud-config at its beginning"),
        ("## template: jinja\ns3cret\n", "no #cloud-config after the template line"),
        (HEAD + "x: {{ ds.meta_data.meta.missing }}", "a template variable is not there: .*'missing'"),
        (HEAD + "x: {{ s3cret", r"the template is no jinja \(line 3\)"),
        ("#cloud-config\na: [s3cret\nb: }", r"the cloud-config is no YAML \(line 3\)"),
        ("#cloud-config\n- s3cret", "no mapping"),
        ("#cloud-config\nusers: [s3cret]", r"modules \['users'\]"),
        ("#cloud-config\nwrite_files: s3cret", "write_files is no list"),
        ("#cloud-config\nwrite_files: [{path: etc/s3cret}]", "entry 1: its path"),
        ("#cloud-config\nwrite_files: [{path: /a/../../s3cret}]", "entry 1: its path"),
        ("#cloud-config\nwrite_files: [{path: /a, defer: true}]", r"entry 1: keys \['defer'\]"),
        ("#cloud-config\nwrite_files: [{path: /a, owner: s3cret}]", "entry 1: an owner"),
        ("#cloud-config\nwrite_files: [{path: /a, permissions: s3cret}]", "entry 1: its permissions"),
        ("#cloud-config\nwrite_files: [{path: /a, encoding: s3cret}]", "entry 1: its encoding"),
        ("#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: s3cret}]", "entry 1: its content"),
        ("#cloud-config\nruncmd: [{s3cret: 1}]", "runcmd entry 1"),
    ],
)
def test_what_is_not_understood_is_refused_without_showing_it(text: str, message: str) -> None:
    with pytest.raises(NotUnderstood, match=message) as refused:
        read_text(text)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
