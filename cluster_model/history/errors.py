"""Errors of the history: each a single clear sentence."""

from __future__ import annotations

import re

from cluster_model.errors import InputError


class HistoryError(InputError):
    """A history that cannot be read, written or worked out."""


class MissingSparkError(HistoryError, ImportError):
    """What Spark needs on this machine is not there."""


def sentence(error: BaseException) -> str:
    """What an exception says first, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = (causes[-1:] or lines[:1] or [type(error).__name__])[0]
    told = re.sub(r"^(Caused by: )?([\w$]+\.)+[\w$]*(Exception|Error): ", "", told)
    return told if len(told) < 500 else f"{told[:500]}..."
