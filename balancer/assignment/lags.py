"""How far behind each instance is with each task, as the assignment of tasks ranks it."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np

from balancer.assignment.arrays import Known
from balancer.assignment.configs import UNLIMITED, AssignmentConfigs
from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState
from cluster_model.snapshot import Bools, Ints


class Lags:
    """The lags of an application's copies, and which of them count as caught up.

    An instance without state lacks all records of the task's changelogs. So does one whose lag is
    unknown, unless the configuration ranks it first, as Kafka does.

    Parameters
    ----------
    state, configs
        The application, and what counts as caught up.

    Attributes
    ----------
    caught_up_count : (T,) int
        Number of instances that are caught up with each task.
    least : (T,) int
        Smallest lag of an instance for each task.
    """

    def __init__(self, state: ApplicationState, configs: AssignmentConfigs) -> None:
        count = np.diff(state.lag_offset)
        of = np.repeat(np.arange(state.n_tasks), count)
        lag = state.lag
        if not configs.unknown_lag_is_caught_up:
            lag = np.where(lag == UNKNOWN, state.end_offset[of], lag)
        self._acceptable = min(configs.acceptable_recovery_lag, UNLIMITED)
        self._n_instances = state.n_instances
        self._end = state.end_offset
        self._key = of * state.n_instances + state.lag_instance
        self._offset, self._instance, self._lag = state.lag_offset, state.lag_instance, lag
        caught_up = self._near(lag)
        self._with_state = state.lag_instance[caught_up]
        self._with_state_offset = np.append(0, np.cumsum(caught_up))[state.lag_offset]
        # Whether an instance without state counts as caught up with a task.
        self._without_state = self._near(state.end_offset)
        self.caught_up_count: Ints = np.diff(self._with_state_offset) + np.where(
            self._without_state, state.n_instances - count, 0
        )
        least = np.full(state.n_tasks, UNLIMITED)
        known = count > 0
        least[known] = np.minimum.reduceat(lag, state.lag_offset[:-1][known]) if len(lag) else 0
        lacking = count < state.n_instances
        least[lacking] = np.minimum(least, state.end_offset)[lacking]
        self.least: Ints = least

    def _near(self, lag: Ints) -> Bools:
        if self._acceptable == UNLIMITED:
            return np.ones(len(lag), np.bool_)
        caught_up: Bools = (lag == RUNNING) | ((lag >= 0) & (lag <= self._acceptable))
        return caught_up

    def of(self, task: Ints, instance: Ints) -> Ints:
        """(C,) lag of instances for tasks."""
        asked = task * self._n_instances + instance
        found: Ints = self._end[task]
        if len(self._key):
            at = np.minimum(np.searchsorted(self._key, asked), len(self._key) - 1)
            known = self._key[at] == asked
            found[known] = self._lag[at[known]]
        return found

    def is_caught_up(self, task: Ints, instance: Ints) -> Bools:
        """(C,) whether instances are caught up with tasks."""
        return self._near(self.of(task, instance))

    def behind(self, task: Ints, instance: Ints) -> Bools:
        """(C,) whether instances are not caught up with tasks with which others are closer."""
        lag = self.of(task, instance)
        return ~self._near(lag) & (self.least[task] < lag)

    def caught_up(self, task: int) -> list[int]:
        """The instances that are caught up with a task, sorted."""
        instances, offset = self._caught_up
        found = instances[offset[task] : offset[task + 1]]
        if not self._without_state[task]:
            return found
        known = {*self._instance[self._offset[task] : self._offset[task + 1]].tolist()}
        return sorted([*found, *(i for i in range(self._n_instances) if i not in known)])

    @property
    def arrays(self) -> Known:
        """All lags, for compiled loops."""
        offset, instance, lag, end, near_offset, near = (
            np.ascontiguousarray(each, np.int64)
            for each in (
                self._offset,
                self._instance,
                self._lag,
                self._end,
                self._with_state_offset,
                self._with_state,
            )
        )
        return Known(offset, instance, lag, end, near_offset, near, self._without_state)

    @cached_property
    def _caught_up(self) -> tuple[list[int], list[int]]:
        return self._with_state.tolist(), self._with_state_offset.tolist()

    def ranking(self, task: int) -> Ranking:
        """The instances in the order of their lag for a task."""
        part = slice(self._offset[task], self._offset[task + 1])
        return Ranking(
            self._instance[part].tolist(),
            self._lag[part].tolist(),
            int(self._end[task]),
            self._n_instances,
        )


class Ranking:
    """The instances in the order of their lag for one task, then of their ids.

    Parameters
    ----------
    instances, lags
        Those with state, and how far behind they are.
    end
        Lag of those without.
    count
        Number of all instances.
    """

    def __init__(self, instances: list[int], lags: list[int], end: int, count: int) -> None:
        self._lag = dict(zip(instances, lags, strict=True))
        self._with_state = sorted(zip(lags, instances, strict=True))
        self._end = end
        self._count = count

    @cached_property
    def _without_state(self) -> list[int]:
        return [i for i in range(self._count) if i not in self._lag]

    def closest(self, before: int, barred: Collection[int] = ()) -> int | None:
        """The first instance before another, leaving some out; None if there is none."""
        bound = (self._lag.get(before, self._end), before)
        found = next((entry for entry in self._with_state if entry[1] not in barred), bound)
        if self._end <= bound[0]:
            without = next((i for i in self._without_state if i not in barred), None)
            found = min(found, bound if without is None else (self._end, without))
        return found[1] if found < bound else None
