"""An assignment of tasks in the making."""

from __future__ import annotations

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.result import TaskAssignment
from balancer.assignment.state import ApplicationState
from cluster_model.snapshot import Floats, Ints


class Draft:
    """Where the copies of each task are so far; the steps of an assignment change it in place.

    Parameters
    ----------
    state, configs
        What the assignment is made from.

    Attributes
    ----------
    active : (T,) int
        Index of the instance of each active task, -1 as long as it has none.
    standbys
        For each task the instances of its other copies.
    warmups
        Those of them, as (task, instance), that only exist so that a task can move.
    count : (I,) int
        Copies on each instance.
    """

    def __init__(self, state: ApplicationState, configs: AssignmentConfigs) -> None:
        self.state = state
        self.configs = configs
        self.active: Ints = np.full(state.n_tasks, -1, np.int64)
        self.standbys: list[list[int]] = [[] for _ in range(state.n_tasks)]
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

    def standby_pairs(self) -> tuple[Ints, Ints]:
        """Task and instance of each copy besides the active ones, by task, then instance."""
        size = np.fromiter(map(len, self.standbys), np.int64, len(self.standbys))
        task = np.repeat(np.arange(len(size)), size)
        instance = np.fromiter((i for s in self.standbys for i in s), np.int64, int(size.sum()))
        order = np.lexsort((instance, task))
        return task, instance[order]

    def finished(self, target: Ints, movements: int, probing: bool) -> TaskAssignment:
        """The assignment that has been made."""
        task, instance = self.standby_pairs()
        warmup = np.zeros(len(task), np.bool_)
        if self.warmups:
            n = self.state.n_instances
            keys = np.array([t * n + i for t, i in self.warmups], np.int64)
            warmup = np.isin(task * n + instance, keys)
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
