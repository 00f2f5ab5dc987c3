"""Local search for an allocation: moves and swaps under a budget, towards a narrowing band.

A node is content while its load lies in a band around the mean. If all are content and the
budget is kept, the band is narrowed; else the search makes the best exchange of at most one
unit for at most one unit with a node that is not content, even if that makes matters worse.
Units that have just moved stay for a while, and the penalty for exceeding the budget adapts to
how often that happens (tabu search with strategic oscillation; Glover, ORSA J. Computing 1(3),
1989).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from balancer.allocation.parameters import AllocationParameters
from balancer.allocation.problem import Allocation
from balancer.problem.deadline import Deadline
from cluster_model.snapshot import Floats, Ints

_TINY = 1e-9

Narrow = Literal["both", "over", "under"]


class SearchResult(NamedTuple):
    """An allocation, and the number of rounds it took."""

    node: Ints
    rounds: int


def search(
    problem: Allocation,
    start: Ints,
    *,
    rounds: int,
    deadline: Deadline,
    seed: int,
    enough: float = 0.0,
    narrow: Narrow = "both",
    parameters: AllocationParameters | None = None,
) -> SearchResult:
    """Narrow the band as far as possible.

    Parameters
    ----------
    problem
        The problem to solve.
    start : (U,) int
        An allocation that respects the budget and fixed units.
    rounds
        Maximum number of exchanges.
    deadline
        When to stop.
    seed
        Seed of random choices.
    enough
        Stop at this load distance, or side.
    narrow
        Which side of the band is narrowed, while the other stays as wide as the start
        requires; ``both`` keeps both sides equally far from the mean.
    parameters
        Numbers of the search; None for the defaults.

    Returns
    -------
    SearchResult
        The best allocation found; `start` if none is better.
    """
    own = parameters or AllocationParameters()
    return _Search(problem, start, seed, own).run(rounds, deadline, enough, narrow)


class _Search:
    def __init__(
        self, problem: Allocation, start: Ints, seed: int, parameters: AllocationParameters
    ) -> None:
        p, self.parameters = problem, parameters
        self.p = p
        self.rng = np.random.default_rng(seed)
        units, nodes = len(p.load), len(p.weight)
        self.units, self.nodes = units, nodes
        # After the units there is a null unit for each node, which may be exchanged too.
        self.load = np.append(p.load, np.zeros(nodes))
        self.cost = np.append(p.cost, np.zeros(nodes))
        self.further = np.vstack([p.further, np.zeros((nodes, p.further.shape[1]))])
        self.node = np.append(start, np.arange(nodes))
        self.home = np.append(p.node, np.arange(nodes))
        self.until = np.zeros(units + nodes, np.int64)
        self.until[:units][p.fixed >= 0] = np.iinfo(np.int64).max
        self.off = p.deviation(start)
        self.carried = p.carried(start)
        self.spent = p.spent(start)

    def run(self, rounds: int, deadline: Deadline, enough: float, narrow: Narrow) -> SearchResult:
        p, own = self.p, self.parameters
        price, leap = 1.0, own.largest_leap
        best = self.node[: self.units].copy()
        band = _next_band(p.sides(best), enough, narrow, leap)
        done = tried = 0
        while band is not None and done < rounds and not deadline.passed:
            done, tried = done + 1, tried + 1
            if tried > own.leap_rounds and leap > own.smallest_leap:
                leap, tried = max(leap / 2, own.smallest_leap), 0
                band = _next_band(p.sides(best), enough, narrow, leap) or band
            # A node marked for removal cannot carry too little.
            high, low = band[0], np.where(p.removed, np.inf, band[1])
            wrong = np.maximum(self.off - high, 0.0) + np.maximum(-self.off - low, 0.0)
            exceeds = self.spent > p.budget + _TINY
            if not exceeds and not (wrong > _TINY).any():
                best, tried = self.node[: self.units].copy(), 0
                leap = min(2 * leap, own.largest_leap)
                band = _next_band(p.sides(best), enough, narrow, leap)
                continue
            self._exchange(self._chosen(wrong, exceeds), wrong, high, low, price, done)
            factor = own.price_factor
            price = min(price * factor, own.highest_price) if exceeds else price / factor
        return SearchResult(best, done)

    def _chosen(self, wrong: Floats, exceeds: bool) -> int:
        """A node to improve, more likely the farther it is outside the band.

        If the budget is exceeded, equally often a node that some unit has left or come to:
        there, cost can be saved.
        """
        total = wrong.sum()
        if total > _TINY and not (exceeds and self.rng.random() < self.parameters.saving_share):
            # Without the checks of Generator.choice, which take longer than the choice.
            reached = np.cumsum(wrong)
            return int(np.searchsorted(reached, self.rng.random() * reached[-1], side="right"))
        away = self.rng.choice(np.flatnonzero(self.node != self.home))
        return int((self.home if self.rng.random() < 0.5 else self.node)[away])

    def _partners(self, chosen: int) -> Ints:
        """Nodes to exchange with: all, or the farthest on the other side and a few others."""
        own = self.parameters
        if self.nodes <= own.all_nodes:
            others: Ints = np.flatnonzero(np.arange(self.nodes) != chosen)
            return others
        order = np.argsort(self.off if self.off[chosen] > 0 else -self.off, kind="stable")
        half = min(own.partners // 2, self.nodes)
        near = order[:half]
        far = self.rng.choice(self.nodes, half, replace=False)
        found = np.zeros(self.nodes, np.bool_)
        found[near] = found[far] = True
        found[chosen] = False
        partners: Ints = np.flatnonzero(found)
        return partners

    def _sampled(self, units: Ints, most: int) -> Ints:
        """At most `most` of some units, at random, but every null unit among them."""
        null = units >= self.units
        real, room = units[~null], most - int(null.sum())
        if len(real) > room:
            real = np.sort(self.rng.choice(real, max(room, 0), replace=False))
        return np.append(real, units[null])

    def _exchange(
        self, a: int, wrong: Floats, high: float, low: Floats, price: float, now: int
    ) -> None:
        p = self.p
        partner = np.zeros(self.nodes, np.bool_)
        partner[self._partners(a)] = True
        free = self.until <= now
        ours = np.flatnonzero((self.node == a) & free)
        theirs = np.flatnonzero(partner[self.node] & free)
        most = self.parameters.exchange_pairs
        if len(ours) * len(theirs) > most:
            # with as many units in return as null units at least, so that exchanges remain
            theirs = self._sampled(theirs, max(most // len(ours), 2 * int(partner.sum())))
            ours = self._sampled(ours, max(most // len(theirs), 2))
        b = self.node[theirs]
        # Large arrays, thousands of times: each operation on all pairs counts, so they are few and
        # work in place.
        gains = self.load[theirs] - self.load[ours][:, None]
        worse = _outside(self.off[a] + gains * p.weight[a], high, low[a])
        worse += _outside(self.off[b] - gains * p.weight[b], high, low[b])
        worse -= np.square(wrong[b])
        # What a unit of ours adds where it goes, less what it adds here; likewise in return.
        home_a, home_b = self.home[ours], self.home[theirs]
        costs = (home_a[:, None] != b) * self.cost[ours][:, None]
        costs -= (self.cost[ours] * (home_a != a))[:, None]
        costs += self.cost[theirs] * ((home_b != a).astype(np.float64) - (home_b != b))
        costs += self.spent - p.budget
        np.maximum(costs, 0.0, out=costs)
        costs *= price
        worse += costs
        # An exchange of two null units, which come last, changes nothing, and a node marked for
        # removal takes only units that were there.
        worse[-1, np.searchsorted(theirs, self.units) :] = np.inf
        if p.removed[a]:
            worse[:, (theirs < self.units) & (home_b != a)] = np.inf
        if p.removed[b].any():
            worse[(p.removed[b] & (ours < self.units)[:, None]) & (home_a[:, None] != b)] = np.inf
        for r in range(p.further.shape[1]):
            more = self.further[theirs, r] - self.further[ours, r][:, None]
            barred = (more > 0) & (self.carried[a, r] + more > p.ceiling[a, r])
            barred |= (more < 0) & (self.carried[b, r] - more > p.ceiling[b, r])
            worse[barred] = np.inf
        at = int(np.argmin(worse))
        i, j = divmod(at, len(theirs))
        if not np.isfinite(worse[i, j]):
            return
        mine, other, to = int(ours[i]), int(theirs[j]), int(b[j])
        gain = float(gains[i, j])
        moves = (mine, to), (other, a)
        self.spent += float(
            sum(
                self.cost[unit]
                * (int(self.home[unit] != node) - int(self.home[unit] != self.node[unit]))
                for unit, node in moves
            )
        )
        self.off[a] += gain * p.weight[a]
        self.off[to] -= gain * p.weight[to]
        more = self.further[other] - self.further[mine]
        self.carried[a] += more
        self.carried[to] -= more
        stays = self.parameters.shortest_stay, self.parameters.longest_stay + 1
        for unit, node in moves:
            if unit < self.units:
                self.node[unit] = node
                self.until[unit] = now + int(self.rng.integers(*stays))


def _outside(off: Floats, high: float, low: Floats) -> Floats:
    """How far nodes are above `high` or below `-low`, squared; in place."""
    off -= np.clip(off, -low, high)
    return np.square(off, out=off)


def _next_band(
    sides: tuple[float, float], enough: float, narrow: Narrow, leap: float
) -> tuple[float, float] | None:
    """Limits of overload and underload to try next; None if they suffice."""
    over, under = sides
    reached = {"both": max(sides), "over": over, "under": under}[narrow]
    if reached <= enough + _TINY:
        return None
    requested = reached - leap * (reached - enough)
    return {"both": (requested, requested), "over": (requested, under), "under": (over, requested)}[
        narrow
    ]
