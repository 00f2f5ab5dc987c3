"""What a best-first search looks at next, within limits of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class BestFirst(Generic[T]):
    """Things to look at, those with the lowest value first, each name once.

    Parameters
    ----------
    most
        How many to look at.
    steps
        How many to add for each of them, on average: more would take too long and much memory.
    """

    def __init__(self, most: int, steps: int) -> None:
        self._open: list[tuple[float, int, T]] = []
        self._seen: set[bytes] = set()
        self._left, self._added, self._most_added = most, 0, steps * most

    def add(self, value: float, thing: T) -> None:
        """Look at something when its turn comes."""
        self._added += 1
        heappush(self._open, (value, self._added, thing))

    def each(self, ended: Callable[[], bool]) -> Iterator[T]:
        """One thing after the other, until the work is done or the search has to end."""
        while self._open and self._left and self._added < self._most_added and not ended():
            yield heappop(self._open)[2]

    def is_new(self, name: bytes) -> bool:
        """Whether nothing of that name was looked at; counts it if so."""
        if name in self._seen:
            return False
        self._seen.add(name)
        self._left -= 1
        return True
