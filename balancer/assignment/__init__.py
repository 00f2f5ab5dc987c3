"""Places the tasks of a stream application on its instances without downtime (KIP-441)."""

from __future__ import annotations

from balancer.assignment.assignor import TaskAssignor
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.document import StateDocument, build_state, load_state
from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState, TaskId

__all__ = [
    "RUNNING",
    "UNKNOWN",
    "ApplicationState",
    "AssignmentConfigs",
    "AssignmentError",
    "StateDocument",
    "TaskAssignment",
    "TaskAssignmentError",
    "TaskAssignor",
    "TaskId",
    "build_state",
    "load_state",
]
