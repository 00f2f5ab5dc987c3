"""An assignment of tasks in the making."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Bools, Floats, Ints


class Draft:
    """Where the copies of each task are so far; the steps of an assignment change it in place.

    Parameters
    ----------
    state, configs
        What the assignment is made from.
    compiled
        Whether loops run as compiled code.

    Attributes
    ----------
    active : (T,) int
        Index of the instance of each active task, -1 as long as it has none.
    warmups
        Those of them, as (task, instance), that only exist so that a task can move.
    count : (I,) int
        Copies on each instance.
    """

    def __init__(
        self, state: ApplicationState, configs: AssignmentConfigs, *, compiled: bool = False
    ) -> None:
        self.state = state
        self.configs = configs
        self.compiled = compiled
        self.active: Ints = np.full(state.n_tasks, -1, np.int64)
        nothing = np.zeros(0, np.int64)
        self._pairs: tuple[Ints, Ints] = (nothing, nothing)
        # In place of the pairs, once single standbys are changed.
        self._standbys: list[list[int]] | None = None
        self.warmups: set[tuple[int, int]] = set()
        self.count: Ints = np.zeros(state.n_instances, np.int64)

    @property
    def load(self) -> Floats:
        """(I,) copies per thread."""
        return self.count / self.state.capacity

    def place(self, tasks: Ints, active: Ints) -> None:
        """Put active tasks on instances."""
        before = self.active[tasks]
        self.active[tasks] = active
        self.count += np.bincount(active, minlength=len(self.count))
        self.count -= np.bincount(before[before >= 0], minlength=len(self.count))

    @property
    def standbys(self) -> list[list[int]]:
        """For each task the instances of its other copies, to be changed in place."""
        if self._standbys is None:
            task, instance = self._pairs
            bounds = self.standby_offset(task).tolist()
            flat = instance.tolist()
            self._standbys = [flat[first:last] for first, last in pairwise(bounds)]
        return self._standbys

    def place_standbys(self, tasks: Ints, instances: Ints) -> None:
        """Put the first standbys of tasks, sorted, on instances; (S,) and (S, C)."""
        self._pairs = np.repeat(tasks, instances.shape[1]), np.sort(instances, axis=1).ravel()
        self.count += np.bincount(self._pairs[1], minlength=len(self.count))

    def standby_offset(self, task: Ints) -> Ints:
        """(T + 1,) where the copies of each task begin among sorted tasks (C,)."""
        found: Ints = np.zeros(self.state.n_tasks + 1, np.int64)
        np.bincount(task, minlength=self.state.n_tasks).cumsum(out=found[1:])
        return found

    def set_standbys(self, tasks: Ints, instances: Ints) -> None:
        """Put all copies besides the active ones on instances, sorted by task, then instance."""
        self._pairs, self._standbys = (tasks, instances), None

    def is_warmup(self, tasks: Ints, instances: Ints) -> Bools:
        """(C,) which copies only exist so that a task can move, if any does."""
        n = self.state.n_instances
        keys = np.array(sorted(t * n + i for t, i in self.warmups), np.int64)
        asked = tasks * n + instances
        found: Bools = keys[np.searchsorted(keys[:-1], asked)] == asked
        return found

    def standby_pairs(self) -> tuple[Ints, Ints]:
        """Task and instance of each copy besides the active ones, by task, then instance."""
        if self._standbys is None:
            return self._pairs
        size = np.fromiter(map(len, self._standbys), np.int64, len(self._standbys))
        task = np.repeat(np.arange(len(size)), size)
        flat = chain.from_iterable(self._standbys)
        instance = np.fromiter(flat, np.int64, int(size.sum()))
        order = np.lexsort((instance, task))
        return task, instance[order]

    def finished(self, target: Ints, movements: int, probing: bool) -> TaskAssignment:
        """The assignment that has been made."""
        task, instance = self.standby_pairs()
        warmup = np.zeros(len(task), np.bool_)
        if self.warmups:
            warmup = self.is_warmup(task, instance)
        return TaskAssignment(
            state=self.state,
            configs=self.configs,
            active=self.active,
            target=target,
            standby_task=task,
            standby_instance=instance,
            warmup=warmup,
            movements=movements,
            probing_rebalance=probing,
        )
