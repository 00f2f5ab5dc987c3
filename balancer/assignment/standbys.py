"""Gives each stateful task its standbys, on the instances with the least load."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np

from balancer.assignment import loops
from balancer.assignment.draft import Draft
from balancer.assignment.levelling import level
from cluster_model.snapshot import Ints


def assign_standbys(draft: Draft) -> None:
    """Put each stateful task's standbys on the least loaded instances without a copy."""
    tasks = np.flatnonzero(draft.state.stateful)
    if draft.configs.num_standby_replicas >= draft.state.n_instances - 1:
        chosen = _everywhere(draft, tasks)
    elif draft.compiled:
        chosen = loops.least_loaded(draft, tasks)
    else:
        chosen = _least_loaded(draft, tasks)
    draft.place_standbys(tasks, chosen)


def level_standbys(draft: Draft, allowed: Callable[[int, int], bool] | None = None) -> None:
    """Level the copies per thread by moving standbys.

    Parameters
    ----------
    draft
        The assignment so far; changed.
    allowed
        Whether standbys may move from a source to a destination; None if they may.
    """
    active, count = draft.active, draft.count

    def held() -> list[list[int]]:
        task, instance = draft.standby_pairs()
        order = np.lexsort((task, instance))
        bounds = np.searchsorted(instance[order], np.arange(len(count) + 1)).tolist()
        flat = task[order].tolist()
        return [flat[first:last] for first, last in pairwise(bounds)]

    def may_move(task: int, source: int, destination: int) -> bool:
        return (
            active[task] != destination
            and destination not in draft.standbys[task]
            and (allowed is None or allowed(source, destination))
        )

    def move(task: int, source: int, destination: int) -> None:
        draft.standbys[task].remove(source)
        draft.standbys[task].append(destination)
        count[[source, destination]] += (-1, 1)

    level(held, count, draft.state.capacity, move, may_move)


def _everywhere(draft: Draft, tasks: Ints) -> Ints:
    """(S, I - 1) with as many standbys as there are other instances there is no choice."""
    n = draft.state.n_instances
    others = np.tile(np.arange(n), (n, 1))[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1)
    return others[draft.active[tasks]]


def _least_loaded(draft: Draft, tasks: Ints) -> Ints:
    """(S, C) instances for the standbys of each task, which count for the next task."""
    count, threads = draft.count.tolist(), draft.state.capacity.astype(np.float64).tolist()
    queue = [(c / n, i) for i, (c, n) in enumerate(zip(count, threads, strict=True))]
    heapify(queue)
    copies = draft.configs.num_standby_replicas
    found: list[int] = []
    for own in draft.active[tasks].tolist():
        if copies == 1 and queue[0][1] != own:
            # The usual case in one step of the heap.
            instance = queue[0][1]
            found.append(instance)
            count[instance] += 1
            heapreplace(queue, (count[instance] / threads[instance], instance))
            continue
        taken = [heappop(queue) for _ in range(copies)]
        for place, (_, instance) in enumerate(taken):
            if instance == own:
                taken[place] = heappop(queue)
                heappush(queue, (count[own] / threads[own], own))
                break
        for _, instance in taken:
            found.append(instance)
            count[instance] += 1
            heappush(queue, (count[instance] / threads[instance], instance))
    return np.array(found, np.int64).reshape(len(tasks), copies)
