"""A lower bound on the load distance, computed without searching for an allocation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from balancer.allocation.problem import Allocation
from cluster_model.snapshot import Floats, Ints

_HALVINGS = 60
_TINY = 1e-9


def lower_bound(problem: Allocation, steps: int = 4096) -> float:
    """A load distance that no allocation within the budget can beat.

    For a distance d, every node must shed its load beyond d above the mean, and every
    remaining node must receive what it lacks. Shedding takes at least the node's units with
    the most load per cost, receiving takes at least such units of the whole cluster, and a
    migration is one shedding and one receiving. The smallest d that the budget allows is found
    by bisection. Units are whole: if every migration costs the same, each node needs a whole
    number of them; else shedding is a covering knapsack, whose cheapest cover is found by
    dynamic programming, with loads rounded up.

    Parameters
    ----------
    problem
        The problem; fixed units and further resources are ignored.
    steps
        Resolution of loads if units have individual costs.

    Returns
    -------
    float
        In percentage points, at least 0.
    """
    p = problem
    mean, off = p.mean, p.deviation(p.node)
    alike = bool(len(p.cost)) and bool((p.cost == p.cost[0]).all())
    order = np.lexsort((-p.load / np.maximum(p.cost, _TINY), p.node))
    first = np.searchsorted(p.node[order], np.arange(len(p.weight) + 1)).tolist()
    own: dict[int, Callable[[float], float]] = {}
    for i, (a, b) in enumerate(pairwise(first)):
        if off[i] > _TINY:
            price = _Prices(p, order[a:b], alike).of if alike else None
            own[i] = price or _Cover(p, order[a:b], off[i] / p.weight[i], steps)
    anyone = _Prices(p, np.argsort(-p.load / np.maximum(p.cost, _TINY), kind="stable"), alike)
    stays = np.flatnonzero(~p.removed)

    def affordable(d: float) -> bool:
        loses = np.flatnonzero(off > d + _TINY)
        out = sum(own[i]((off[i] - d) / p.weight[i]) for i in loses.tolist())
        gains = stays[off[stays] < -d - _TINY]
        into = anyone.sum((-off[gains] - d) / p.weight[gains])
        return max(out, into) <= p.budget + _TINY

    # One node carries the largest unit, and an empty one lacks the whole mean.
    least = max(0.0, float(p.load.max(initial=0.0)) * float(p.weight.min()) - mean)
    if int((p.load > 0).sum()) < len(stays):
        least = max(least, mean)
    low, high = least, max(least, float(np.abs(off).max(initial=0.0)))
    if affordable(low):
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return low


class _Cover:
    """Least cost of removing at least a given load, in whole units."""

    def __init__(self, problem: Allocation, units: Ints, most: float, steps: int) -> None:
        self._step, self._steps = most / steps, steps
        sizes = np.ceil(problem.load[units] / self._step).astype(np.int64)
        self._cost = np.full(steps + 1, np.inf)
        self._cost[0] = 0.0
        for size, cost in zip(sizes.tolist(), problem.cost[units].tolist(), strict=True):
            with_it = np.zeros(steps + 1)
            if 0 < size <= steps:
                with_it[size:] = self._cost[: steps + 1 - size]
            if size > 0:
                np.minimum(self._cost, with_it + cost, out=self._cost)

    def __call__(self, load: float) -> float:
        return float(self._cost[min(int(load / self._step), self._steps)])


class _Prices:
    """Least cost of moving a given load, with the units of most load per cost."""

    def __init__(self, problem: Allocation, units: Ints, alike: bool) -> None:
        self._load = np.append(0.0, np.cumsum(problem.load[units]))
        self._cost = np.append(0.0, np.cumsum(problem.cost[units]))
        self._each = float(problem.cost[0]) if alike else 0.0

    def of(self, load: float) -> float:
        return self.sum(np.array([load]))

    def sum(self, loads: Floats) -> float:
        if (loads > self._load[-1] + _TINY).any():
            return np.inf
        costs = np.interp(loads, self._load, self._cost)
        if self._each > 0:
            costs = self._each * np.ceil(costs / self._each - _TINY)
        return float(costs.sum())
