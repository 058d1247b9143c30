"""EnvironmentFile= and $VARIABLE are read as systemd reads them."""

import pytest

from fmlab.systemd import environment_file, split_words


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=plain", "plain"),
        ("A=  two words  \n", "two words"),
        ("A=", ""),
        ("A='single $x \\\" kept'", 'single $x \\" kept'),
        ('A="double \\" \\\\ \\$ \\` plain"', 'double " \\ $ ` plain'),
        ('A="other \\n stays"', "other \\n stays"),
        ("A=\"one\"'two'three", "onetwothree"),
        ("A=joined \\\nline", "joined line"),
        ('A="joined \\\nline"', "joined line"),
        ("A=it\\'s", "it's"),
        ("A='a # b'", "a # b"),
        ("A=1\nA=2", "2"),
        ("  A = spaced", "spaced"),
        ('A="over\ntwo lines"', "over\ntwo lines"),
    ],
)
def test_a_value_is_unquoted_as_systemd_does(text: str, value: str) -> None:
    assert environment_file(text) == {"A": value}


def test_comments_and_lines_without_an_assignment_are_skipped() -> None:
    assert environment_file("# A=1 \\\nB=2\n; C=3\nnothing\nD=4\n\n") == {"D": "4"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", []),
        ("  a   b\tc ", ["a", "b", "c"]),
        ("'a b' c", ["a b", "c"]),
        ("--conf 'x=\"a b\"'", ["--conf", 'x="a b"']),
        ("a'b c'd", ["ab cd"]),
        ("'' \"\"", ["", ""]),
        ("a\\ b", ["a b"]),
        ("'a\\'b'", ["a'b"]),
        ("'open end", ["open end"]),
        ("$HOME", ["$HOME"]),
    ],
)
def test_a_variable_is_split_as_systemd_does(value: str, words: list[str]) -> None:
    assert split_words(value) == words


def test_a_reason_of_several_words_survives_both_grammars() -> None:
    text = """SLURMD_OPTIONS="-Z -N n1 --conf 'State=DRAIN Reason=\\"fm:born new build\\"'"\n"""
    value = environment_file(text)["SLURMD_OPTIONS"]
    assert split_words(value) == ["-Z", "-N", "n1", "--conf", 'State=DRAIN Reason="fm:born new build"']
