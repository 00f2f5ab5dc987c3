"""Counts over the few replica slots of many partitions."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Bools, Ints

# up to this many slots, one after the other is faster
_FEW = 32


def replicas(brokers: Ints) -> Ints:
    """(…) number of replicas of partitions, to divide by: 1 for those without any.

    Examples
    --------
    >>> import numpy as np
    >>> replicas(np.array([[3, 5, -1], [-1, -1, -1]]))
    array([2, 1])
    """
    some: Ints = np.maximum(count(brokers >= 0), 1)
    return some


def count(slots: Bools) -> Ints:
    """(…) number of the (…, F) slots that are true.

    Slot by slot: numpy's own count along such a short axis takes several times longer.

    Examples
    --------
    >>> import numpy as np
    >>> count(np.array([[True, False, True], [False, False, False]]))
    array([2, 0])
    """
    if slots.shape[-1] > _FEW:
        many: Ints = slots.sum(-1)
        return many
    total: Ints = slots[..., 0].astype("int64")
    for slot in range(1, slots.shape[-1]):
        total += slots[..., slot]
    return total
