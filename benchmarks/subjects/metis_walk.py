"""Walks towards an offline METIS partition, a few migrations a period."""

from __future__ import annotations

import numpy as np

from balancer.allocation.units import Units, totals
from benchmarks.subjects.offline_metis import offline_metis
from cluster_model.snapshot import Floats, Ints


class MetisWalk:
    """Key groups migrate to the nodes that one partition, made in the first period, gives them.

    Those come first that make most traffic local, counted with the place that their neighbours
    have at that moment; while a node is farther from the mean than `distance`, those that keep the
    greatest distance smallest. The budget counts migrations.

    Parameters
    ----------
    distance
        maxLD, in percentage points.
    seed
        Seed of METIS.
    """

    def __init__(self, distance: float, seed: int = 0) -> None:
        self.distance, self.seed = distance, seed
        self.target: Ints | None = None

    def __call__(self, units: Units) -> Ints:
        """(U,) int: where the key groups are after this period."""
        if self.target is None:
            self.target = offline_metis(units, self.seed)
        p, node, target = units.problem, units.problem.node.copy(), self.target
        off, left = p.deviation(node), p.budget
        while left >= 1 and len(away := np.flatnonzero(node != target)):
            here, to, load = node[away], target[away], p.load[away]
            after = np.tile(off, (len(away), 1))
            each = np.arange(len(away))
            after[each, here] -= load * p.weight[here]
            after[each, to] += load * p.weight[to]
            beyond = np.maximum(np.abs(after).max(1) - self.distance, 0.0)
            best = int(np.lexsort((-_gain(units, node, target)[away], beyond))[0])
            node[away[best]], off = to[best], after[best]
            left -= 1
        return node


def _gain(units: Units, node: Ints, target: Ints) -> Floats:
    """(U,) float: the traffic that becomes local if a key group alone goes to its target."""
    one = np.concatenate([units.source, units.target])
    two = np.concatenate([units.target, units.source])
    rate = np.concatenate([units.rate, units.rate])
    gained = (target[one] == node[two]) * rate - (node[one] == node[two]) * rate
    return totals(one, gained, len(node))
