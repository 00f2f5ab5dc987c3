"""Spends the rest of a migration budget on moving units closer to those they communicate with."""

from __future__ import annotations

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
    search = _Refinement(problem, talk, node.copy(), max(limit, problem.distance(node)), own)
    for _ in range(own.locality_passes):
        if search.left < search.least or not search.once(deadline):
            break
    return search.node


class _Move(NamedTuple):
    """A move: its gain per cost, the unit swapped back or -1, and its cost."""

    efficiency: float
    back: int
    spent: float


_NOTHING = _Move(0.0, -1, 0.0)


class _Refinement:
    def __init__(
        self,
        problem: Allocation,
        talk: Communication,
        node: Ints,
        limit: float,
        parameters: CollocationParameters,
    ) -> None:
        p, self.parameters = problem, parameters
        self.p = p
        self.talk, self.node, self.limit = talk, node, limit
        self.off, self.free = p.deviation(node), p.fixed < 0
        # Whatever the budget, at most all of them can migrate.
        self.left = min(p.budget - p.spent(node), float(p.cost[self.free].sum()))
        self.least = float(p.cost[self.free].min(initial=np.inf))
        self.low = np.where(p.removed, -np.inf, -limit)

    def once(self, deadline: Deadline) -> bool:
        """Apply the best of the current gains; returns whether any was applied."""
        wishes = []
        for unit, to in self._wishes():
            if deadline.passed:
                break
            wishes.append((self._best(unit, to), unit, to))
        keep, found = (1 - self.parameters.pass_share) * self.left, False
        for best, unit, to in sorted(wishes, key=lambda w: -w[0].efficiency):
            if best.efficiency <= 0 or (found and self.left <= keep) or deadline.passed:
                break
            # Changes applied before may have altered it.
            now = self._best(unit, to)
            if now.efficiency >= best.efficiency / 2 and now.efficiency > 0:
                self._grant(unit, to, now)
                found = True
        return found

    def _wishes(self) -> list[tuple[int, int]]:
        """Units and the nodes on which more of their traffic is local, highest gain first."""
        p, talk, nodes = self.p, self.talk, len(self.p.weight)
        one = np.repeat(np.arange(len(p.load)), np.diff(talk.first))
        key, which = np.unique(one * nodes + self.node[talk.neighbour], return_inverse=True)
        with_node = np.bincount(which, talk.rate, len(key))
        unit, to = np.divmod(key, nodes)
        here = self.node[unit] == to
        own = np.zeros(len(p.load))
        own[unit[here]] = with_node[here]
        gain = with_node - own[unit]
        requested = np.flatnonzero(~here & (gain > _TINY) & self.free[unit] & ~p.removed[to])
        limits = self.parameters
        looks = limits.looks_per_migration * self.left / max(self.least, _TINY)
        most = int(min(max(looks, limits.fewest_looks), limits.most_looks))
        requested = requested[np.argsort(-gain[requested], kind="stable")][:most]
        return list(zip(unit[requested].tolist(), to[requested].tolist(), strict=True))

    def _best(self, unit: int, to: int) -> _Move:
        """The best way to move a unit to a node: alone, or swapped with a unit there."""
        p, here = self.p, int(self.node[unit])
        if here == to:
            return _NOTHING
        one = np.array([unit])
        at_to, at_here = self.node == to, self.node == here
        gain = float((self.talk.sent(one, at_to) - self.talk.sent(one, at_here))[0])
        # No unit goes to a node marked for removal.
        other = np.flatnonzero(at_to & self.free) if not p.removed[here] else one[:0]
        between = np.zeros(len(p.load), np.bool_)
        between[unit] = True
        gains = gain + self.talk.sent(other, at_here) - self.talk.sent(other, at_to)
        gains -= 2 * self.talk.sent(other, between)
        gains, load = np.append(gains, gain), np.append(p.load[other], 0.0)
        spent = self._price(one, to)[0] + np.append(self._price(other, here), 0.0)
        after_here = self.off[here] + (load - p.load[unit]) * p.weight[here]
        after_to = self.off[to] + (p.load[unit] - load) * p.weight[to]
        fits = (after_here <= self.limit + _TINY) & (after_here >= self.low[here] - _TINY)
        fits &= (after_to <= self.limit + _TINY) & (after_to >= self.low[to] - _TINY)
        fits &= (gains > _TINY) & (spent <= self.left + _TINY)
        # Free moves, back to the original node, come first.
        efficiency = np.where(fits, gains / np.maximum(spent, _TINY), 0.0)
        for at in np.argsort(-efficiency, kind="stable").tolist():
            if not fits[at]:
                break
            back = int(other[at]) if at < len(other) else -1
            if self._admitted(unit, to, back, here):
                return _Move(float(efficiency[at]), back, float(spent[at]))
        return _NOTHING

    def _grant(self, unit: int, to: int, change: _Move) -> None:
        p, here = self.p, int(self.node[unit])
        moves = [(unit, here, to), (change.back, to, here)]
        for moved, source, target in moves if change.back >= 0 else moves[:1]:
            self.node[moved] = target
            self.off[source] -= p.load[moved] * p.weight[source]
            self.off[target] += p.load[moved] * p.weight[target]
        self.left -= change.spent

    def _price(self, units: Ints, to: int) -> Floats:
        """The change in cost of having units there instead of where they are."""
        home = self.p.node[units]
        away: Floats = (home != to).astype(np.float64) - (home != self.node[units])
        price: Floats = self.p.cost[units] * away
        return price

    def _admitted(self, unit: int, to: int, back: int, here: int) -> bool:
        if not self.p.further.shape[1]:
            return True
        tried = self.node.copy()
        tried[unit] = to
        if back >= 0:
            tried[back] = here
        return self.p.within_ceilings(tried)
