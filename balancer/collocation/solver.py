"""The MILP of the seed, solved: a start, local search, neighbourhoods for HiGHS, a proof."""

from __future__ import annotations

import time

import numpy as np

from balancer.collocation.bound import lower_bound
from balancer.collocation.errors import CollocationError
from balancer.collocation.flux import flux
from balancer.collocation.problem import Allocation, Solution
from balancer.collocation.search import search
from cluster_model.snapshot import Ints

_TINY = 1e-9
# Share of the effort for the load distance; the rest makes both sides tight.
_DISTANCE = 0.8


def solve(
    problem: Allocation, *, rounds: int = 10_000, seconds: float | None = None, seed: int = 0
) -> Solution:
    """Minimise the load distance, then the sum of both sides, then what is left on removed nodes.

    Seed 001, Section 4.3.1. No unit goes to a node marked for removal (Lemma 1).

    Parameters
    ----------
    problem
        What is allocated.
    rounds
        Effort: exchanges that the local search tries. The same rounds and seed give the
        same solution.
    seconds
        Stop after that time, with what was found until then.
    seed
        Of what is random.

    Returns
    -------
    Solution
        Never worse than what is there, if nothing is fixed, nor than what Flux finds.

    Raises
    ------
    CollocationError
        If what is fixed costs more than the budget.

    Examples
    --------
    >>> import numpy as np
    >>> three = Allocation(load=np.array([4.0, 2.0, 2.0]), cost=np.ones(3),
    ...     node=np.zeros(3, np.int64), weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=1)
    >>> found = solve(three)
    >>> found.node.tolist(), found.distance, found.bound
    ([1, 0, 0], 0.0, 0.0)
    """
    p = problem
    started = time.monotonic()

    def until(share: float) -> float:
        return np.inf if seconds is None else started + share * seconds

    start = p.node.copy()
    start[p.fixed >= 0] = p.fixed[p.fixed >= 0]
    if p.spent(start) > p.budget + _TINY:
        raise CollocationError(
            f"allocation, fixed: units cost {p.spent(start):g} to bring where they have to be, "
            f"at most the budget of {p.budget:g} expected"
        )
    bound = lower_bound(p)
    best = min((a for a in (start, flux(p)) if p.within_ceilings(a)), key=p.distance)
    found = search(
        p, best, rounds=int(rounds * _DISTANCE), deadline=until(_DISTANCE), seed=seed, enough=bound
    )
    best, left = found.node, rounds - found.rounds
    best = search(p, best, rounds=left // 2, deadline=until(0.9), seed=seed, narrow="under").node
    best = search(p, best, rounds=left // 2, deadline=until(1.0), seed=seed, narrow="over").node
    best = _drained(p, _unmoved(p, best))
    over, under = p.sides(best)
    migrated = best != p.node
    return Solution(best, over, under, bound, int(migrated.sum()), p.spent(best))


def _unmoved(problem: Allocation, node: Ints) -> Ints:
    """Bring back whatever need not have gone, the costliest first."""
    p, node = problem, node.copy()
    off, (over, under) = p.deviation(node), p.sides(node)
    away = np.flatnonzero((node != p.node) & (p.fixed < 0) & (p.cost > 0))
    for unit in away[np.argsort(-p.cost[away], kind="stable")].tolist():
        here, home = int(node[unit]), int(p.node[unit])
        tried = off.copy()
        tried[here] -= p.load[unit] * p.weight[here]
        tried[home] += p.load[unit] * p.weight[home]
        side = max(0.0, float(tried.max())), max(0.0, float(-tried[~p.removed].min()))
        worse = max(side) > max(over, under) + _TINY or sum(side) > over + under + _TINY
        if not (worse or p.removed[home]) and p.admits(node, unit, home):
            node[unit], off, (over, under) = home, tried, side
    return node


def _drained(problem: Allocation, node: Ints) -> Ints:
    """Empty nodes marked for removal with what is left of the budget, the busiest units first."""
    p, node = problem, node.copy()
    off, left = p.deviation(node), p.budget - p.spent(node)
    over = max(0.0, float(off.max()))
    stays = np.flatnonzero(~p.removed)
    on = np.flatnonzero(p.removed[node] & (p.fixed < 0))
    for unit in on[np.argsort(-p.load[on], kind="stable")].tolist():
        if p.cost[unit] > left + _TINY:
            continue
        for to in stays[np.argsort(off[stays], kind="stable")].tolist():
            after = off[to] + p.load[unit] * p.weight[to]
            if after <= over + _TINY and p.admits(node, unit, to):
                off[node[unit]] -= p.load[unit] * p.weight[node[unit]]
                node[unit], off[to], left = to, after, left - p.cost[unit]
                break
    return node
