"""An offline partition: METIS cuts the whole graph once, into one part for each node."""

from __future__ import annotations

import numpy as np
import pymetis

from balancer.allocation.units import Units, totals
from cluster_model.snapshot import Floats, Ints

# METIS needs integers: this is the largest weight of a vertex or an edge.
_WHOLE = 10_000


def offline_metis(units: Units, seed: int = 0) -> Ints:
    """(U,) int: a partition of the graph into as many parts as nodes, each on the node it overlaps.

    Ignores what migrations cost, and capacities: a reference for how much of the traffic an
    allocation with about equal loads can keep local.
    """
    p = units.problem
    many, nodes = len(p.load), len(p.weight)
    source = np.concatenate([units.source, units.target])
    target = np.concatenate([units.target, units.source])
    pair, which = np.unique(source * many + target, return_inverse=True)
    rate = totals(which, np.concatenate([units.rate, units.rate]), len(pair))
    first = np.searchsorted(pair // many, np.arange(many + 1))
    _, found = pymetis.part_graph(
        nodes,
        adjacency=[to.tolist() for to in np.split(pair % many, first[1:-1])],
        vweights=_whole(p.load),
        eweights=_whole(rate),
        options=pymetis.Options(seed=seed),
    )
    part = np.array(found)
    # The part with the most load already there takes the node, then the next.
    overlap = np.zeros((nodes, nodes))
    np.add.at(overlap, (part, p.node), p.load)
    at = np.full(nodes, -1)
    for _ in range(nodes):
        one, node = divmod(int(np.argmax(overlap)), nodes)
        at[one] = node
        overlap[one], overlap[:, node] = -1, -1
    moved: Ints = at[part]
    return moved


def _whole(values: Floats) -> list[int]:
    greatest = float(values.max(initial=0.0)) or 1.0
    whole: list[int] = np.maximum(1, np.rint(values / greatest * _WHOLE)).astype(int).tolist()
    return whole
