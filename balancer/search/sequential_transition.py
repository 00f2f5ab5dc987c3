"""Scores C actions that are carried out one after the other, in one pass."""

from __future__ import annotations

import numpy as np

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
        ahead = np.cumsum(delta, axis=1) - delta
        ahead -= ahead[:, runs.start]
        for k, column in enumerate(columns):
            ahead[k] += self.placement.sums(scope, column)[runs.cell]
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
        found[:, runs.first] = now[:, runs.cell[runs.first]]
        return runs.by_action(found)

    def _runs(self, scope: Scope) -> _Runs:
        if scope not in self._orders:
            self._orders[scope] = _Runs(self.cells(scope))
        return self._orders[scope]


class _Runs:
    """The touches of C actions on K cells each, grouped by cell in order of the actions."""

    def __init__(self, cells: Ints) -> None:
        self._shape = cells.shape
        flat = cells.T.ravel()
        # a radix sort for 16 bits
        narrow = flat.astype(np.int16) if flat.max(initial=0) < 2**15 else flat
        self._order = np.argsort(narrow, kind="stable")
        self.cell: Ints = flat[self._order]
        new = np.ones(len(flat), np.bool_)
        new[1:] = self.cell[1:] != self.cell[:-1]
        self.first: Ints = np.flatnonzero(new)
        self.start: Ints = np.repeat(self.first, np.diff(np.append(self.first, len(flat))))

    def by_cell(self, values: Floats) -> Floats:
        """(k, K * C) of (k, K, C): a new array, cell after cell."""
        flat: Floats = values.transpose(0, 2, 1).reshape(len(values), -1)[:, self._order]
        return flat

    def by_action(self, values: Floats) -> Floats:
        """The inverse of :meth:`by_cell`."""
        touched, n = self._shape
        back = np.empty_like(values)
        back[:, self._order] = values
        return back.reshape(len(values), n, touched).transpose(0, 2, 1)
