"""The state of a stream application that an assignment starts from, as arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from balancer.assignment.errors import AssignmentError, TaskAssignmentError
from cluster_model.snapshot import Bools, Floats, Ints
from metrics_reporter.documents import shown

# Codes that take the place of a lag, as in Kafka's rebalance protocol.
RUNNING, UNKNOWN = -2, -3

_TASK = re.compile(r"([0-9]{1,9})_([0-9]{1,9})")


class TaskId(NamedTuple):
    """A task: the number of its subtopology, and of its partition.

    Examples
    --------
    >>> str(TaskId(0, 3)), TaskId.parse("0_3")
    ('0_3', TaskId(subtopology=0, partition=3))
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task that a name like ``0_3`` stands for.

        Raises
        ------
        TaskAssignmentError
            If it is not of that form.
        """
        found = _TASK.fullmatch(text)
        if found is None:
            raise TaskAssignmentError(
                f"task {shown(text)} found, SUBTOPOLOGY_PARTITION like 0_3 expected",
                AssignmentError.UNKNOWN_TASK_ID,
            )
        return cls(int(found[1]), int(found[2]))


def _no_ints() -> Ints:
    return np.zeros(0, np.int64)


def _no_bools() -> Bools:
    return np.zeros(0, np.bool_)


# The racks with a replica, by index, for each partition that a task reads.
Racks = tuple[frozenset[int], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ApplicationState:
    """Instances, tasks, and how far behind each copy of a task is; T tasks, I instances.

    Tasks are sorted by subtopology and partition, instances by id.
    :func:`~balancer.assignment.build_state` makes one from records in any order.

    Parameters
    ----------
    instances
        Ids of the instances (Kafka: process ids).
    capacity : (I,) int
        Threads of each instance.
    subtopology, partition : (T,) int
        The id of each task.
    stateful : (T,) bool
        Whether the task has a state store.
    end_offset : (T,) int
        Records in the task's changelogs: what an instance without state has to restore. 0
        for stateless tasks and where no store is logged, so that all instances are equal.
    lag_offset : (T + 1,) int
        Where the lags of each task begin in the next two arrays.
    lag_instance, lag : (K,) int
        Lag in records of the instances that have a copy of the task's state, in the order of
        the instances: 0 or more, :data:`RUNNING` or :data:`UNKNOWN`. Any other instance lacks
        ``end_offset`` records.
    previous_task, previous_instance : (H,) int
        Where each copy was before, sorted by task, then instance.
    previous_active : (H,) bool
        Whether that copy was the active one.
    absent_task, absent_ms : (B,) int
        Copies that instances had which have left the group, active or standby: their task, and
        the milliseconds since then. Each is of another instance, or of another task.
    racks
        Names of the racks.
    rack : (I,) int
        Rack of each instance, -1 if unknown; empty if none is known.
    sources, changelogs
        For each task the racks of the replicas of the partitions that it reads, and of its
        changelogs'; empty if unknown.
    tags
        Value of each tag for each instance, None if it has none.
    attributes
        Value of further attributes for each instance, for goals; None if it has none.
    resources
        Names of the measured loads.
    load : (T, R) float
        Load of each active task; empty if not measured.
    instance_capacity : (I, R) float
        What each instance can carry of each resource; infinite where no instance states it, empty
        if none is stated: then nothing is limited, and threads say how large an instance is.
    state_bytes : (T,) float
        Bytes of each task's state; empty if unknown, NaN where unknown.
    offsets_known
        Whether the end offsets could be fetched; without them tasks stay where they were.
    """

    instances: tuple[str, ...]
    capacity: Ints
    subtopology: Ints
    partition: Ints
    stateful: Bools
    end_offset: Ints
    lag_offset: Ints
    lag_instance: Ints = field(default_factory=_no_ints)
    lag: Ints = field(default_factory=_no_ints)
    previous_task: Ints = field(default_factory=_no_ints)
    previous_instance: Ints = field(default_factory=_no_ints)
    previous_active: Bools = field(default_factory=_no_bools)
    absent_task: Ints = field(default_factory=_no_ints)
    absent_ms: Ints = field(default_factory=_no_ints)
    racks: tuple[str, ...] = ()
    rack: Ints = field(default_factory=_no_ints)
    sources: tuple[Racks, ...] = ()
    changelogs: tuple[Racks, ...] = ()
    tags: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    attributes: Mapping[str, tuple[str | float | None, ...]] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    load: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    instance_capacity: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    state_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    offsets_known: bool = True

    def __post_init__(self) -> None:
        """Check what an assignment would otherwise silently get wrong.

        Raises
        ------
        TaskAssignmentError
            For the first contradiction, by name.
        """
        self._check_shapes()
        self._check_order()
        for i in np.flatnonzero(self.capacity < 1)[:1].tolist():
            raise TaskAssignmentError(
                f"instance {self.instances[i]!r}: capacity {self.capacity[i]} found, at least "
                "1 thread expected"
            )
        for t in np.flatnonzero(self.end_offset < 0)[:1].tolist():
            raise TaskAssignmentError(
                f"task {self.task(t)}: end offset {self.end_offset[t]} found, 0 or more expected"
            )
        wrong = (self.lag < 0) & (self.lag != RUNNING) & (self.lag != UNKNOWN)
        for k in np.flatnonzero(wrong)[:1].tolist():
            t = int(np.searchsorted(self.lag_offset, k, "right")) - 1
            raise TaskAssignmentError(
                f"instance {self.instances[self.lag_instance[k]]!r}: lag {self.lag[k]} of task "
                f"{self.task(t)} found, 0 or more records, RUNNING or UNKNOWN expected"
            )
        owned = np.sort(self.previous_task[self.previous_active])
        for t in owned[1:][owned[1:] == owned[:-1]][:1].tolist():
            at = self.previous_instance[(self.previous_task == t) & self.previous_active]
            one, other = (repr(self.instances[i]) for i in at[:2].tolist())
            raise TaskAssignmentError(
                f"task {self.task(t)} is active on {one} and on {other}",
                AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
            )

    def _check_shapes(self) -> None:
        tasks, instances, lags = self.n_tasks, self.n_instances, len(self.lag)
        lengths = {
            "capacity": instances,
            "partition": tasks,
            "stateful": tasks,
            "end_offset": tasks,
            "lag_offset": tasks + 1,
            "lag_instance": lags,
            "previous_instance": len(self.previous_task),
            "previous_active": len(self.previous_task),
            "absent_ms": len(self.absent_task),
        }
        for name, expected in lengths.items():
            if len(getattr(self, name)) != expected:
                raise TaskAssignmentError(
                    f"{name}: {len(getattr(self, name))} values found, {expected} expected"
                )
        if self.lag_offset[0] != 0 or self.lag_offset[-1] != lags:
            raise TaskAssignmentError(f"lag_offset: from 0 to {lags}, the number of lags, expected")
        for name, found, count in (
            ("lag_instance", self.lag_instance, instances),
            ("previous_instance", self.previous_instance, instances),
            ("previous_task", self.previous_task, tasks),
            ("absent_task", self.absent_task, tasks),
        ):
            beyond = found[(found < 0) | (found >= count)]
            if len(beyond):
                raise TaskAssignmentError(
                    f"{name}: {beyond[0]} found, an index below {count} expected",
                    AssignmentError.UNKNOWN_TASK_ID
                    if name in ("previous_task", "absent_task")
                    else AssignmentError.UNKNOWN_PROCESS_ID,
                )

    def _check_order(self) -> None:
        """Ids and lags are sorted, so that equal choices do not depend on who asks."""
        for one, following in pairwise(self.instances):
            if one >= following:
                raise TaskAssignmentError(
                    f"instance {following!r} found after {one!r}, sorted ids expected"
                )
        earlier, later = slice(None, -1), slice(1, None)
        same = self.subtopology[later] == self.subtopology[earlier]
        wrong = np.where(
            same,
            self.partition[later] <= self.partition[earlier],
            self.subtopology[later] < self.subtopology[earlier],
        )
        for t in np.flatnonzero(wrong)[:1].tolist():
            raise TaskAssignmentError(
                f"task {self.task(t + 1)} found after {self.task(t)}, sorted ids expected"
            )
        of = np.repeat(np.arange(self.n_tasks), np.diff(self.lag_offset))
        wrong = (of[later] == of[earlier]) & (
            self.lag_instance[later] <= self.lag_instance[earlier]
        )
        for k in np.flatnonzero(wrong)[:1].tolist():
            raise TaskAssignmentError(
                f"task {self.task(int(of[k]))}: lag of instance "
                f"{self.instances[self.lag_instance[k + 1]]!r} found after that of "
                f"{self.instances[self.lag_instance[k]]!r}, in the order of the instances expected"
            )

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.subtopology)

    @property
    def n_instances(self) -> int:
        """Number of instances."""
        return len(self.instances)

    def task(self, index: int) -> TaskId:
        """The id of the task with an index."""
        return TaskId(int(self.subtopology[index]), int(self.partition[index]))

    def lag_of(self, task: Ints, instance: Ints) -> Ints:
        """(C,) lag of instances for tasks, in records or as a code."""
        count = np.diff(self.lag_offset)
        key = np.repeat(np.arange(self.n_tasks), count) * self.n_instances + self.lag_instance
        asked = task * self.n_instances + instance
        at = np.searchsorted(key, asked)
        known = at < len(key)
        known[known] = key[at[known]] == asked[known]
        found: Ints = self.end_offset[task]
        found[known] = self.lag[at[known]]
        return found
