"""Keeps tasks running where their state is, and warms them up where they are to run (KIP-441)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.instance_queue import InstanceQueue, KafkaInstanceQueue
from balancer.assignment.lags import Lags
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Floats, Ints

# Instances up to which Kafka's queue is followed even where it is not right.
_FOLLOWED = 64


class Warmups:
    """How many more copies may be made only so that tasks can move.

    Parameters
    ----------
    state
        The application.
    lags
        What such copies have to restore.
    replicas
        How many there may be.
    max_bytes
        Bytes that they may restore, except that the first may always exceed it; None for no limit.
    """

    def __init__(
        self, state: ApplicationState, lags: Lags, replicas: int, max_bytes: int | None = None
    ) -> None:
        self._lags = lags
        self._state = state
        self._left = replicas
        limited = max_bytes is not None and len(state.state_bytes) > 0
        self._bytes_left = float(max_bytes or 0) if limited else np.inf
        self._first = True

    def take(self, task: int, instance: int) -> bool:
        """Whether there may be one more; then it counts."""
        if self._left <= 0:
            return False
        if self._bytes_left < np.inf:
            size = self._to_restore(task, instance)
            if size > self._bytes_left and not self._first:
                return False
            self._bytes_left -= size
        self._left -= 1
        self._first = False
        return True

    def _to_restore(self, task: int, instance: int) -> float:
        """Bytes of a task's state that an instance lacks; 0 if its size is unknown."""
        size, end = float(self._state.state_bytes[task]), int(self._state.end_offset[task])
        if not size > 0 or end == 0:
            return 0.0
        lag = int(self._lags.of(np.array([task]), np.array([instance]))[0])
        return size * min(max(lag, 0) / end, 1.0)


def move_actives(draft: Draft, lags: Lags, warmups: Warmups) -> int:
    """Leave each task that is not caught up at its target where it is closest to it.

    A standby that has caught up takes over; otherwise the least loaded instance that has, or
    the one with the smallest lag. The target keeps a copy to restore, if there may be one more.

    Returns
    -------
    int
        How many tasks are not caught up at their target, while another instance is closer.
    """
    tasks = np.flatnonzero(draft.state.stateful)
    moving = tasks[lags.behind(tasks, draft.active[tasks])]
    queue = moving[np.lexsort((moving, lags.caught_up_count[moving]))]
    load = draft.load
    instances = _instances(draft, load)
    for task in queue.tolist():
        target = int(draft.active[task])
        standbys = draft.standbys[task]
        candidates = lags.caught_up(task)
        held = np.intersect1d(candidates, standbys) if standbys else candidates[:0]
        source = instances.poll(held)
        if source is None:
            source = instances.poll(candidates)
        if source is None:
            source = lags.closest(task, target)
        assert source is not None, "an instance is closer, or the task would not move"
        draft.active[task] = source
        if source in standbys:
            standbys[standbys.index(source)] = target
        else:
            _count(draft, load, source, 1)
            if warmups.take(task, target):
                standbys.append(target)
                draft.warmups.add((task, target))
            else:
                _count(draft, load, target, -1)
        instances.offer((source, target))
    return len(queue)


def move_standbys(draft: Draft, lags: Lags, warmups: Warmups) -> int:
    """Give each standby that is not caught up a stand-in that is closer to it.

    The standby itself stays to restore, if there may be one more such copy.

    Returns
    -------
    int
        How many stand-ins there are.
    """
    tasks, instances = draft.standby_pairs()
    behind = lags.behind(tasks, instances)
    pairs = [
        pair
        for pair in zip(tasks[behind].tolist(), instances[behind].tolist(), strict=True)
        if pair not in draft.warmups
    ]
    load = draft.load
    queue = _instances(draft, load)
    moved = 0
    for task, target in _in_order(pairs, lags.caught_up_count):
        standbys = draft.standbys[task]
        held = {*standbys, int(draft.active[task])}
        candidates = lags.caught_up(task)
        free = candidates[~np.isin(candidates, list(held))]
        source = queue.poll(free)
        if source is None:
            source = lags.closest(task, target, held)
        if source is None:
            continue
        moved += 1
        standbys.append(source)
        _count(draft, load, source, 1)
        if warmups.take(task, target):
            draft.warmups.add((task, target))
        else:
            standbys.remove(target)
            _count(draft, load, target, -1)
        queue.offer((source, target))
    return moved


def _instances(draft: Draft, load: Floats) -> InstanceQueue:
    """The instances by load; without standbys Kafka's queue is never wrong."""
    exact = draft.configs.num_standby_replicas > 0 and len(load) <= _FOLLOWED
    return KafkaInstanceQueue(load) if exact else InstanceQueue(load)


def _count(draft: Draft, load: Floats, instance: int, change: int) -> None:
    draft.count[instance] += change
    load[instance] = draft.count[instance] / draft.state.capacity[instance]


def _in_order(pairs: list[tuple[int, int]], caught_up_count: Ints) -> Iterator[tuple[int, int]]:
    """Pairs of task and instance, those with the fewest caught-up instances first, then by task.

    Several instances of one task come in the order in which Java's queue returns equal entries.
    """
    keys = {task: (int(caught_up_count[task]), task) for task, _ in pairs}
    if len(keys) == len(pairs):
        yield from sorted(pairs, key=lambda pair: keys[pair[0]])
        return
    queue: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for pair in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        key, at = keys[pair[0]], len(queue)
        queue.append((key, pair))
        while at and key < queue[(at - 1) >> 1][0]:
            queue[at] = queue[(at - 1) >> 1]
            at = (at - 1) >> 1
        queue[at] = (key, pair)
    while queue:
        yield queue[0][1]
        last = queue.pop()
        if not queue:
            return
        at, half = 0, len(queue) >> 1
        while at < half:
            child = 2 * at + 1
            if child + 1 < len(queue) and queue[child + 1][0] < queue[child][0]:
                child += 1
            if last[0] <= queue[child][0]:
                break
            queue[at] = queue[child]
            at = child
        queue[at] = last
