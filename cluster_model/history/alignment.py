"""Puts Spark's results on partitions into the order of a snapshot's arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cluster_model.index import SnapshotIndex
from cluster_model.snapshot import DEFAULT_RESOURCES, Floats, Ints, Snapshot


def partition_rows(snapshot: Snapshot, topic: Sequence[str], partition: Ints) -> Ints:
    """(n,) int: row of each partition by its name; -1 for those not in the snapshot."""
    index = SnapshotIndex(snapshot)
    return index.partitions(index.topics(topic, [False] * len(topic)), partition)


def aligned_loads(
    snapshot: Snapshot, topic: Sequence[str], partition: Ints, leader: Floats, follower: Floats
) -> tuple[Floats, Floats]:
    """(P, R), (P, R) float: loads of n partitions in the snapshot's order; nan if unknown."""
    row = partition_rows(snapshot, topic, partition)
    shape = (snapshot.n_partitions, len(snapshot.resources))
    leader_load, follower_load = np.full(shape, np.nan), np.full(shape, np.nan)
    for load, of in ((leader_load, leader), (follower_load, follower)):
        load[row[row >= 0]] = of[row >= 0]
    return leader_load, follower_load


def default_loads(
    snapshot: Snapshot, leader: Sequence[Floats], follower: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """The snapshot's loads, with those in the default resources replaced."""
    leader_load, follower_load = snapshot.leader_load.copy(), snapshot.follower_load.copy()
    for name, lead, follow in zip(DEFAULT_RESOURCES, leader, follower, strict=True):
        if name in snapshot.resources:
            leader_load[:, snapshot.resource(name)] = lead
            follower_load[:, snapshot.resource(name)] = follow
    return leader_load, follower_load


def matrix(table: pa.Table, name: str, width: int) -> Floats:
    """(n, width) float: a column of arrays; nan for null."""
    flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, np.float64).reshape(-1, width)
