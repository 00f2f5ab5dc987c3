"""Runs one execution in the background, and stops it when it may write no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from balancer.controller.protocols import (
    AlwaysActing,
    ControllerVote,
    ExecutionOutcome,
    PlanExecutor,
)

BackgroundJob = Callable[[], None]
EndCallback = Callable[["Work", ExecutionOutcome | None, Exception | None], None]
_GUARD_SECONDS = 0.2


def in_thread(job: BackgroundJob) -> None:
    """Run a job in the background."""
    threading.Thread(target=job, name="execution", daemon=True).start()


def at_once(job: BackgroundJob) -> None:
    """Run a job synchronously; for tests and simulations."""
    job()


@dataclass(frozen=True)
class Work:
    """An execution: why, its start by the steady clock, the plan, its partitions, its proposal."""

    cause: str
    since: float
    plan: Mapping[str, Any] | None = None
    partitions: tuple[str, ...] = ()
    proposal: str | None = None

    @property
    def unit(self) -> str:
        """The unit of the plan's costs."""
        return str((self.plan or {}).get("cost_unit", "bytes"))


class ExecutionRunner:
    """Runs executions, one at a time.

    Parameters
    ----------
    executor
        The executor that does the work.
    vote
        Work is stopped as soon as this does not confirm that we act, unless the executor's own
        ``vote`` is this one. Such an executor proves the vote before each write: it waits
        while the vote cannot be proven, continues if no other has taken over, and ends
        otherwise. Stopping it would only cancel its moves when it could continue.
    spawn
        :func:`in_thread` or :func:`at_once`.
    """

    def __init__(
        self, executor: PlanExecutor, vote: ControllerVote, spawn: Callable[[BackgroundJob], None]
    ) -> None:
        self.executor = executor
        self._vote = vote
        self._spawn = spawn
        self._idle = threading.Event()
        self._idle.set()
        self.work: Work | None = None
        self.stopping = False

    def launch(
        self, work: Work, do: Callable[[], ExecutionOutcome | None], ended: EndCallback
    ) -> None:
        """Start; `ended` is called at the end, with the outcome or the error."""
        self._idle.clear()
        self.work, self.stopping = work, False
        self._spawn(lambda: self._run(work, do, ended))

    def stop(self) -> None:
        """Stop the work soon; from any thread."""
        if self.work is not None:
            self.stopping = True
            self.executor.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; returns whether it has been reached."""
        return self._idle.wait(timeout)

    def _run(
        self, work: Work, do: Callable[[], ExecutionOutcome | None], ended: EndCallback
    ) -> None:
        over = threading.Event()
        fenced = getattr(self.executor, "vote", None) is self._vote
        if not fenced and not isinstance(self._vote, AlwaysActing):
            threading.Thread(target=self._guard, args=(over,), daemon=True).start()
        outcome, failure = None, None
        try:
            outcome = do()
        except Exception as error:
            failure = error
        over.set()
        try:
            # In this order: a thread that sees no work also sees its result.
            ended(work, outcome, failure)
        finally:
            self.work = None
            self._idle.set()

    def _guard(self, over: threading.Event) -> None:
        while not over.wait(_GUARD_SECONDS):
            # Repeated: an execution that is just starting may miss the first request.
            if not self._vote.acting:
                self.stop()
