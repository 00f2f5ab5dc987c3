"""A request to stop, from any thread, and the time by which it must be met."""

from __future__ import annotations

import threading
import time

# Seconds between two looks of an execution that is stopping.
_PAUSE = 0.2


class Stop:
    """A request to stop an execution, and whether to move back what was moved.

    A rollback takes as long as it takes. Any other request has a deadline, also one that
    comes while a rollback is under way.

    Parameters
    ----------
    within
        Seconds from a request without a rollback to its deadline.
    """

    def __init__(self, within: float) -> None:
        self._within = within
        self._asked = threading.Event()
        self._soon = threading.Event()
        self._deadline = float("inf")
        self.rollback = False

    @property
    def asked(self) -> bool:
        """Whether it was asked for."""
        return self._asked.is_set()

    @property
    def soon(self) -> bool:
        """Whether there is a deadline."""
        return self._soon.is_set()

    @property
    def overdue(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._deadline

    def ask(self, rollback: bool) -> None:
        """Ask for it; neither a rollback nor the first deadline can be taken back."""
        self.rollback = self.rollback or rollback
        if not rollback and not self.soon:
            self._deadline = time.monotonic() + self._within
            self._soon.set()
        self._asked.set()

    def clear(self, within: float) -> None:
        """Forget what was asked for; the next request has so many seconds."""
        self._within = within
        self.rollback = False
        self._deadline = float("inf")
        self._asked.clear()
        self._soon.clear()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until more is asked for; only a moment while there is a deadline."""
        if self.soon:
            time.sleep(min(seconds, _PAUSE))
        elif self.asked:
            self._soon.wait(seconds)
        else:
            self._asked.wait(seconds)
