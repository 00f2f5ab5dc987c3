"""The assignor: takes the state of an application, returns where its tasks run."""

from __future__ import annotations

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import ApplicationState


class TaskAssignor:
    """Assigns tasks so that each keeps running where its state is.

    Parameters
    ----------
    configs
        Configuration under Kafka's names.
    """

    def __init__(self, configs: AssignmentConfigs | None = None) -> None:
        self.configs = configs or AssignmentConfigs()

    def assign(self, state: ApplicationState) -> TaskAssignment:
        """Assign the tasks of an application; the state is not changed."""
        raise NotImplementedError
