"""How far the copies of each task are behind, as the choice of an active copy sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balancer.assignment.configs import AssignmentConfigs
from balancer.assignment.state import RUNNING, UNKNOWN, ApplicationState
from cluster_model.snapshot import Bools, Floats, Ints

# Ranks of a copy whose lag is unknown: before all others, or after them.
_FIRST, _LAST = -1, 2**63 - 1


@dataclass(frozen=True, eq=False)
class CatchUp:
    """Ranks of the copies of an application's tasks: the lower, the more it has caught up.

    A copy within the acceptable lag has rank 0, any other the records that it is behind. An
    instance without state is behind by all of them; stateless tasks have rank 0 everywhere.
    """

    state: ApplicationState
    configs: AssignmentConfigs

    @cached_property
    def task(self) -> Ints:
        """(K,) the task of each lag of the state."""
        return np.repeat(np.arange(self.state.n_tasks), np.diff(self.state.lag_offset))

    @cached_property
    def rank(self) -> Ints:
        """(K,) rank of each copy with state."""
        return self._ranks(self.state.lag)

    @cached_property
    def without(self) -> Ints:
        """(T,) rank of an instance that has no state of the task."""
        return self._ranks(self.state.end_offset)

    @cached_property
    def best(self) -> Ints:
        """(T,) the least rank of an instance: only there may the task be active."""
        s = self.state
        everywhere = np.diff(s.lag_offset) == s.n_instances
        found = np.where(everywhere, _LAST, self.without)
        np.minimum.at(found, self.task, self.rank)
        return found

    def rank_of(self, task: Ints, instance: Ints) -> Ints:
        """(C,) rank of instances for tasks."""
        return self._ranks(self.state.lag_of(task, instance))

    def ready(self, task: Ints, instance: Ints) -> Bools:
        """(C,) whether no other instance has caught up more: the task may be active there."""
        found: Bools = self.rank_of(task, instance) <= self.best[task]
        return found

    @cached_property
    def restored(self) -> Ints:
        """(K,) records that each copy with state has to restore; none if it has caught up."""
        end = self.state.end_offset[self.task]
        behind = np.where(self.state.lag == UNKNOWN, end, self.state.lag)
        caught_up = (self.state.lag != UNKNOWN) & (self.rank <= 0)
        return np.where(caught_up, 0, behind)

    @cached_property
    def bytes_per_record(self) -> Floats:
        """(T,) bytes of state per record of the changelogs; empty if some sizes are unknown."""
        s = self.state
        known = len(s.state_bytes) and not np.isnan(s.state_bytes[s.stateful]).any()
        if not known:
            return np.zeros(0)
        size = np.where(s.stateful, s.state_bytes, 0.0)
        return np.divide(size, s.end_offset, out=np.zeros(len(size)), where=s.end_offset > 0)

    def _ranks(self, lag: Ints) -> Ints:
        unknown = _FIRST if self.configs.unknown_lag_is_caught_up else _LAST
        found: Ints = np.where(lag <= self.configs.acceptable_recovery_lag, 0, lag)
        return np.where(lag == UNKNOWN, unknown, np.where(lag == RUNNING, 0, found))
