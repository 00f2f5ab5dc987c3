"""The assignment where end offsets cannot be fetched: tasks stay where they were."""

from __future__ import annotations

import numpy as np

from balancer.assignment.draft import Draft
from cluster_model.snapshot import Ints


def keep_previous(draft: Draft) -> None:
    """Put each task where it was; any other one on an instance that has, or had, its state.

    Without end offsets no lag is known, so that a move might restore everything. Instances that
    had a standby or that have state on disk take over as long as they have fewer than their share
    of the active tasks; then the least loaded instance does. Standbys stay in the same way.
    """
    state = draft.state
    previous = np.flatnonzero(state.previous_active)
    owner: Ints = np.full(state.n_tasks, -1, np.int64)
    owner[state.previous_task[previous]] = state.previous_instance[previous]
    kept = np.flatnonzero(owner >= 0)
    draft.place(kept, owner[kept])
    holders = _holders(draft)
    load = draft.load

    def put(instance: int) -> int:
        draft.count[instance] += 1
        load[instance] = draft.count[instance] / state.capacity[instance]
        return instance

    running = np.bincount(owner[kept], minlength=state.n_instances)
    share = -(-state.n_tasks // int(state.capacity.sum())) * state.capacity
    waiting = []
    for task in np.flatnonzero(owner < 0).tolist():
        free = [i for i in holders[task] if running[i] < share[i]]
        if free:
            instance = put(min(free, key=load.__getitem__))
            draft.active[task] = instance
            running[instance] += 1
        else:
            waiting.append(task)
    for task in waiting:
        draft.active[task] = put(int(load.argmin()))
    copies = min(draft.configs.num_standby_replicas, state.n_instances - 1)
    for task in np.flatnonzero(state.stateful).tolist() if copies else ():
        held = {int(draft.active[task])}
        had = [i for i in holders[task] if i not in held]
        for _ in range(copies):
            if had:
                instance = min(had, key=load.__getitem__)
                had.remove(instance)
            else:
                free_load = load.copy()
                free_load[list(held)] = np.inf
                instance = int(free_load.argmin())
            held.add(instance)
            draft.standbys[task].append(put(instance))


def _holders(draft: Draft) -> list[list[int]]:
    """Instances that had a standby of each task, or have state of it on disk."""
    state = draft.state
    found: list[set[int]] = [set() for _ in range(state.n_tasks)]
    standby = ~state.previous_active
    of = np.repeat(np.arange(state.n_tasks), np.diff(state.lag_offset))
    for tasks, instances in (
        (state.previous_task[standby], state.previous_instance[standby]),
        (of, state.lag_instance),
    ):
        for task, instance in zip(tasks.tolist(), instances.tolist(), strict=True):
            found[task].add(instance)
    return [sorted(instances) for instances in found]
