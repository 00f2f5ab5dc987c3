"""Keeps tasks running where their state is, and warms them up where they are to run (KIP-441)."""

from __future__ import annotations

import numpy as np

from balancer.assignment import loops
from balancer.assignment.draft import Draft
from balancer.assignment.instance_queue import InstanceQueue, KafkaInstanceQueue
from balancer.assignment.lags import Lags
from balancer.assignment.warmups import Warmups
from cluster_model.snapshot import Ints

# Movements times instances up to which Kafka's queue is followed even where it is not right. A
# step takes about a microsecond, and the least loaded instance can be found in fewer.
_FOLLOWED_STEPS = 200_000


class _Copies:
    """The number of copies on each instance, and per thread, while tasks move."""

    def __init__(self, draft: Draft, movements: int) -> None:
        self.count: list[int] = draft.count.tolist()
        self._keys = [(load, i) for i, load in enumerate(draft.load.tolist())]
        # As numpy divides: integers beyond 2^53 would give other quotients.
        self._threads: list[float] = draft.state.capacity.astype(np.float64).tolist()
        queue = KafkaInstanceQueue if _followed(draft, movements) else InstanceQueue
        self.queue = queue(self._keys)

    def add(self, instance: int, change: int) -> None:
        self.count[instance] += change
        self._keys[instance] = (self.count[instance] / self._threads[instance], instance)


def _followed(draft: Draft, movements: int) -> bool:
    """Whether Kafka's queue of instances is followed; without standbys it is never wrong."""
    steps = movements * draft.state.n_instances
    return draft.configs.num_standby_replicas > 0 and steps <= _FOLLOWED_STEPS


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
    queue = moving[_ascending(lags.caught_up_count[moving])]
    if draft.compiled:
        loops.move_actives(draft, lags, warmups, queue, _followed(draft, len(queue)))
        return len(queue)
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
    tasks, targets = tasks[behind], targets[behind]
    # Kafka's order of arrival; tasks are sorted.
    order = _ascending(targets)
    tasks, targets = tasks[order], targets[order]
    if draft.warmups:
        kept = ~draft.is_warmup(tasks, targets)
        tasks, targets = tasks[kept], targets[kept]
    keys = lags.caught_up_count[tasks] * draft.state.n_tasks + tasks
    if draft.compiled:
        order = loops.in_order(keys)
        followed = _followed(draft, len(order))
        return loops.move_standbys(draft, lags, warmups, tasks[order], targets[order], followed)
    order = _in_order(keys)
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


def _ascending(values: Ints) -> Ints:
    """The order of values from 0 on, of those equal the first; short integers are sorted faster."""
    return np.argsort(values.astype(np.min_scalar_type(values.max(initial=0))), kind="stable")


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
