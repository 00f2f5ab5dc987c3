"""Small array idioms for the search's innermost loops."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Floats, Ints


def first_of(values: Ints) -> Ints:
    """Ascending rows of the first occurrence of each distinct value.

    Examples
    --------
    >>> first_of(np.array([7, 3, 7, 5, 3]))
    array([0, 1, 3])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(len(values), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return np.sort(order[new])


def best_of_each(groups: Ints, value: Floats, n: int) -> Ints:
    """Rows of the `n` best items of each group, group by group.

    Examples
    --------
    >>> best_of_each(np.array([1, 0, 1, 1]), np.array([5.0, 1.0, 7.0, 6.0]), 2)
    array([1, 2, 3])
    """
    order = np.lexsort((-value, groups))
    ordered = groups[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    rows: Ints = order[rank < n]
    return rows
