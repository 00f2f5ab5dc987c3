"""How many bins a packing needs at least."""

from __future__ import annotations

import numpy as np

from balancer.allocation.packing.problem import ROUNDING, Packing
from cluster_model.snapshot import Floats


def fewest_bins(problem: Packing) -> int:
    """A lower bound on the number of bins: L2 of Martello and Toth in each dimension.

    If capacities differ, all bins count as large as the largest. An item larger than that counts
    as one that fills it.

    Examples
    --------
    >>> import numpy as np
    >>> size = np.array([[0.6], [0.6], [0.6], [0.2]])
    >>> fewest_bins(Packing(size=size, owner=np.full(4, -1), capacity=np.ones(1)))
    3
    """
    largest = np.vstack([problem.capacities, problem.capacity]).max(axis=0)
    shares = np.minimum(problem.size / largest, 1.0)
    return max((_l2(shares[:, r]) for r in range(shares.shape[1])), default=0)


def _l2(share: Floats) -> int:
    s = np.sort(share[share > 0])
    if not len(s):
        return min(1, len(share))
    total = np.concatenate([[0.0], np.cumsum(s)])
    # each threshold a: items above 1 - a need a bin of their own, those above 1/2 one each
    a = np.concatenate([[0.0], np.unique(s[s <= 0.5])])
    half = np.searchsorted(s, 0.5, side="right")
    alone = np.searchsorted(s, 1.0 - a + ROUNDING, side="right")
    alone = np.maximum(alone, half)
    small = np.searchsorted(s, a, side="left")
    single = alone - half
    room = single - (total[alone] - total[half])
    spilled = total[half] - total[small] - room
    bins = len(s) - half + np.maximum(np.ceil(spilled - ROUNDING * len(s)), 0)
    return int(bins.max())
