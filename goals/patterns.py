"""Matches topics with regular expressions, within a time limit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType

import numpy as np

from cluster_model.errors import InputError
from cluster_model.snapshot import Bools
from metrics_reporter.documents import shown


@dataclass(frozen=True)
class PatternLimits:
    """Limits on the cost of matching topics.

    Parameters
    ----------
    seconds
        Time limit of one pattern for all topics. Nested repetitions such as
        ``(a+)+b`` take exponential time. In the main thread a signal ends the match;
        elsewhere, as in a controller, patterns that may take long run in a separate process.
    """

    seconds: float = 5.0


LIMITS = PatternLimits()
# A class of characters with another one or an intersection in it, in a pattern without escapes.
_NESTED = re.compile(r"\[\^?\]?[^\[\]]*(\[|&&)")


class PatternError(InputError):
    """A pattern that is not a regular expression, or that takes too long to match."""


class _LateError(Exception):
    """The time limit is exceeded."""


def from_glob(pattern: str) -> str | None:
    r"""The regular expression that a shell glob stands for; None if the pattern is not like one.

    Examples
    --------
    >>> print(from_glob("eu.orders-*"), from_glob("orders-.*"))
    eu\.orders-.* None
    """
    if not re.fullmatch(r"[\w.*?-]{1,249}", pattern) or not re.search(r"(?<!\.)[*?]", pattern):
        return None
    dots = re.sub(r"\.(?![*?])", r"\.", pattern)
    return re.sub(r"(?<!\.)\?", ".", re.sub(r"(?<!\.)\*", ".*", dots))


def glob_hint(pattern: str) -> str:
    """The end of a message on a pattern that matches nothing, if it looks like a shell glob."""
    like = _like(pattern)
    return like and f", where a regular expression{like} is expected"


def _like(pattern: str) -> str:
    meant = from_glob(pattern)
    return "" if meant is None else f" like '{meant}'"


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile the regular expression; raises ValueError for an invalid one."""
    if _NESTED.search(re.sub(r"\\.", "_", pattern)):
        raise ValueError(
            "a regular expression without a class in a class or && expected: Java and Python read "
            "these differently"
        )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a regular expression{_like(pattern)} expected ({error})") from None


def valid_pattern(pattern: str) -> str:
    """Return the pattern; raises ValueError if it is not a regular expression."""
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
        apart = threading.current_thread() is not threading.main_thread()
        if apart and len(names) and _may_explode(pattern):
            return np.array(_matched_apart(pattern, tuple(names), limits.seconds), np.bool_)
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


# Matches names in a separate process, since only a process can be ended while it matches.
_PROGRAM = """
import json, re, sys
pattern, names = json.load(sys.stdin)
expression = re.compile(pattern)
json.dump([bool(expression.fullmatch(name)) for name in names], sys.stdout)
"""


def _may_explode(pattern: str) -> bool:
    """Whether its time may be exponential: not with a single repetition and no groups."""
    repetitions = sum(pattern.count(sign) for sign in "*+{?")
    return repetitions > 1 or (repetitions > 0 and "(" in pattern)


# A controller repeats the same call in every round.
@lru_cache(maxsize=64)
def _matched_apart(pattern: str, names: tuple[str, ...], seconds: float) -> list[bool]:
    """Match in a separate process, for threads where no timer can interrupt."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps([pattern, names]),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise _LateError from None
    found: list[bool] = json.loads(done.stdout)
    return found


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise _LateError after a time limit; a timer that is already running resumes afterwards."""
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
