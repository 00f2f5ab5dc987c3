"""Kafka's public interface for assignors (KIP-924), over the state of an application.

Who knows ``org.apache.kafka.streams.processor.assignment`` finds its classes here, with their
methods in snake case, and the functions of its ``TaskAssignmentUtils``. Two names differ, because
this package has them for its arrays: Kafka's ``ApplicationState`` is :class:`Application`, and its
``TaskAssignment`` is the mapping of :class:`KafkaStreamsAssignment` that an assignor returns.

    class Keep:
        def assign(self, application):
            return identity_assignment(application)

    assigned = run_assignor(Keep(), Application(state, configs))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Protocol, Self

import numpy as np

from balancer.assignment.client_tags import ClientTags
from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.draft import Draft
from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from balancer.assignment.hash_order import tasks_in_hash_order
from balancer.assignment.racks import optimize_active, optimize_standbys
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import ApplicationState, TaskId
from balancer.assignment.validation import validate_assignment
from cluster_model.snapshot import Ints


class TaskType(StrEnum):
    """What a copy of a task is (Kafka: ``AssignedTask.Type``)."""

    ACTIVE = "ACTIVE"
    STANDBY = "STANDBY"


@dataclass(frozen=True)
class AssignedTask:
    """A copy of a task on an instance."""

    id: TaskId
    type: TaskType


@dataclass
class KafkaStreamsAssignment:
    """The copies on one instance, at most one of each task.

    Parameters
    ----------
    process_id
        The instance.
    tasks
        Its copies by their task.
    followup_rebalance_ms
        Milliseconds until the instance asks for another rebalance; None for none.
    """

    process_id: str
    tasks: dict[TaskId, AssignedTask] = field(default_factory=dict)
    followup_rebalance_ms: int | None = None

    @classmethod
    def of(cls, process_id: str, tasks: Iterable[AssignedTask]) -> Self:
        """The assignment of some copies.

        Raises
        ------
        TaskAssignmentError
            For two copies of one task.
        """
        made = cls(process_id)
        for task in tasks:
            if task.id in made.tasks:
                raise TaskAssignmentError(
                    f"instance {process_id}: two copies of task {task.id} found"
                )
            made.assign_task(task)
        return made

    def assign_task(self, task: AssignedTask) -> None:
        """Add a copy, in place of another of its task."""
        self.tasks[task.id] = task

    def remove_task(self, task: AssignedTask) -> None:
        """Remove a copy."""
        self.tasks.pop(task.id, None)

    def of_type(self, type_: TaskType) -> list[TaskId]:
        """The tasks of which it has a copy of a type, sorted."""
        return sorted(t.id for t in self.tasks.values() if t.type is type_)


@dataclass(frozen=True)
class TaskInfo:
    """A task; racks of the replicas of each partition that it reads and of each changelog."""

    id: TaskId
    is_stateful: bool
    source_racks: tuple[frozenset[str], ...]
    changelog_racks: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class KafkaStreamsState:
    """One instance: what it has, and how far behind its state is.

    Parameters
    ----------
    process_id
        The instance.
    num_processing_threads
        Its threads.
    rack_id
        Its rack; None if unknown.
    client_tags
        Its tags.
    previous_active_tasks, previous_standby_tasks
        What it had before, sorted.
    stateful_tasks_to_lag_sums
        Lag of each stateful task, in records or as a code.
    """

    process_id: str
    num_processing_threads: int
    rack_id: str | None
    client_tags: Mapping[str, str]
    previous_active_tasks: tuple[TaskId, ...]
    previous_standby_tasks: tuple[TaskId, ...]
    stateful_tasks_to_lag_sums: Mapping[TaskId, int]

    def lag_for(self, task: TaskId) -> int:
        """Lag of a stateful task.

        Raises
        ------
        TaskAssignmentError
            For a task without one.
        """
        if task not in self.stateful_tasks_to_lag_sums:
            raise TaskAssignmentError(
                f"lag of task {task} asked for, a stateful task of the application expected",
                AssignmentError.UNKNOWN_TASK_ID,
            )
        return self.stateful_tasks_to_lag_sums[task]

    def prev_tasks_by_lag(self) -> list[TaskId]:
        """The stateful tasks that it had, the smallest lag first."""
        had = {*self.previous_active_tasks, *self.previous_standby_tasks}
        lags = self.stateful_tasks_to_lag_sums
        return sorted((t for t in had if t in lags), key=lambda t: (lags[t], t))


class Application:
    """What an assignor of one's own is given (Kafka: ``ApplicationState``).

    Parameters
    ----------
    state
        The state of the application.
    configs
        Its configuration.
    """

    def __init__(self, state: ApplicationState, configs: AssignmentConfigs) -> None:
        self.state = state
        self._configs = configs

    def assignment_configs(self) -> AssignmentConfigs:
        """The configuration."""
        return self._configs

    def all_tasks(self) -> Mapping[TaskId, TaskInfo]:
        """Every task by its id, sorted."""
        return self._tasks

    def kafka_streams_states(self) -> Mapping[str, KafkaStreamsState]:
        """Every instance by its id, sorted."""
        return self._instances

    @cached_property
    def _tasks(self) -> dict[TaskId, TaskInfo]:
        s = self.state

        def racks(read: tuple[frozenset[int], ...]) -> tuple[frozenset[str], ...]:
            return tuple(frozenset(s.racks[r] for r in partition) for partition in read)

        return {
            s.task(t): TaskInfo(
                s.task(t),
                bool(s.stateful[t]),
                racks(s.sources[t] if s.sources else ()),
                racks(s.changelogs[t] if s.changelogs else ()),
            )
            for t in range(s.n_tasks)
        }

    @cached_property
    def _instances(self) -> dict[str, KafkaStreamsState]:
        s = self.state
        ids = [*self._tasks]
        had: dict[bool, list[list[TaskId]]] = {
            kind: [[] for _ in s.instances] for kind in (True, False)
        }
        for t, i, active in zip(
            s.previous_task.tolist(),
            s.previous_instance.tolist(),
            s.previous_active.tolist(),
            strict=True,
        ):
            had[active][i].append(ids[t])
        stateful = np.flatnonzero(s.stateful)
        found = {}
        for i, id_ in enumerate(s.instances):
            rack = int(s.rack[i]) if len(s.rack) else -1
            lags = s.lag_of(stateful, np.full(len(stateful), i)).tolist()
            found[id_] = KafkaStreamsState(
                process_id=id_,
                num_processing_threads=int(s.capacity[i]),
                rack_id=s.racks[rack] if rack >= 0 else None,
                client_tags={k: v for k, values in s.tags.items() if (v := values[i]) is not None},
                previous_active_tasks=tuple(had[True][i]),
                previous_standby_tasks=tuple(had[False][i]),
                stateful_tasks_to_lag_sums=dict(
                    zip((ids[t] for t in stateful.tolist()), lags, strict=True)
                ),
            )
        return found


Assignments = dict[str, KafkaStreamsAssignment]


class PublicTaskAssignor(Protocol):
    """An assignor of one's own (Kafka: the interface ``TaskAssignor``).

    It may have a method ``on_assignment_computed(assignments, error)``, which is called with its
    assignment and Kafka's name of what is wrong with it.
    """

    def assign(self, application: Application) -> Assignments:
        """Assign all tasks; one assignment for each instance."""


def run_assignor(assignor: PublicTaskAssignor, application: Application) -> TaskAssignment:
    """Run an assignor of one's own, and check what it returns as Kafka does.

    Its active tasks are where they are to be. A follow-up rebalance for any instance makes it a
    probing rebalance, after the shortest time that an instance has. ``on_assignment_computed`` is
    not called if only what Kafka does not check is wrong.

    Raises
    ------
    TaskAssignmentError
        For the first error, with Kafka's name of it.
    """
    assignments = assignor.assign(application)
    computed = getattr(assignor, "on_assignment_computed", None)
    wrong: TaskAssignmentError | None = None
    try:
        _validate(application, assignments)
    except TaskAssignmentError as error:
        wrong = error
    nowhere = wrong is not None and wrong.error is AssignmentError.NONE
    # Kafka has no name for what only this function refuses.
    if computed is not None and not nowhere:
        computed(assignments, AssignmentError.NONE if wrong is None else wrong.error)
    if wrong is not None:
        raise wrong
    draft = _draft(application, assignments)
    followups = [
        a.followup_rebalance_ms for a in assignments.values() if a.followup_rebalance_ms is not None
    ]
    found = draft.finished(draft.active.copy(), movements=0, probing=bool(followups))
    return replace(found, followup_ms=min(followups, default=None))


def validate_task_assignment(application: Application, assignments: Assignments) -> AssignmentError:
    """The first of Kafka's errors in an assignment; ``NONE`` if it has none.

    Kafka does not check that each task is active somewhere; :func:`run_assignor` does.
    """
    try:
        _validate(application, assignments)
    except TaskAssignmentError as error:
        return error.error
    return AssignmentError.NONE


def identity_assignment(application: Application) -> Assignments:
    """The previous assignment again."""
    return {
        id_: KafkaStreamsAssignment.of(
            id_,
            [
                *(AssignedTask(t, TaskType.ACTIVE) for t in state.previous_active_tasks),
                *(AssignedTask(t, TaskType.STANDBY) for t in state.previous_standby_tasks),
            ],
        )
        for id_, state in application.kafka_streams_states().items()
    }


def default_standby_task_assignment(application: Application, assignments: Assignments) -> None:
    """Add the configured number of standbys of each stateful task, as Kafka does by default.

    With tags they are spread by them, otherwise they go to the instances with the least load.
    The assignments are changed; each instance gets one.
    """
    draft = _draft(application, assignments)
    state, copies = draft.state, draft.configs.num_standby_replicas
    order = tasks_in_hash_order(state, np.flatnonzero(state.stateful))
    if draft.configs.rack_aware_assignment_tags:
        running = [t for t in order if draft.active[t] >= 0]
        ClientTags(draft).assign_standbys(np.array(running, np.int64))
    else:
        load = draft.load
        for t in order:
            held = [i for i in (int(draft.active[t]), *draft.standbys[t]) if i >= 0]
            free = load.copy()
            free[held] = np.inf
            for _ in range(min(copies, state.n_instances - len(held))):
                instance = int(free.argmin())
                draft.standbys[t].append(instance)
                draft.count[instance] += 1
                load[instance] = draft.count[instance] / state.capacity[instance]
                free[instance] = np.inf
    _write(draft, assignments)


@dataclass(frozen=True)
class RackAwareOptimizationParams:
    """What :func:`optimize_rack_aware_active_tasks` and its like for standbys exchange.

    Parameters
    ----------
    application
        The application, with its costs and strategy.
    traffic_cost, non_overlap_cost
        Costs in place of those configured; None for those.
    tasks
        The active tasks to exchange; None for all.
    """

    application: Application
    traffic_cost: int | None = None
    non_overlap_cost: int | None = None
    tasks: frozenset[TaskId] | None = None

    def for_stateful_tasks(self) -> Self:
        """The same for all stateful tasks."""
        return self._for(True)

    def for_stateless_tasks(self) -> Self:
        """The same for all stateless tasks."""
        return self._for(False)

    def _for(self, stateful: bool) -> Self:
        tasks = self.application.all_tasks().values()
        return replace(self, tasks=frozenset(t.id for t in tasks if t.is_stateful == stateful))

    def costs(self) -> tuple[int, int] | None:
        """The costs of a partition from another rack and of a move; None if one is not set.

        As in Kafka, both must be configured, even if they are replaced.
        """
        configs = self.application.assignment_configs()
        traffic = configs.rack_aware_assignment_traffic_cost
        non_overlap = configs.rack_aware_assignment_non_overlap_cost
        if traffic is None or non_overlap is None:
            return None
        return (
            traffic if self.traffic_cost is None else self.traffic_cost,
            non_overlap if self.non_overlap_cost is None else self.non_overlap_cost,
        )


def optimize_rack_aware_active_tasks(
    params: RackAwareOptimizationParams, assignments: Assignments
) -> None:
    """Exchange active tasks so that fewer partitions are read from other racks.

    The assignments are changed. Nothing happens without a strategy, with an unknown rack, or
    unless both costs are configured.
    """
    draft, costs = _draft(params.application, assignments), params.costs()
    chosen = [
        t
        for t in range(draft.state.n_tasks)
        if draft.active[t] >= 0 and (params.tasks is None or draft.state.task(t) in params.tasks)
    ]
    if costs is not None:
        optimize_active(draft, np.array(chosen, np.int64), costs)
        _write(draft, assignments)


def optimize_rack_aware_standby_tasks(
    params: RackAwareOptimizationParams, assignments: Assignments
) -> None:
    """Exchange standbys so that fewer changelogs are read from other racks.

    As for active tasks. With configured tags a task's copies keep as many different values.
    """
    draft, costs = _draft(params.application, assignments), params.costs()
    tags = bool(draft.configs.rack_aware_assignment_tags)
    if costs is not None:
        optimize_standbys(draft, ClientTags(draft).may_move if tags else None, costs)
        _write(draft, assignments)


def _validate(application: Application, assignments: Assignments) -> None:
    validate_assignment(
        application.state,
        {i: a.of_type(TaskType.ACTIVE) for i, a in assignments.items()},
        {i: a.of_type(TaskType.STANDBY) for i, a in assignments.items()},
    )


def _draft(application: Application, assignments: Assignments) -> Draft:
    """Assignments as arrays.

    Raises
    ------
    TaskAssignmentError
        For an unknown instance or task, or a task that is active twice.
    """
    state = application.state
    draft = Draft(state, application.assignment_configs())
    tasks = {id_: t for t, id_ in enumerate(application.all_tasks())}
    instances = {id_: i for i, id_ in enumerate(state.instances)}
    for id_, assignment in assignments.items():
        if id_ not in instances:
            raise TaskAssignmentError(
                f"instance {id_} found, one of the application's {len(instances)} expected",
                AssignmentError.UNKNOWN_PROCESS_ID,
            )
        i = instances[id_]
        for task in assignment.tasks.values():
            if task.id not in tasks:
                raise TaskAssignmentError(
                    f"instance {id_}: task {task.id} found, one of the application's "
                    f"{len(tasks)} expected",
                    AssignmentError.UNKNOWN_TASK_ID,
                )
            t = tasks[task.id]
            if task.type is TaskType.STANDBY:
                draft.standbys[t].append(i)
                draft.count[i] += 1
            elif draft.active[t] >= 0:
                raise TaskAssignmentError(
                    f"task {task.id} is active on {state.instances[draft.active[t]]} and {id_}",
                    AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                )
            else:
                draft.place(_one(t), _one(i))
    return draft


def _write(draft: Draft, assignments: Assignments) -> None:
    """Put a draft into assignments, which keep their deadlines."""
    state = draft.state
    for instance in state.instances:
        assignments.setdefault(instance, KafkaStreamsAssignment(instance)).tasks.clear()
    for t in range(state.n_tasks):
        id_ = state.task(t)
        copies = [(i, TaskType.STANDBY) for i in draft.standbys[t]]
        if draft.active[t] >= 0:
            copies.append((int(draft.active[t]), TaskType.ACTIVE))
        for i, type_ in copies:
            assignments[state.instances[i]].assign_task(AssignedTask(id_, type_))


def _one(index: int) -> Ints:
    return np.array([index], np.int64)
