"""Reads a scenario: an application, and the instances that join, leave, crash and come back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import FailFast, Field, StrictBool, model_validator

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.document import (
    TOO_SHORT,
    InstanceRecord,
    StateDocument,
    StateRecord,
    TaskRecord,
    build_state,
    check_running,
)
from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from balancer.assignment.state import UNKNOWN, ApplicationState, TaskId
from cluster_model.snapshot import Floats
from metrics_reporter.documents import Number, as_model, load_document, shown
from metrics_reporter.quantities import WithDuration

NotNegative = Annotated[Number, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
# Seconds since 1970 are within the limit, and times are exact enough for lags up to it.
Seconds = Annotated[NotNegative, Field(le=1e10), WithDuration]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], FailFast()]


class ChangeKind(StrEnum):
    """What an instance does."""

    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"


@dataclass(frozen=True)
class Change:
    """A change of the membership.

    Parameters
    ----------
    at
        Seconds since the start.
    kind
        What the instance does: it joins, leaves (the others know at once), or crashes (they know
        when its session times out).
    instance
        Its index.
    wiped
        Whether an instance that joins has lost the state that it had before.
    """

    at: float
    kind: ChangeKind
    instance: int
    wiped: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Scenario:
    """What a simulation starts from; T tasks, I instances.

    Parameters
    ----------
    state
        All instances that ever take part, and the tasks, as they are at the start. Without
        previous owners the application starts as the assignor places it, with complete state.
    configs
        Configuration of the assignment.
    write_rate : (T,) float
        Records/s that each task writes to its changelog while it processes; as many are
        compacted.
    restore_rate : (I,) float
        Records/s that each instance reads from changelogs, over all its copies.
    broker_restore_rate
        Records/s that the brokers send to all instances.
    changes
        Changes of the membership in the order of time. An instance whose first change is to join
        is absent at the start, any other is a member.
    session_timeout
        Seconds until the others know that an instance has crashed.
    handover
        Seconds between the revocation of an active task and its start elsewhere.
    state_cleanup_delay
        Seconds after which an instance deletes the state of a task that it has given up.
    horizon
        Seconds after the last change at which the simulation ends, if the application has not
        come to rest before.
    most_rebalances
        A scenario that needs more is refused: it would take minutes, or has no end.
    """

    state: ApplicationState
    configs: AssignmentConfigs
    write_rate: Floats
    restore_rate: Floats
    broker_restore_rate: float = math.inf
    changes: tuple[Change, ...] = ()
    session_timeout: float = 45.0
    handover: float = 0.0
    state_cleanup_delay: float = 600.0
    horizon: float = 86_400.0
    most_rebalances: int = 10_000


class ScenarioInstance(InstanceRecord):
    """An instance as in a state file; ``restore_rate`` in records/s, if it has one of its own."""

    restore_rate: Positive | None = None


class ScenarioTask(TaskRecord):
    """A task as in a state file; ``write_rate`` in records/s."""

    write_rate: NotNegative = 0.0


class ChangeRecord(StateRecord):
    """Instances that do the same at the same time."""

    at: Seconds
    join: Names = ()
    leave: Names = ()
    crash: Names = ()
    wiped: StrictBool = False

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, value: object) -> object:
        """A single name stands for a list of one."""
        if not isinstance(value, Mapping):
            return value
        kinds = {kind.value for kind in ChangeKind}
        return {k: (v,) if k in kinds and isinstance(v, str) else v for k, v in value.items()}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(bool(getattr(self, kind)) for kind in ChangeKind) != 1:
            raise ValueError("one of join, leave and crash expected")
        if self.wiped and not self.join:
            raise ValueError("wiped without join found, both or neither expected")
        return self


class ScenarioDocument(StateDocument):
    """A scenario as records: a state file, and what happens to the application."""

    instances: Annotated[tuple[ScenarioInstance, ...], FailFast()] = Field(min_length=1)
    tasks: Annotated[tuple[ScenarioTask, ...], FailFast()] = ()
    changes: Annotated[tuple[ChangeRecord, ...], FailFast()] = ()
    restore_rate: Positive = 50_000.0
    broker_restore_rate: Positive | None = None
    session_timeout: Seconds = 45.0
    handover: Seconds = 0.0
    state_cleanup_delay: Seconds = 600.0
    horizon: Seconds = 86_400.0
    most_rebalances: Annotated[int, Field(strict=True, ge=1)] = 10_000


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file, YAML or (with the suffix ``.json``) JSON.

    Raises
    ------
    TaskAssignmentError
        If it cannot be used, in one sentence.
    """
    where = f"scenario file {path}"
    content = load_document(path, where, TaskAssignmentError)
    if not isinstance(content, Mapping):
        raise TaskAssignmentError(
            f"{where}: {type(content).__name__} found, a mapping with instances and tasks expected"
        )
    document = as_model(ScenarioDocument, content, where, TaskAssignmentError, TOO_SHORT)
    try:
        check_running(document.instances)
        return build_scenario(document)
    except TaskAssignmentError as error:
        raise error.within(where) from None


def build_scenario(document: ScenarioDocument) -> Scenario:
    """Build the arrays of a scenario from its records.

    Raises
    ------
    TaskAssignmentError
        For records that contradict each other, by name.
    """
    for instance in document.instances:
        if instance.absent_ms is not None:
            raise TaskAssignmentError(
                f"instance {shown(instance.id)}: absent_ms found, changes of the scenario expected"
            )
    state = build_state(document)
    if (state.lag == UNKNOWN).any():
        raise TaskAssignmentError("instances: lag 'unknown' found, a number of records expected")
    for task in document.tasks:
        if task.write_rate and not task.end_offset:
            raise TaskAssignmentError(
                f"task {task.id}: write_rate {task.write_rate:g} found, 0 expected, as it has no "
                "records in a changelog"
            )
    tasks = sorted(document.tasks, key=lambda t: TaskId.parse(t.id))
    instances = sorted(document.instances, key=lambda i: i.id)
    everyone = math.inf if document.broker_restore_rate is None else document.broker_restore_rate
    return Scenario(
        state=state,
        configs=document.configs,
        write_rate=np.array([t.write_rate for t in tasks], np.float64),
        restore_rate=np.array(
            [i.restore_rate or document.restore_rate for i in instances], np.float64
        ),
        broker_restore_rate=everyone,
        changes=_changes(document.changes, state),
        session_timeout=document.session_timeout,
        handover=document.handover,
        state_cleanup_delay=document.state_cleanup_delay,
        horizon=document.horizon,
        most_rebalances=document.most_rebalances,
    )


def _changes(records: Sequence[ChangeRecord], state: ApplicationState) -> tuple[Change, ...]:
    """The changes, each of an instance that can make it."""
    for one, later in pairwise(records):
        if later.at < one.at:
            raise TaskAssignmentError(
                f"changes: at {later.at:g} s found after {one.at:g} s, the order of time expected"
            )
    index = {name: i for i, name in enumerate(state.instances)}
    found: list[Change] = []
    last: dict[str, ChangeKind] = {}
    for record in records:
        for kind in ChangeKind:
            for name in getattr(record, kind):
                where = f"changes: at {record.at:g} s: {kind} of {shown(name)}"
                if name not in index:
                    raise TaskAssignmentError(
                        f"{where} found, an instance listed expected",
                        AssignmentError.UNKNOWN_PROCESS_ID,
                    )
                joins = kind is ChangeKind.JOIN
                if joins and last.get(name, ChangeKind.LEAVE) is ChangeKind.JOIN:
                    raise TaskAssignmentError(f"{where} found, which is a member already")
                if not joins and last.get(name, ChangeKind.JOIN) is not ChangeKind.JOIN:
                    raise TaskAssignmentError(f"{where} found, which is no member any more")
                last[name] = kind
                found.append(Change(record.at, kind, index[name], record.wiped))
    absent = {i for i in index.values() if not _member(i, found)}
    for i in np.unique(state.previous_instance).tolist():
        if i in absent:
            raise TaskAssignmentError(
                f"instance {shown(state.instances[i])}: tasks found, though it is no member at the "
                "start"
            )
    return tuple(found)


def _member(instance: int, changes: Sequence[Change]) -> bool:
    """Whether an instance is a member before the first change."""
    first = next((c for c in changes if c.instance == instance), None)
    return first is None or first.kind is not ChangeKind.JOIN


def members_at_start(scenario: Scenario) -> list[int]:
    """Indices of the instances that are members before the first change."""
    return [i for i in range(scenario.state.n_instances) if _member(i, scenario.changes)]
