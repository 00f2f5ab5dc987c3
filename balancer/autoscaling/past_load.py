"""Remembers a group's load, so that what comes back too fast is provided for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

# A load that is at least this share of another one counts as the same.
_SAME = 0.9
# How much longer a load is provided for than it once took to come back.
_LONGER = 1.5


class PastLoad:
    """What has arrived of late, in all.

    Parameters
    ----------
    seconds
        How long it is remembered.

    Examples
    --------
    >>> past = PastLoad(300)
    >>> for now, rate in ((0, 100), (10, 900), (20, 100), (60, 100)):
    ...     past.note(rate, now, missed=False)
    >>> past.note(900, 70, missed=True)
    >>> past.returns
    90.0
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rates: deque[tuple[float, float]] = deque()
        # for how long a load is provided for, as one has come back when there was too little
        self.returns = 0.0

    def forget(self) -> None:
        """Begin again, as something else is read."""
        self._rates.clear()

    def note(self, rate: float, now: float, *, missed: bool) -> None:
        """Note what arrives, in events/s, and whether consumers for it come too late."""
        while self._rates and self._rates[0][0] < now - self._seconds:
            self._rates.popleft()
        if missed and (before := self._before(rate)) is not None:
            self.returns = max(self.returns, _LONGER * (now - before))
        self._rates.append((now, rate))

    def _before(self, rate: float) -> float | None:
        """When as much arrived last, before it became less; None if it did not."""
        less = False
        for at, past in reversed(self._rates):
            if past < _SAME * rate:
                less = True
            elif less:
                return at
        return None

    def sustained(self, now: float, seconds: float, within: float) -> float:
        """Events/s to process so that nothing that came in so many seconds had waited longer.

        Parameters
        ----------
        now
            The time.
        seconds
            Of how long; longer if a load was missed when it came back after longer.
        within
            Seconds that an event may wait.
        """
        since = now - max(seconds, self.returns)
        return sustained([each for each in self._rates if each[0] >= since], now, within)


def sustained(rates: Sequence[tuple[float, float]], until: float, within: float) -> float:
    """The least events/s that must be processed so that none of what arrives waits longer.

    Parameters
    ----------
    rates
        Times, ascending, and the events/s that arrive from then on.
    until
        When the last of them ends.
    within
        Seconds that an event may wait.

    Examples
    --------
    >>> round(sustained([(0, 300), (50, 1200)], 60, within=5))
    800
    """
    if not rates:
        return 0.0
    at, rate = np.array(rates, np.float64).T
    seconds = np.diff(np.append(at, until))
    low, high = 0.0, float(rate.max())
    for _ in range(20):
        middle = (low + high) / 2
        ahead = np.cumsum(np.append(0.0, (rate - middle) * seconds))
        most = float((ahead - np.minimum.accumulate(ahead)).max())
        low, high = (middle, high) if most > middle * within else (low, middle)
    return high
