"""The progress and the outcome of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from balancer.execution.tasks import Phase

ClosedState = Literal["done", "stopped", "rolled back", "failed"]
OutcomeState = Literal["done", "stopped", "rolled back", "failed", "vote lost"]


class Waiting(NamedTuple):
    """Tasks that wait for a temporary obstacle, and what it is."""

    tasks: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Progress:
    """The progress of an execution.

    Parameters
    ----------
    phase
        The current phase.
    total, completed, failed, cancelled, running
        Numbers of tasks.
    bytes_total, bytes_moved
        Bytes to copy in total, and copied so far.
    seconds, seconds_left
        Seconds since the start, and to the end at the mean speed so far; None while unknown.
    waiting, waits_for
        Number of tasks that wait for a temporary obstacle such as lack of disk space, and the
        obstacle of one of them.
    """

    phase: Phase
    total: int
    completed: int
    failed: int
    cancelled: int
    running: int
    bytes_total: float
    bytes_moved: float
    seconds: float
    seconds_left: float | None
    waiting: int = 0
    waits_for: str = ""


@dataclass(frozen=True)
class Outcome:
    """How an execution ended.

    Parameters
    ----------
    state
        ``done`` if every task was completed, ``failed`` if one was not, ``stopped`` and
        ``rolled back`` on request, ``vote lost`` if another process may act by now: nothing
        was touched since, and the journal keeps the execution open.
    completed, failed, cancelled
        Numbers of tasks; steps count as cancelled if they never became tasks because the
        cluster is not as the plan expects.
    bytes_moved
        Bytes copied.
    seconds
        Duration.
    problems
        What went wrong or was left out, one sentence each.
    differences
        How Kafka's state at the end differs from the plan (or, rolled back, the start).
    """

    state: OutcomeState
    completed: int
    failed: int
    cancelled: int
    bytes_moved: float
    seconds: float
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    def after(self, first: Outcome | None) -> Outcome:
        """Merge with an earlier outcome; the first state that isn't done counts."""
        if first is None:
            return self
        return Outcome(
            self.state if first.state == "done" else first.state,
            first.completed + self.completed,
            first.failed + self.failed,
            first.cancelled + self.cancelled,
            first.bytes_moved + self.bytes_moved,
            first.seconds + self.seconds,
            first.problems + self.problems,
            first.differences + self.differences,
        )
