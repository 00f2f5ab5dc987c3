"""The loops of an assignment over arrays, compiled; they do what the ones in Python do."""

from __future__ import annotations

from typing import Any

from balancer.assignment.arrays import Budget, Copies, Known, Marks
from balancer.search.compilation import compiled, inlined


@inlined
def _before(load: Any, one: int, other: int) -> Any:
    return load[one] < load[other] or (load[one] == load[other] and one < other)


@inlined
def _up(copies: Copies, at: int, instance: int) -> None:
    """Put an instance where a heap of Java has it, from a place upwards."""
    while at > 0:
        parent = (at - 1) >> 1
        above = copies.heap[parent]
        if not _before(copies.load, instance, above):
            break
        copies.heap[at], copies.place[above] = above, at
        at = parent
    copies.heap[at], copies.place[instance] = instance, at


@inlined
def _down(copies: Copies, at: int, instance: int) -> None:
    """The same downwards."""
    size, child = copies.size[0], 2 * at + 1
    while child < size:
        below = copies.heap[child]
        if child + 1 < size and _before(copies.load, copies.heap[child + 1], below):
            child += 1
            below = copies.heap[child]
        if not _before(copies.load, below, instance):
            break
        copies.heap[at], copies.place[below] = below, at
        at, child = child, 2 * child + 1
    copies.heap[at], copies.place[instance] = instance, at


@inlined
def _popped(copies: Copies) -> Any:
    """Take the first instance from the heap."""
    first = copies.heap[0]
    copies.size[0] -= 1
    last = copies.heap[copies.size[0]]
    copies.place[first] = -1
    if copies.size[0] > 0:
        _down(copies, 0, last)
    return first


@inlined
def _offer(copies: Copies, instance: int) -> None:
    """Put an instance into the heap, or to another place in it."""
    at = copies.place[instance]
    if at >= 0:
        copies.size[0] -= 1
        last = copies.heap[copies.size[0]]
        copies.place[instance] = -1
        if at < copies.size[0]:
            _down(copies, at, last)
            if copies.heap[at] == last:
                _up(copies, at, last)
    copies.size[0] += 1
    _up(copies, copies.size[0] - 1, instance)


@inlined
def _offer_aside(copies: Copies, number: int) -> None:
    """Put back what was taken out, in the order of a hash table with these instances."""
    if number > 1:
        size = 16
        while 4 * number > 3 * size:
            size *= 2
        for k in range(size):
            copies.bins[k] = -1
        for k in range(number - 1, -1, -1):
            into = copies.aside[k] % size
            copies.after[k] = copies.bins[into]
            copies.bins[into] = k
        at = 0
        for k in range(size):
            entry = copies.bins[k]
            while entry >= 0:
                copies.order[at] = copies.aside[entry]
                at += 1
                entry = copies.after[entry]
        for k in range(number):
            copies.aside[k] = copies.order[k]
    for k in range(number):
        _offer(copies, copies.aside[k])


@compiled
def _polled(
    copies: Copies, followed: bool, marks: Any, mark: int, number: int, listed: Any, among: int
) -> Any:
    """The instance that the queue returns of those with a mark; -1 if it has none of them.

    Parameters
    ----------
    followed
        Whether Kafka's queue is followed; else the least loaded instance is taken.
    marks, mark, number
        The marks of all instances, which one counts, and how many have it.
    listed, among
        Begins with so many instances, all that have it among them.
    """
    found = -1
    if not followed:
        for k in range(among):
            instance = listed[k]
            if marks[instance] == mark and (found < 0 or _before(copies.load, instance, found)):
                found = instance
        return found
    aside = 0
    if number == 0:
        # Each is taken out, and put back.
        aside = copies.size[0]
        for k in range(aside):
            copies.aside[k] = copies.heap[k]
            copies.place[copies.heap[k]] = -1
        copies.size[0] = 0
    while copies.size[0] > 0 and found < 0:
        instance = _popped(copies)
        if marks[instance] == mark:
            found = instance
        else:
            copies.aside[aside] = instance
            aside += 1
    _offer_aside(copies, aside)
    return found


@inlined
def _add(copies: Copies, instance: int, change: int) -> None:
    copies.count[instance] += change
    copies.load[instance] = copies.count[instance] / copies.threads[instance]


@inlined
def _lag(known: Known, task: int, instance: int) -> Any:
    """How far an instance is behind with a task."""
    low, high = known.lag_offset[task], known.lag_offset[task + 1]
    while low < high:
        middle = (low + high) >> 1
        if known.lag_instance[middle] < instance:
            low = middle + 1
        else:
            high = middle
    if low < known.lag_offset[task + 1] and known.lag_instance[low] == instance:
        return known.lag[low]
    return known.end[task]


@compiled
def _closest(known: Known, task: int, target: int, held: Any, mark: int) -> Any:
    """The first instance, by lag and id, before another; not one with a mark; -1 for none."""
    first, last = known.lag_offset[task], known.lag_offset[task + 1]
    bound, found = _lag(known, task, target), target
    for k in range(first, last):
        instance, lag = known.lag_instance[k], known.lag[k]
        if held[instance] != mark and (lag < bound or (lag == bound and instance < found)):
            bound, found = lag, instance
    end, k = known.end[task], first
    if end <= bound:
        for instance in range(len(held)):
            if k < last and known.lag_instance[k] == instance:
                k += 1
            elif held[instance] != mark:
                if end < bound or instance < found:
                    found = instance
                break
    return found if found != target else -1


@compiled
def _marked(known: Known, task: int, marks: Marks, mark: int) -> Any:
    """Mark the instances that are caught up with a task; returns how many are listed."""
    listed = 0
    for k in range(known.near_offset[task], known.near_offset[task + 1]):
        marks.candidate[known.near[k]] = mark
        marks.listed[listed] = known.near[k]
        listed += 1
    if known.others_near[task]:
        k, last = known.lag_offset[task], known.lag_offset[task + 1]
        for instance in range(len(marks.candidate)):
            if k < last and known.lag_instance[k] == instance:
                k += 1
                continue
            marks.candidate[instance] = mark
            marks.listed[listed] = instance
            listed += 1
    return listed


@compiled
def _taken(known: Known, budget: Budget, task: int, instance: int) -> Any:
    """Whether there may be one more copy only so that a task can move; then it counts."""
    if budget.left[0] <= 0:
        return False
    if len(budget.state_bytes) > 0:
        size, end = budget.state_bytes[task], known.end[task]
        if size > 0 and end > 0:
            size = size * min(max(_lag(known, task, instance), 0) / end, 1.0)
        else:
            size = 0.0
        if budget.used[0] != 0 and budget.used[0] + size > budget.limit:
            return False
        budget.used[0] += size
    budget.left[0] -= 1
    return True


@inlined
def _replace(instances: Any, first: int, last: int, old: int, new: int) -> None:
    """Put one instance in place of another into a sorted part."""
    at = first
    while instances[at] != old:
        at += 1
    while at + 1 < last and instances[at + 1] < new:
        instances[at] = instances[at + 1]
        at += 1
    while at > first and instances[at - 1] > new:
        instances[at] = instances[at - 1]
        at -= 1
    instances[at] = new


@inlined
def _begin(copies: Copies) -> None:
    """Put all instances into the queue."""
    for instance in range(len(copies.load)):
        _offer(copies, instance)


@compiled
def move_actives(
    known: Known,
    copies: Copies,
    marks: Marks,
    budget: Budget,
    followed: bool,
    tasks: Any,
    active: Any,
    offset: Any,
    standby: Any,
    warms: Any,
) -> None:
    """Leave active tasks that are not caught up where they are closest to it.

    Parameters
    ----------
    tasks : (M,)
        Those tasks, in the order of Kafka's queue.
    active : (T,)
        The target of each task; changed.
    offset, standby : (T + 1,), (S,)
        The instances of each task's standbys, sorted; changed.
    warms : (M,)
        Is set to whether the target restores one more copy.
    """
    if followed:
        _begin(copies)
    for k in range(len(tasks)):
        task, mark = tasks[k], k + 1
        target, first, last = active[task], offset[task], offset[task + 1]
        listed, near = _marked(known, task, marks, mark), 0
        for at in range(first, last):
            if marks.candidate[standby[at]] == mark:
                marks.standby[standby[at]] = mark
                near += 1
        source = _polled(copies, followed, marks.standby, mark, near, marks.listed, listed)
        if source < 0:
            source = _polled(copies, followed, marks.candidate, mark, listed, marks.listed, listed)
        if source < 0:
            source = _closest(known, task, target, marks.held, mark)
        active[task] = source
        held = False
        for at in range(first, last):
            held = held or standby[at] == source
        if held:
            _replace(standby, first, last, source, target)
        else:
            _add(copies, source, 1)
            warms[k] = _taken(known, budget, task, target)
            if not warms[k]:
                _add(copies, target, -1)
        if followed:
            _offer(copies, source)
            _offer(copies, target)


@compiled
def move_standbys(
    known: Known,
    copies: Copies,
    marks: Marks,
    budget: Budget,
    followed: bool,
    tasks: Any,
    targets: Any,
    active: Any,
    offset: Any,
    standby: Any,
    sources: Any,
    warms: Any,
) -> None:
    """Give standbys that are not caught up a stand-in that is closer to it.

    Parameters
    ----------
    tasks, targets : (M,)
        Those standbys, in the order of Kafka's queue; those of a task follow each other.
    active : (T,)
        Where each task is active.
    offset, standby : (T + 1,), (S,)
        The instances of each task's other copies, sorted; changed.
    sources, warms : (M,)
        Are set to the stand-in, -1 for none; and to whether the standby stays besides.
    """
    if followed:
        _begin(copies)
    mark, listed, near = 0, 0, 0
    for k in range(len(tasks)):
        task, target = tasks[k], targets[k]
        first, last = offset[task], offset[task + 1]
        if k == 0 or task != tasks[k - 1]:
            mark = k + 1
            listed = _marked(known, task, marks, mark)
            near = listed
            marks.held[active[task]] = mark
            for at in range(first, last):
                marks.held[standby[at]] = mark
            for at in range(listed):
                if marks.held[marks.listed[at]] == mark:
                    marks.candidate[marks.listed[at]] = 0
                    near -= 1
        source = _polled(copies, followed, marks.candidate, mark, near, marks.listed, listed)
        if source >= 0:
            marks.candidate[source] = 0
            near -= 1
        else:
            source = _closest(known, task, target, marks.held, mark)
        sources[k] = source
        if source < 0:
            continue
        marks.held[source] = mark
        _add(copies, source, 1)
        warms[k] = _taken(known, budget, task, target)
        if not warms[k]:
            marks.held[target] = 0
            _replace(standby, first, last, target, source)
            _add(copies, target, -1)
        if followed:
            _offer(copies, source)
            _offer(copies, target)


@inlined
def _sink(heap: Any, keys: Any, size: int, entry: int) -> None:
    """Put an entry at the top of a heap by keys, where a heap of Java has it then."""
    at, child = 0, 1
    while child < size:
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[entry] <= keys[heap[child]]:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = entry


@compiled
def in_order(keys: Any, heap: Any, found: Any) -> None:
    """Find the order in which Java's queue returns entries; (M,) each."""
    for entry in range(len(keys)):
        at = entry
        while at > 0:
            parent = (at - 1) >> 1
            if keys[entry] >= keys[heap[parent]]:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = entry
    for k in range(len(keys)):
        found[k] = heap[0]
        size = len(keys) - 1 - k
        if size > 0:
            _sink(heap, keys, size, heap[size])


@compiled
def least_loaded(copies: Copies, active: Any, chosen: Any) -> None:
    """Choose the least loaded instances for standbys, which count for the next task.

    Parameters
    ----------
    active : (S,)
        Where each task is active: no standby of it goes there.
    chosen : (S, C)
        Is set to the instances for each task, sorted.
    """
    _begin(copies)
    several = chosen.shape[1]
    for s in range(len(active)):
        own, at = active[s], 0
        if several == 1 and copies.heap[0] != own:
            # The usual case in one step of the heap.
            instance = copies.heap[0]
            _add(copies, instance, 1)
            _down(copies, 0, instance)
            chosen[s, 0] = instance
            continue
        passed = False
        while at < several:
            instance = _popped(copies)
            if instance == own:
                passed = True
                continue
            chosen[s, at] = instance
            at += 1
        if passed:
            _offer(copies, own)
        for at in range(several):
            _add(copies, chosen[s, at], 1)
            _offer(copies, chosen[s, at])
        # sorted by insertion
        for at in range(1, several):
            instance, before = chosen[s, at], at - 1
            while before >= 0 and chosen[s, before] > instance:
                chosen[s, before + 1] = chosen[s, before]
                before -= 1
            chosen[s, before + 1] = instance
