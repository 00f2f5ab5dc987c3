"""A single round ends its planning when the process is asked to end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from waiting import LIMIT

from balancer.composition.controller import run_once


class Planning:
    """A controller whose step takes until it is stopped, and then decides nothing."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked, self._stopped = asked, threading.Event()
        self.decisions: list[Any] = []

    def step(self) -> Any:
        """Plan, and be asked to end meanwhile."""
        self._asked.set()
        assert self._stopped.wait(LIMIT)
        self.decisions.append(SimpleNamespace(kind="waiting", cause=None))
        return self.decisions[-1]

    def stop(self) -> None:
        """End planning."""
        self._stopped.set()


def test_a_request_to_end_stops_the_search_of_a_single_round() -> None:
    asked = threading.Event()
    controller: Any = Planning(asked)
    assert run_once(controller, 1.0, asked).kind == "waiting"
