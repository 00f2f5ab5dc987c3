"""Proofs, shared by goals, that no placement keeps the cells below their limits."""

from __future__ import annotations

import math

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints
from goals.cluster import Cluster
from goals.curves import TOLERANCE
from goals.goal import Obstacle


def partition_name(cluster: Cluster, partition: int) -> str:
    """The partition as people write it, for example ``orders-3``."""
    s = cluster.snapshot
    return f"{s.topics[s.partition_topic[partition]]}-{s.partition_number[partition]}"


def named(cluster: Cluster, partitions: Ints) -> str:
    """The first of some partitions by name, and how many more there are."""
    first = partition_name(cluster, int(partitions[0]))
    return first + (f" and {len(partitions) - 1} more" if len(partitions) > 1 else "")


def plural(count: int, word: str) -> str:
    """A count with its noun, for example ``1 broker`` or ``2 brokers``."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def described(column: str) -> str:
    """What a column holds, as people say it.

    Examples
    --------
    >>> described("leader_load.network_in"), described("replica_count")
    ('leader load (network_in)', 'replicas')
    """
    name, _, resource = column.partition(".")
    words = name.replace("_count", "s").replace("_", " ")
    return f"{words} ({resource})" if resource else words


def too_little_room(
    column: str, load: Floats, limit: Floats, receiving: Bools, staying: Bools
) -> list[Obstacle]:
    """An obstacle where all limits together are less than what must find room.

    Parameters
    ----------
    column
        What is counted, see :meth:`cluster_model.placement.Placement.contribution`.
    load, limit : (cells,) float
        What each cell carries, and may carry.
    receiving, staying : (cells,) bool
        Cells that may be given something, and cells that may keep what they have.
    """
    kept = np.minimum(load, limit)[staying & ~receiving].sum()
    needed, room = float(load.sum() - kept), float(limit[receiving].sum())
    missing = needed - room
    if missing <= TOLERANCE * needed:
        return []
    typical = limit[receiving] if receiving.any() else limit[limit > 0]
    size = float(typical.mean()) if len(typical) else 0.0
    brokers = math.ceil(missing / size * (1 - TOLERANCE)) if size > 0 else 0
    more = plural(brokers, "broker") + " like those there are" if brokers else "brokers"
    return [
        Obstacle(
            reason=f"{described(column)}: {needed:.6g} in all, room within limits for {room:.6g}",
            cure=f"add {more}, or raise the limit",
            brokers_to_add=brokers,
        )
    ]


def oversized(cluster: Cluster, column: str, limit: Floats, staying: Bools) -> list[Obstacle]:
    """An obstacle where one replica alone is more than the largest limit.

    Parameters
    ----------
    column
        What is counted, see :meth:`cluster_model.placement.Placement.contribution`.
    limit : (cells,) float
    staying : (cells,) bool
        Cells on which a replica may lie in the end.
    """
    if not staying.any():
        return []
    lead, follow = cluster.placement.contribution(column)
    size = np.maximum(lead, np.where(cluster.replication_factor > 1, follow, 0.0))
    largest = float(limit[staying].max())
    over = np.flatnonzero(size > largest * (1 + TOLERANCE))
    if not len(over):
        return []
    over = over[np.argsort(-size[over], kind="stable")]
    return [
        Obstacle(
            reason=(
                f"{named(cluster, over)}: {described(column)} of a single replica is "
                f"{size[over[0]]:.6g}, more than the largest limit, {largest:.6g}"
            ),
            cure="split the topic into more partitions, or use larger brokers",
        )
    ]
