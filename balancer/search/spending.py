"""What a search has spent of a plan's limits on moves and cost, and what actions would add."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balancer.problem.budget import Budget
from balancer.problem.movement_cost import cost_at
from cluster_model.placement import LEAD, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints
from goals.curves import TOLERANCE


class _Meter(NamedTuple):
    """What actions take of the limits of several cells, for example brokers.

    Parameters
    ----------
    left : (cells,) float
        What is left of each limit.
    cell : (C * parts,) int
        The cell that each action, or each of its parts, takes from.
    amount : (C * parts,) float
        How much; negative if it gives back, which is always affordable.
    parts
        How many an action has, two if it is a swap; they follow one another.
    """

    left: Floats
    cell: Ints
    amount: Floats
    parts: int = 1

    def fits_alone(self) -> Bools:
        """(C,) whether each action keeps within the limits by itself."""
        amount = self.amount.reshape(-1, self.parts).copy()
        cell = self.cell.reshape(-1, self.parts)
        # what both parts take from one cell counts together
        same = (cell[:, :, None] == cell[:, None, :]) @ np.maximum(amount, 0.0)[:, :, None]
        amount = np.where(amount > 0, same[:, :, 0], amount)
        fits: Bools = (amount <= 0) | (amount <= self._most().reshape(-1, self.parts))
        return np.asarray(fits.all(axis=1))

    def fits(self) -> Bools:
        """(C,) which actions, taken one after the other, keep within the limits."""
        if not len(self.cell):
            return np.ones(0, np.bool_)
        amount, order = np.maximum(self.amount, 0.0), np.argsort(self.cell, kind="stable")
        total, cell = np.cumsum(amount[order]), self.cell[order]
        first = np.flatnonzero(np.append(True, cell[1:] != cell[:-1]))
        size = np.diff(np.append(first, len(cell)))
        total -= np.repeat((total - amount[order])[first], size)
        within = np.empty(len(cell), np.bool_)
        within[order] = total <= self._most()[order]
        fits: Bools = within | (amount <= 0)
        return np.asarray(fits.reshape(-1, self.parts).all(axis=1))

    def _most(self) -> Floats:
        most: Floats = self.left[self.cell] * (1 + TOLERANCE)
        return most


class Spending:
    """Moves and cost of the way from one placement to another, against limits.

    Spent is what the final placement takes, not what the search tried: a replica that moves
    twice counts once, and one that returns counts nothing.

    Parameters
    ----------
    start
        Where the plan starts.
    placement
        The placement that the search changes.
    limits
        Moves and cost that the plan may take; its seconds are ignored.
    """

    def __init__(self, start: Placement, placement: Placement, limits: Budget) -> None:
        self._start, self._placement = start, placement
        self.moves = math.inf if limits.moves is None else float(limits.moves)
        self.cost = math.inf if limits.cost is None else float(limits.cost)
        s = placement.snapshot
        #: limit of each group of brokers, the group of each broker
        self._groups = limits.per_group(s)
        #: replicas that arrive, and that leave, per group
        self._arrived: list[Floats] = []
        self._left: list[Floats] = []
        #: (P,) float: moves, and cost, of each partition
        self._moved, self._paid = np.zeros(s.n_partitions), np.zeros(s.n_partitions)
        #: whether an action was not affordable
        self.refused = False
        self.restart()

    @property
    def left(self) -> tuple[float, float]:
        """Moves and cost that are left; below 0 if what an operation requires takes more."""
        return self.moves - float(self._moved.sum()), self.cost - float(self._paid.sum())

    def exceeds(self, factor: float) -> bool:
        """Whether the placement takes more than so many times the limits on all moves."""
        self.restart()
        pairs = zip((self.moves, self.cost), self.left, strict=True)
        return any(limit < math.inf and limit - rest > factor * limit for limit, rest in pairs)

    def left_share(self, before: tuple[float, float]) -> float:
        """What is left as a share of an earlier :attr:`left`, of the limit that fell most."""
        pairs = zip(self.left, before, strict=True)
        return min((now / was for now, was in pairs if 0 < was < math.inf), default=1.0)

    @property
    def within(self) -> bool:
        """Whether the placement keeps within all limits."""
        tallies = zip(self._groups, self._arrived, self._left, strict=True)
        moves, cost = self.left
        return min(moves, cost + TOLERANCE * self.cost) >= 0 and all(
            max(arrived.max(), gone.max()) <= limit for (limit, _), arrived, gone in tallies
        )

    @property
    def exhausted(self) -> bool:
        """Whether the limits on all moves leave nothing for another one."""
        return min(self.left) <= 0

    @property
    def moved(self) -> Ints:
        """The partitions with replicas that have moved."""
        return np.flatnonzero(self._moved > 0)

    def price(self, batch: Batch) -> Floats:
        """(C,) what an action takes of the limits, relative to other actions; above 0.

        Of two limits the one that the mean replica uses up first counts.
        """
        moves, cost = self.added(batch)
        few = moves_bind(self._start, self.moves, self.cost)
        spent = moves if few else cost / _mean_cost(self._start)
        return np.maximum(spent, 0.0) + 0.01

    def added(self, batch: Batch) -> tuple[Floats, Floats]:
        """(C,), (C,) moves and cost that each action adds by itself; negative if it returns."""
        placement, p = self._placement, batch.partition
        from_home, to_home = self._homes(batch)
        leads = batch.slot == placement.leader[p]
        away_cost = cost_at(placement, p, leads, batch.target)
        here_cost = cost_at(placement, p, leads, placement.source(batch))
        moves = (~to_home).astype(np.float64) - ~from_home
        cost = np.where(to_home, 0.0, away_cost) - np.where(from_home, 0.0, here_cost)
        free = batch.kind == LEAD
        return np.where(free, 0.0, moves), np.where(free, 0.0, cost)

    def affordable(
        self,
        batch: Batch,
        partner: Batch | None = None,
        *,
        alone: bool = False,
        share: float = 1.0,
    ) -> Bools:
        """(C,) which actions keep within the limits, one after the other or each alone.

        Parameters
        ----------
        batch, partner
            The actions.
        alone
            Whether each action is taken alone.
        share
            Share of what is left that they may take.
        """
        keep = np.ones(len(batch), np.bool_)
        for meter in self._meters(batch, partner):
            meter = meter._replace(left=meter.left * share)
            keep &= meter.fits_alone() if alone else meter.fits()
        self.refused |= share == 1 and not bool(keep.all())
        return keep

    def _meters(self, batch: Batch, partner: Batch | None) -> Iterator[_Meter]:
        moves, cost = self.added(batch)
        if partner is not None:
            more = self.added(partner)
            moves, cost = moves + more[0], cost + more[1]
        for spent, rest in zip((moves, cost), self.left, strict=True):
            if math.isfinite(rest):
                yield _Meter(np.array([rest]), np.zeros(len(batch), np.int64), spent)
        if not self._groups or not len(batch):
            return
        both = batch if partner is None else Batch.concatenate([batch, partner])
        from_home, to_home = self._homes(both)
        arrives = np.where(both.kind == LEAD, 0.0, ~to_home)
        leaves = np.where((both.kind == LEAD) | (both.kind == MOVE_DISK), 0.0, from_home)
        source, n = self._placement.source(both), len(batch)
        tallies = zip(self._groups, self._arrived, self._left, strict=True)
        for (limit, group), arrived, gone in tallies:
            for room, cell, amount in (
                (limit - arrived, group[both.target], arrives),
                (limit - gone, group[source], leaves),
            ):
                parts = len(both) // n
                # both actions of a swap follow one another
                row = np.arange(len(both)).reshape(parts, n).T.ravel()
                yield _Meter(room, cell[row], amount[row], parts)

    def update(self, partitions: Ints) -> None:
        """Take note that the placement of some partitions has changed."""
        self._moved[partitions], self._paid[partitions] = self._spent_on(partitions)
        if self._groups:
            now, home = self._placement.brokers, self._home(np.arange(len(self._moved)))
            same = now[:, :, None] == home[:, None, :]
            arrived, gone = now[(now >= 0) & ~same.any(2)], home[(home >= 0) & ~same.any(1)]
            self._arrived, self._left = (
                [
                    np.bincount(group[brokers], minlength=group.max() + 1).astype(np.float64)
                    for _, group in self._groups
                ]
                for brokers in (arrived, gone)
            )

    def restart(self) -> None:
        """Take note that the whole placement may have changed."""
        self.update(np.arange(len(self._moved)))

    def _homes(self, batch: Batch) -> tuple[Bools, Bools]:
        """(C,), (C,) whether the action takes a replica from its home, and whether to its home.

        Its home is where a replica of the partition is at the start, on the same disk if known.
        """
        start, placement, p = self._start, self._placement, batch.partition
        source, target = placement.source(batch), batch.target
        held = self._home(p)
        from_home = (held == source[:, None]).any(1)
        to_home = (held == target[:, None]).any(1)
        if len(placement.replica_disk):
            f = placement.slots
            old, new = placement.replica_disk[p * f + batch.slot], batch.disk
            homes, there = start.replica_disk.reshape(-1, f)[p], start.brokers[p]
            here_disk = np.where(there == source[:, None], homes, -2).max(1)
            from_home &= (here_disk == old) | (here_disk < 0)
            there_disk = np.where(there == target[:, None], homes, -2).max(1)
            to_home &= (there_disk == new) | (there_disk < 0) | (new < 0)
        return from_home, to_home

    def _home(self, partitions: Ints) -> Ints:
        """(C, F) brokers at the start; -2 where there is none."""
        held = self._start.brokers[partitions]
        return np.where(held < 0, -2, held)

    def _spent_on(self, partitions: Ints) -> tuple[Floats, Floats]:
        placement, f = self._placement, self._placement.slots
        now, home = placement.brokers[partitions], self._home(partitions)
        same = now[:, :, None] == home[:, None, :]
        away = (now >= 0) & ~same.any(2)
        if len(placement.replica_disk):
            disks = placement.replica_disk.reshape(-1, f)[partitions]
            homes = self._start.replica_disk.reshape(-1, f)[partitions]
            moved = same & (disks[:, :, None] != homes[:, None, :]) & (homes[:, None, :] >= 0)
            away |= moved.any(2)
        row, slot = np.nonzero(away)
        p = partitions[row]
        price = cost_at(placement, p, slot == placement.leader[p], now[row, slot])
        n = len(partitions)
        return (
            np.bincount(row, minlength=n).astype(np.float64),
            np.bincount(row, price, n).astype(np.float64),
        )


def moves_bind(start: Placement, moves: float, cost: float) -> bool:
    """Whether a limit on moves allows fewer copies of the mean replica than a limit on cost."""
    return moves * _mean_cost(start) <= cost


def _mean_cost(start: Placement) -> float:
    every = cost_at(start, *_leaders(start))
    return (float(every.mean()) if len(every) else 0.0) or 1.0


def _leaders(placement: Placement) -> tuple[Ints, Bools, Ints]:
    every = np.arange(placement.snapshot.n_partitions)
    return every, np.ones(len(every), np.bool_), np.full(len(every), -1)
