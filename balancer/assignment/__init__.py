"""Places the tasks of a stream application on its instances without downtime (KIP-441)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics_reporter.lazy import lazy

if TYPE_CHECKING:
    from balancer.assignment.assignor import TaskAssignor
    from balancer.assignment.configs import AssignmentConfigs
    from balancer.assignment.document import (
        StateDocument,
        build_state,
        check_assignment,
        load_state,
    )
    from balancer.assignment.errors import AssignmentError, TaskAssignmentError
    from balancer.assignment.explanation import Explanation
    from balancer.assignment.result import TaskAssignment
    from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState, TaskId
    from balancer.assignment.targets.relief import ReliefParameters
    from balancer.assignment.validation import validate_assignment
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balancer.assignment.assignor": ("TaskAssignor",),
            "balancer.assignment.configs": ("AssignmentConfigs",),
            "balancer.assignment.document": (
                "StateDocument",
                "build_state",
                "check_assignment",
                "load_state",
            ),
            "balancer.assignment.errors": ("AssignmentError", "TaskAssignmentError"),
            "balancer.assignment.explanation": ("Explanation",),
            "balancer.assignment.result": ("TaskAssignment",),
            "balancer.assignment.state": ("RUNNING", "UNKNOWN", "ApplicationState", "TaskId"),
            "balancer.assignment.targets.relief": ("ReliefParameters",),
            "balancer.assignment.validation": ("validate_assignment",),
        },
    )

__all__ = [
    "RUNNING",
    "UNKNOWN",
    "ApplicationState",
    "AssignmentConfigs",
    "AssignmentError",
    "Explanation",
    "ReliefParameters",
    "StateDocument",
    "TaskAssignment",
    "TaskAssignmentError",
    "TaskAssignor",
    "TaskId",
    "build_state",
    "check_assignment",
    "load_state",
    "validate_assignment",
]
