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
    while True:
        load = np.bincount(node, p.load, len(p.weight)) * p.weight
        order = np.argsort(-load, kind="stable")
        idlest = order[~p.removed[order]][::-1]
        moved = False
        for giver, taker in zip(order.tolist(), idlest.tolist(), strict=False):
            if load[giver] <= load[taker]:
                break
            can = (node == giver) & (p.fixed < 0) & (p.cost <= left)
            # A move reduces the variance while the receiver stays below the giver's old load.
            can &= p.load * (p.weight[giver] + p.weight[taker]) / 2 < load[giver] - load[taker]
            can &= p.load > 0
            if can.any():
                unit = int(np.argmax(np.where(can, p.load, -1.0)))
                left -= p.cost[unit]
                node[unit], moved = taker, True
        if not moved:
            return node
