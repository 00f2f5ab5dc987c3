"""What ended executions left under way in Kafka, and when to look at it again."""

from __future__ import annotations

from collections.abc import Sequence


class Leftovers:
    """Remembers what is left, and spaces the looks at it.

    Attributes
    ----------
    known
        What is left as of the last look, a sentence each.

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
        """Whether it is time for a look."""
        return now >= self._next

    def expect(self, now: float, interval: float) -> None:
        """Something may be left since now: the first look follows after `interval`."""
        self._wait, self._next = interval, now + interval

    def looked(self, now: float, interval: float, longest: float) -> None:
        """A look begins: the next follows after twice as long, at most after `longest`."""
        self._wait = min(max(interval, 2 * self._wait), max(interval, longest))
        self._next = now + self._wait

    def found(self, left: Sequence[str]) -> tuple[str, ...]:
        """Take what a look found; returns what of it is new. Nothing left ends the looks."""
        fresh = tuple(thing for thing in left if thing not in self.known)
        self.known = tuple(left)
        if not left:
            self._next = float("inf")
        return fresh

    def failed(self, failure: Exception | None) -> bool:
        """Take how a look ended; returns whether it failed, in another way than the last."""
        before, self._failure = self._failure, "" if failure is None else str(failure)
        return self._failure not in ("", before)

    def forget(self) -> None:
        """Look no more: another controller acts, and looks after it."""
        self.known, self._next = (), float("inf")
