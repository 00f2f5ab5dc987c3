"""Tracks moves that ended executions left in Kafka, and schedules checks of them."""

from __future__ import annotations

from collections.abc import Sequence


class Leftovers:
    """Remembers what is left, and spaces the checks.

    Attributes
    ----------
    known
        What was left at the last check, one sentence each.

    Examples
    --------
    >>> leftovers = Leftovers()
    >>> leftovers.due(1000.0)
    False
    >>> leftovers.expect(0.0, 60.0)
    >>> leftovers.due(59.0), leftovers.due(60.0)
    (False, True)
    >>> leftovers.looked(60.0, 60.0, 600.0)
    >>> leftovers.found(["a move"])
    ('a move',)
    >>> leftovers.due(179.0), leftovers.due(180.0)
    (False, True)
    """

    def __init__(self) -> None:
        self.known: tuple[str, ...] = ()
        self._failure = ""
        self._wait = 0.0
        self._next = float("inf")

    def due(self, now: float) -> bool:
        """Whether a check is due."""
        return now >= self._next

    def expect(self, now: float, interval: float) -> None:
        """Something may be left as of now: the first check follows after `interval`."""
        self._wait, self._next = interval, now + interval

    def looked(self, now: float, interval: float, longest: float) -> None:
        """A check starts: the next follows after twice as long, at most after `longest`."""
        self._wait = min(max(interval, 2 * self._wait), max(interval, longest))
        self._next = now + self._wait

    def found(self, left: Sequence[str]) -> tuple[str, ...]:
        """Record what a check found; returns what is new. If nothing is left, checks end."""
        fresh = tuple(thing for thing in left if thing not in self.known)
        self.known = tuple(left)
        if not left:
            self._next = float("inf")
        return fresh

    def failed(self, failure: Exception | None) -> bool:
        """Record how a check ended; returns whether it failed, differently from the last one."""
        before, self._failure = self._failure, "" if failure is None else str(failure)
        return self._failure not in ("", before)

    def forget(self) -> None:
        """End the checks: another controller acts, and makes them."""
        self.known, self._next = (), float("inf")
