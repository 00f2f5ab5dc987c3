"""Runs one execution at a time beside the rounds, and stops it where it may write no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from balancer.controller.protocols import Alone, Executor, Outcome, Vote

Job = Callable[[], None]
Ended = Callable[["Work", Outcome | None, Exception | None], None]
_GUARD_SECONDS = 0.2


def in_thread(job: Job) -> None:
    """Run a job beside the caller."""
    threading.Thread(target=job, name="execution", daemon=True).start()


def at_once(job: Job) -> None:
    """Run a job before going on; for tests and simulations."""
    job()


@dataclass(frozen=True)
class Work:
    """What is carried out: why, since when by the steady clock, the plan and its partitions."""

    cause: str
    since: float
    plan: Mapping[str, Any] | None = None
    partitions: tuple[str, ...] = ()


class ExecutionRunner:
    """Runs an executor's work.

    Parameters
    ----------
    executor
        Whose.
    vote
        Work is stopped as soon as this does not say that we act, unless the executor's own
        ``vote`` is this one. Such an executor proves the vote before each write: it waits
        while the vote cannot be proven, goes on where nobody else has taken over, and ends
        otherwise. Stopping it would only have its moves cancelled where it could go on.
    spawn
        :func:`in_thread` or :func:`at_once`.
    """

    def __init__(self, executor: Executor, vote: Vote, spawn: Callable[[Job], None]) -> None:
        self.executor = executor
        self._vote = vote
        self._spawn = spawn
        self._idle = threading.Event()
        self._idle.set()
        self.work: Work | None = None
        self.stopping = False

    def launch(self, work: Work, do: Callable[[], Outcome | None], ended: Ended) -> None:
        """Begin; `ended` is called at the end, with the outcome or what went wrong."""
        self._idle.clear()
        self.work, self.stopping = work, False
        self._spawn(lambda: self._run(work, do, ended))

    def stop(self) -> None:
        """End the work soon; from any thread."""
        if self.work is not None:
            self.stopping = True
            self.executor.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; returns whether it has come."""
        return self._idle.wait(timeout)

    def _run(self, work: Work, do: Callable[[], Outcome | None], ended: Ended) -> None:
        over = threading.Event()
        fenced = getattr(self.executor, "vote", None) is self._vote
        if not fenced and not isinstance(self._vote, Alone):
            threading.Thread(target=self._guard, args=(over,), daemon=True).start()
        outcome, failure = None, None
        try:
            outcome = do()
        except Exception as error:
            failure = error
        over.set()
        try:
            # In this order: who sees no work sees what came of it.
            ended(work, outcome, failure)
        finally:
            self.work = None
            self._idle.set()

    def _guard(self, over: threading.Event) -> None:
        while not over.wait(_GUARD_SECONDS):
            # Again and again: an execution that is only just beginning may miss the first.
            if not self._vote.acting:
                self.stop()
