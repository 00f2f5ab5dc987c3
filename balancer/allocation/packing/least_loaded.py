"""Least-Loaded: spreads items over as few bins as suffice (Ajiro and Tanaka; seed 003)."""

from __future__ import annotations

import numpy as np

from balancer.allocation.packing.bins import Bins
from balancer.allocation.packing.problem import Packing
from cluster_model.snapshot import Ints


def least_loaded(problem: Packing) -> Ints:
    """Pack into the fewest bins for which worst fit decreasing succeeds.

    The number of bins begins with the least that the sizes allow, and grows by one after each
    failure.

    Returns
    -------
    (P,) int
        The bin of each item; an item larger than a bin is alone in one.
    """
    share = np.array(Bins(problem).share)
    order = np.argsort(-share, kind="stable").tolist()
    scaled = problem.size / problem.capacity
    count = max(1, int(np.ceil(scaled.sum(axis=0).max() - 1e-9))) if len(share) else 0
    while True:
        bins = _packed(problem, order, count)
        if bins is not None:
            return bins.result()
        count += 1


def _packed(problem: Packing, order: list[int], count: int) -> Bins | None:
    """Worst fit over a number of bins; None if an item fits into none."""
    bins = Bins(problem)
    for bin_ in range(count):
        bins.open(bin_)
    for item in order:
        bin_ = bins.worst(item)
        if bin_ < 0:
            # larger than any bin that is left: alone in the largest
            empty = [b for b, held in bins.items.items() if not held]
            bin_ = max(empty, key=lambda b: (bins.left(b), -b), default=-1)
        if bin_ < 0:
            return None
        bins.put(item, bin_)
    return bins
