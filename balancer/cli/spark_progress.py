"""Shows how far Spark is: the tasks of its current job, in a terminal and in logs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from balancer.cli.terminal import ReportProgress, working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Seconds between looks at the tasks, and between lines in a log.
_LOOK, _LOG = 1.0, 30.0


@contextmanager
def spark_working(what: str, spark: SparkSession) -> Iterator[ReportProgress]:
    """As :func:`balancer.cli.terminal.working`, for work that Spark does.

    The share and the time left are those of the current job, a step of the work, until the caller
    reports better ones.

    Parameters
    ----------
    what
        The work, in a few words.
    spark
        The session that does it.
    """
    with working(what, every=_LOG) as report:
        over, better = threading.Event(), threading.Event()

        def show(job: int, done: int, total: int) -> None:
            if total and not better.is_set():
                report(f"tasks of step {job}", done, total)

        def own(phase: str, done: int, total: int, *, steady: bool = True) -> None:
            better.set()
            report(phase, done, total, steady=steady)

        tracker = _tracker(spark)
        if tracker is None:
            with _watched_by_connect(spark, show):
                yield own
            return
        thread = threading.Thread(target=_look, args=(tracker, show, over), daemon=True)
        thread.start()
        try:
            yield own
        finally:
            over.set()
            thread.join()


def _tracker(spark: SparkSession) -> Any:
    """What a driver in this process knows of its jobs; None with Spark Connect."""
    try:
        return spark.sparkContext.statusTracker()
    except Exception:
        # Spark Connect has no context, and says so by errors of its own.
        return None


def _look(tracker: Any, show: Any, over: threading.Event) -> None:
    seen: dict[int, int] = {}
    while not over.wait(_LOOK):
        try:
            jobs = sorted(tracker.getActiveJobsIds())
            found = [tracker.getJobInfo(job) for job in jobs]
            stages = [tracker.getStageInfo(s) for job in found if job for s in job.stageIds]
        except Exception:
            # The session has ended; the code that ended it reports why.
            return
        known = [stage for stage in stages if stage]
        if known:
            step = seen.setdefault(jobs[0], len(seen) + 1)
            total = sum(stage.numTasks for stage in known)
            show(step, sum(stage.numCompletedTasks for stage in known), total)


@contextmanager
def _watched_by_connect(spark: SparkSession, show: Any) -> Iterator[None]:
    seen: dict[str | None, int] = {}

    def handle(
        stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        known = list(stages or ())
        step = seen.setdefault(operation_id, len(seen) + 1)
        total = sum(stage.num_tasks for stage in known)
        show(step, sum(stage.num_completed_tasks for stage in known), total)

    spark.registerProgressHandler(handle)
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)
