"""Errors of the history: each a single clear sentence."""

from __future__ import annotations

import re

from cluster_model.errors import InputError


class HistoryError(InputError):
    """A history that cannot be read, written or computed."""


class MissingSparkError(HistoryError, ImportError):
    """Something that Spark needs is missing on this machine."""


def sentence(error: BaseException) -> str:
    """The first line of an exception's message, or its last cause.

    Examples
    --------
    >>> sentence(ValueError("An error occurred while calling o7.x.\\n: java.io.IOException: no"))
    'no'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        # what py4j puts before an exception of Java
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [line for line in lines if line.startswith("Caused by:")]
    reported = (causes[-1:] or lines[:1] or [type(error).__name__])[0]
    reported = re.sub(r"^(Caused by: )?([\w$]+\.)+[\w$]*(Exception|Error): ", "", reported)
    return reported if len(reported) < 500 else f"{reported[:500]}..."
