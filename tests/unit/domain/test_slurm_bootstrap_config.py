"""The rules of user-data, features and GRES, and that user-data does not show itself."""

import base64
import copy
import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from fleet_manager.core.domain.slurm_bootstrap_config import (
    BIRTH_REASON,
    SlurmBootstrapConfig,
    UserData,
    check_features,
    check_gres,
    check_user_data,
    missing_fields,
    user_data_sha256,
)

SECRET = "munge-key-4711"
HEADER = "## template: jinja\n#cloud-config\n"
LINE = (
    "slurmd -Z --instance-id {{ v1.instance_id }} --extra fm_build={{ ds.meta_data.meta.fm_build }} "
    "--conf 'Gres=gpu:8 State=DRAIN Reason=\"fm:born new build\"'"
)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def check(line: str, header: str = HEADER) -> list[str]:
    return check_user_data(b64(f"{header}# {SECRET}\nruncmd:\n  - {line}\n"))


def config(**changes: Any) -> SlurmBootstrapConfig:
    values = {"id": "c", "site": "lab", "device_role": "gpu", "image": "i", "flavor": "f", "revision": 1}
    return SlurmBootstrapConfig(**{**values, "user_data": b64(SECRET), **changes})


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE.replace("State=DRAIN", "state=drain").replace("Reason=", "reason="),
        LINE.replace("--instance-id ", "--instance-id=").replace("--extra fm_build=", "--extra=fm_build="),
        LINE.replace("--extra fm_build=", '--extra "fm_build=').replace(" --conf", '" --conf'),
        LINE.replace('"fm:born new build"', '\\"fm:born new build\\"'),
        LINE.replace('"fm:born new build"', '\\\\\\"fm:born new build\\\\\\"'),
        '[slurmd, -Z, --instance-id, "x{{ v1.instance_id }}", --extra, "fm_build={{ b }}", --conf, '
        '"State=DRAIN Reason=\\"fm:born new build\\""]',
        "scontrol update NodeName=x State=FUTURE Reason=whatever\n  - " + LINE,
        "systemctl show -p ActiveState= slurmd\n  - " + LINE,
    ],
)
def test_user_data_that_is_born_drained_and_says_its_build_is_taken(line: str) -> None:
    assert check(line) == []


def test_user_data_may_be_folded() -> None:
    assert check_user_data(base64.encodebytes((HEADER + LINE).encode()).decode()) == []


def test_user_data_without_templates_needs_no_header() -> None:
    script = LINE.replace("{{ v1.instance_id }}", "$ID").replace("{{ ds.meta_data.meta.fm_build }}", "$BUILD")
    assert check_user_data(b64(f"#!/bin/sh\n{script}\n")) == []


@pytest.mark.parametrize(
    "line,word",
    [
        (LINE.replace("State=DRAIN ", ""), "write State=DRAIN"),
        (LINE.replace("State=DRAIN", "State=DOWN"), "write State=DRAIN"),
        (LINE.replace("State=DRAIN", "State=DRAINED"), "write State=DRAIN"),
        (LINE.replace("State=DRAIN", "NodeState=DRAIN"), "write State=DRAIN"),
        (LINE.replace("State=DRAIN", "State=DRAIN State=IDLE"), "State= other than DRAIN"),
        (LINE.replace("Reason=", "Because="), "no reason"),
        (LINE.replace('"fm:born new build"', "fm:born"), "without double quotes"),
        (LINE.replace('"fm:born new build"', "fm:born new build"), "without double quotes"),
        (LINE.replace('"fm:born new build"', "\\'fm:born new build\\'"), "without double quotes"),
        (LINE.replace("fm:born new build", "fm:born new build "), "another reason"),
        (LINE.replace("fm:born new build", "FM:born new build"), "another reason"),
        (LINE.replace("fm:born new build", "fm:born"), 'write exactly Reason="fm:born new build"'),
        (LINE.replace("State=DRAIN", 'State=DRAIN Reason="other"'), "another reason"),
        (LINE.replace("--instance-id {{ v1.instance_id }} ", ""), "--instance-id"),
        (LINE.replace("--instance-id {{ v1.instance_id }} ", "--instance-id "), "--instance-id"),
        (LINE.replace("--extra fm_build={{ ds.meta_data.meta.fm_build }} ", ""), "--extra fm_build="),
        (LINE.replace("fm_build={{ ds.meta_data.meta.fm_build }}", "fm_build="), "--extra fm_build="),
        (LINE.replace("fm_build=", "build="), "--extra fm_build="),
    ],
)
def test_user_data_that_is_not_is_refused_with_what_to_write(line: str, word: str) -> None:
    [sentence] = check(line)
    assert word in sentence
    assert sentence.startswith("user_data ")
    assert SECRET not in sentence


def test_a_comment_does_not_count() -> None:
    assert len(check("true\n  # - " + LINE)) == 4


def test_templates_without_the_header_would_not_be_rendered() -> None:
    [sentence] = check(LINE, header="#cloud-config\n")
    assert "## template: jinja" in sentence


def test_the_sites_own_birth_reason_is_the_one_that_counts() -> None:
    script = b64(HEADER + LINE.replace(BIRTH_REASON, "fm:neu"))
    assert check_user_data(script, "fm:neu") == []
    [sentence] = check_user_data(script)
    assert f'Reason="{BIRTH_REASON}"' in sentence
    assert "neu" not in sentence


@pytest.mark.parametrize(
    "text,word",
    [
        (HEADER + LINE, "base64"),
        ("%%%", "base64"),
        ("QUJ", "base64"),
        (base64.b64encode(b"\x1f\x8b\x08\x00").decode(), "not compressed"),
        ("", "empty"),
        (b64("  \n"), "empty"),
    ],
)
def test_what_is_not_base64_of_text_is_refused(text: str, word: str) -> None:
    [sentence] = check_user_data(text)
    assert word in sentence


def test_the_largest_user_data_that_nova_takes_is_taken() -> None:
    start = (HEADER + LINE + "\n").encode()
    largest = start + b"#" * (49_149 - len(start))
    assert check_user_data(base64.b64encode(largest).decode()) == []
    assert len(base64.b64encode(largest)) == 65_532


def test_one_byte_more_is_refused_with_the_limit() -> None:
    [sentence] = check_user_data(base64.b64encode(b"#" * 49_150).decode())
    assert "65,536 base64 characters" in sentence
    assert "at most 65,535" in sentence


@given(st.text(max_size=300))
def test_no_text_makes_the_rules_fail_or_pass_by_accident(text: str) -> None:
    assert check_user_data(text)
    assert check_user_data(b64(text.encode("utf-8", "ignore").decode()))


def test_the_digest_is_of_what_is_booted_and_not_of_its_folding() -> None:
    folded = base64.encodebytes(b"x" * 200).decode()
    assert user_data_sha256(folded) == hashlib.sha256(b"x" * 200).hexdigest()


@pytest.mark.parametrize(
    "image,flavor,missing",
    [("i", "f", ()), (None, "f", ("image",)), ("i", None, ("flavor",)), ("", None, ("image", "flavor"))],
)
def test_a_null_image_or_flavor_is_missing(image: str | None, flavor: str | None, missing: tuple[str, ...]) -> None:
    assert missing_fields(config(image=image, flavor=flavor)) == missing


@pytest.mark.parametrize("features", [(), ("h100",), ("a-b", "c.d", "rack_7")])
def test_features_that_slurm_takes_are_taken(features: tuple[str, ...]) -> None:
    assert check_features(features) == []


@pytest.mark.parametrize("feature", ["", "a b", "a,b", "a&b", "a|b", "[a]", "(a)", "!a", "a*2", "x" * 64])
def test_features_that_slurm_would_read_as_an_expression_are_refused(feature: str) -> None:
    assert len(check_features((feature,))) == 1


def test_a_feature_that_is_there_twice_is_told_once() -> None:
    assert check_features(("a", "b", "a")) == ["feature 'a' is there twice; write it once."]


@pytest.mark.parametrize("gres", ["", "gpu:8", "gpu:h100:8", "gpu:h100:8,nic:2", "gpu:a100_3g.20gb:4"])
def test_gres_with_a_count_is_taken(gres: str) -> None:
    assert check_gres(gres) == []


@pytest.mark.parametrize("gres", ["gpu", "gpu:h100", "gpu:0", "gpu:h100:0", "gpu:8:h100", "gpu:h100:8,", "gpu: 8"])
def test_gres_without_a_count_is_refused_with_an_example(gres: str) -> None:
    [sentence] = check_gres(gres)
    assert "gpu:h100:8" in sentence


class Holder(BaseModel):
    """What an activity might return by mistake."""

    config: SlurmBootstrapConfig


@pytest.mark.parametrize(
    "show",
    [repr, str, format, lambda c: str(c.model_dump()), lambda c: f"{c.user_data}", lambda c: f"{c.user_data!r:>9}"],
)
def test_user_data_is_masked_wherever_it_is_shown(show: Callable[[SlurmBootstrapConfig], str]) -> None:
    shown = show(config())
    assert b64(SECRET) not in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    "serialise",
    [
        lambda c: c.model_dump_json(),
        lambda c: c.model_dump(mode="json"),
        lambda c: Holder(config=c).model_dump_json(),
        lambda c: TypeAdapter(Any).dump_json(c),
        lambda c: TypeAdapter(Any).dump_json([c.user_data]),
        lambda c: json.dumps(c.model_dump()),
        lambda c: pickle.dumps(c),
        lambda c: pickle.dumps(c.user_data),
    ],
)
def test_user_data_is_never_serialised_not_even_as_stars(serialise: Callable[[SlurmBootstrapConfig], object]) -> None:
    """Stars that come back from a payload would be booted; a failure is seen at once."""
    with pytest.raises((ValueError, TypeError)) as caught:
        serialise(config())
    assert b64(SECRET) not in str(caught.value)


def test_without_its_user_data_a_configuration_is_serialised() -> None:
    assert json.loads(config().model_dump_json(exclude={"user_data"}))["device_role"] == "gpu"


def test_a_copy_has_the_same_user_data() -> None:
    assert copy.deepcopy(config()).user_data.reveal() == b64(SECRET)
    assert config().model_copy(update={"revision": 2}).user_data == config().user_data


def test_user_data_of_the_wrong_type_is_refused_without_being_quoted() -> None:
    with pytest.raises(ValidationError) as caught:
        config(user_data=[SECRET], image=SECRET.split("-"))
    assert SECRET not in str(caught.value)
    assert "munge" not in str(caught.value)


def test_user_data_is_not_equal_to_its_own_text() -> None:
    assert UserData(b64(SECRET)) != b64(SECRET)
