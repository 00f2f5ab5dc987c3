"""How many events a consumer can process: those that it has, per second of their processing."""

from __future__ import annotations


class ProcessingMeter:
    """Events over the time that they were processed for (seed 003, Eq. 1).

    One thread notes events, another may read the figure.

    Parameters
    ----------
    seconds
        Time of processing that counts: the last half of it at least, and all of it at most.
    least
        Time of processing below which nothing is known.
    longest
        Most seconds that an event counts: one that takes longer was interrupted, as by the sleep
        of the machine.

    Examples
    --------
    >>> meter = ProcessingMeter(seconds=60.0, least=1.0)
    >>> meter.note(0.25)
    >>> meter.rate is None
    True
    >>> for _ in range(5):
    ...     meter.note(0.25)
    >>> meter.rate
    4.0
    """

    def __init__(self, seconds: float, least: float, longest: float = float("inf")) -> None:
        self._half, self._least, self._longest = seconds / 2, least, longest
        # events and seconds, of the half before and of this one
        self._before = self._now = (0, 0.0)
        self._rate: float | None = None

    @property
    def rate(self) -> float | None:
        """Events/s; None while too little was processed."""
        return self._rate

    def forget(self) -> None:
        """Know nothing again."""
        self._before = self._now = (0, 0.0)
        self._rate = None

    def note(self, seconds: float) -> None:
        """Note an event that took so long."""
        events, busy = self._now
        self._now = events, busy = events + 1, busy + min(seconds, self._longest)
        total, took = events + self._before[0], busy + self._before[1]
        if took >= self._least:
            self._rate = total / took
        if busy >= self._half:
            self._before, self._now = self._now, (0, 0.0)
