"""Gives each stateful task its standbys, on the instances with the least load."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.levelling import level


def assign_standbys(draft: Draft) -> None:
    """Put each stateful task's standbys on the least loaded instances without a copy."""
    state, copies = draft.state, draft.configs.num_standby_replicas
    tasks = np.flatnonzero(state.stateful).tolist()
    if copies >= state.n_instances - 1:
        _everywhere(draft, tasks)
    else:
        _least_loaded(draft, tasks)


def level_standbys(draft: Draft, allowed: Callable[[int, int], bool] | None = None) -> None:
    """Level the copies per thread by moving standbys.

    Parameters
    ----------
    draft
        The assignment so far; changed.
    allowed
        Whether standbys may move from a source to a destination; None if they may.
    """
    active, standbys = draft.active, draft.standbys

    def held() -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(len(draft.count))]
        for task, instances in enumerate(standbys):
            for instance in instances:
                found[instance].append(task)
        return found

    def may_move(task: int, source: int, destination: int) -> bool:
        return (
            active[task] != destination
            and destination not in standbys[task]
            and (allowed is None or allowed(source, destination))
        )

    def move(task: int, source: int, destination: int) -> None:
        standbys[task].remove(source)
        standbys[task].append(destination)
        count[[source, destination]] += (-1, 1)

    count = draft.count
    level(held, count, draft.state.capacity, move, may_move)


def _everywhere(draft: Draft, tasks: list[int]) -> None:
    """With as many copies as other instances there is no choice."""
    others = [[i for i in range(len(draft.count)) if i != own] for own in range(len(draft.count))]
    for task, own in zip(tasks, draft.active[tasks].tolist(), strict=True):
        draft.standbys[task] = others[own].copy()
    draft.count += len(tasks) - np.bincount(draft.active[tasks], minlength=len(draft.count))


def _least_loaded(draft: Draft, tasks: list[int]) -> None:
    count, threads = draft.count.tolist(), draft.state.capacity.tolist()
    queue = [(c / n, i) for i, (c, n) in enumerate(zip(count, threads, strict=True))]
    heapify(queue)
    copies = draft.configs.num_standby_replicas
    for task, own in zip(tasks, draft.active[tasks].tolist(), strict=True):
        chosen: list[int] = []
        aside = None
        while len(chosen) < copies:
            entry = heappop(queue)
            if entry[1] == own:
                aside = entry
            else:
                chosen.append(entry[1])
        if aside is not None:
            heappush(queue, aside)
        for instance in chosen:
            count[instance] += 1
            heappush(queue, (count[instance] / threads[instance], instance))
        draft.standbys[task] = chosen
    draft.count[:] = count
