"""Least-Loaded: spreads items over as few bins as suffice (Ajiro and Tanaka; seed 003)."""

from __future__ import annotations

import numpy as np

from balancer.allocation.packing.bins import Bins
from balancer.allocation.packing.bound import fewest_bins
from balancer.allocation.packing.problem import ROUNDING, Packing
from cluster_model.snapshot import Ints


def least_loaded(problem: Packing) -> Ints:
    """Pack into the fewest bins for which worst fit decreasing succeeds.

    The number of bins begins with the least that the sizes allow, and grows by one after each
    failure.

    Returns
    -------
    (P,) int
        The bin of each item; an item that no bin holds any more is alone in one.
    """
    share = np.array(Bins(problem).share)
    order = np.argsort(-share, kind="stable").tolist()
    count = max(fewest_bins(problem), _enough(problem))
    while True:
        bins = _packed(problem, order, count)
        if bins is not None:
            return bins.result()
        count += 1


def _enough(problem: Packing) -> int:
    """How many bins, the first ones, hold as much as all items together."""
    total = np.minimum(problem.size, problem.kinds.max(axis=0)).sum(axis=0) * (1 - ROUNDING)
    held = np.cumsum(problem.capacities, axis=0)
    first = (held < total).sum(axis=0)
    rest = total - problem.capacities.sum(axis=0)
    more = np.ceil(np.maximum(rest / problem.capacity, 0.0)).astype(np.int64)
    known = np.minimum(first + 1, len(held)) * (total > 0)
    return int((known + more).max())


def _packed(problem: Packing, order: list[int], count: int) -> Bins | None:
    """Worst fit over a number of bins; None if an item fits into none."""
    bins, kinds = Bins(problem), len(problem.capacities) + 1
    for bin_ in range(count):
        bins.open(bin_)
    for item in order:
        bin_ = bins.worst(item)
        if bin_ < 0 and not any(bins.holds(b, item) for b in range(min(count, kinds - 1), kinds)):
            # no other bin would hold it: alone in the largest that is left
            empty = [b for b, held in bins.items.items() if not held]
            bin_ = max(empty, key=lambda b: (bins.left(b), -b), default=-1)
        if bin_ < 0:
            return None
        bins.put(item, bin_)
    return bins
