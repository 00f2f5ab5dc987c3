"""The progress of the current execution, in figures and in a sentence."""

from __future__ import annotations

from typing import Any

from balancer.controller.finding import span
from balancer.controller.protocols import ExecutionProgress
from metrics_reporter.quantities import cost_amount, plural


def executed_unit(unit: str, total: float) -> str | None:
    """The unit of what an execution copies, by that of its plan; None if nobody knows how much.

    A plan in replicas is one without sizes: its executor counts the bytes that it sees, if any.

    Examples
    --------
    >>> executed_unit("bytes", 0.0), executed_unit("replicas", 5e9), executed_unit("replicas", 0.0)
    ('bytes', 'bytes', None)
    """
    if unit != "replicas":
        return unit
    return "bytes" if total > 0 else None


def progress_record(progress: ExecutionProgress, unit: str = "bytes") -> dict[str, Any]:
    """Tasks, bytes, rate and remaining time, as JSON takes them; None for what is not known."""
    ended = progress.completed + progress.failed + progress.cancelled
    seen = executed_unit(unit, progress.bytes_total) is not None
    rate = progress.bytes_moved / progress.seconds if progress.seconds > 0 else None
    return {
        "tasks": progress.total,
        "tasks_ended": ended,
        "tasks_failed": progress.failed,
        "tasks_running": progress.running,
        "tasks_waiting": progress.waiting,
        "waits_for": progress.waits_for,
        "bytes": progress.bytes_total if seen else None,
        "bytes_moved": progress.bytes_moved if seen else None,
        "seconds": progress.seconds,
        "bytes_per_second": rate if seen else None,
        "seconds_left": progress.seconds_left,
    }


def progress_sentence(progress: ExecutionProgress, unit: str = "bytes") -> str:
    """The same as a short phrase; `unit` is that of the plan's costs."""
    figures = progress_record(progress, unit)
    reported = f"{figures['tasks_ended']:,} of {plural(progress.total, 'task')}"
    shown = executed_unit(unit, progress.bytes_total)
    if shown is not None:
        total = cost_amount(progress.bytes_total, shown)
        reported += f", {cost_amount(progress.bytes_moved, shown)} of {total}"
    if progress.failed:
        reported += f", {progress.failed} failed"
    if shown is not None and (rate := figures["bytes_per_second"]) is not None:
        reported += f", {cost_amount(rate, shown)}/s"
    if progress.waiting:
        reported += f", {progress.waiting} waiting for {progress.waits_for}"
    left = progress.seconds_left
    return reported if left is None else f"{reported}, about {span(left)} left"
