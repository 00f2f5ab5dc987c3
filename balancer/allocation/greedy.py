"""Greedy relief: again and again, the fullest node gives a unit to the emptiest."""

from __future__ import annotations

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.problem.deadline import NEVER, Deadline
from cluster_model.snapshot import Ints

_TINY = 1e-9


def greedy(problem: Allocation, deadline: Deadline = NEVER) -> Ints:
    """(U,) int: an allocation in which every migration relieves the fullest node of its time.

    Of the fullest node's units, the one goes that lowers the higher load of giver and taker most
    for its cost. A budget that does not suffice for every node thus goes to the fullest ones,
    where Flux spends it on all of them. A unit migrates at most once; nodes marked for removal
    only give. It ends where no migration relieves the fullest node, or the time is over.

    Examples
    --------
    >>> three = Allocation(load=np.array([4.0, 3.0, 2.0, 1.0]), cost=np.ones(4),
    ...     node=np.array([0, 0, 1, 2]), weight=np.ones(3), removed=np.zeros(3, np.bool_), budget=1)
    >>> greedy(three).tolist()
    [0, 2, 1, 2]
    """
    p, node = problem, problem.node.copy()
    node[p.fixed >= 0] = p.fixed[p.fixed >= 0]
    left = p.budget - p.spent(node)
    off, carried = p.deviation(node), p.carried(node)
    at_home = (p.fixed < 0) & (p.load > 0)
    held = [np.flatnonzero((node == at) & at_home) for at in range(len(p.weight))]
    price = np.maximum(p.cost, _TINY)
    while not deadline.passed:
        giver = int(np.argmax(off))
        own = held[giver]
        own = own[p.cost[own] <= left + _TINY]
        for taker in np.argsort(np.where(p.removed, np.inf, off), kind="stable").tolist():
            room = p.ceiling[taker] - carried[taker]
            fits = own[((p.further[own] <= room) | (p.further[own] == 0)).all(axis=1)]
            load = p.load[fits]
            higher = np.maximum(
                off[giver] - load * p.weight[giver], off[taker] + load * p.weight[taker]
            )
            gain = off[giver] - higher
            if not p.removed[taker] and gain.max(initial=0.0) > _TINY:
                break
        else:
            break
        given = int(fits[np.argmax(gain / price[fits])])
        node[given] = taker
        held[giver] = held[giver][held[giver] != given]
        off[giver] -= p.load[given] * p.weight[giver]
        off[taker] += p.load[given] * p.weight[taker]
        carried[giver] -= p.further[given]
        carried[taker] += p.further[given]
        left -= p.cost[given]
    return node
