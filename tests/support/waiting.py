"""Waits in tests: they end with the event that they wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

# Seconds that anything is waited for: more than the slowest machine takes.
LIMIT = 480.0
# Seconds between two looks.
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def wait_for(
    what: Callable[[], T],
    about: str | Callable[[], object] = "in time",
    *,
    unless: tuple[type[Exception], ...] = (),
) -> T:
    """Wait for something that is true, and return it.

    Parameters
    ----------
    what
        Looks; an error of `unless` means not yet.
    about
        What the error shows if it is never true.
    """
    deadline = time.monotonic() + LIMIT
    while True:
        began = time.monotonic()
        with suppress(*unless):
            if found := what():
                return found
        now = time.monotonic()
        assert now < deadline, about() if callable(about) else f"still not so: {about}"
        # Looks that take long leave the processor to what they wait for.
        time.sleep(min(max(_PAUSE, 4 * (now - began)), _LONGEST_PAUSE))
