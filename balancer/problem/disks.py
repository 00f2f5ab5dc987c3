"""Chooses the disk of a broker that a replica goes to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_model.columns import COUNT, LOAD, Column
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.snapshot import Ints


def pick_disk(placement: Placement, target: Ints) -> Ints:
    """The emptiest open disk of each target broker; -1 if it has none or its disks are unnamed."""
    s = placement.snapshot
    if not s.n_disks:
        return np.full(len(target), -1, np.int64)
    size, held = s.disk_capacity, placement.sums("disk", _column(placement))
    fill = np.divide(held, size, out=np.full(s.n_disks, np.inf), where=size > 0)
    order = np.lexsort((fill, ~s.disk_open, s.disk_broker))
    brokers, first = np.unique(s.disk_broker[order], return_index=True)
    best = np.full(s.n_brokers, -1, np.int64)
    best[brokers] = order[first]
    best[brokers[~s.disk_open[best[brokers]]]] = -1
    return best[target]


def emptiest_with(placement: Placement, batch: Batch) -> Batch:
    """The same actions; a move goes to the open disk of its broker that is emptiest with it.

    That is another one than without it where the disks of a broker differ: what the emptiest of
    them has no room for, a larger one may have.
    """
    s = placement.snapshot
    if not s.n_disks:
        return batch
    first = np.searchsorted(s.disk_broker, np.arange(s.n_brokers + 1))
    least, most = np.full(s.n_brokers, np.inf), np.zeros(s.n_brokers)
    np.minimum.at(least, s.disk_broker, s.disk_capacity)
    np.maximum.at(most, s.disk_broker, s.disk_capacity)
    rows = np.flatnonzero((batch.kind == MOVE) & (batch.disk >= 0) & (least < most)[batch.target])
    if not len(rows):
        return batch
    begin, end = first[batch.target[rows]], first[batch.target[rows] + 1]
    disk = np.minimum(begin[:, None] + np.arange(np.diff(first).max()), end[:, None] - 1)
    column = _column(placement)
    after = placement.sums("disk", column)[disk]
    after += placement.deltas(batch[rows], (column,))[0][:, None]
    size = np.where(s.disk_open, s.disk_capacity, 0.0)[disk]
    fill = np.divide(after, size, out=np.full(disk.shape, np.inf), where=size > 0)
    chosen, best = batch.disk.copy(), disk[np.arange(len(rows)), fill.argmin(1)]
    chosen[rows] = np.where(np.isfinite(fill.min(1)), best, chosen[rows])
    return replace(batch, disk=chosen)


def _column(placement: Placement) -> Column:
    """What fills a disk: bytes, or replicas if nobody knows the bytes."""
    return Column(LOAD, "disk") if "disk" in placement.snapshot.resources else Column(COUNT)
