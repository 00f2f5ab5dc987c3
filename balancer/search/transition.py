"""Scores C actions at once, each from the current placement: what they touch and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import proxy

import numpy as np

from cluster_model.columns import Column
from cluster_model.placement import LEAD, Batch
from cluster_model.scopes import BROKER, Scope
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Cluster, State
from goals.cluster import partition_state


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

        With groups, as many cells as the largest has; -1 where others have fewer.
        """
        known = self._cells.get(scope)
        if known is None:
            known = self._cells[scope] = self._find_cells(scope)
        return known

    def _find_cells(self, scope: Scope) -> Ints:
        pairs = [self.batch]
        if self.partner is not None and scope.by_topic:
            pairs.append(self.partner)
        keys = []
        for b in pairs:
            source_disk = self.placement.source_disk(b)
            target_disk = self.placement.target_disk(b)
            keys.append(
                self.placement.keys(scope, b.partition, self.placement.source(b), source_disk)
            )
            keys.append(self.placement.keys(scope, b.partition, b.target, target_disk))
        return np.stack(keys) if self.unit is None else self._gathered(scope, np.stack(keys))

    def _gathered(self, scope: Scope, keys: Ints) -> Ints:
        """(K, C) the distinct cells of each group, from the (2, M) of its actions."""
        assert self.unit is not None
        cells, n = self.placement.cells(scope) + 1, len(self)
        key, at = np.unique((self.unit * cells + keys + 1).ravel(), return_inverse=True)
        unit = key // cells
        rank = np.arange(len(key)) - np.searchsorted(unit, unit)
        found = np.full((int(rank.max(initial=0)) + 1, n), -1)
        found[rank, unit] = key % cells - 1
        self._places[scope] = (rank * n + unit)[at.ravel()]
        return found

    def _moved(self, columns: tuple[Column, ...]) -> Floats:
        """(k, C) what goes from source to destination, net of what a swap returns."""
        known = self._delta.get(columns)
        if known is None:
            known = self.placement.deltas(self.batch, columns)
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
        if self.unit is not None:
            if uneven:
                ends = np.stack(self._uneven(columns[0]))
            else:
                ends = self._moved(columns)
                ends = np.stack([-ends, ends], 1)
            flat, place = ends.reshape(-1, 2 * len(self.batch)), self._places[scope]
            summed = [np.bincount(place, row, keys.size).reshape(keys.shape) for row in flat]
            return np.stack(summed)
        if uneven:
            return np.where(keys[0] == keys[1], 0.0, np.stack(self._uneven(columns[0])))[None]
        if len(keys) == 2:
            moved = np.where(keys[0] == keys[1], 0.0, self._moved(columns))
            return np.stack([-moved, moved], 1)
        assert self.partner is not None
        one = self.placement.deltas(self.batch, columns)
        two = self.placement.deltas(self.partner, columns)
        topic = self.placement.snapshot.partition_topic
        same = topic[self.batch.partition] == topic[self.partner.partition]
        # within one topic both actions of a swap touch the same cells, once
        one, two = np.where(same, one - two, one), np.where(same, 0.0, two)
        one = np.where(keys[0] == keys[1], 0.0, one)
        two = np.where(keys[2] == keys[3], 0.0, two)
        return np.stack([-one, one, -two, two], 1)

    def before(self, scope: Scope, columns: tuple[Column, ...]) -> Floats:
        """(k, K, C) sums in each cell before the action."""
        keys = self.cells(scope)
        return np.stack([self.placement.sums(scope, column)[keys] for column in columns])

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
        first, *rest = (
            self.before(scope, part) + self.signed_delta(scope, part)
            for part in self.placement.parts(columns)
        )
        for part in rest:
            first += part
        return first

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
                np.stack([self.placement.sums(scope, name)[keys] for name in names])
                - self._leaving(names)
            ),
        )

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
