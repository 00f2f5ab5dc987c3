"""The mutable working copy that the search changes, and the sums that goals read.

Replicas live in a padded table: slot ``f`` of partition ``p`` is element
``p * F + f`` of the flat arrays, where F is the largest number of replicas any
partition may get; an empty slot holds broker -1. Sums are kept per *cell* of a
scope (a broker, a topic on a broker, a disk, …) and updated in O(1) per action. If a
living broker or disk has capacity 0, the sums for a search use rounded loads, so that the
sums themselves are exact: a rounding residue would count as a load there, while other limits
have a tolerance. :meth:`Placement.contribution` and :meth:`Placement.recompute` never round.
Steps of a plan are ordered and reported on exact sums (:meth:`Placement.stated`), for loads of
any magnitude and after any number of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cluster_model.columns import ANY, COUNT, LEADER, LOAD, TRAFFIC, Column
from cluster_model.scopes import BROKER, Scope, scope_of
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from cluster_model.traffic import Traffic
from metrics_reporter.arrays import read_only

MOVE, LEAD, MOVE_DISK = 0, 1, 2


@dataclass(frozen=True)
class Batch:
    """C elementary actions, one per row; arrays of shape (C,).

    ``kind`` MOVE: the replica in ``slot`` goes to broker ``target`` (and there to
    ``disk``). LEAD: the replica in ``slot`` becomes leader (``target`` is its broker).
    MOVE_DISK: the replica in ``slot`` goes to ``disk`` of its own broker.
    """

    kind: npt.NDArray[np.int8]
    partition: Ints
    slot: Ints
    target: Ints
    disk: Ints

    def __len__(self) -> int:
        return len(self.partition)

    def __getitem__(self, rows: Ints | Bools | slice) -> Batch:
        if isinstance(rows, np.ndarray):
            # taking rows by number is several times as fast as indexing
            at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
            numbers = (self.partition, self.slot, self.target, self.disk)
            return Batch(self.kind.take(at), *(column.take(at) for column in numbers))
        return Batch(
            self.kind[rows],
            self.partition[rows],
            self.slot[rows],
            self.target[rows],
            self.disk[rows],
        )

    @staticmethod
    def of(kind: int, partition: Ints, slot: Ints, target: Ints, disk: Ints | None = None) -> Batch:
        """A batch of one kind."""
        n = len(partition)
        return Batch(
            np.full(n, kind, np.int8),
            partition,
            slot,
            target,
            np.full(n, -1, np.int64) if disk is None else disk,
        )

    @staticmethod
    def concatenate(batches: list[Batch]) -> Batch:
        """The rows of several batches, in order."""
        if len(batches) == 1:
            return batches[0]
        return Batch(
            np.concatenate([b.kind for b in batches]),
            np.concatenate([b.partition for b in batches]),
            np.concatenate([b.slot for b in batches]),
            np.concatenate([b.target for b in batches]),
            np.concatenate([b.disk for b in batches]),
        )


class Placement:
    """The placement of replicas, with every requested sum kept up to date.

    Parameters
    ----------
    snapshot
        The initial placement.
    slots
        F, the width of the replica table; by default the largest replication factor.
    """

    def __init__(self, snapshot: Snapshot, slots: int | None = None) -> None:
        s = self.snapshot = snapshot
        factor = s.replication_factor
        f = self.slots = max(slots or 1, int(factor.max(initial=1)))
        at = s.replica_partition * f + (
            np.arange(s.n_replicas) - np.repeat(s.replica_offset[:-1], factor)
        )
        self.replica_broker: Ints = np.full(s.n_partitions * f, -1, np.int64)
        self.replica_broker[at] = s.replica_broker
        self.replica_disk: Ints = np.full(s.n_partitions * f if s.n_disks else 0, -1, np.int64)
        if s.n_disks:
            self.replica_disk[at] = s.replica_disk
        # without a leader, the preferred replica will become the leader
        self.leader: Ints = np.maximum(s.leader, 0)
        self._sums: dict[tuple[Scope, Column], Floats] = {}
        self._contributions: dict[Column, tuple[Floats, Floats]] = {}
        self._rounds = _holds_nothing_somewhere(s)
        self._summands: dict[Column, tuple[Floats, Floats]] = {}
        self._stacked: dict[tuple[Column, ...], Floats] = {}
        self._traffic: dict[float, Traffic] = {}
        self._exact = False
        self._splits: dict[Column, list[tuple[Floats, Floats]]] = {}
        self._start: list[Ints] = []

    @property
    def brokers(self) -> Ints:
        """(P, F) int: view of the replica table, -1 where a slot is empty."""
        return self.replica_broker.reshape(-1, self.slots)

    def changed(self, other: Placement) -> Ints:
        """Partitions that another placement places or leads differently."""
        differ = (self.brokers != other.brokers).any(1) | (self.leader != other.leader)
        if len(self.replica_disk):
            disks = self.replica_disk != other.replica_disk
            differ |= disks.reshape(self.brokers.shape).any(1)
        return np.flatnonzero(differ)

    @property
    def location(self) -> Ints:
        """(P,) int: the broker that leads each partition, for its communication."""
        found: Ints = self.brokers[np.arange(len(self.leader)), self.leader]
        return found

    @property
    def start(self) -> Ints:
        """(P, F) int: the brokers in the snapshot by partition, -1 where a slot is empty."""
        if not self._start:
            every = np.arange(self.snapshot.n_partitions)
            self._start.append(read_only(start_brokers(self.snapshot, every)))
        return self._start[0]

    def traffic(self, factor: float) -> Traffic:
        """Communication of partitions with those they should be collocated with."""
        if factor not in self._traffic:
            self._traffic[factor] = Traffic(self.snapshot, factor)
        return self._traffic[factor]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Where replicas and leaders are cannot be changed meanwhile, while others read it."""
        tables = (self.replica_broker, self.replica_disk, self.leader)
        open_ones = [table for table in tables if table.flags.writeable]
        for table in open_ones:
            table.setflags(write=False)
        try:
            yield
        finally:
            for table in open_ones:
                table.setflags(write=True)

    def copy(self) -> Placement:
        """An independent placement in the same state."""
        other = object.__new__(Placement)
        other.snapshot, other.slots = self.snapshot, self.slots
        other.replica_broker = self.replica_broker.copy()
        other.replica_disk = self.replica_disk.copy()
        other.leader = self.leader.copy()
        other._sums = {k: v.copy() for k, v in self._sums.items()}
        other._contributions, other._stacked = self._contributions, self._stacked
        other._rounds, other._summands = self._rounds, self._summands
        other._traffic = self._traffic
        other._exact, other._splits = self._exact, self._splits
        other._start = self._start
        return other

    def stated(self) -> Placement:
        """A copy with exact sums of unrounded loads; itself if its sums are exact."""
        if self._exact:
            return self
        other = self.copy()
        other._rounds, other._exact = False, True
        other._sums, other._summands, other._stacked = {}, {}, {}
        return other

    def restore(self, other: Placement) -> None:
        """Take over the state of an earlier copy."""
        self.replica_broker[:] = other.replica_broker
        self.replica_disk[:] = other.replica_disk
        self.leader[:] = other.leader
        self._sums = {k: v.copy() for k, v in other._sums.items()}

    def invalidate_sums(self) -> None:
        """Forget every sum; each is added up again when it is next read.

        To be called after the tables were changed other than by :meth:`apply`.
        """
        self._sums.clear()

    def forget(self, scope: Scope) -> None:
        """Forget the sums of one scope; each is added up again when it is next read."""
        for key in [key for key in self._sums if key[0] == scope]:
            del self._sums[key]

    def kept_sums(self) -> Iterator[tuple[Scope, Column, Floats]]:
        """Every sum that is kept up to date: its scope, its column, and its (cells,) values.

        For callers that change the tables and these values together.
        """
        for (scope, column), kept in self._sums.items():
            yield scope, column, kept

    def cells(self, scope: Scope | str) -> int:
        """The number of cells of a scope."""
        return scope_of(scope).cells(self.snapshot)

    def keys(self, scope: Scope | str, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of a replica of `partition` on `broker` (on `disk`); -1 for none."""
        return scope_of(scope).keys(self.snapshot, partition, broker, disk)

    def contribution(self, column: Column | str) -> tuple[Floats, Floats]:
        """One replica's part of a sum: (P,) while it leads, (P,) while it follows.

        A load or a count is of all replicas, of leaders only, or as if every replica led; a former
        load, of scope ``broker``, is of replicas that have left their broker since the start, in
        the role they had there. Traffic between leaders is that of :meth:`traffic`. Its local
        part, of scope ``broker``, is not a sum over leaders (nan), and followers add nothing;
        nor is a count of groups.

        Raises
        ------
        ValueError
            For a column that is not a sum over replicas.
        """
        column = Column.of(column)
        known = self._contributions.get(column)
        if known is not None:
            return known
        if column.part >= 0:
            split = self._split(column._replace(part=-1))
            none = np.zeros(self.snapshot.n_partitions)
            return split[column.part] if column.part < len(split) else (none, none)
        s = self.snapshot
        none = np.zeros(s.n_partitions)
        if column.measure == TRAFFIC:
            lead, follow = self.traffic(column.factor).total, none
        elif column.is_local or column.is_group_count:
            lead, follow = np.full(s.n_partitions, np.nan), none
        elif column.is_load or column.measure == COUNT:
            if column.measure == COUNT:
                lead = own = np.ones(s.n_partitions)
            else:
                r = s.resource(column.resource)
                lead = np.ascontiguousarray(s.leader_load[:, r])
                own = np.ascontiguousarray(s.follower_load[:, r])
            follow = {ANY: own, LEADER: none}.get(column.role, lead)
        else:
            raise ValueError(f"{column} is not a sum over replicas")
        known = self._contributions[column] = read_only(lead), read_only(follow)
        return known

    def summand(self, column: Column) -> tuple[Floats, Floats]:
        """One replica's part of the sums that are kept: its contribution, or close to it.

        If a living broker or disk has capacity 0, it is a whole multiple of a power of two
        large enough that no sum is rounded. That changes loads by less than one part in 10^15
        of the largest possible sum, and four times that sum is still exact. Loads above 0
        stay above 0.
        """
        if not (self._rounds and column.is_load):
            return self.contribution(column)
        known = self._summands.get(column)
        if known is None:
            lead, follow = self.contribution(column)
            load = self.snapshot.resource(column.resource)
            s = self.snapshot
            largest = np.maximum(s.leader_load[:, load], s.follower_load[:, load])
            most = 4.0 * self.slots * float(largest.sum())
            digit = float(np.ldexp(1.0, int(np.frexp(most)[1]) - 53))
            if digit > 0.0:
                lead, follow = (
                    np.maximum(np.rint(x / digit), x > 0) * digit for x in (lead, follow)
                )
            known = self._summands[column] = read_only(lead), read_only(follow)
        return known

    def parts(self, columns: tuple[Column, ...]) -> list[tuple[Column, ...]]:
        """Split columns into parts that add up to them, with exact sums where required.

        The smallest parts come first: added in that order, at most the last digit is lost.
        """
        most = max(len(self._split(column)) for column in columns) if self._exact else 1
        if most == 1:
            return [columns]
        return [tuple(c._replace(part=k) for c in columns) for k in reversed(range(most))]

    def _split(self, column: Column) -> list[tuple[Floats, Floats]]:
        """Contributions in parts, each of multiples of a power of two that sums do not round."""
        known = self._splits.get(column)
        if known is None:
            found, lead_follow = [], self.contribution(column)
            if column.is_load and column.part < 0:
                rest = np.stack(lead_follow)
                # four times the largest possible sum is exact
                most, copies = 4.0 * self.slots * float(rest.max(0).sum()), rest.shape[1]
                while rest.any():
                    digit = float(np.ldexp(1.0, int(np.frexp(most)[1]) - 53))
                    lead, follow = part = np.floor(rest / digit) * digit
                    found.append((lead, follow))
                    rest, most = rest - part, 4.0 * self.slots * copies * digit
            known = self._splits[column] = found or [lead_follow]
        return known

    def sums(self, scope: Scope | str, column: Column | str) -> Floats:
        """(cells,) float: a sum over the replicas of each cell, from now on kept up to date."""
        scope, column = scope_of(scope), Column.of(column)
        parts = self.parts((column,))
        if len(parts) > 1:
            total: Floats = read_only(np.sum([self.sums(scope, x) for (x,) in parts], axis=0))
            return total
        known = self._sums.get((scope, column))
        if known is None:
            if column.is_group_count:
                # changes are worked out from those of the inner counts, which are kept for that
                known = self._counted(scope, self.sums(_inner(scope, column), COUNTED))
            else:
                known = self._added_up(scope, column, self.summand)
            self._sums[scope, column] = known
        kept: Floats = read_only(known)
        return kept

    def recompute(self, scope: Scope | str, column: Column | str) -> Floats:
        """(cells,) float: a sum over the replicas of each cell, from scratch and not rounded."""
        return self._added_up(scope_of(scope), Column.of(column), self.contribution)

    def totals(self, column: Column | str, group: Ints, groups: int) -> Floats:
        """(groups,) a sum over replicas, given the (N,) group of each of them; -1 for none.

        Unlike a sum of the sums of cells, it is the same to the last digit wherever in its group
        a replica is, so that equal placements are judged alike wherever a plan started.
        """
        lead, follow = self.contribution(column)
        rows, table = np.arange(len(lead)), group.reshape(self.brokers.shape)
        table = np.where(self.brokers >= 0, table, -1)
        leads = table[rows, self.leader]
        if groups == 1:
            led = leads == 0
            follows = np.count_nonzero(table == 0, axis=1) - led
            return np.array([(lead * led).sum() + (follow * follows).sum()])
        led = leads >= 0
        found = np.zeros(groups)
        found += np.bincount(leads[led], lead[led], groups)
        table[rows, self.leader] = -1
        p, slot = np.nonzero(table >= 0)
        found += np.bincount(table[p, slot], follow[p], groups)
        return found

    def _added_up(
        self, scope: Scope, column: Column, adds: Callable[[Column], tuple[Floats, Floats]]
    ) -> Floats:
        if column.is_local:
            return self._local(scope, column).local(self.location, self.cells(scope))
        if column.is_former:
            return self._left_behind(scope, column, adds)
        if column.is_group_count:
            return self._counted(scope, self._added_up(_inner(scope, column), COUNTED, adds))
        broker, slot = self.replica_broker, np.arange(self.slots)
        p = np.repeat(np.arange(self.snapshot.n_partitions), self.slots)
        disk = self.replica_disk if len(self.replica_disk) else np.full_like(broker, -1)
        key = self.keys(scope, p, broker, disk)
        lead, follow = adds(column)
        value = np.where(slot == self.leader[:, None], lead[:, None], follow[:, None]).ravel()
        if scope.several:
            key = key[scope.rows(column)]
            value = np.broadcast_to(value, key.shape)
        placed = (broker >= 0) & (key >= 0)
        if scope.several or not placed.all():
            key, value = key[placed], value[placed]
        return np.bincount(key, value, self.cells(scope)).astype(np.float64)

    def _left_behind(
        self, scope: Scope, column: Column, adds: Callable[[Column], tuple[Floats, Floats]]
    ) -> Floats:
        """(B,) loads of the replicas of the snapshot that their broker holds no longer."""
        _of_brokers(scope, column)
        p, slot = np.nonzero(
            (self.start >= 0) & ~(self.start[:, :, None] == self.brokers[:, None, :]).any(2)
        )
        lead, follow = adds(column)
        value = np.where(slot == np.maximum(self.snapshot.leader[p], 0), lead[p], follow[p])
        return np.bincount(self.start[p, slot], value, self.cells(scope)).astype(np.float64)

    def _counted(self, scope: Scope, held: Floats, cells: Ints | None = None) -> Floats:
        """(cells,) how many inner cells of each cell hold replicas; of all cells by default."""
        n = self.cells(scope)
        table = held.reshape(n, len(held) // max(n, 1))
        found: Floats = np.count_nonzero(table if cells is None else table[cells], axis=1)
        return found.astype(np.float64)

    def check(self) -> None:
        """Recompute every sum from scratch; raises AssertionError if one has drifted."""
        for (scope, column), kept in self._sums.items():
            fresh = self.recompute(scope, column)
            # what has left and returned leaves a residue, which is small beside what is there
            whole = self.recompute(scope, column._replace(measure=LOAD)) if column.is_former else 0
            size = max(1.0, float(np.abs(fresh + whole).max(initial=0.0)))
            worst = float(np.abs(kept - fresh).max(initial=0.0))
            if worst > 1e-9 * size:
                raise AssertionError(f"{column} per {scope} has drifted by {worst}")

    def source(self, batch: Batch) -> Ints:
        """(C,) int: the broker each action takes load from."""
        return self.replica_broker.take(self._source_at(batch))

    def source_disk(self, batch: Batch) -> Ints:
        """(C,) int: the disk each action takes load from; -1 for none."""
        if not len(self.replica_disk):
            return np.full(len(batch), -1, np.int64)
        return self.replica_disk.take(self._source_at(batch))

    def _source_at(self, batch: Batch) -> Ints:
        """(C,) positions of the replicas that actions take load from."""
        slot, elects = batch.slot, np.flatnonzero(batch.kind == LEAD)
        if len(elects):
            slot = slot.copy()
            slot[elects] = self.leader.take(batch.partition.take(elects))
        at: Ints = batch.partition * self.slots + slot
        return at

    def target_disk(self, batch: Batch) -> Ints:
        """(C,) int: the disk each action adds load to; -1 for none."""
        if not len(self.replica_disk):
            return batch.disk
        own = self.replica_disk[batch.partition * self.slots + batch.slot]
        return np.where(batch.kind == LEAD, own, batch.disk)

    def delta(self, batch: Batch, column: Column | str) -> Floats:
        """(C,) float: the load each action moves from its source to its destination."""
        found: Floats = self.deltas(batch, (Column.of(column),))[0]
        return found

    def roles(self, batch: Batch) -> tuple[Ints, Ints]:
        """Where :meth:`deltas` finds what each action moves, and the rows that elect a leader."""
        p = batch.partition
        elects = batch.kind == LEAD
        leads = elects | (batch.slot == self.leader.take(p))
        return p + self.snapshot.n_partitions * ~leads, np.flatnonzero(elects)

    def deltas(
        self, batch: Batch, columns: tuple[Column, ...], roles: tuple[Ints, Ints] | None = None
    ) -> Floats:
        """(k, C) float: :meth:`delta` of several columns at once; `roles` if they are known."""
        table = self._by_role(columns)
        rows, elects = roles or self.roles(batch)
        moved = table.take(rows, axis=0)
        if len(elects):
            moved[elects] -= table.take(rows[elects] + self.snapshot.n_partitions, axis=0)
        return np.ascontiguousarray(moved.T)

    def former_changes(self, batch: Batch, columns: tuple[Column, ...]) -> tuple[Floats, Floats]:
        """(k, C), (k, C) former load that each action's source gains and its target loses.

        The source gains what leaves it, if that was there at the start; the target loses what
        returns to it.
        """
        _of_brokers(BROKER, columns[0])
        table, p = self._by_role(columns), batch.partition
        first, n = np.maximum(self.snapshot.leader[p], 0), self.snapshot.n_partitions
        moves = batch.kind == MOVE
        changes = []
        for broker in (self.source(batch), batch.target):
            own = self.start[p] == broker[:, None]
            led = own[np.arange(len(p)), first]
            load = table[np.where(led, p, p + n)].T
            changes.append(np.where(moves & own.any(1) & (broker >= 0), load, 0.0))
        return changes[0], changes[1]

    def _by_role(self, columns: tuple[Column, ...]) -> Floats:
        """(2 P, k) one replica's part of several sums: while it leads, then while it follows."""
        table = self._stacked.get(columns)
        if table is None:
            lead, follow = zip(*map(self.summand, columns), strict=True)
            # one row of memory for each role of each partition: a batch reads it only once
            table = np.stack([np.concatenate([a, b]) for a, b in zip(lead, follow, strict=True)], 1)
            self._stacked[columns] = table
        return table

    def _local(self, scope: Scope, column: Column) -> Traffic:
        _of_brokers(scope, column)
        return self.traffic(column.factor)

    def local_changes(
        self, batch: Batch, column: Column, row: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """(C,), (C,) local traffic that each action's source loses and its target gains.

        Parameters
        ----------
        batch
            Actions to carry out, with their current brokers.
        column
            Local traffic.
        row : (C,) int
            See :meth:`cluster_model.traffic.Traffic.changes`.
        """
        p = batch.partition
        goes = (batch.kind == LEAD) | ((batch.kind == MOVE) & (batch.slot == self.leader[p]))
        where = self.location
        target = np.where(goes, batch.target, where[p])
        source = self.source(batch)
        lost, gained = self._local(BROKER, column).changes(where, p, source, target, row)
        return np.where(goes, lost, 0.0), np.where(goes, gained, 0.0)

    def apply(self, batch: Batch) -> Batch:
        """Carry out actions on distinct partitions at once; returns the actions that undo them.

        The undo batch has the same slots: a replica returns to the slot it left.
        """
        source, source_disk = self.source(batch), self.source_disk(batch)
        undo = replace(
            batch,
            target=source,
            slot=np.where(batch.kind == LEAD, self.leader[batch.partition], batch.slot),
            disk=source_disk,
        )
        target_disk = self.target_disk(batch)
        kept: dict[Scope, list[Column]] = {}
        counted: list[tuple[Scope, Column]] = []
        for scope, column in self._sums:
            if column.is_group_count:
                counted.append((scope, column))
            elif column.is_local:
                lost, gained = self.local_changes(batch, column, np.zeros(len(batch), np.int64))
                np.add.at(self._sums[scope, column], source, -lost)
                np.add.at(self._sums[scope, column], batch.target, gained)
            elif column.is_former:
                (gained,), (lost,) = self.former_changes(batch, (column,))
                np.add.at(self._sums[scope, column], source, gained)
                np.add.at(self._sums[scope, column], batch.target, -lost)
            else:
                kept.setdefault(scope, []).append(column)
        roles = self.roles(batch)
        for scope, columns in kept.items():
            moved = self.deltas(batch, tuple(columns), roles)
            for sign, broker, disk in ((-1, source, source_disk), (1, batch.target, target_disk)):
                key = self.keys(scope, batch.partition, broker, disk)
                if scope.several:
                    self._add(scope, columns, key, sign * moved)
                    continue
                real = key >= 0
                for column, amount in zip(columns, sign * moved[:, real], strict=True):
                    np.add.at(self._sums[scope, column], key[real], amount)
        for scope, column in counted:
            ends = ((source, source_disk), (batch.target, target_disk))
            keys = [self.keys(scope, batch.partition, broker, disk) for broker, disk in ends]
            cells = np.unique(np.concatenate(keys))
            cells = cells[cells >= 0]
            held = self._sums[_inner(scope, column), COUNTED]
            self._sums[scope, column][cells] = self._counted(scope, held, cells)
        leads = batch.kind == LEAD
        self.leader[batch.partition[leads]] = batch.slot[leads]
        moves = ~leads
        at = (batch.partition * self.slots + batch.slot)[moves]
        self.replica_broker[at] = batch.target[moves]
        if len(self.replica_disk):
            self.replica_disk[at] = batch.disk[moves]
        return undo

    def _add(self, scope: Scope, columns: list[Column], keys: Ints, amounts: Floats) -> None:
        """Add (k, C) amounts to the sums of each replica's (J, C) cells."""
        for column, amount in zip(columns, amounts, strict=True):
            for key in keys[scope.rows(column)]:
                real = key >= 0
                np.add.at(self._sums[scope, column], key[real], amount[real])


# what a group has some or none of
COUNTED = Column(COUNT)


def _inner(scope: Scope, column: Column) -> Scope:
    """The scope whose cells a count of groups counts."""
    if scope.inner is None:
        raise ValueError(f"{column} is of a scope of whole topics, {str(scope)!r} found")
    return scope.inner


def start_brokers(snapshot: Snapshot, partition: Ints) -> Ints:
    """(…, F) int: the brokers of partitions in the snapshot, -1 where a slot is empty.

    F is the largest number of replicas among these partitions.
    """
    first = snapshot.replica_offset[partition]
    count = snapshot.replica_offset[np.asarray(partition) + 1] - first
    slot = np.arange(int(count.max(initial=1)))
    held = slot < count[..., None]
    at = np.where(held, first[..., None] + slot, 0)
    found = snapshot.replica_broker[at] if snapshot.n_replicas else at
    return np.where(held, found, -1)


def _of_brokers(scope: Scope, column: Column) -> None:
    if scope != BROKER:
        raise ValueError(f"{column} is of scope 'broker', {str(scope)!r} found")


def _holds_nothing_somewhere(s: Snapshot) -> bool:
    """Whether a broker or disk that is not dead has no capacity."""
    lives = s.broker_state != BrokerState.DEAD
    disks = s.disk_alive & lives[s.disk_broker]
    return not ((s.capacity[lives] > 0).all() and (s.disk_capacity[disks] > 0).all())
