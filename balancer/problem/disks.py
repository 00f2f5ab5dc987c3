"""Chooses the disk of a broker that a replica goes to."""

from __future__ import annotations

import numpy as np

from cluster_model.placement import Placement
from cluster_model.snapshot import Ints


def pick_disk(placement: Placement, target: Ints) -> Ints:
    """The emptiest open disk of each target broker; -1 if it has none or its disks are unnamed."""
    s = placement.snapshot
    if not s.n_disks:
        return np.full(len(target), -1, np.int64)
    column = f"load.{'disk' if 'disk' in s.resources else s.resources[0]}"
    size, held = s.disk_capacity, placement.sums("disk", column)
    fill = np.divide(held, size, out=np.full(s.n_disks, np.inf), where=size > 0)
    order = np.lexsort((fill, ~s.disk_open, s.disk_broker))
    brokers, first = np.unique(s.disk_broker[order], return_index=True)
    best = np.full(s.n_brokers, -1, np.int64)
    best[brokers] = order[first]
    best[brokers[~s.disk_open[best[brokers]]]] = -1
    return best[target]
