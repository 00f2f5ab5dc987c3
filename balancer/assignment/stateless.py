"""Packs the stateless tasks around the stateful ones."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from balancer.assignment.draft import Draft


def assign_stateless(draft: Draft) -> None:
    """Put each stateless task on the instance with the fewest active tasks per thread."""
    state = draft.state
    tasks = np.flatnonzero(~state.stateful)
    running = np.bincount(draft.active[draft.active >= 0], minlength=state.n_instances).tolist()
    threads = state.capacity.tolist()
    queue = [(c / n, i) for i, (c, n) in enumerate(zip(running, threads, strict=True))]
    heapify(queue)
    chosen = np.empty(len(tasks), np.int64)
    for place in range(len(tasks)):
        instance = queue[0][1]
        chosen[place] = instance
        running[instance] += 1
        heapreplace(queue, (running[instance] / threads[instance], instance))
    draft.place(tasks, chosen)
