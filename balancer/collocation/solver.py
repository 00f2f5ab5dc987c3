"""The MILP of the seed, solved: a start, local search, neighbourhoods for HiGHS, a proof."""

from __future__ import annotations

import time

import numpy as np

from balancer.collocation.bound import lower_bound
from balancer.collocation.errors import CollocationError
from balancer.collocation.flux import flux
from balancer.collocation.milp import improve
from balancer.collocation.problem import Allocation, Solution
from balancer.collocation.search import search
from cluster_model.snapshot import Ints

_TINY = 1e-9
# Shares of the effort: local search, neighbourhoods, local search again; the rest makes both
# sides tight.
_SEARCH, _NEIGHBOURS, _AGAIN = 0.4, 0.35, 0.1
# Variables of a program that HiGHS improves, and of one that it may prove.
_PROGRAM, _PROOF = 2_000, 1_200
# Neighbourhoods looked at, without one that is better in between, and nodes of the search
# tree in each.
_TRIES = 4
_TREE = 50
# A distance so near to the bound is not worth more of HiGHS, nor one so far from it: there
# the budget is no limit, and local search is better.
_ENOUGH, _TIGHT = 0.005, 0.5


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
    effort = _SEARCH
    found = search(
        p, best, rounds=int(rounds * effort), deadline=until(effort), seed=seed, enough=bound
    )
    left = rounds - found.rounds
    effort += _NEIGHBOURS
    best, bound = _neighbourhoods(p, found.node, bound, until(effort), seed)
    effort += _AGAIN
    found = search(p, best, rounds=left // 3, deadline=until(effort), seed=seed + 1, enough=bound)
    best, left = found.node, left // 3
    effort = (1 + effort) / 2
    best = search(p, best, rounds=left, deadline=until(effort), seed=seed, narrow="under").node
    best = search(p, best, rounds=left, deadline=until(1.0), seed=seed, narrow="over").node
    best = _drained(p, _unmoved(p, best))
    over, under = p.sides(best)
    migrated = best != p.node
    return Solution(best, over, under, bound, int(migrated.sum()), p.spent(best))


def _neighbourhoods(
    problem: Allocation, node: Ints, bound: float, deadline: float, seed: int
) -> tuple[Ints, float]:
    """Let HiGHS allocate anew what is on a few nodes, those farthest off and others by chance.

    A problem that is small is given to it whole, so that the bound is as good as it gets.
    """
    p, rng = problem, np.random.default_rng(seed)
    nodes, units = len(p.weight), len(p.load)
    per_node = max(units / nodes, 1.0)
    size = min(nodes, max(2, int((_PROGRAM / per_node) ** 0.5)))
    failed = 0
    whole = nodes * units <= _PROOF
    while failed < _TRIES and time.monotonic() < deadline:
        reached = p.distance(node)
        near = bound * (1 + _ENOUGH) + _TINY >= reached
        if not whole and (near or bound < _TIGHT * reached):
            break
        off = np.abs(p.deviation(node))
        chosen = np.ones(nodes, np.bool_)
        if not whole:
            chosen[:] = False
            chosen[np.argsort(-off, kind="stable")[: size - failed]] = True
            chosen[rng.choice(nodes, min(failed, nodes), replace=False)] = True
        seconds = None if deadline == np.inf else deadline - time.monotonic()
        improved = improve(p, node, chosen, nodes=_TREE, seconds=seconds)
        failed = failed + 1 if (improved.node == node).all() else 0
        node = improved.node
        if whole:
            return node, max(bound, improved.bound)
    return node, bound


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
