"""Checks an assignment of tasks against its application, in the order of Kafka's checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from balancer.assignment.state import ApplicationState, TaskId
from metrics_reporter.documents import shown


def validate_assignment(
    state: ApplicationState,
    active: Mapping[str, Iterable[TaskId]],
    standby: Mapping[str, Iterable[TaskId]],
) -> None:
    """Check the tasks of each instance as Kafka does (KIP-924), and what Kafka leaves unchecked.

    Kafka's checks in its order: a task that does not exist, one that is active twice, a standby
    without state, an instance without an entry, an entry without an instance. Then two copies on
    one instance, and a task that is active nowhere.

    Parameters
    ----------
    state
        The application.
    active, standby
        Tasks by the id of their instance; warm-ups are standbys.

    Raises
    ------
    TaskAssignmentError
        For the first error, with Kafka's name of it.
    """
    stateful = dict(
        zip(map(state.task, range(state.n_tasks)), state.stateful.tolist(), strict=True)
    )
    given, known = dict.fromkeys([*active, *standby]), set(state.instances)
    owner: dict[TaskId, str] = {}
    for instance in given:
        copies = [(t, True) for t in active.get(instance, ())]
        copies += [(t, False) for t in standby.get(instance, ())]
        for task, runs in copies:
            where = f"instance {shown(instance)}: task {task}"
            if task not in stateful:
                raise TaskAssignmentError(
                    f"{where} found, one of the application's {len(stateful)} expected",
                    AssignmentError.UNKNOWN_TASK_ID,
                )
            if runs and task in owner:
                other = "twice" if owner[task] == instance else f"and on {shown(owner[task])}"
                raise TaskAssignmentError(
                    f"{where} is active here {other}",
                    AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                )
            if runs:
                owner[task] = instance
    for instance in given:
        for task in standby.get(instance, ()):
            if not stateful[task]:
                raise TaskAssignmentError(
                    f"instance {shown(instance)}: standby {task} found, a stateful task expected",
                    AssignmentError.INVALID_STANDBY_TASK,
                )
    for instance in state.instances:
        if instance not in given:
            raise TaskAssignmentError(
                f"no entry found for instance {shown(instance)}, one for each expected",
                AssignmentError.MISSING_PROCESS_ID,
            )
    for instance in given:
        if instance not in known:
            raise TaskAssignmentError(
                f"instance {shown(instance)} found, one of the application's "
                f"{state.n_instances} expected",
                AssignmentError.UNKNOWN_PROCESS_ID,
            )
    for instance in given:
        held: set[TaskId] = set()
        for task in (*active.get(instance, ()), *standby.get(instance, ())):
            if task in held:
                raise TaskAssignmentError(
                    f"instance {shown(instance)}: two copies of task {task} found"
                )
            held.add(task)
    for task in stateful:
        if task not in owner:
            raise TaskAssignmentError(f"task {task} is active nowhere")
