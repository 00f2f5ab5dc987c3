"""Measures how long the assignment of many tasks takes, next to Kafka's own class."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from balancer.assignment import (
    RUNNING,
    ApplicationState,
    AssignmentConfigs,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
)
from benchmarks.harness.task_assignors import JVM, KAFKA, chosen_subjects
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from benchmarks.subjects.kafka_streams import KafkaAssignment, KafkaStreams

_NAME = "tasks-scale"
_Found = TypeVar("_Found")
# Records in each changelog, and that a standby is behind.
_END, _BEHIND = 100_000, 10
# Each is called so often at least, and then until it has taken so long, but not more often.
_REPEATED, _SECONDS, _MOST = 5, 0.5, 100
# Calls, or seconds of processor time, after which a JVM has compiled the class.
_WARM_CALLS, _WARM_SECONDS = 100, 2.0
_COMPILED = f"{KAFKA}, compiled"
_SUBJECTS = (JVM, KAFKA, _COMPILED)


@dataclass(frozen=True)
class _Size:
    tasks: int
    instances: int
    standbys: int
    threads: int = 1
    # Whether Kafka's class, which holds a lag for each pair, fits in memory.
    upstream: bool = True


# The first four are those of Kafka's StreamsAssignmentScaleTest.
_SIZES = {
    "6000x2": _Size(6_000, 2, 1),
    "1000x1000": _Size(1_000, 1_000, 1),
    "1000x100": _Size(1_000, 100, 50),
    "1000x10": _Size(1_000, 10, 1, threads=1_000),
    "100000x1000": _Size(100_000, 1_000, 1, upstream=False),
}


@benchmark(_NAME, sizes=tuple(_SIZES))
def tasks_scale(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Processor time of an assignment of many tasks to many instances.

    First without any state, then with all copies in place, then with one more instance; the best
    of several times. Before each case Kafka's class is called until its code is compiled. Ours
    runs as plain Python, and with compiled loops. It returns arrays, Kafka's a set of tasks for
    each instance.
    """
    subjects = chosen_subjects(_SUBJECTS, options.subjects)
    if _COMPILED in subjects:
        try:
            TaskAssignor(compiled=True)
        except TaskAssignmentError as error:
            options.log(f"left out: {_COMPILED} ({error})")
            subjects.remove(_COMPILED)
    jvm = None
    if JVM in subjects:
        try:
            jvm = KafkaStreams()
        except BenchmarkError as error:
            options.log(f"left out: {JVM} ({error})")
    try:
        for size in sizes:
            yield from _measure(size, subjects, jvm, options)
    finally:
        if jvm is not None:
            jvm.close()


def _measure(
    size: str, subjects: Sequence[str], jvm: KafkaStreams | None, options: Options
) -> Iterator[Row]:
    of = _SIZES[size]
    configs = AssignmentConfigs(num_standby_replicas=of.standbys)
    first = _state(of)
    again = _running(first, TaskAssignor(configs).assign(first))
    cases = {"first": first, "again": again, "one instance more": _joined(again)}
    for case, state in cases.items():
        ours: list[TaskAssignment] = []
        for name in (each for each in subjects if each != JVM):
            assignor = TaskAssignor(configs, compiled=name == _COMPILED)
            best, found = _best(partial(_assigned, assignor, state), options.rounds)
            ours.append(found)
            yield Row(_NAME, size, name, case, best, "seconds")
        if jvm is None or not of.upstream:
            continue
        _warm_up(jvm, state, configs)
        best, theirs = _best(partial(_answered, jvm, state, configs), options.rounds)
        yield Row(_NAME, size, JVM, case, best, "seconds")
        differ = sum(not _equal(each, theirs) for each in ours)
        yield Row(_NAME, size, JVM, f"differ from it, {case}", differ, "")
    if jvm is not None and not of.upstream:
        options.log(f"{size}: left out: {JVM} (it holds a lag for each task on each instance)")


def _best(call: Callable[[], tuple[float, _Found]], rounds: int | None) -> tuple[float, _Found]:
    """The shortest processor time of several calls, and what they return."""
    times: list[float] = []
    while len(times) < (rounds or _REPEATED) or (
        rounds is None and len(times) < _MOST and sum(times) < _SECONDS
    ):
        seconds, found = call()
        times.append(seconds)
    return min(times), found


def _assigned(assignor: TaskAssignor, state: ApplicationState) -> tuple[float, TaskAssignment]:
    start = time.process_time()
    found = assignor.assign(state)
    return time.process_time() - start, found


def _answered(
    jvm: KafkaStreams, state: ApplicationState, configs: AssignmentConfigs
) -> tuple[float, KafkaAssignment]:
    found = jvm.assign(state, configs)
    return found.processor_seconds, found


def _warm_up(jvm: KafkaStreams, state: ApplicationState, configs: AssignmentConfigs) -> None:
    """Have Kafka's class assign until the JVM has compiled it."""
    spent = 0.0
    for _ in range(_WARM_CALLS):
        if spent >= _WARM_SECONDS:
            return
        spent += jvm.assign(state, configs).processor_seconds


def _state(of: _Size) -> ApplicationState:
    """An application that has just started."""
    return ApplicationState(
        instances=_ids(of.instances),
        capacity=np.full(of.instances, of.threads),
        subtopology=np.zeros(of.tasks, np.int64),
        partition=np.arange(of.tasks),
        stateful=np.ones(of.tasks, np.bool_),
        end_offset=np.full(of.tasks, _END),
        lag_offset=np.zeros(of.tasks + 1, np.int64),
    )


def _ids(count: int) -> tuple[str, ...]:
    return tuple(f"instance-{i:06d}" for i in range(count))


def _running(state: ApplicationState, assignment: TaskAssignment) -> ApplicationState:
    """The application once all its copies are in place."""
    count = state.n_tasks
    task = np.concatenate([np.arange(count), assignment.standby_task])
    instance = np.concatenate([assignment.active, assignment.standby_instance])
    active = np.arange(len(task)) < count
    order = np.lexsort((instance, task))
    task, instance, active = task[order], instance[order], active[order]
    return replace(
        state,
        lag_offset=np.searchsorted(task, np.arange(count + 1)),
        lag_instance=instance,
        lag=np.where(active, RUNNING, _BEHIND),
        previous_task=task,
        previous_instance=instance,
        previous_active=active,
    )


def _joined(state: ApplicationState) -> ApplicationState:
    """The application when one more instance has joined."""
    return replace(
        state,
        instances=_ids(state.n_instances + 1),
        capacity=np.append(state.capacity, state.capacity[-1]),
    )


def _equal(ours: TaskAssignment, theirs: KafkaAssignment) -> bool:
    return (
        np.array_equal(ours.active, theirs.active)
        and np.array_equal(ours.standby_task, theirs.standby_task)
        and np.array_equal(ours.standby_instance, theirs.standby_instance)
        and ours.probing_rebalance == theirs.probing_rebalance
    )
