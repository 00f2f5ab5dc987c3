"""Reads the state of an application from a document, JSON or YAML, or from records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
)

from balancer.assignment.configs import AssignmentConfigs, Tags
from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState, Racks, TaskId
from balancer.assignment.validation import validate_assignment
from cluster_model.snapshot import Floats
from metrics_reporter.documents import Number, Whole, as_model, load_mapping, shown
from metrics_reporter.quantities import plural

# What pydantic says of an empty list is no sentence.
TOO_SHORT = {"too_short": "at least one"}
_CODES = {"running": RUNNING, "unknown": UNKNOWN, RUNNING: RUNNING, UNKNOWN: UNKNOWN}


def _lag(value: Any) -> Any:
    """A lag: a code by its name or number, or records."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return value
    return _CODES.get(value, value)


def _not_negative(value: int) -> int:
    if value < 0 and value not in (RUNNING, UNKNOWN):
        raise ValueError("0 or more records, 'running' or 'unknown' expected")
    return value


Lag = Annotated[
    int, BeforeValidator(_lag), Field(strict=True, lt=2**63), AfterValidator(_not_negative)
]
# Sums of larger ones would not be numbers any more.
Amount = Annotated[Number, Field(ge=0, le=1e50)]


class StateRecord(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InstanceRecord(StateRecord):
    """One instance: its threads, what it had before, and how far behind its state is.

    ``capacity`` is a number of threads. ``lags`` has an entry for every task of which the instance
    has state on disk: records behind, ``running``, or ``unknown``. One that has left says since
    when in ``absent_ms``: it gets no task.
    """

    id: Annotated[str, Field(min_length=1)]
    capacity: Annotated[Whole, Field(ge=1)] = 1
    rack: str | None = None
    tags: Tags = {}
    attributes: dict[str, str | Number] = {}
    resources: dict[str, Amount] = {}
    active: Annotated[tuple[str, ...], FailFast()] = ()
    standby: Annotated[tuple[str, ...], FailFast()] = ()
    lags: dict[str, Lag] = {}
    absent_ms: Annotated[Whole, Field(lt=2**53)] | None = None


class TaskRecord(StateRecord):
    """One task; ``sources`` and ``changelogs`` are the racks of each partition's replicas."""

    id: str
    stateful: StrictBool = True
    logged: StrictBool = True
    end_offset: Whole = 0
    state_bytes: Amount | None = None
    load: dict[str, Amount] = {}
    sources: tuple[tuple[str, ...], ...] | None = None
    changelogs: tuple[tuple[str, ...], ...] | None = None


class StateDocument(StateRecord):
    """A whole application as records: the shape of a state file."""

    schema_version: Literal[1] = 1
    instances: Annotated[tuple[InstanceRecord, ...], FailFast()] = Field(min_length=1)
    tasks: Annotated[tuple[TaskRecord, ...], FailFast()] = ()
    configs: AssignmentConfigs = AssignmentConfigs()
    offsets_known: StrictBool = True


class InstanceAssignment(StateRecord):
    """The tasks that one instance is given, by the role of its copy."""

    active: Annotated[tuple[str, ...], FailFast()] = ()
    standby: Annotated[tuple[str, ...], FailFast()] = ()
    warmup: Annotated[tuple[str, ...], FailFast()] = ()


class UnmetRecord(StateRecord):
    """A goal that the target of an assignment does not meet."""

    goal: str
    hard: StrictBool
    reason: str


class AssignmentDocument(StateRecord):
    """An assignment as records: the shape of an assignment file."""

    schema_version: Literal[1] = 1
    instances: dict[str, InstanceAssignment]
    movements: Whole = 0
    probing_rebalance: StrictBool = False
    followup_rebalance_ms: Whole | None = None
    unmet: tuple[UnmetRecord, ...] = ()
    reasons: dict[str, str] = {}


def check_assignment(path: str | Path, state: ApplicationState) -> TaskAssignmentError | None:
    """Check an assignment file, JSON or YAML, against the application.

    Returns
    -------
    TaskAssignmentError or None
        What is wrong with the assignment first, with Kafka's name of the error.

    Raises
    ------
    TaskAssignmentError
        If the file is no assignment, in one sentence.
    """
    where = f"assignment file {path}"
    content = load_mapping(path, where, TaskAssignmentError, expected="a mapping with instances")
    document = as_model(AssignmentDocument, content, where, TaskAssignmentError)
    try:
        active, standby = (
            {
                id_: [TaskId.parse(task) for role in roles for task in getattr(given, role)]
                for id_, given in document.instances.items()
            }
            for roles in (("active",), ("standby", "warmup"))
        )
        validate_assignment(state, active, standby)
    except TaskAssignmentError as error:
        return error.within(where)
    return None


def load_state(path: str | Path) -> tuple[ApplicationState, AssignmentConfigs]:
    """Read a state file, YAML or (with the suffix ``.json``) JSON, and its configuration.

    Raises
    ------
    TaskAssignmentError
        If it cannot be used, in one sentence.
    """
    where = f"state file {path}"
    content = load_mapping(
        path, where, TaskAssignmentError, expected="a mapping with instances and tasks"
    )
    document = as_model(StateDocument, content, where, TaskAssignmentError, TOO_SHORT)
    try:
        check_running(document.instances)
        return build_state(document), document.configs
    except TaskAssignmentError as error:
        raise error.within(where) from None


def check_running(instances: Sequence[InstanceRecord]) -> None:
    """Check that no task runs on two instances, which Kafka's assignor accepts.

    Raises
    ------
    TaskAssignmentError
        For the first one that does.
    """
    owner: dict[str, str] = {}
    for instance in sorted(instances, key=lambda i: i.id):
        for name in (n for n, lag in instance.lags.items() if lag == RUNNING):
            if owner.setdefault(name, instance.id) != instance.id:
                raise TaskAssignmentError(
                    f"instance {shown(instance.id)}: task {name} is running here and on "
                    f"{shown(owner[name])}",
                    AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                )


def build_state(document: StateDocument) -> ApplicationState:
    """Build the arrays from records in any order.

    Raises
    ------
    TaskAssignmentError
        For an instance or a task that contradicts the rest, by name.
    """
    listed = sorted(document.instances, key=lambda i: i.id)
    for one, next_ in pairwise(listed):
        if one.id == next_.id:
            raise TaskAssignmentError(f"instances: {shown(one.id)} is listed twice")
    instances = [i for i in listed if i.absent_ms is None]
    tasks = sorted(((TaskId.parse(t.id), t) for t in document.tasks), key=itemgetter(0))
    for (id_, _), (following, _) in pairwise(tasks):
        if id_ == following:
            raise TaskAssignmentError(f"tasks: {id_} is listed twice")
    for id_, task in tasks:
        if task.end_offset and not (task.stateful and task.logged):
            kind = "not logged" if task.stateful else "not stateful"
            raise TaskAssignmentError(
                f"task {id_}: end_offset {task.end_offset} found, 0 expected, as it is {kind}"
            )
    index = {id_: t for t, (id_, _) in enumerate(tasks)}
    stateful = [task.stateful for _, task in tasks]
    lags: list[tuple[int, int, int]] = []
    previous: list[tuple[int, int, bool]] = []
    owner: dict[int, str] = {}
    for i, instance in enumerate(instances):
        where = f"instance {shown(instance.id)}"
        had: set[int] = set()
        lagging: set[int] = set()
        for active, names in ((True, instance.active), (False, instance.standby)):
            for name in names:
                t = _known(name, index, f"{where}: {'active' if active else 'standby'}")
                if t in had:
                    raise TaskAssignmentError(f"{where}: two copies of task {name} found")
                had.add(t)
                if active and t in owner:
                    raise TaskAssignmentError(
                        f"{where}: task {name} is active here and on {shown(owner[t])}",
                        AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                    )
                if active:
                    owner[t] = instance.id
                elif not stateful[t]:
                    raise TaskAssignmentError(
                        f"{where}: standby {name} found, a stateful task expected",
                        AssignmentError.INVALID_STANDBY_TASK,
                    )
                previous.append((t, i, active))
        for name, lag in instance.lags.items():
            t = _known(name, index, f"{where}: lags")
            if not stateful[t]:
                raise TaskAssignmentError(
                    f"{where}: lag of {name} found, which has no state to be behind with"
                )
            if t in lagging:
                raise TaskAssignmentError(f"{where}: lags: task {tasks[t][0]} is listed twice")
            lagging.add(t)
            lags.append((t, i, lag))
    absent = _absent(listed, index, stateful)
    lags.sort()
    previous.sort()
    _check_attributes(instances)
    resources = tuple(sorted({r for _, t in tasks for r in t.load}))
    for id_, task in tasks:
        for r in resources:
            if r not in task.load:
                raise TaskAssignmentError(
                    f"task {id_}: no load of {shown(r)} found, though other tasks state theirs"
                )
    racks = tuple(
        sorted(
            {i.rack for i in instances if i.rack is not None}
            | {
                rack
                for _, task in tasks
                for read in (task.sources or (), task.changelogs or ())
                for partition in read
                for rack in partition
            }
        )
    )
    code = {rack: r for r, rack in enumerate(racks)}
    at = np.array([t for t, _, _ in lags], np.int64)
    return ApplicationState(
        instances=tuple(i.id for i in instances),
        capacity=np.array([i.capacity for i in instances], np.int64),
        subtopology=np.array([id_.subtopology for id_, _ in tasks], np.int64),
        partition=np.array([id_.partition for id_, _ in tasks], np.int64),
        stateful=np.array(stateful, np.bool_),
        end_offset=np.array([task.end_offset for _, task in tasks], np.int64),
        lag_offset=np.searchsorted(at, np.arange(len(tasks) + 1)),
        lag_instance=np.array([i for _, i, _ in lags], np.int64),
        lag=np.array([lag for _, _, lag in lags], np.int64),
        previous_task=np.array([t for t, _, _ in previous], np.int64),
        previous_instance=np.array([i for _, i, _ in previous], np.int64),
        previous_active=np.array([active for _, _, active in previous], np.bool_),
        absent_task=np.array([t for t, _ in absent], np.int64),
        absent_ms=np.array([ms for _, ms in absent], np.int64),
        racks=racks,
        rack=np.array([code.get(i.rack or "", -1) for i in instances], np.int64),
        sources=_read(tasks, "sources", code),
        changelogs=_read(tasks, "changelogs", code),
        tags={
            key: tuple(i.tags.get(key) for i in instances)
            for key in sorted({key for i in instances for key in i.tags})
        },
        attributes={
            key: tuple(i.attributes.get(key) for i in instances)
            for key in sorted({key for i in instances for key in i.attributes})
        },
        resources=resources,
        load=np.array([[task.load[r] for r in resources] for _, task in tasks], np.float64).reshape(
            len(tasks), len(resources)
        ),
        instance_capacity=_capacities(instances, resources),
        state_bytes=_state_bytes(tasks),
        offsets_known=document.offsets_known,
    )


def _absent(
    instances: Sequence[InstanceRecord], index: Mapping[TaskId, int], stateful: Sequence[bool]
) -> list[tuple[int, int]]:
    """Task, and milliseconds since then, of each stateful copy of an instance that has left."""
    found = []
    for instance in instances:
        if instance.absent_ms is not None:
            where = f"instance {shown(instance.id)}: copies"
            had = {_known(name, index, where) for name in (*instance.active, *instance.standby)}
            found += [(t, instance.absent_ms) for t in sorted(had) if stateful[t]]
    return found


def _check_attributes(instances: Sequence[InstanceRecord]) -> None:
    """An attribute is a text, or a number, on all instances that have it."""
    first: dict[str, InstanceRecord] = {}
    for instance in instances:
        for name, value in instance.attributes.items():
            other = first.setdefault(name, instance)
            is_text = isinstance(other.attributes[name], str)
            if isinstance(value, str) is not is_text:
                raise TaskAssignmentError(
                    f"instance {shown(instance.id)}: attribute {shown(name)}: {shown(value)} "
                    f"found, {'text' if is_text else 'a number'} as on {shown(other.id)} expected"
                )


def _known(name: str, index: Mapping[TaskId, int], where: str) -> int:
    """The index of a task that an instance names."""
    try:
        id_ = TaskId.parse(name)
    except TaskAssignmentError as error:
        raise error.within(where) from None
    if id_ not in index:
        raise TaskAssignmentError(
            f"{where}: task {name} found, one of the {plural(len(index), 'task')} listed expected",
            AssignmentError.UNKNOWN_TASK_ID,
        )
    return index[id_]


def _read(
    tasks: Sequence[tuple[TaskId, TaskRecord]], field: str, code: Mapping[str, int]
) -> tuple[Racks, ...]:
    """The racks of what each task reads; empty if no task states them."""
    given = [getattr(task, field) for _, task in tasks]
    if all(partitions is None for partitions in given):
        return ()
    for (id_, _), partitions in zip(tasks, given, strict=True):
        if partitions is None:
            raise TaskAssignmentError(
                f"task {id_}: no {field} found, though other tasks state theirs"
            )
    return tuple(
        tuple(frozenset(code[rack] for rack in partition) for partition in partitions)
        for partitions in given
    )


def _capacities(instances: Sequence[InstanceRecord], resources: Sequence[str]) -> Floats:
    """(I, R) what instances can carry; infinite for resources of which no instance says it.

    Where only others say it, a thread carries 1.
    """
    if not any(i.resources for i in instances):
        return np.zeros((0, 0))
    for i in instances:
        unknown = sorted(set(i.resources) - set(resources))
        if unknown:
            raise TaskAssignmentError(
                f"instance {shown(i.id)}: resource {shown(unknown[0])} found, of which no task "
                "has a load"
            )
    stated = {r for i in instances for r in i.resources}
    rows = [
        [i.resources.get(r, float(i.capacity)) if r in stated else inf for r in resources]
        for i in instances
    ]
    return np.array(rows, np.float64)


def _state_bytes(tasks: Sequence[tuple[TaskId, TaskRecord]]) -> Floats:
    sizes = [task.state_bytes for _, task in tasks]
    if all(size is None for size in sizes):
        return np.zeros(0)
    return np.array([np.nan if size is None else size for size in sizes])
