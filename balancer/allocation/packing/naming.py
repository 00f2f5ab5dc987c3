"""Numbers the bins of a packing so that items stay where they were as far as possible."""

from __future__ import annotations

import numpy as np

from balancer.allocation.packing.problem import Packing
from cluster_model.snapshot import Ints


def keep_names(problem: Packing, bin_: Ints) -> Ints:
    """Exchange the numbers of equal bins so that less weight moves.

    The pairs of an old and a new bin that have the most weight in common come first. Bins whose
    capacity is not the usual one keep their numbers.

    Parameters
    ----------
    problem
        The packing problem.
    bin_ : (P,) int
        The bin of each item.

    Returns
    -------
    (P,) int
        The same packing under other numbers.
    """
    used, place = np.unique(bin_, return_inverse=True)
    special = used < len(problem.capacities)
    owned = (problem.owner >= len(problem.capacities)) & ~special[place]
    pair, which = np.unique(
        np.stack([place[owned], problem.owner[owned]], axis=1), axis=0, return_inverse=True
    )
    shared = np.bincount(which.ravel(), weights=problem.weight[owned], minlength=len(pair))
    name = np.where(special, used, -1)
    taken = set(used[special].tolist())
    for k in np.argsort(-shared, kind="stable").tolist():
        new, old = pair[k].tolist()
        if name[new] < 0 and old not in taken:
            name[new] = old
            taken.add(old)
    free = len(problem.capacities)
    for new in np.flatnonzero(name < 0).tolist():
        while free in taken:
            free += 1
        name[new] = free
        taken.add(free)
    found: Ints = name[place]
    return found
