"""Makes plans for clients in the background, one at a time, and keeps their results for a while."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from balancer.server.access import Actor
from balancer.server.errors import RequestError
from cluster_model.errors import InputError
from metrics_reporter.documents import shown
from metrics_reporter.quantities import plural

log = logging.getLogger("counterpoise.server")

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
# How many ended jobs are kept: results for 1,000 brokers take megabytes each.
_KEPT = 20


class CancelledError(Exception):
    """Work that ended early and left nothing, because it was cancelled."""


@dataclass
class Job:
    """A piece of work for a client.

    Parameters
    ----------
    what
        What is done, for people: ``rebalance``.
    by
        Who asks.
    do
        The work; it gets an event that ends it early, and a function that takes its progress. It
        raises `CancelledError` if it leaves nothing because of the event: once it has made
        something, it is too late to cancel it.
    """

    what: str
    by: Actor
    do: Callable[[threading.Event, Callable[[str, int, int, int], None]], Any]
    request: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    made: float = field(default_factory=time.time)
    state: JobState = "waiting"
    progress: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    ended: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def record(self) -> dict[str, Any]:
        """The job as JSON-compatible data, without its result."""
        return {
            "id": self.id,
            "what": self.what,
            "by": self.by.name,
            "made": self.made,
            "state": self.state,
            "progress": dict(self.progress),
            "error": self.error,
            "ended": self.ended,
        }


class Jobs:
    """A queue of jobs with one worker.

    Parameters
    ----------
    most
        How many may wait.
    each
        How many of one client may wait or be made.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most, self._each = most, each
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="planning", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Job:
        """Queue a job.

        Raises
        ------
        RequestError
            If too many wait, or too many of this client.
        """
        with self._changed:
            own = sum(
                j.by.client == job.by.client and not (j.over.is_set() or j.cancelled.is_set())
                for j in self._jobs.values()
            )
            if own >= self._each:
                raise RequestError(
                    f"{plural(own, 'plan')} of yours {'is' if own == 1 else 'are'} being made or "
                    f"waiting, at most {self._each} expected (setting plans_per_client): wait for "
                    "one, or end one",
                    429,
                )
            waiting = sum(j.state == "waiting" for j in self._jobs.values())
            if waiting >= self._most or self._closed:
                raise RequestError(
                    f"{waiting} plans wait to be made already, at most {self._most} expected: "
                    "try again later",
                    503,
                )
            self._jobs[job.id] = job
            ended = [j.id for j in self._jobs.values() if j.over.is_set()]
            for old in ended[: max(0, len(ended) - _KEPT)]:
                del self._jobs[old]
            self._changed.notify()
        return job

    def get(self, identity: str) -> Job:
        """A job by its id.

        Raises
        ------
        RequestError
            If there is none.
        """
        with self._changed:
            found = self._jobs.get(identity)
        if found is None:
            raise RequestError(f"job {shown(identity)}: not found", 404)
        return found

    def all(self) -> tuple[Job, ...]:
        """The jobs, the oldest first."""
        with self._changed:
            return tuple(self._jobs.values())

    def cancel(self, job: Job) -> None:
        """End a job: at once if it waits, else soon, unless what it makes is ready meanwhile."""
        with self._changed:
            job.cancelled.set()
            if job.state == "waiting":
                job.state, job.ended = "cancelled", time.time()
                job.over.set()

    def close(self) -> None:
        """End the current job soon, and take no more."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.cancelled.set()
            self._changed.notify()
        self._thread.join(2.0)

    def _work(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
                job.state = "running"
            self._run(job)

    def _next(self) -> Job | None:
        return next((j for j in self._jobs.values() if j.state == "waiting"), None)

    def _run(self, job: Job) -> None:
        def progress(phase: str, met: int, of: int, actions: int) -> None:
            job.progress = {"phase": phase, "met": met, "of": of, "actions": actions}

        try:
            job.result = job.do(job.cancelled, progress)
            job.state = "done"
        except CancelledError:
            job.state = "cancelled"
        except InputError as error:
            job.error, job.state = str(error), "failed"
        except Exception as error:
            log.exception("a plan for a client failed")
            job.error = f"an internal error, {type(error).__name__}; the log has it"
            job.state = "failed"
        job.ended = time.time()
        job.over.set()
