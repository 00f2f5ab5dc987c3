"""Scores C actions that are carried out one after the other, in one pass."""

from __future__ import annotations

import numpy as np

from balancer.search.arrays import stable_order
from balancer.search.transition import Transition
from cluster_model.columns import Column
from cluster_model.placement import Batch
from cluster_model.scopes import Scope
from cluster_model.snapshot import Floats, Ints
from goals import Cluster


class SequentialTransition(Transition):
    """C actions carried out one after the other: each starts where the previous one ends.

    The partitions must be distinct; brokers, topics and disks need not be. Each action
    must already be acceptable on its own to the goals of scope ``partition``.
    """

    def __init__(
        self,
        cluster: Cluster,
        batch: Batch,
        partner: Batch | None = None,
        unit: Ints | None = None,
    ) -> None:
        super().__init__(cluster, batch, partner, unit)
        self._orders: dict[Scope, _Runs] = {}

    def _in_turn(self) -> Ints:
        return np.zeros(len(self.batch), np.int64)

    def before(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, K, C) sums in each cell before the action, with all earlier actions done."""
        runs = self._runs(scope)
        delta = runs.by_cell(self.signed_delta(scope, columns))
        ahead = np.cumsum(delta, axis=1)
        ahead -= delta
        ahead -= ahead.take(runs.start, axis=1)
        for k, column in enumerate(columns):
            ahead[k] += self.placement.sums(scope, column).take(runs.cell)
        return runs.by_action(ahead)

    def scores_before(self, scope: Scope, now: Floats, after: Floats) -> Floats:
        """(k, K, C) scores of each cell before the action.

        Parameters
        ----------
        now : (k, cells)
            Scores of the cells before all actions.
        after : (k, K, C)
            Scores after each action: they are the scores before the next one on the same cell.
        """
        runs = self._runs(scope)
        found = runs.by_cell(after)
        found[:, 1:] = found[:, :-1]
        found[:, runs.first] = now.take(runs.cell[runs.first], axis=1)
        return runs.by_action(found)

    def _runs(self, scope: Scope) -> _Runs:
        if scope not in self._orders:
            self._orders[scope] = _Runs(self.cells(scope))
        return self._orders[scope]


class _Runs:
    """The touches of C actions on K cells each, grouped by cell in order of the actions."""

    def __init__(self, cells: Ints) -> None:
        touched, n = cells.shape
        flat = cells.T.ravel()
        order = stable_order(flat)
        self.cell: Ints = flat.take(order)
        new = np.ones(len(flat), np.bool_)
        new[1:] = self.cell[1:] != self.cell[:-1]
        self.first: Ints = np.flatnonzero(new)
        self.start: Ints = np.repeat(self.first, np.diff(np.append(self.first, len(flat))))
        # where a touch is among the (K, C) cells, and where each of those is among the touches
        action = order // touched
        self._at: Ints = (order - action * touched) * n + action
        place = np.empty(len(flat), np.int64)
        place[self._at] = np.arange(len(flat))
        self._place: Ints = place.reshape(touched, n)

    def by_cell(self, values: Floats) -> Floats:
        """(k, K * C) of (k, K, C): a new array, cell after cell."""
        flat: Floats = values.reshape(len(values), -1).take(self._at, axis=1)
        return flat

    def by_action(self, values: Floats) -> Floats:
        """The inverse of :meth:`by_cell`."""
        return values.take(self._place, axis=1)
