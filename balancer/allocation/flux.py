"""Flux: the busiest node gives to the idlest, the second busiest to the second idlest, ..."""

from __future__ import annotations

import numpy as np

from balancer.allocation.problem import Allocation
from cluster_model.snapshot import Ints


def flux(problem: Allocation) -> Ints:
    """(U,) int: the allocation that Flux finds (Shah et al., ICDE 2003; seed 001, Section 2.2).

    Nodes are sorted by load. The first gives the last the largest unit whose move reduces
    the variance of loads, the second gives the second last, and so on; this is repeated
    within the budget until nothing moves. Nodes marked for removal only give.
    """
    p, node = problem, problem.node.copy()
    node[p.fixed >= 0] = p.fixed[p.fixed >= 0]
    left = p.budget - p.spent(node)
    # Units that may move, largest first, by their place in that order: of the equal ones the first.
    largest = np.lexsort((np.arange(len(p.load)), -p.load))
    largest = largest[(p.fixed[largest] < 0) & (p.load[largest] > 0)]
    held = [np.flatnonzero(node[largest] == at) for at in range(len(p.weight))]
    size, price = p.load[largest], p.cost[largest]
    while True:
        load = np.bincount(node, p.load, len(p.weight)) * p.weight
        order = np.argsort(-load, kind="stable")
        idlest = order[~p.removed[order]][::-1]
        moved = False
        for giver, taker in zip(order.tolist(), idlest.tolist(), strict=False):
            if load[giver] <= load[taker]:
                break
            own = held[giver]
            # A move reduces the variance while the receiver stays below the giver's old load.
            can = size[own] * (p.weight[giver] + p.weight[taker]) / 2 < load[giver] - load[taker]
            can &= price[own] <= left
            if can.any():
                at = int(np.argmax(can))
                given = own[at]
                held[giver] = np.delete(own, at)
                held[taker] = np.insert(held[taker], np.searchsorted(held[taker], given), given)
                left -= price[given]
                node[largest[given]], moved = taker, True
        if not moved:
            return node
