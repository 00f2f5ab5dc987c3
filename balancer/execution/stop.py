"""A request to stop, from any thread, and its deadline."""

from __future__ import annotations

import threading
import time

# Seconds between two looks of an execution that is stopping.
_PAUSE = 0.2


class Stop:
    """A request to stop an execution, and whether to move back what was moved.

    A rollback has no deadline. Any other request has one, including a request that comes
    during a rollback.

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
        """Whether a stop was requested."""
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
        """Request a stop; neither a rollback nor the first deadline can be withdrawn."""
        self.rollback = self.rollback or rollback
        if not rollback and not self.soon:
            self._deadline = time.monotonic() + self._within
            self._soon.set()
        self._asked.set()

    def clear(self, within: float) -> None:
        """Withdraw all requests; the next one has `within` seconds."""
        self._within = within
        self.rollback = False
        self._deadline = float("inf")
        self._asked.clear()
        self._soon.clear()

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` or until a new request; only briefly while there is a deadline."""
        if self.soon:
            time.sleep(min(seconds, _PAUSE))
        elif self.asked:
            self._soon.wait(seconds)
        else:
            self._asked.wait(seconds)
