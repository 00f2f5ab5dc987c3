"""Errors of states and assignments, under the names of Kafka's public assignor interface."""

from __future__ import annotations

from enum import StrEnum

from cluster_model.errors import InputError


class AssignmentError(StrEnum):
    """What is wrong with an assignment (KIP-924, ``TaskAssignor.AssignmentError``)."""

    NONE = "NONE"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"


class TaskAssignmentError(InputError):
    """An unusable state or assignment of tasks, in one sentence.

    Attributes
    ----------
    error : AssignmentError
        Kafka's name of the error; ``NONE`` where Kafka has none. The sentence begins with any
        other.
    """

    def __init__(self, sentence: str, error: AssignmentError = AssignmentError.NONE) -> None:
        named = error is not AssignmentError.NONE
        super().__init__(f"{error.value}: {sentence}" if named else sentence)
        self.sentence, self.error = sentence, error

    def within(self, where: str) -> TaskAssignmentError:
        """The same error, with the place where it was found."""
        return TaskAssignmentError(f"{where}: {self.sentence}", self.error)
