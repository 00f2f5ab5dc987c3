"""Reads Java's properties files, as ``java.util.Properties`` does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Larger than any real file of settings.
_MOST_BYTES = 1 << 20
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A key ends at the first of these that no backslash precedes; then one separator may follow.
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.S)


class Property(NamedTuple):
    """A key with its value, and the line that it begins on, from 1."""

    key: str
    value: str
    line: int


class PropertiesError(ValueError):
    """Text that is not a properties file; gives the problem and its line."""


def read_properties(path: Path) -> list[Property]:
    """Read a file, in UTF-8 or, if it is none, in Latin 1, as Java's own versions do.

    Raises
    ------
    OSError
        If it cannot be read.
    PropertiesError
        If it is too large, or for an escape that is none.
    """
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise PropertiesError(f"more than {_MOST_BYTES} bytes found, a smaller file expected")
    if b"\0" in data:
        raise PropertiesError("a zero byte found, text expected")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def parse_properties(text: str) -> list[Property]:
    r"""Properties in the order of the file; a key may occur again, and the last one counts.

    Raises
    ------
    PropertiesError
        For ``\u`` without four hexadecimal digits.

    Examples
    --------
    >>> [(p.key, p.value) for p in parse_properties("a.b = 1\\\n   2\n# none\nc\\:d:x\\u0041")]
    [('a.b', '12'), ('c:d', 'xA')]
    """
    found = []
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None
        found.append(Property(_unescaped(match[1], number), _unescaped(match[2], number), number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are neither blank nor comments, joined where a backslash ends them."""
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        first, before = begun or (number, "")
        line = before + line
        # Of several backslashes the last one joins, unless it is itself escaped.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = first, line[:-1]
        else:
            begun = None
            yield first, line
    if begun is not None:
        yield begun


def _unescaped(text: str, line: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        given = escape[1]
        if given == "u":
            raise PropertiesError(f"line {line}: \\u found, and four hexadecimal digits expected")
        return chr(int(given[1:], 16)) if given[0] == "u" else _PLAIN.get(given, given)

    return _ESCAPE.sub(plain, text)
