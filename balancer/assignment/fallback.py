"""The assignment where end offsets cannot be fetched: tasks stay where they were.

Kafka's ``FallbackPriorTaskAssignor``: its sticky assignor, which then keeps every active task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.assignment.draft import Draft
from balancer.assignment.hash_order import instances_in_hash_order, tasks_in_hash_order
from cluster_model.snapshot import Ints


def keep_previous(draft: Draft) -> None:
    """Put each task where it was; any other one on an instance that has, or had, its state.

    Without end offsets no lag is known, so that a move might restore everything. Instances that
    had a standby or that have state on disk take over as long as they have fewer than their share
    of the active tasks. The rest goes to the least loaded instances, rather to one whose tasks
    share no other instance with it. Standbys stay in the same way.
    """
    fallback = _Fallback(draft)
    fallback.assign_active()
    if draft.configs.num_standby_replicas:
        fallback.assign_standbys()


class _Fallback:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        state = draft.state
        self.instances = range(state.n_instances)
        self.threads: list[int] = state.capacity.tolist()
        self.tasks: list[set[int]] = [set() for _ in self.instances]
        previous = np.flatnonzero(state.previous_active)
        self.owner = np.full(state.n_tasks, -1)
        self.owner[state.previous_task[previous]] = state.previous_instance[previous]
        self.holders = _holders(draft)

    def assign_active(self) -> None:
        draft = self.draft
        kept = np.flatnonzero(self.owner >= 0)
        for t, i in zip(kept.tolist(), self.owner[kept].tolist(), strict=True):
            self.tasks[i].add(t)
        draft.place(kept, self.owner[kept])
        share = draft.state.n_tasks // sum(self.threads)
        for t in tasks_in_hash_order(draft.state, np.arange(draft.state.n_tasks), at_once=True):
            if draft.active[t] < 0:
                for i in instances_in_hash_order(self.holders[t]):
                    if len(self.tasks[i]) < self.threads[i] * share:
                        self._run(t, i)
                        break
        for t in np.flatnonzero(draft.active < 0).tolist():
            self._run(t, self._choose(t, self.instances, set()))

    def assign_standbys(self) -> None:
        draft = self.draft
        for t in np.flatnonzero(draft.state.stateful).tolist():
            # The tasks that share an instance with this one.
            together = set(self.tasks[int(draft.active[t])])
            for _ in range(draft.configs.num_standby_replicas):
                free = [i for i in self.instances if t not in self.tasks[i]]
                if not free:
                    break
                i = self._choose(t, instances_in_hash_order(free), together)
                together |= self.tasks[i]
                self.tasks[i].add(t)
                draft.standbys[t].append(i)
                draft.count[i] += 1

    def _run(self, task: int, instance: int) -> None:
        self.tasks[instance].add(task)
        self.draft.place(np.array([task]), np.array([instance]))

    def _choose(self, task: int, instances: Sequence[int], together: set[int]) -> int:
        """The instance of some for a copy: one that had it, unless others have more room."""
        if len(instances) == 1:
            return instances[0]
        owner = int(self.owner[task])
        had = instances_in_hash_order(instances_in_hash_order(self.holders[task]), at_once=True)
        within = {*instances}
        standby = self._least_loaded([i for i in had if i in within], together)
        for found in (owner if owner in within else standby, standby):
            if found is not None and not self._others_have_more_room(found):
                return found
        least = self._least_loaded(instances, together)
        assert least is not None, "there is an instance to choose"
        return least

    def _least_loaded(self, instances: Sequence[int], together: set[int]) -> int | None:
        """The one with the most room, if possible with a task that is not together with this."""
        for any_task in (False, True):
            found = None
            for i in instances:
                if not self.tasks[i]:
                    return i
                if (found is None or self._has_more_room(i, found)) and (
                    any_task or not self.tasks[i] <= together
                ):
                    found = i
            if found is not None:
                return found
        return None

    def _has_more_room(self, one: int, other: int) -> bool:
        loads = [len(self.tasks[i]) / self.threads[i] for i in (one, other)]
        return loads[0] < loads[1] or (
            loads[0] == loads[1] and self.threads[one] > self.threads[other]
        )

    def _others_have_more_room(self, instance: int) -> bool:
        return len(self.tasks[instance]) >= self.threads[instance] and any(
            self._has_more_room(i, instance) for i in self.instances
        )


def _holders(draft: Draft) -> list[list[int]]:
    """Instances that had a standby of each task, or have state of it on disk."""
    state = draft.state
    found: list[set[int]] = [set() for _ in range(state.n_tasks)]
    standby = ~state.previous_active
    of: Ints = np.repeat(np.arange(state.n_tasks), np.diff(state.lag_offset))
    for tasks, instances in (
        (state.previous_task[standby], state.previous_instance[standby]),
        (of, state.lag_instance),
    ):
        for task, instance in zip(tasks.tolist(), instances.tolist(), strict=True):
            found[task].add(instance)
    active = np.flatnonzero(state.previous_active)
    for task, instance in zip(
        state.previous_task[active].tolist(), state.previous_instance[active].tolist(), strict=True
    ):
        found[task].discard(instance)
    return [sorted(instances) for instances in found]
