"""COLA: one partition of everything, split until its parts can be scheduled evenly enough."""

from __future__ import annotations

import heapq

import numpy as np
import pymetis

from balancer.allocation.problem import Allocation
from cluster_model.snapshot import Floats, Ints

# METIS needs integers: this is the largest weight of a vertex or an edge.
_WHOLE = 10_000


def cola(
    problem: Allocation,
    source: Ints,
    target: Ints,
    rate: Floats,
    *,
    enough: float = 10.0,
    seed: int = 0,
) -> Ints:
    """(U,) int: the allocation that COLA finds (Khandekar et al., Middleware 2009; seed 001, 2.1).

    All units are one partition at first. The partitions are scheduled on the nodes, the
    largest first, each on the least loaded node; while that is not even enough, the largest one is
    split into two of about equal load with the smallest rate between them. COLA plans from scratch:
    it ignores where units are now and what it costs to migrate them.

    Parameters
    ----------
    problem
        The problem; of its fields only `load`, `weight` and `removed` count.
    source, target, rate : (E,)
        Communication: units that send, units that receive, data rates.
    enough
        Load distance at which to stop, in percentage points; if even single units do not reach it,
        the smallest one seen counts.
    seed
        Seed of the partitioning.

    Examples
    --------
    >>> import numpy as np
    >>> four = Allocation(load=np.ones(4), cost=np.ones(4), node=np.array([0, 0, 1, 1]),
    ...     weight=np.ones(2), removed=np.zeros(2, np.bool_), budget=0)
    >>> node = cola(four, np.array([0, 1]), np.array([2, 3]), np.array([9.0, 9.0]), enough=0.5)
    >>> bool(node[0] == node[2] and node[1] == node[3] and node[0] != node[1])
    True
    """
    p = problem
    graph = _Graph(len(p.load), source, target, rate)
    # Largest first; a number breaks ties, because arrays are not ordered.
    parts: list[tuple[float, int, Ints]] = [(-float(p.load.sum()), 0, np.arange(len(p.load)))]
    whole: list[tuple[float, int, Ints]] = []
    best, least = p.node, np.inf
    numbered = 1
    while True:
        node = _scheduled(p, [part for _, _, part in (*parts, *whole)])
        distance = p.distance(node)
        if distance < least:
            best, least = node, distance
        while parts and len(parts[0][2]) < 2:
            whole.append(heapq.heappop(parts))
        if least <= enough or not parts:
            return best
        _, _, largest = heapq.heappop(parts)
        for half in graph.halves(largest, p.load, seed):
            heapq.heappush(parts, (-float(p.load[half].sum()), numbered, half))
            numbered += 1


def _scheduled(problem: Allocation, parts: list[Ints]) -> Ints:
    """Every part on the node that is least loaded with it, the largest part first."""
    p = problem
    loads = np.array([p.load[part].sum() for part in parts])
    carried = np.where(p.removed, np.inf, 0.0)
    node = p.node.copy()
    for at in np.argsort(-loads, kind="stable").tolist():
        to = int(np.argmin(carried + loads[at] * p.weight))
        carried[to] += loads[at] * p.weight[to]
        node[parts[at]] = to
    return node


class _Graph:
    """The undirected communication graph, and its bisection."""

    def __init__(self, units: int, source: Ints, target: Ints, rate: Floats) -> None:
        real = (source != target) & (rate > 0)
        ends = np.concatenate([source[real], target[real]])
        others = np.concatenate([target[real], source[real]])
        rates = np.concatenate([rate[real], rate[real]])
        # The rates of both directions form one edge.
        pairs, edge = np.unique(ends * units + others, return_inverse=True)
        self._other = pairs % units
        self._rate = np.bincount(edge, rates, len(pairs))
        self._first = np.searchsorted(pairs // units, np.arange(units + 1))

    def halves(self, units: Ints, load: Floats, seed: int) -> tuple[Ints, Ints]:
        """Two parts of at least one unit each, of about equal load, with low rates between them."""
        count = self._first[units + 1] - self._first[units]
        edges = np.repeat(self._first[units] - np.cumsum(count) + count, count)
        edges += np.arange(count.sum())
        inside = np.full(len(self._first) - 1, -1)
        inside[units] = np.arange(len(units))
        here = inside[self._other[edges]]
        kept = here >= 0
        owner = np.repeat(np.arange(len(units)), count)[kept]
        first = np.searchsorted(owner, np.arange(1, len(units)))
        _, side = pymetis.part_graph(
            2,
            adjacency=[others.tolist() for others in np.split(here[kept], first)],
            vweights=_whole(load[units]).tolist(),
            eweights=_whole(self._rate[edges][kept]).tolist(),
            options=pymetis.Options(seed=seed),
        )
        chosen = np.asarray(side) == 1
        if chosen.all() or not chosen.any():
            # METIS may leave one side empty if one unit weighs as much as all others.
            chosen = np.arange(len(units)) == np.argmax(load[units])
        return units[~chosen], units[chosen]


def _whole(values: Floats) -> Ints:
    greatest = values.max(initial=0.0)
    scaled = values / greatest * _WHOLE if greatest > 0 else values
    return np.maximum(1, np.rint(scaled)).astype(np.int64)
