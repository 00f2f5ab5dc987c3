"""Reads JSON as Gson does by default, with which Cruise Control reads its files."""

from __future__ import annotations

import json
import re

# What Gson takes besides JSON: comments, single quotes, text without quotes, = and => for a
# colon, and ; for a comma.
_TOKEN = re.compile(
    r"""(?P<between>(?:\s|//[^\n]*|\#[^\n]*|/\*.*?\*/)+)
    | "(?P<double>(?:\\.|[^"\\])*)"
    | '(?P<single>(?:\\.|[^'\\])*)'
    | (?P<open>["'].*|/\*.*)
    | (?P<mark>=>|[;=])
    | (?P<word>[^\s{}\[\]:,;=/\\\#'"][^\s{}\[\]:,;=/\\\#]*)""",
    re.X | re.S,
)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def strict_json(text: str) -> str:
    """The same as JSON, line by line; what Gson does not take either is no JSON afterwards.

    Examples
    --------
    >>> strict_json("{a: 'it\\"s', /* none */ b = [1, TRUE]; c: x.y} # end")
    '{"a": "it\\\\"s", "b" : [1, true], "c": "x.y"} '
    """
    return _TOKEN.sub(_strict, text)


def _strict(token: re.Match[str]) -> str:
    kind, text = token.lastgroup, token[token.lastgroup or 0]
    if kind == "between":
        return "\n" * text.count("\n") or " "
    if kind == "open":
        # never closed: no JSON either
        return text
    if kind == "mark":
        return "," if text == ";" else ":"
    if kind == "word":
        if text.lower() in ("true", "false", "null"):
            return text.lower()
        return text if _NUMBER.fullmatch(text) else json.dumps(text)
    quotes = {"\\'": "'", '"': '\\"'}
    body = re.sub(r"\\.|\"", lambda found: quotes.get(found[0], found[0]), text, flags=re.S)
    return f'"{body}"'
