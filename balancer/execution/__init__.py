"""Executes a plan on a real cluster: tasks, limits, throttles, and a crash-safe journal."""

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.execution.errors import ChangedClusterError, ExecutionError, VoteLostError
    from balancer.execution.executor import Executor, Preview
    from balancer.execution.fence import Vote
    from balancer.execution.latency import LocalTimes
    from balancer.execution.limits import Limits
    from balancer.execution.outcome import Outcome, Progress
    from balancer.execution.tasks import Task
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.execution.errors": ("ChangedClusterError", "ExecutionError", "VoteLostError"),
            "balancer.execution.executor": ("Executor", "Preview"),
            "balancer.execution.fence": ("Vote",),
            "balancer.execution.latency": ("LocalTimes",),
            "balancer.execution.limits": ("Limits",),
            "balancer.execution.outcome": ("Outcome", "Progress"),
            "balancer.execution.tasks": ("Task",),
        },
    )

__all__ = [
    "ChangedClusterError",
    "ExecutionError",
    "Executor",
    "Limits",
    "LocalTimes",
    "Outcome",
    "Preview",
    "Progress",
    "Task",
    "Vote",
    "VoteLostError",
]
