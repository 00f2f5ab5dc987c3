"""Empties nodes marked for removal, with the rest of the budget."""

from __future__ import annotations

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Ints

_TINY = 1e-9


def drain(problem: Allocation, node: Ints, limit: float = np.inf) -> Ints:
    """(U,) int: an allocation that moves load off nodes marked for removal, as far as possible.

    The largest units go first, each to the node that then carries least; nothing else
    moves from its place in `node` (U,), and no node exceeds the mean by more than `limit`
    percentage points because of it.

    Examples
    --------
    >>> two = Allocation(load=np.array([4.0, 2.0, 1.0]), cost=np.ones(3),
    ...     node=np.array([0, 2, 2]), weight=np.ones(3),
    ...     removed=np.array([False, False, True]), budget=1)
    >>> drain(two, two.node).tolist()
    [0, 1, 2]
    """
    p, node = problem, node.copy()
    off, left = p.deviation(node), p.budget - p.spent(node)
    stays = np.flatnonzero(~p.removed)
    leaving = np.flatnonzero(p.removed[node] & (p.fixed < 0))
    for unit in leaving[np.argsort(-p.load[leaving], kind="stable")].tolist():
        if p.cost[unit] > left + _TINY:
            continue
        after = off[stays] + p.load[unit] * p.weight[stays]
        for to in stays[np.argsort(after, kind="stable")].tolist():
            if off[to] + p.load[unit] * p.weight[to] > limit + _TINY:
                break
            if p.admits(node, unit, to):
                off[to] += p.load[unit] * p.weight[to]
                node[unit], left = to, left - p.cost[unit]
                break
    return node


def empty_removed_nodes(problem: Allocation, node: Ints, limit: float) -> Ints:
    """(U,) int: the same, with as much as possible moved off nodes marked for removal.

    Other migrations are reverted for that, as long as no node is farther than `limit`
    percentage points from the mean because of it.
    """
    p = problem
    if not _left(p, node):
        return node
    node = _larger(p, drain(p, _replaced(p, node, limit), limit), limit)
    if not _left(p, node):
        return node
    # Revert as few as necessary.
    few, many = 0, int((node != p.node).sum())
    found = drain(p, revert_unnecessary(p, node, limit), limit)
    if _left(p, found) >= _left(p, node):
        return node
    while many - few > 1:
        some = (few + many) // 2
        tried = drain(p, revert_unnecessary(p, node, limit, most=some), limit)
        if _left(p, tried) <= _left(p, found):
            found, many = tried, some
        else:
            few = some
    return found


def revert_unnecessary(
    problem: Allocation,
    node: Ints,
    limit: float,
    both: float = np.inf,
    *,
    most: int | None = None,
    deadline: Deadline = NEVER,
) -> Ints:
    """(U,) int: the same, with unnecessary migrations reverted, the costliest first.

    Neither side may exceed `limit`, nor their sum `both`. Nothing returns to a node marked
    for removal. At most `most` units return, by default as many as can
    before the deadline.
    """
    p, node = problem, node.copy()
    off = p.deviation(node)
    away = np.flatnonzero((node != p.node) & (p.fixed < 0) & (p.cost > 0) & ~p.removed[p.node])
    left = len(away) if most is None else most
    for unit in away[np.lexsort((p.load[away], -p.cost[away]))].tolist():
        if left == 0 or deadline.passed:
            break
        here, home = int(node[unit]), int(p.node[unit])
        tried = off.copy()
        tried[here] -= p.load[unit] * p.weight[here]
        tried[home] += p.load[unit] * p.weight[home]
        over, under = max(0.0, float(tried.max())), max(0.0, float(-tried[~p.removed].min()))
        fits = max(over, under) <= limit + _TINY and over + under <= both + _TINY
        if fits and p.admits(node, unit, home):
            node[unit], off, left = home, tried, left - 1
    return node


def _replaced(problem: Allocation, node: Ints, limit: float) -> Ints:
    """Revert migrations from remaining nodes to make way for units of nodes to be removed."""
    p, node = problem, node.copy()
    off, left = p.deviation(node), p.budget - p.spent(node)
    away = np.flatnonzero((node != p.node) & (p.fixed < 0) & ~p.removed[p.node])
    leaving = np.flatnonzero(p.removed[node] & (p.fixed < 0))
    leaving = leaving[np.argsort(-p.load[leaving], kind="stable")]
    for unit in away[np.argsort(p.load[away], kind="stable")].tolist():
        here, home = int(node[unit]), int(p.node[unit])
        if off[home] + p.load[unit] * p.weight[home] > limit + _TINY:
            continue
        after = off[here] + (p.load[leaving] - p.load[unit]) * p.weight[here]
        spare = left + p.cost[unit] + _TINY
        fits = (np.abs(after) <= limit + _TINY) & (p.cost[leaving] <= spare)
        for at in np.flatnonzero(fits).tolist():
            other, tried = int(leaving[at]), node.copy()
            tried[unit] = home
            if p.admits(node, unit, home) and p.admits(tried, other, here):
                for moved, source, target in ((unit, here, home), (other, node[other], here)):
                    off[source] -= p.load[moved] * p.weight[source]
                    off[target] += p.load[moved] * p.weight[target]
                left += p.cost[unit] - p.cost[other]
                tried[other] = here
                node, leaving = tried, np.delete(leaving, at)
                break
    return node


def _larger(problem: Allocation, node: Ints, limit: float) -> Ints:
    """Let larger units leave nodes marked for removal instead of smaller ones."""
    p, node = problem, node.copy()
    leaving = np.flatnonzero(p.removed[node] & (p.fixed < 0))
    for unit in leaving[np.argsort(-p.load[leaving], kind="stable")].tolist():
        gone = np.flatnonzero(p.removed[p.node] & (node != p.node) & (p.fixed < 0))
        gone = gone[(p.load[gone] < p.load[unit] - _TINY)]
        spare = p.budget - p.spent(node) + p.cost[gone] + _TINY
        gone = gone[p.cost[unit] <= spare]
        for other in gone[np.argsort(p.load[gone], kind="stable")].tolist():
            tried = node.copy()
            tried[other], tried[unit] = p.node[other], node[other]
            if p.distance(tried) <= limit + _TINY and p.within_ceilings(tried):
                node = tried
                break
    return node


def _left(problem: Allocation, node: Ints) -> float:
    """Load on nodes marked for removal that could leave."""
    leaves = problem.removed[node] & (problem.fixed < 0)
    return float(problem.load[leaves].sum())
