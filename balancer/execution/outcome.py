"""How an execution goes, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from balancer.execution.tasks import Phase

Ended = Literal["done", "stopped", "rolled back", "failed"]
Ending = Literal["done", "stopped", "rolled back", "failed", "vote lost"]


class Waiting(NamedTuple):
    """Tasks that wait for something that may pass, and what that is."""

    tasks: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Progress:
    """How far an execution is.

    Parameters
    ----------
    phase
        What is under way.
    total, completed, failed, cancelled, running
        Tasks.
    bytes_total, bytes_moved
        Bytes to copy in all, and copied so far.
    seconds, seconds_left
        Since the start, and to the end at the mean speed so far; None while unknown.
    waiting, waits_for
        Tasks that wait for something that may pass, as room on a disk, and
        what that is, of one of them.
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
        ``done`` where every task was completed, ``failed`` where one was not,
        ``stopped`` and ``rolled back`` where that was asked for, ``vote lost`` where another
        may act by now: nothing was touched since, and the journal keeps the execution open.
    completed, failed, cancelled
        Tasks; also steps that were cancelled before they became tasks, since the
        cluster is not as the plan expects it.
    bytes_moved
        Bytes copied.
    seconds
        How long it took.
    problems
        What went wrong or was left out, a sentence each.
    differences
        What Kafka reports at the end, against the plan (or, rolled back, the start).
    """

    state: Ending
    completed: int
    failed: int
    cancelled: int
    bytes_moved: float
    seconds: float
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    def after(self, first: Outcome | None) -> Outcome:
        """This outcome and that of what came first as one, in the first state that isn't done."""
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
