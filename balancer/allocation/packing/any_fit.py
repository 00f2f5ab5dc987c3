"""The classical heuristics: each item in turn goes into an open bin, or opens another.

They know nothing of where items were, except that a bin that opens takes the number of the one
that its first item was in (seed 000, Section VI-A). First fit takes the bin with the lowest number,
not the one that was opened first: only so are the published figures of the seed repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from balancer.allocation.packing.bins import Bins
from balancer.allocation.packing.problem import Packing
from cluster_model.snapshot import Ints

# Which open bin an item goes into.
FITS: dict[str, Callable[[Bins, int], int]] = {
    "next": Bins.last,
    "first": Bins.first,
    "best": Bins.best,
    "worst": Bins.worst,
}


def any_fit(problem: Packing, fit: str, *, decreasing: bool, seed: int = 0) -> Ints:
    """Pack by next, first, best or worst fit (seed 000, Section II-B).

    Parameters
    ----------
    problem
        The packing problem.
    fit
        ``next``, ``first``, ``best`` or ``worst``.
    decreasing
        Whether the largest items come first; otherwise they come in random order.
    seed
        Seed of that order.

    Returns
    -------
    (P,) int
        The bin of each item.
    """
    bins = Bins(problem)
    choose = FITS[fit]
    if decreasing:
        order = np.argsort(-np.array(bins.share), kind="stable")
    else:
        order = np.random.default_rng(seed).permutation(len(problem.size))
    for item in order.tolist():
        bin_ = choose(bins, item)
        bins.put(item, bin_ if bin_ >= 0 else bins.open_for(item))
    return bins.result()
