"""Keeps tasks running where their state is, and warms them up where they are to run (KIP-441)."""

from __future__ import annotations

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.instance_queue import InstanceQueue, KafkaInstanceQueue
from balancer.assignment.lags import Lags
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Ints

# Movements times instances up to which Kafka's queue is followed even where it is not right. A
# step takes about a microsecond, and the least loaded instance can be found in fewer.
_FOLLOWED_STEPS = 200_000


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

    Attributes
    ----------
    left : int
        How many more there may be.
    """

    def __init__(
        self, state: ApplicationState, lags: Lags, replicas: int, max_bytes: int | None = None
    ) -> None:
        self._lags = lags
        self._state = state
        self.left = replicas
        self._limit = np.inf if max_bytes is None or not len(state.state_bytes) else max_bytes
        self._bytes = 0.0

    def take(self, task: int, instance: int) -> bool:
        """Whether there may be one more; then it counts."""
        if self.left <= 0:
            return False
        if self._limit < np.inf:
            size = self._to_restore(task, instance)
            if self._bytes and self._bytes + size > self._limit:
                return False
            self._bytes += size
        self.left -= 1
        return True

    def _to_restore(self, task: int, instance: int) -> float:
        """Bytes of a task's state that an instance lacks; 0 if its size is unknown."""
        size, end = float(self._state.state_bytes[task]), int(self._state.end_offset[task])
        if not size > 0 or end == 0:
            return 0.0
        lag = int(self._lags.of(np.array([task]), np.array([instance]))[0])
        return size * min(max(lag, 0) / end, 1.0)


class _Copies:
    """The number of copies on each instance, and per thread, while tasks move."""

    def __init__(self, draft: Draft, movements: int) -> None:
        self.count: list[int] = draft.count.tolist()
        self._keys = [(load, i) for i, load in enumerate(draft.load.tolist())]
        self._threads: list[int] = draft.state.capacity.tolist()
        # Without standbys Kafka's queue is never wrong.
        steps = movements * len(self._keys)
        exact = draft.configs.num_standby_replicas > 0 and steps <= _FOLLOWED_STEPS
        self.queue = KafkaInstanceQueue(self._keys) if exact else InstanceQueue(self._keys)

    def add(self, instance: int, change: int) -> None:
        self.count[instance] += change
        self._keys[instance] = (self.count[instance] / self._threads[instance], instance)


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
    if not len(moving):
        return 0
    queue = moving[np.lexsort((moving, lags.caught_up_count[moving]))]
    copies = _Copies(draft, len(queue))
    for task, target in zip(queue.tolist(), draft.active[queue].tolist(), strict=True):
        standbys = draft.standbys[task]
        candidates = lags.caught_up(task)
        source = copies.queue.poll([i for i in candidates if i in standbys])
        if source is None:
            source = copies.queue.poll(candidates)
        if source is None:
            source = lags.ranking(task).closest(target)
        assert source is not None, "an instance is closer, or the task would not move"
        draft.active[task] = source
        if source in standbys:
            standbys[standbys.index(source)] = target
        else:
            copies.add(source, 1)
            if warmups.take(task, target):
                standbys.append(target)
                draft.warmups.add((task, target))
            else:
                copies.add(target, -1)
        copies.queue.offer((source, target))
    draft.count[:] = copies.count
    return len(queue)


def move_standbys(draft: Draft, lags: Lags, warmups: Warmups) -> int:
    """Give each standby that is not caught up a stand-in that is closer to it.

    The standby itself stays to restore, if there may be one more such copy.

    Returns
    -------
    int
        How many stand-ins there are.
    """
    tasks, targets = draft.standby_pairs()
    behind = lags.behind(tasks, targets)
    if not behind.any():
        return 0
    # Kafka's order of arrival.
    order = np.lexsort((tasks[behind], targets[behind]))
    tasks, targets = tasks[behind][order], targets[behind][order]
    if draft.warmups:
        pairs = zip(tasks.tolist(), targets.tolist(), strict=True)
        kept = np.array([pair not in draft.warmups for pair in pairs], np.bool_)
        tasks, targets = tasks[kept], targets[kept]
    order = _in_order(lags.caught_up_count[tasks] * draft.state.n_tasks + tasks)
    copies = _Copies(draft, len(order))
    moved, last = 0, -1
    for task, target in zip(tasks[order].tolist(), targets[order].tolist(), strict=True):
        standbys = draft.standbys[task]
        if task != last:
            held = {*standbys, int(draft.active[task])}
            # A standby that is behind never becomes one of these.
            candidates = [i for i in lags.caught_up(task) if i not in held]
            ranking, last = None, task
        source = copies.queue.poll(candidates)
        if source is not None:
            candidates.remove(source)
        else:
            ranking = ranking or lags.ranking(task)
            source = ranking.closest(target, held)
        if source is None:
            continue
        moved += 1
        held.add(source)
        standbys.append(source)
        copies.add(source, 1)
        if warmups.take(task, target):
            draft.warmups.add((task, target))
        else:
            held.remove(target)
            standbys.remove(target)
            copies.add(target, -1)
        copies.queue.offer((source, target))
    draft.count[:] = copies.count
    return moved


def _in_order(keys: Ints) -> Ints:
    """The order in which Java's queue returns entries that arrive one after the other.

    That is the order of their keys; equal ones come in the order that its binary heap happens to
    have.
    """
    if len(np.unique(keys)) == len(keys):
        return np.argsort(keys)
    heap: list[int] = []
    entries: list[int] = []
    for entry, key in enumerate(keys.tolist()):
        at = entry
        heap.append(key)
        entries.append(entry)
        while at:
            parent = (at - 1) >> 1
            if key >= heap[parent]:
                break
            heap[at], entries[at] = heap[parent], entries[parent]
            at = parent
        heap[at], entries[at] = key, entry
    found = []
    while heap:
        found.append(entries[0])
        key, entry = heap.pop(), entries.pop()
        at, size = 0, len(heap)
        while 2 * at + 1 < size:
            child = 2 * at + 1
            if child + 1 < size and heap[child + 1] < heap[child]:
                child += 1
            if key <= heap[child]:
                break
            heap[at], entries[at] = heap[child], entries[child]
            at = child
        if size:
            heap[at], entries[at] = key, entry
    return np.array(found, np.int64)
