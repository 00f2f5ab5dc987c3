"""A greedy for collocation: the migration that makes most traffic local, again and again."""

from __future__ import annotations

import numpy as np

from balancer.allocation.units import Units
from cluster_model.snapshot import Ints


def local_greedy(units: Units, distance: float) -> Ints:
    """(U,) int: an allocation in which single migrations make traffic local, the most first.

    No node ends farther from the mean than `distance`. While one is, the fullest node gives, or the
    emptiest takes, the unit that loses least local traffic among those that help most. Each unit
    migrates once at most, and the budget counts migrations.

    Parameters
    ----------
    units
        Key groups and their traffic, with a budget.
    distance
        maxLD, in percentage points.
    """
    p, node = units.problem, units.problem.node.copy()
    many, nodes = len(p.load), len(p.weight)
    every, off = np.arange(many), p.deviation(node)
    with_node = np.zeros((many, nodes))
    ends = (units.source, units.target), (units.target, units.source)
    for one, other in ends:
        np.add.at(with_node, (one, node[other]), units.rate)
    left = p.budget
    while left >= 1:
        gain = with_node - with_node[every, node][:, None]
        added = off + p.load[:, None] * p.weight
        leaves = (off[node] - p.load * p.weight[node])[:, None]
        full, empty = int(np.argmax(off)), int(np.argmin(off))
        if max(off[full], -off[empty]) <= distance:
            fits, rank = (added <= distance) & (leaves >= -distance) & (gain > 0), gain
        elif off[full] >= -off[empty]:
            fits = (node == full)[:, None] & (added < off[full])
            rank = p.load[:, None] + 1e-6 * gain
        else:
            fits = (np.arange(nodes) == empty) & (leaves > off[empty]) & (added <= distance)
            rank = p.load[:, None] + 1e-6 * gain
        fits &= (node == p.node)[:, None] & (np.arange(nodes) != node[:, None])
        if not fits.any():
            break
        unit, to = divmod(int(np.argmax(np.where(fits, rank, -np.inf))), nodes)
        here = int(node[unit])
        off[here] -= p.load[unit] * p.weight[here]
        off[to] += p.load[unit] * p.weight[to]
        for one, other in ends:
            rows = one == unit
            np.add.at(with_node, (other[rows], here), -units.rate[rows])
            np.add.at(with_node, (other[rows], to), units.rate[rows])
        node[unit] = to
        left -= 1
    return node
