"""Regular expressions that choose topics, matched within a time limit."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import numpy as np

from cluster_model.errors import InputError
from cluster_model.snapshot import Bools
from metrics_reporter.documents import shown


@dataclass(frozen=True)
class PatternLimits:
    """What matching topics may cost.

    Parameters
    ----------
    seconds
        How long one pattern may be matched against all topics. Nested repetitions such as
        ``(a+)+b`` take time by powers of 2. Signals end the matching, so the limit holds in
        the main thread only.
    """

    seconds: float = 5.0


LIMITS = PatternLimits()


class PatternError(InputError):
    """A pattern that is no regular expression, or that takes too long to match."""


class _LateError(Exception):
    """The time is up."""


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression; raises ValueError for text that is none."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a regular expression expected ({error})") from None


def valid_pattern(pattern: str) -> str:
    """The pattern itself; raises ValueError for one that is not a regular expression."""
    compiled(pattern)
    return pattern


def matching(pattern: str, names: Sequence[str], limits: PatternLimits = LIMITS) -> Bools:
    """(len(names),) whether the pattern matches the whole name; an empty one matches none.

    Raises
    ------
    PatternError
        For a pattern that is not a regular expression or takes too long.

    Examples
    --------
    >>> matching("orders|pay.*", ["orders", "orders-2", "payments"])
    array([ True, False,  True])
    """
    try:
        expression = compiled(pattern)
        with _at_most(limits.seconds):
            found = [bool(pattern and expression.fullmatch(name)) for name in names]
    except ValueError as error:
        raise PatternError(f"topic pattern {shown(pattern)}: {error}") from None
    except _LateError:
        raise PatternError(
            f"topic pattern {shown(pattern)}: not matched within {limits.seconds:g} s, an "
            "expression without nested repetition expected"
        ) from None
    return np.array(found, np.bool_)


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _LateError in what takes longer; a timer that runs already goes on afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise _LateError

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, late)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            rest = max(left - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, rest, interval)
