"""Makes standard output usable whatever the environment says of it."""

from __future__ import annotations

import codecs
import io
import os
import sys

_HANDLER = "counterpoise"
_PLAIN = str.maketrans(
    {"×": "x", "…": "...", "½": "1/2", "→": "->", "–": "-", "−": "-", "’": "'", "²": "2"}
)


def prepare() -> None:
    """Print on terminals without a width, and in encodings without our characters."""
    if not os.environ.get("COLUMNS", "1").strip("0"):
        # rich would print lines of no characters
        del os.environ["COLUMNS"]
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for characters that an encoding lacks: like ones, else their escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = error.object[error.start : error.end].translate(_PLAIN)
    return plain.encode("ascii", "backslashreplace").decode("ascii"), error.end
