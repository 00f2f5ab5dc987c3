"""When work on a plan has to end: at a time of the clock, or when it is asked to stop."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from threading import Event
from typing import ClassVar


@dataclass(frozen=True)
class Deadline:
    """The end of a search, which then returns the best it has found.

    Parameters
    ----------
    at
        The latest time, by ``time.monotonic()``, in seconds.
    stop
        Ends the work when it is set; None if nothing can stop it.

    Examples
    --------
    >>> NEVER.passed, Deadline.after(0.0).passed, Deadline.after(None).left
    (False, True, inf)
    """

    at: float = math.inf
    stop: Event | None = None
    by_clock: ClassVar[bool] = True
    """Whether `at` is a time of the clock: then a solver may be given `left` as its own limit."""

    @classmethod
    def after(cls, seconds: float | None, stop: Event | None = None) -> Deadline:
        """The deadline a number of seconds from now; None for no limit of time."""
        return cls(math.inf if seconds is None else time.monotonic() + seconds, stop)

    @property
    def stopped(self) -> bool:
        """Whether the work was asked to stop."""
        return self.stop is not None and self.stop.is_set()

    @property
    def passed(self) -> bool:
        """Whether the work has to end now."""
        return self.stopped or time.monotonic() >= self.at

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0; infinite without a limit of time."""
        return 0.0 if self.stopped else max(self.at - time.monotonic(), 0.0)

    def within(self, share: float) -> Deadline:
        """A deadline after this share of the time that is left."""
        return self.earlier((1 - share) * self.left)

    def earlier(self, seconds: float) -> Deadline:
        """A deadline this number of seconds before; the same without a limit of time."""
        return self if math.isinf(self.at) else replace(self, at=self.at - seconds)


NEVER = Deadline()
"""No end: the work takes as long as it takes."""
