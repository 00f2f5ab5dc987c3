"""What a search has spent of a plan's limits on moves and cost, and what actions would add."""

from __future__ import annotations

import math

import numpy as np

from balancer.problem.budget import Budget
from balancer.problem.movement_cost import cost_at
from cluster_model.placement import LEAD, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints


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
        Moves and cost that the plan may take; the rest is ignored.
    """

    def __init__(self, start: Placement, placement: Placement, limits: Budget) -> None:
        self._start, self._placement = start, placement
        self.moves = math.inf if limits.moves is None else float(limits.moves)
        self.cost = math.inf if limits.cost is None else float(limits.cost)
        #: (P,) float: moves, and cost, of each partition
        every = np.arange(placement.snapshot.n_partitions)
        self._moved, self._paid = self._spent_on(every)

    @property
    def left(self) -> tuple[float, float]:
        """Moves and cost that are left; below 0 if what an operation requires takes more."""
        return self.moves - float(self._moved.sum()), self.cost - float(self._paid.sum())

    def price(self, batch: Batch) -> Floats:
        """(C,) what an action takes of the limits, relative to other actions; above 0.

        Of two limits the one that the mean replica uses up first counts.
        """
        moves, cost = self.added(batch)
        mean = float(cost_at(self._start, *_leaders(self._start)).mean()) or 1.0
        few = self.moves * mean <= self.cost
        spent = moves if few else cost / mean
        return np.maximum(spent, 0.0) + 0.01

    def added(self, batch: Batch) -> tuple[Floats, Floats]:
        """(C,), (C,) moves and cost that each action adds by itself; negative if it returns."""
        start, placement, p = self._start, self._placement, batch.partition
        f = placement.slots
        at = p * f + batch.slot
        source, target = placement.replica_broker[at], batch.target
        held = self._home(p)
        from_home = (held == source[:, None]).any(1)
        to_home = (held == target[:, None]).any(1)
        leads = batch.slot == placement.leader[p]
        away_cost = cost_at(placement, p, leads, target)
        here_cost = cost_at(placement, p, leads, source)
        if len(placement.replica_disk):
            old, new = placement.replica_disk[at], batch.disk
            homes = start.replica_disk.reshape(-1, f)[p]
            there = start.brokers[p]
            here_disk = np.where(there == source[:, None], homes, -2).max(1)
            from_home &= (here_disk == old) | (here_disk < 0)
            there_disk = np.where(there == target[:, None], homes, -2).max(1)
            to_home &= (there_disk == new) | (there_disk < 0) | (new < 0)
        moves = (~to_home).astype(np.float64) - ~from_home
        cost = np.where(to_home, 0.0, away_cost) - np.where(from_home, 0.0, here_cost)
        free = batch.kind == LEAD
        return np.where(free, 0.0, moves), np.where(free, 0.0, cost)

    def affordable(self, batch: Batch, partner: Batch | None = None) -> Bools:
        """(C,) which actions, taken one after the other, keep within the limits."""
        moves, cost = self.added(batch)
        if partner is not None:
            more = self.added(partner)
            moves, cost = moves + more[0], cost + more[1]
        left = self.left
        # what returns a replica is always affordable
        keep = np.ones(len(moves), np.bool_)
        for spent, rest in zip((moves, cost), left, strict=True):
            if math.isfinite(rest):
                keep &= (spent <= 0) | (np.cumsum(np.maximum(spent, 0.0)) <= rest * (1 + 1e-12))
        return keep

    def update(self, partitions: Ints) -> None:
        """Take note that the placement of some partitions has changed."""
        self._moved[partitions], self._paid[partitions] = self._spent_on(partitions)

    def restart(self) -> None:
        """Take note that the whole placement may have changed."""
        self.update(np.arange(self._placement.snapshot.n_partitions))

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


def _leaders(placement: Placement) -> tuple[Ints, Bools, Ints]:
    every = np.arange(placement.snapshot.n_partitions)
    return every, np.ones(len(every), np.bool_), np.full(len(every), -1)
