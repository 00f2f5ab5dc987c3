"""Spends the rest of a migration budget on moving units closer to those they communicate with."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.allocation.units import totals
from balancer.collocation.parameters import CollocationParameters
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Bools, Floats, Ints

_TINY = 1e-9


class Communication(NamedTuple):
    """Which units communicate, each pair in both directions, ordered by the first.

    Parameters
    ----------
    first : (U + 1,) int
        Where the neighbours of each unit start.
    neighbour : (2E,) int
    rate : (2E,) float
    """

    first: Ints
    neighbour: Ints
    rate: Floats

    @classmethod
    def of(cls, units: int, source: Ints, target: Ints, rate: Floats) -> Communication:
        """From pairs (E,) of units, possibly repeated; pairs of a unit with itself are dropped."""
        apart = source != target
        one = np.concatenate([source[apart], target[apart]])
        two = np.concatenate([target[apart], source[apart]])
        order = np.argsort(one, kind="stable")
        first = np.searchsorted(one[order], np.arange(units + 1))
        return cls(first, two[order], np.concatenate([rate[apart], rate[apart]])[order])

    def sent(self, units: Ints, to: Bools) -> Floats:
        """(n,) float: the traffic between each of n units and a set (U,) of units."""
        length = self.first[units + 1] - self.first[units]
        of = np.repeat(np.arange(len(units)), length)
        skipped: Ints = np.cumsum(length) - length
        begin: Ints = np.repeat(self.first[units] - skipped, length)
        row = begin + np.arange(len(of))
        counted = np.where(to[self.neighbour[row]], self.rate[row], 0.0)
        return totals(of, counted, len(units))


def refine_locality(
    problem: Allocation,
    talk: Communication,
    node: Ints,
    limit: float,
    deadline: Deadline = NEVER,
    parameters: CollocationParameters | None = None,
) -> Ints:
    """(U,) int: an allocation that keeps more traffic local.

    Units move or swap places, those with the highest gain per cost first. No node moves
    farther from the mean than `limit` percentage points, or than the farthest node already is;
    the budget, fixed units, ceilings and nodes marked for removal are respected.

    Parameters
    ----------
    problem
        The allocation problem, with the original allocation.
    talk
        The communication between the U units.
    node : (U,) int
        An allocation within the budget.
    limit
        In percentage points.
    deadline
        When to stop.
    parameters
        How much effort to spend; None for the defaults.

    Examples
    --------
    >>> p = Allocation(load=np.ones(4), cost=np.ones(4), node=np.array([0, 0, 1, 1]),
    ...     weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=2)
    >>> crossed = Communication.of(4, np.array([0, 1]), np.array([2, 3]), np.array([5.0, 4.0]))
    >>> refine_locality(p, crossed, p.node, 1.0).tolist()
    [1, 0, 1, 0]
    """
    own = parameters or CollocationParameters()
    search = _Refinement(problem, talk, node.copy(), max(limit, problem.distance(node)))
    for _ in range(own.locality_passes):
        if not search.once(deadline, own.swap_tries):
            break
    return search.node


class _Refinement:
    """An allocation in which units move, those with the highest gain per cost first."""

    def __init__(self, problem: Allocation, talk: Communication, node: Ints, limit: float) -> None:
        p, self.p = problem, problem
        self.talk, self.node, self.limit = talk, node, limit
        self.off, self.carried, self.free = p.deviation(node), p.carried(node), p.fixed < 0
        self.room = np.maximum(p.carried(p.node), p.ceiling) + _TINY
        self.left = p.budget - p.spent(node)
        self.least = float(p.cost[self.free].min(initial=np.inf))
        # A gain by rounding alone could come back for ever.
        self.trivial = _TINY * float(talk.rate.max(initial=0.0))
        self.low = np.where(p.removed, -np.inf, -limit)
        order = np.argsort(node, kind="stable")
        first = np.searchsorted(node[order], np.arange(len(p.weight) + 1)).tolist()
        held = order.tolist()
        self.held = [set(held[a:b]) for a, b in pairwise(first)]

    def once(self, deadline: Deadline, tries: int) -> bool:
        """Grant wishes until none is left; returns whether any was granted."""
        wishes = self._wishes()
        heapify(wishes)
        granted = False
        while wishes and not deadline.passed:
            rank, unit, to = heappop(wishes)
            gain = self._gain(unit, to)
            if gain <= self.trivial:
                continue
            price = self._price(unit, to)
            if price > _TINY and self.left + _TINY < self.least:
                # What is left moves what has moved already, and that comes first.
                break
            now = -gain / price
            if now > rank * (1 - _TINY):
                # Changes granted before have lowered it.
                heappush(wishes, (now, unit, to))
                continue
            here, back = int(self.node[unit]), -1
            if not self._fits(unit, to):
                if tries <= 0:
                    continue
                tries -= 1
                back, reserved = self._partner(unit, to, gain)
                if back < 0:
                    continue
                self.left -= reserved
            granted = True
            self._move(unit, to)
            if back >= 0:
                self._move(back, here)
            for moved in (unit, back) if back >= 0 else (unit,):
                for other in self._neighbours(moved):
                    self._wish(wishes, other, int(self.node[moved]))
        return granted

    def _wishes(self) -> list[tuple[float, int, int]]:
        """Units and the nodes on which more of their traffic is local, with their ranks."""
        p, talk, nodes = self.p, self.talk, len(self.p.weight)
        one = np.repeat(np.arange(len(p.load)), np.diff(talk.first))
        key, which = np.unique(one * nodes + self.node[talk.neighbour], return_inverse=True)
        with_node = np.bincount(which, talk.rate, len(key))
        unit, to = np.divmod(key, nodes)
        here = self.node[unit] == to
        own = np.zeros(len(p.load))
        own[unit[here]] = with_node[here]
        gain = with_node - own[unit]
        wished = np.flatnonzero(~here & (gain > self.trivial) & self.free[unit] & ~p.removed[to])
        unit, to, gain = unit[wished], to[wished], gain[wished]
        price = p.cost[unit] * ((p.node[unit] != to) & (p.node[unit] == self.node[unit]))
        rank = -gain / np.maximum(price, _TINY)
        return list(zip(rank.tolist(), unit.tolist(), to.tolist(), strict=True))

    def _wish(self, wishes: list[tuple[float, int, int]], unit: int, to: int) -> None:
        if not self.free[unit] or self.p.removed[to] or self.node[unit] == to:
            return
        gain = self._gain(unit, to)
        if gain > self.trivial:
            heappush(wishes, (-gain / self._price(unit, to), unit, to))

    def _neighbours(self, unit: int) -> list[int]:
        found: list[int] = self.talk.neighbour[slice(*self.talk.first[unit : unit + 2])].tolist()
        return found

    def _gain(self, unit: int, to: int) -> float:
        """The traffic that becomes local if a unit moves, less what ceases to be."""
        own = slice(*self.talk.first[unit : unit + 2])
        at, rate = self.node[self.talk.neighbour[own]], self.talk.rate[own]
        return float(rate[at == to].sum() - rate[at == self.node[unit]].sum())

    def _price(self, unit: int, to: int) -> float:
        """The cost of moving a unit, next to nothing if it has moved already."""
        home = self.p.node[unit]
        stays = home == to or home != self.node[unit]
        return _TINY if stays else max(float(self.p.cost[unit]), _TINY)

    def _spent(self, units: Ints, to: int) -> Floats:
        """(n,) float: what having units there instead of where they are adds to the cost."""
        home = self.p.node[units]
        away: Floats = (home != to).astype(np.float64) - (home != self.node[units])
        spent: Floats = self.p.cost[units] * away
        return spent

    def _fits(self, unit: int, to: int) -> bool:
        p, here = self.p, self.node[unit]
        more = p.further[unit]
        return bool(
            self._spent(np.array([unit]), to)[0] <= self.left + _TINY
            and self.off[to] + p.load[unit] * p.weight[to] <= self.limit + _TINY
            and self.off[here] - p.load[unit] * p.weight[here] >= self.low[here] - _TINY
            and ((more == 0) | (self.carried[to] + more <= self.room[to])).all()
        )

    def _partner(self, unit: int, to: int, gain: float) -> tuple[int, float]:
        """The best unit to go the other way, and what making room for the two costs besides.

        -1 if no unit makes the exchange fit and gain.
        """
        p, here, one = self.p, int(self.node[unit]), np.array([unit])
        if p.removed[here]:
            # No unit goes to a node marked for removal.
            return -1, 0.0
        other = np.array(sorted(self.held[to]), np.int64)
        other = other[self.free[other]]
        spent = self._spent(one, to)[0] + self._spent(other, here)
        room = np.zeros(len(other))
        shift = p.load[unit] - p.load[other]
        after_here = self.off[here] - shift * p.weight[here]
        after_to = self.off[to] + shift * p.weight[to]
        fits = (after_here <= self.limit + _TINY) & (after_here >= self.low[here] - _TINY)
        fits &= (after_to <= self.limit + _TINY) & (after_to >= self.low[to] - _TINY)
        if p.further.shape[1]:
            mine, others = p.further[unit], p.further[other]
            change = mine - others
            # One of them goes first, where others may have to make room, and to return.
            first = np.where(mine > 0, self.carried[to] + mine - self.room[to], 0.0)
            last = np.where(others > 0, self.carried[here] + others - self.room[here], 0.0)
            room = np.minimum(self._detours(to, first[None, :]), self._detours(here, last))
            fits &= ((change <= 0) | (self.carried[to] + change <= self.room[to])).all(1)
            fits &= ((change >= 0) | (self.carried[here] - change <= self.room[here])).all(1)
        spent = spent + room
        fits &= spent <= self.left + _TINY
        other, spent, room = other[fits], spent[fits], room[fits]
        if not len(other):
            return -1, 0.0
        between = np.zeros(len(p.load), np.bool_)
        between[unit] = True
        gains = gain + self.talk.sent(other, self.node == here)
        gains -= self.talk.sent(other, self.node == to) + 2 * self.talk.sent(other, between)
        best = int(np.argmax(gains / np.maximum(spent, _TINY)))
        return (int(other[best]), float(room[best])) if gains[best] > self.trivial else (-1, 0.0)

    def _detours(self, node: int, lacking: Floats) -> Floats:
        """(n,) float: what it costs that units leave a node for a while, and return.

        As few as make room for so much (n, R) of each resource, and fit on another node; infinite
        where that is not enough.
        """
        p, cost = self.p, np.zeros(len(lacking))
        held = np.array(sorted(self.held[node]), np.int64)
        held = held[self.free[held]]
        elsewhere = np.where(p.removed[:, None], -np.inf, self.room - self.carried)
        elsewhere[node] = -np.inf
        for resource in np.flatnonzero((lacking > _TINY).any(0)).tolist():
            load = p.further[held, resource]
            able = np.flatnonzero((load > 0) & (load <= elsewhere[:, resource].max()))
            able = able[np.argsort(-load[able], kind="stable")]
            gone = np.append(np.cumsum(load[able]), np.inf)
            spent = np.append(np.cumsum(p.cost[held[able]]), np.inf)
            needed = spent[np.searchsorted(gone, lacking[:, resource] - _TINY)]
            cost = np.maximum(cost, np.where(lacking[:, resource] > _TINY, 2 * needed, 0.0))
        return cost

    def _move(self, unit: int, to: int) -> None:
        p, here = self.p, int(self.node[unit])
        self.left -= float(self._spent(np.array([unit]), to)[0])
        self.node[unit] = to
        self.held[here].remove(unit)
        self.held[to].add(unit)
        self.off[here] -= p.load[unit] * p.weight[here]
        self.off[to] += p.load[unit] * p.weight[to]
        self.carried[here] -= p.further[unit]
        self.carried[to] += p.further[unit]
