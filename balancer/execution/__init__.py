"""Executes a plan on a real cluster: tasks, limits, throttles, and a crash-safe journal."""

from balancer.execution.errors import ChangedClusterError, ExecutionError, VoteLostError
from balancer.execution.executor import Executor, Preview
from balancer.execution.fence import Vote
from balancer.execution.latency import LocalTimes
from balancer.execution.limits import Limits
from balancer.execution.outcome import Outcome, Progress
from balancer.execution.tasks import Task

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
