"""Limits work by processor time, so that subjects are compared by what they compute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import ClassVar, Self

import highspy

from balancer.allocation.program import QuietHighs
from balancer.problem.deadline import Deadline
from benchmarks.registry import BenchmarkError


@dataclass(frozen=True)
class ProcessorDeadline(Deadline):
    """The end of a search by the processor time of this process: `at` is by ``process_time``.

    Examples
    --------
    >>> ProcessorDeadline.after(0.0).passed, ProcessorDeadline.after(60.0).passed
    (True, False)
    """

    by_clock: ClassVar[bool] = False

    @classmethod
    def after(cls, seconds: float | None, stop: Event | None = None) -> Self:
        """The deadline some seconds of the processor from now; None for no limit of time."""
        return cls(float("inf") if seconds is None else time.process_time() + seconds, stop)

    @property
    def passed(self) -> bool:
        """Whether the work has to end now."""
        return self.stopped or time.process_time() >= self.at

    @property
    def left(self) -> float:
        """Seconds of the processor that are left, at least 0; infinite without a limit."""
        return 0.0 if self.stopped else max(self.at - time.process_time(), 0.0)


class ProcessorAlarm(Event):
    """An event that is set once this process has used some more seconds of the processor.

    Examples
    --------
    >>> ProcessorAlarm(0.0).is_set(), ProcessorAlarm(60.0).is_set()
    (True, False)
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._at = time.process_time() + seconds

    def is_set(self) -> bool:
        """Whether that time has come, or the event was set before."""
        return super().is_set() or time.process_time() >= self._at


@contextmanager
def one_thread() -> Iterator[None]:
    """Let every program of HiGHS in this process use one thread.

    Raises
    ------
    BenchmarkError
        If HiGHS refuses.
    """
    # The first run after a reset decides on the number of threads.
    highspy.Highs.resetGlobalScheduler(True)
    first = QuietHighs()  # type: ignore[no-untyped-call]
    first.setOptionValue("threads", 1)
    first.passModel(highspy.HighsLp())
    if first.run() == highspy.HighsStatus.kError:
        raise BenchmarkError("HiGHS refused to run with one thread")
    try:
        yield
    finally:
        highspy.Highs.resetGlobalScheduler(True)
