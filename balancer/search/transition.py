"""Scores C actions at once, each from the current placement: what they touch and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from weakref import proxy

import numpy as np

from balancer.search.arrays import stable_order
from cluster_model.columns import Column
from cluster_model.placement import COUNTED, LEAD, Batch
from cluster_model.scopes import BROKER, Scope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, State
from goals.cluster import partition_state

# up to this many rows, comparing each with the earlier ones is faster than sorting
_FEW_ROWS = 16


class Relief(NamedTuple):
    """Cells as actions on the same cell change them; see :meth:`Transition.relieving`.

    Parameters
    ----------
    order : (C,) int
        The actions, cell by cell.
    states
        The cells before and after each action, in that order.
    last : (C,) bool
        Whether an action is the last one on its cell, in that order.
    """

    order: Ints
    states: tuple[State, ...]
    last: Bools


class Transition:
    """C actions, each applied to the current placement.

    Parameters
    ----------
    cluster
        The cluster whose placement the actions start from.
    batch
        C elementary actions.
    partner
        For swaps: C further actions, carried out together with those of `batch`; the
        partner's replica goes the opposite way between the same two brokers.
    unit : (M,) int
        For actions of whole groups: the group, 0 to C - 1, that each of the M actions of
        `batch` belongs to, in ascending order. Excludes `partner`.
    """

    def __init__(
        self,
        cluster: Cluster,
        batch: Batch,
        partner: Batch | None = None,
        unit: Ints | None = None,
    ) -> None:
        self.cluster, self.batch, self.partner, self.unit = cluster, batch, partner, unit
        self.placement = cluster.placement
        self._places: dict[Scope, Ints] = {}
        self._cells: dict[Scope, Ints] = {}
        self._delta: dict[tuple[Column, ...], Floats] = {}
        self._roles: tuple[Ints, Ints] | None = None
        # source, and disks, of the actions; under True of their partners
        self._ends: dict[bool, tuple[Ints, Ints, Ints]] = {}
        self._states: dict[Scope, State] = {}
        self._partition_states: list[tuple[Ints, State]] | None = None
        self.diffs: dict[int, tuple[Floats, Bools]] = {}
        self.scored: dict[int, tuple[Floats, Floats]] = {}

    def __len__(self) -> int:
        if self.unit is None:
            return len(self.batch)
        return int(self.unit[-1]) + 1 if len(self.unit) else 0

    def cells(self, scope: Scope) -> Ints:
        """(K, C) the cells each action touches: source and destination, of each partition.

        Where a cell is the same for several of them, and with groups, it is listed once; there are
        as many rows as the action with most cells needs, with -1 where others have fewer.
        """
        known = self._cells.get(scope)
        if known is None:
            known = self._cells[scope] = self._find_cells(scope)
        return known

    def padded(self, scope: Scope) -> bool:
        """Whether -1 may be among the cells of a scope, for no cell."""
        if scope.of_partitions:
            return self.unit is not None
        return scope.partial or self._is_gathered(scope)

    def _is_gathered(self, scope: Scope) -> bool:
        """Whether :meth:`cells` lists each cell once, so that what is added to it adds up."""
        self.cells(scope)
        return scope in self._places

    def _batches(self, scope: Scope) -> list[Batch]:
        """The actions whose cells count: both of a swap, unless cells are those of brokers."""
        if self.partner is None or not scope.by_topic:
            return [self.batch]
        return [self.batch, self.partner]

    def _keys(self, scope: Scope, b: Batch) -> list[Ints]:
        """The cells of each action's source, and of its destination."""
        placement = self.placement
        ends = self._ends.get(b is self.partner)
        if ends is None:
            ends = placement.source(b), placement.source_disk(b), placement.target_disk(b)
            self._ends[b is self.partner] = ends
        source, source_disk, target_disk = ends
        return [
            placement.keys(scope, b.partition, source, source_disk),
            placement.keys(scope, b.partition, b.target, target_disk),
        ]

    def _find_cells(self, scope: Scope) -> Ints:
        if scope.inner is not None:
            outer = scope.outer(self.placement.snapshot, self.cells(scope.inner))
            return self._gathered(scope, outer, None)
        keys = [key for b in self._batches(scope) for key in self._keys(scope, b)]
        stacked = np.concatenate(keys) if scope.several else np.stack(keys)
        if self.unit is None and not scope.several and len(stacked) <= 2:
            return stacked
        return self._gathered(scope, stacked, self.unit)

    def _gathered(self, scope: Scope, keys: Ints, unit: Ints | None) -> Ints:
        """(K, C) the distinct cells of each action, or of each group, from (R, M) keys."""
        n = len(self)
        if unit is None and len(keys) <= _FEW_ROWS:
            row = np.repeat(np.arange(len(keys))[:, None], n, 1)
            for later in range(1, len(keys)):
                for earlier in reversed(range(later)):
                    row[later][keys[later] == keys[earlier]] = earlier
            self._places[scope] = (row * n + np.arange(n)).ravel()
            return np.where(row == np.arange(len(keys))[:, None], keys, -1)
        unit = np.arange(n) if unit is None else unit
        cells = self.placement.cells(scope) + 1
        key, at = np.unique((unit * cells + keys + 1).ravel(), return_inverse=True)
        unit = key // cells
        rank = np.arange(len(key)) - np.searchsorted(unit, unit)
        distinct = np.full((int(rank.max(initial=0)) + 1, n), -1)
        distinct[rank, unit] = key % cells - 1
        self._places[scope] = (rank * n + unit)[at.ravel()]
        return distinct

    def _moved(self, columns: tuple[Column, ...]) -> Floats:
        """(k, C) what goes from source to destination, net of what a swap returns."""
        known = self._delta.get(columns)
        if known is None:
            if self._roles is None:
                self._roles = self.placement.roles(self.batch)
            known = self.placement.deltas(self.batch, columns, self._roles)
            if self.partner is not None:
                known = known - self.placement.deltas(self.partner, columns)
            self._delta[columns] = known
        return known

    def _uneven(self, column: Column) -> tuple[Floats, Floats]:
        """What each action adds to an uneven column of its source, and of its target."""
        if column.is_former:
            (gained,), (lost,) = self.placement.former_changes(self.batch, (column,))
            if self.partner is None:
                return gained, -lost
            (returned,), (back,) = self.placement.former_changes(self.partner, (column,))
            return gained - back, returned - lost
        if self.partner is None:
            lost, gained = self.placement.local_changes(self.batch, column, self._in_turn())
            return -lost, gained
        # both actions of a swap, one after the other
        n, pair = len(self), np.arange(2 * len(self))
        both = Batch.concatenate([self.batch, self.partner])[(pair % 2) * n + pair // 2]
        turn = self._in_turn()
        row = pair // 2 if turn is None else turn[pair // 2]
        lost, gained = self.placement.local_changes(both, column, row)
        return gained[1::2] - lost[::2], gained[::2] - lost[1::2]

    def _in_turn(self) -> Ints | None:
        """(M,) actions with the same number follow one another; None if each is alone."""
        return self.unit

    def signed_delta(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, K, C) what each action adds to each of its cells."""
        uneven = any(column.is_uneven for column in columns)
        if uneven and len(columns) > 1:
            return np.concatenate([self.signed_delta(scope, (column,)) for column in columns])
        keys = self.cells(scope)
        if self._is_gathered(scope):
            flat, place = self._added(scope, columns), self._places[scope]
            shape, rows = keys.shape, (row.ravel() for row in flat)
            total = np.stack([np.bincount(place, row, keys.size).reshape(shape) for row in rows])
            return np.where(keys < 0, 0.0, total)
        inside = np.flatnonzero(keys[0] == keys[1])
        if uneven:
            added = np.stack(self._uneven(columns[0]))[None]
        else:
            moved = self._moved(columns)
            added = np.empty((len(columns), 2, moved.shape[1]))
            np.negative(moved, out=added[:, 0])
            added[:, 1] = moved
        if len(inside):
            added[:, :, inside] = 0.0
        return added

    def _added(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, R, M) what each action adds to each of the keys that its cells are gathered from."""
        if scope.inner is not None:
            return np.concatenate([self._added_inside(scope.inner, c) for c in columns])
        if columns[0].is_uneven:
            return np.stack(self._uneven(columns[0]))[None]
        rows = []
        for b in self._batches(scope):
            alone = self.partner is None
            moved = self._moved(columns) if alone else self.placement.deltas(b, columns)
            rows += [-moved, moved]
        if not scope.several:
            return np.stack(rows, 1)
        return self._per_row(scope, columns, rows)

    def _per_row(self, scope: Scope, columns: tuple[Column, ...], ends: list[Floats]) -> Floats:
        """(k, R, M) the (k, M) amounts of each end, in the rows of its cells that count them."""
        width = len(self._places[scope]) // max(len(ends) * len(self.batch), 1)
        counts = np.zeros((len(columns), width, 1))
        for k, column in enumerate(columns):
            counts[k, scope.rows(column)] = 1.0
        return np.concatenate([counts * end[:, None] for end in ends], 1)

    def _added_inside(self, inner: Scope, column: Column) -> Floats:
        """(1, K, C) what each action adds to inner cells: to a sum, or to how many hold some."""
        if not column.is_group_count:
            return self.signed_delta(inner, (column,))
        held = self.before(inner, (COUNTED,))
        after = held + self.signed_delta(inner, (COUNTED,))
        return np.where(self.cells(inner) < 0, 0.0, (after > 0) * 1.0 - (held > 0))

    def before(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, K, C) sums in each cell before the action."""
        keys = self.cells(scope)
        found = np.empty((len(columns), *keys.shape))
        for k, column in enumerate(columns):
            found[k] = self.placement.sums(scope, column).take(keys)
        return found

    def after_state(self, scope: Scope) -> State:
        """The cells as the action leaves them."""
        known = self._states.get(scope)
        if known is None:
            # A strong reference to itself would keep the arrays until the next garbage collection.
            own = proxy(self)
            known = self._states[scope] = self._state(
                scope, self.cells(scope), lambda names: own._after(scope, names)
            )
        return known

    def _after(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, K, C) sums in each cell after the action."""
        first, *rest = (self._after_part(scope, part) for part in self.placement.parts(columns))
        for part in rest:
            first += part
        return first

    def _after_part(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        after = self.before(scope, columns)
        after += self.signed_delta(scope, columns)
        return after

    def shifted_state(self, parcel: float) -> State:
        """The brokers as the action leaves them, each plus a share of the mean broker."""

        def sums(names: tuple[Column, ...]) -> Floats:
            after = self.before(BROKER, names) + self.signed_delta(BROKER, names)
            more = parcel * self.cluster.means(names) * [column.shifts for column in names]
            shifted: Floats = after + more[:, None, None]
            return shifted

        return self._state(BROKER, self.cells(BROKER), sums)

    def departed_state(self, scope: Scope) -> State:
        """(C,) the source cells without the moved load, which is not added anywhere."""
        keys = self.cells(scope)[0]
        return self._state(
            scope,
            keys,
            lambda names: (
                np.stack([self.placement.sums(scope, name).take(keys) for name in names])
                - self._leaving(names)
            ),
        )

    def relieving(self, scope: Scope, end: Ints) -> Relief:
        """One cell of each action as the actions on the same cell change it, one after the other.

        Parameters
        ----------
        scope
            The kind of cell.
        end : (C,) int
            Which of its cells counts for each action: a row of :meth:`cells`.
        """
        row = np.arange(len(self))
        order = stable_order(self.cells(scope)[end, row])
        keys = self.cells(scope)[end, row][order]
        new = np.append(True, keys[1:] != keys[:-1])
        first = np.flatnonzero(new)
        size = np.diff(np.append(first, len(keys)))

        def sums(columns: tuple[Column, ...], own: bool) -> Floats:
            found = []
            for part in self.placement.parts(columns):
                delta = self.signed_delta(scope, part)[:, end, row][:, order]
                total = np.cumsum(delta, axis=1)
                total -= np.repeat((total - delta)[:, first], size, axis=1)
                start = np.stack([self.placement.sums(scope, column)[keys] for column in part])
                found.append(start + (total if own else total - delta))
            summed: Floats = sum(found[1:], found[0])
            return summed

        states = tuple(self._state(scope, keys, partial(sums, own=own)) for own in (False, True))
        return Relief(order, states, np.append(new[1:], True))

    def _leaving(self, columns: tuple[Column, ...]) -> Floats:
        """(k, C) what each action takes from its source."""
        if any(column.is_uneven for column in columns):
            return np.concatenate([self._leaves(column) for column in columns])
        return self._moved(columns)

    def _leaves(self, column: Column) -> Floats:
        if column.is_uneven:
            return -self._uneven(column)[0][None]
        return self._moved((column,))

    def _state(
        self, scope: Scope, keys: Ints, sums: Callable[[tuple[Column, ...]], Floats]
    ) -> State:
        cluster = self.cluster

        def fetch(column: Column) -> Floats | Ints:
            if column.is_sum:
                found: Floats = sums((column,))[0]
                return found
            return cluster.fetch(scope, column, keys)

        return State(fetch, sums)

    def partition_states(self) -> list[tuple[Ints, State]]:
        """For each partition an action touches: (C,) its index, and its state afterwards.

        With groups, -1 for groups with fewer partitions than others.
        """
        if self._partition_states is None:
            if self.unit is None:
                self._partition_states = [
                    self._partition_after(b) for b in (self.batch, self.partner) if b is not None
                ]
            else:
                self._partition_states = list(self._members_after(self.unit))
        return self._partition_states

    def _members_after(self, unit: Ints) -> Iterator[tuple[Ints, State]]:
        first = np.searchsorted(unit, np.arange(len(self)))
        size = np.bincount(unit, minlength=len(self))
        for rank in range(int(size.max(initial=0))):
            rows, state = self._partition_after(self.batch[first + np.minimum(rank, size - 1)])
            yield np.where(rank < size, rows, -1), state

    def _partition_after(self, b: Batch) -> tuple[Ints, State]:
        placement, rows = self.placement, np.arange(len(b))
        brokers = placement.brokers[b.partition]
        brokers[rows, b.slot] = b.target
        leader = np.where(b.kind == LEAD, b.slot, placement.leader[b.partition])
        disks = None
        if len(placement.replica_disk):
            disks = placement.replica_disk.reshape(-1, placement.slots)[b.partition]
            disks[rows, b.slot] = placement.target_disk(b)
        return b.partition, partition_state(placement.snapshot, b.partition, brokers, leader, disks)
