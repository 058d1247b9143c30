"""Read an EnvironmentFile= and split a $VARIABLE of ExecStart= as systemd does.

The image's slurmd.service is `EnvironmentFile=-/etc/default/slurmd` and `ExecStart=slurmd ... $SLURMD_OPTIONS`, so a
node's options go through these two grammars, and neither is the shell's. Facts: systemd.exec(5) "EnvironmentFile=",
systemd.service(5) "COMMAND LINES", and the sources (`parse_env_file_internal`, `extract_first_word`).
"""

from __future__ import annotations

from collections.abc import Iterator

_BLANK = " \t\n\r"
_UNESCAPED_IN_DOUBLE_QUOTES = '"\\`$'


def environment_file(text: str) -> dict[str, str]:
    """Return the variables of an environment file; a later assignment wins.

    Lines that begin with "#" or ";" are comments. A value may be put together of bare, 'single' and "double" quoted
    parts. A backslash is literal in single quotes; in double quotes it makes a following double quote, backslash,
    backtick or dollar plain and is literal before anything else; at the end of a line it joins the next one.
    """
    found: dict[str, str] = {}
    reader = _Reader(text)
    while (key := reader.key()) is not None:
        if key:
            found[key] = reader.value()
    return found


def split_words(value: str) -> list[str]:
    """Split what a $VARIABLE holds into arguments.

    Blanks separate; 'single' and "double" quotes keep them and vanish; a backslash makes the next character plain
    everywhere, inside single quotes too (unlike the shell); an open quote at the end closes itself.
    """
    words: list[str] = []
    word: str | None = None  # "" is a word that has begun: '' is an argument
    quote = ""
    characters = iter(value)
    for c in characters:
        if c == "\\":
            word = (word or "") + next(characters, "")
        elif quote:
            if c == quote:
                quote = ""
            else:
                word = (word or "") + c
        elif c in "'\"":
            quote, word = c, word or ""
        elif c not in _BLANK:
            word = (word or "") + c
        elif word is not None:
            words.append(word)
            word = None
    return words if word is None else [*words, word]


class _Reader:
    """The characters of an environment file, from left to right."""

    def __init__(self, text: str) -> None:
        self._characters = iter(text)

    def key(self) -> str | None:
        """Return the next key, "" for a line that is none, None at the end."""
        key = ""
        for c in self._characters:
            if not key and c in _BLANK:
                continue
            if not key and c in "#;":
                self._skip_line()
            elif c == "=":
                return key.strip()
            elif c in "\r\n":
                return ""
            else:
                key += c
        return None

    def _skip_line(self) -> None:
        for c in self._characters:
            if c in "\r\n":
                return
            if c == "\\":
                next(self._characters, "")

    def value(self) -> str:
        """Return the value up to the end of the line."""
        parts: list[str] = []
        bare = False  # inside a bare part: only there blanks count, and the last ones are cut off
        for c in self._characters:
            if c in "\r\n":
                break
            if c == "\\":
                bare = True
                following = next(self._characters, "")
                parts.append("" if following in "\r\n" else following)
            elif c == "'" and not bare:
                parts.extend(self._single())
            elif c == '"' and not bare:
                parts.extend(self._double())
            elif bare or c not in _BLANK:
                bare = True
                parts.append(c)
        return "".join(parts).rstrip(_BLANK) if bare else "".join(parts)

    def _single(self) -> Iterator[str]:
        for c in self._characters:
            if c == "'":
                return
            yield c

    def _double(self) -> Iterator[str]:
        for c in self._characters:
            if c == '"':
                return
            if c != "\\":
                yield c
                continue
            following = next(self._characters, "")
            if following in _UNESCAPED_IN_DOUBLE_QUOTES:
                yield following
            elif following != "\n":
                yield "\\" + following
