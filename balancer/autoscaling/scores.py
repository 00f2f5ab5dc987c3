"""What a new assignment of a group costs: Rscore and the cardinal bin score (seed 000)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cluster_model.snapshot import Floats, Ints


def rscore(speed: Floats, before: Ints, after: Ints, capacity: float) -> float:
    """Write speed of the partitions that move over the capacity of a consumer (Section IV-A).

    Parameters
    ----------
    speed : (P,) float
        Write speed of each partition.
    before, after : (P,) int
        Its consumer; a partition that nobody read before does not move.
    capacity
        Capacity of a consumer in the unit of the speeds.

    Examples
    --------
    >>> rscore(np.array([30.0, 20.0]), np.array([0, 0]), np.array([0, 1]), 100.0)
    0.2
    """
    return float(speed[(before >= 0) & (before != after)].sum() / capacity)


def cardinal_bin_scores(bins: Mapping[str, Ints]) -> dict[str, float]:
    """Mean share of consumers above the fewest that any algorithm needed (Eq. 28).

    Parameters
    ----------
    bins : mapping of str to (N,) int
        Number of consumers of each algorithm in each measurement.

    Examples
    --------
    >>> cardinal_bin_scores({"few": np.array([2, 4]), "many": np.array([3, 4])})
    {'few': 0.0, 'many': 0.25}
    """
    fewest = np.min(list(bins.values()), axis=0)
    return {name: float(((z - fewest) / fewest).mean()) for name, z in bins.items()}
