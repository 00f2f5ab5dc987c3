"""Flux: the busiest node gives to the idlest, the second busiest to the second idlest, ..."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Ints


def flux(problem: Allocation, deadline: Deadline = NEVER) -> Ints:
    """(U,) int: the allocation that Flux finds (Shah et al., ICDE 2003; seed 001, Section 2.2).

    Nodes are sorted by load. The first gives the last the largest unit whose move reduces
    the variance of loads, the second gives the second last, and so on; this is repeated
    within the budget until nothing moves, or the time is over. Nodes marked for removal only give.
    """
    p, node = problem, problem.node.copy()
    node[p.fixed >= 0] = p.fixed[p.fixed >= 0]
    left = p.budget - p.spent(node)
    # Units that may move, largest first, by their place in that order: of the equal ones the first.
    largest = np.lexsort((np.arange(len(p.load)), -p.load))
    largest = largest[(p.fixed[largest] < 0) & (p.load[largest] > 0)]
    held = [np.flatnonzero(node[largest] == at).tolist() for at in range(len(p.weight))]
    size, price = p.load[largest].tolist(), p.cost[largest].tolist()
    moved = True
    while moved and not deadline.passed:
        load = np.bincount(node, p.load, len(p.weight)) * p.weight
        order = np.argsort(-load, kind="stable")
        idlest = order[~p.removed[order]][::-1]
        moved = False
        for giver, taker in zip(order.tolist(), idlest.tolist(), strict=False):
            if load[giver] <= load[taker]:
                break
            # A move reduces the variance while the receiver stays below the giver's old load.
            most = float(load[giver] - load[taker])
            weight = float(p.weight[giver] + p.weight[taker])
            own = held[giver]
            at = bisect_left(own, True, key=lambda unit: size[unit] * weight / 2 < most)
            while at < len(own) and price[own[at]] > left:
                at += 1
            if at < len(own):
                given = own.pop(at)
                insort(held[taker], given)
                left -= price[given]
                node[largest[given]], moved = taker, True
    return node
