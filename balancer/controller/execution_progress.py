"""The progress of the current execution, in figures and in a sentence."""

from __future__ import annotations

from typing import Any

from balancer.controller.finding import span
from balancer.controller.protocols import ExecutionProgress
from metrics_reporter.quantities import cost_amount, plural


def progress_record(progress: ExecutionProgress) -> dict[str, Any]:
    """Tasks, bytes, rate and remaining time, as JSON takes them."""
    ended = progress.completed + progress.failed + progress.cancelled
    return {
        "tasks": progress.total,
        "tasks_ended": ended,
        "tasks_failed": progress.failed,
        "tasks_running": progress.running,
        "tasks_waiting": progress.waiting,
        "waits_for": progress.waits_for,
        "bytes": progress.bytes_total,
        "bytes_moved": progress.bytes_moved,
        "seconds": progress.seconds,
        "bytes_per_second": _rate(progress),
        "seconds_left": progress.seconds_left,
    }


def progress_sentence(progress: ExecutionProgress, unit: str = "bytes") -> str:
    """The same as a short phrase; `unit` is that of the plan's costs."""
    figures = progress_record(progress)
    reported = (
        f"{figures['tasks_ended']:,} of {plural(progress.total, 'task')}, "
        f"{cost_amount(progress.bytes_moved, unit)} of {cost_amount(progress.bytes_total, unit)}"
    )
    if progress.failed:
        reported += f", {progress.failed} failed"
    if (rate := figures["bytes_per_second"]) is not None:
        reported += f", {cost_amount(rate, unit)}/s"
    if progress.waiting:
        reported += f", {progress.waiting} waiting for {progress.waits_for}"
    left = progress.seconds_left
    return reported if left is None else f"{reported}, about {span(left)} left"


def _rate(progress: ExecutionProgress) -> float | None:
    return progress.bytes_moved / progress.seconds if progress.seconds > 0 else None
