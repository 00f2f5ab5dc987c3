"""Finds what was meant by a name that does not exist: ``Did you mean orders?``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from heapq import nlargest
from typing import TypeVar

Name = TypeVar("Name", bound=str)

# Likeness, in [0, 1], from which a name counts as a typo: `dsk` (0.86), but not `gpu` (0.67).
_LIKENESS = 0.75
# Names that a message lists in full.
_LISTED = 8
# Names compared letter by letter; among more, those that share the beginning or the end are.
_COMPARED = 5000
_SHARED = 3
# Letters of a name that a message quotes.
_QUOTED = 80


def meant(name: str, known: Iterable[Name]) -> Name | None:
    """The known name that a wrong one probably stands for, or None.

    Case, spaces and dashes for underscores do not count, other letters a little.

    Examples
    --------
    >>> meant("Topic_Orders", ["orders", "topic-orders"]), meant("gpu", ["cpu"])
    ('topic-orders', None)
    >>> meant("Usage", ["UsageDistribution", "ReplicaCapacity"])
    'UsageDistribution'
    """
    requested = _plain(name)
    plain: dict[str, Name] = {}
    for each in known:
        plain.setdefault(_plain(each), each)
    if requested in plain:
        return plain[requested]
    candidates: Sequence[str] = list(plain)
    if len(candidates) > _COMPARED:
        start, end = requested[:_SHARED], requested[-_SHARED:]
        alike = (c for c in candidates if c.startswith(start) or c.endswith(end))
        candidates = nlargest(_COMPARED, alike, key=lambda c: c.startswith(start))
    close = get_close_matches(requested, candidates, 1, _LIKENESS)
    if not close and len(requested) > _SHARED:
        # part of a long name: `Usage` of `UsageDistribution`, if there is only one
        begun = [c for c in candidates if c.startswith(requested)]
        close = begun if len(begun) == 1 else []
    return plain[close[0]] if close else None


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a message about a wrong name: ``; did you mean 'orders'?``, or nothing."""
    found = meant(name, known)
    return "" if found is None else f"; did you mean {_quoted(found)}?"


def one_of(what: str, name: str, known: Iterable[Name], error: type[Exception]) -> Name:
    """The name, which must be a known one.

    Parameters
    ----------
    what
        Beginning of the message, for example ``goal``.
    name
        As given by a user.
    known
        All names there are.
    error
        What to raise; its message lists the names, or some of them, and the one that was
        probably meant.

    Examples
    --------
    >>> one_of("topic", "ordres", ["orders", "payments"], ValueError)
    Traceback (most recent call last):
        ...
    ValueError: topic 'ordres' found, one of orders, payments expected; did you mean 'orders'?
    """
    names = list(known)
    for each in names:
        if each == name:
            return each
    raise error(f"{what} {_quoted(name)} found, one of {listed(names)} expected{hint(name, names)}")


def listed(names: Sequence[str]) -> str:
    """The names, the first few of many."""
    more = len(names) - _LISTED
    text = ", ".join(names[:_LISTED])
    return f"{text} and {more:,} more" if more > 0 else text


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _QUOTED else f"{name[:50]}...{name[-26:]}")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
