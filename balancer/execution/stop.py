"""A request to stop, from any thread."""

from __future__ import annotations

import threading


class Stop:
    """A request to stop an execution, and whether to move back what was moved."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.rollback = False

    @property
    def asked(self) -> bool:
        """Whether it was asked for."""
        return self._asked.is_set()

    def ask(self, rollback: bool) -> None:
        """Ask for it; a rollback cannot be taken back."""
        self.rollback = self.rollback or rollback
        self._asked.set()

    def clear(self) -> None:
        """Forget what was asked for."""
        self.rollback = False
        self._asked.clear()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is asked for."""
        self._asked.wait(seconds)
