"""Small handwritten clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_model import Snapshot
from cluster_model.placement import Placement
from goals import Cluster, Goal


def snapshot(
    replicas: Sequence[Sequence[int]],
    *,
    brokers: int,
    racks: Sequence[int] | None = None,
    topic: Sequence[int] | None = None,
    load: Sequence[float] | None = None,
    follower: float = 1.0,
    capacity: float | Sequence[float] = 1000.0,
    resource: str = "disk",
    **changes: Any,
) -> Snapshot:
    """One resource; partition p on brokers ``replicas[p]``, led by the first of them."""
    n = len(replicas)
    rack = np.arange(brokers) if racks is None else np.asarray(racks)
    of_topic = np.zeros(n, np.int64) if topic is None else np.asarray(topic)
    leader_load = np.ones(n) if load is None else np.asarray(load, np.float64)
    return Snapshot(
        **{
            "resources": (resource,),
            "broker_ids": np.arange(brokers),
            "racks": tuple(f"r{i}" for i in range(rack.max() + 1)),
            "broker_rack": rack,
            "hosts": tuple(f"h{i}" for i in range(brokers)),
            "broker_host": np.arange(brokers),
            "broker_state": np.zeros(brokers, np.int64),
            "capacity": np.broadcast_to(
                np.asarray(capacity, np.float64).reshape(-1, 1), (brokers, 1)
            ),
            "topics": tuple(f"t{i}" for i in range(int(of_topic.max()) + 1)),
            "partition_topic": of_topic,
            "partition_number": np.concatenate([np.arange(c) for c in np.bincount(of_topic)]),
            "leader_load": leader_load[:, None],
            "follower_load": follower * leader_load[:, None],
            "replica_offset": np.cumsum([0, *map(len, replicas)]),
            "replica_broker": np.concatenate([np.asarray(r, np.int64) for r in replicas]),
            "leader": np.zeros(n, np.int64),
            **changes,
        }
    )


def cluster(*args: Any, eligible: Sequence[bool] | None = None, **kwargs: Any) -> Cluster:
    """The cluster of such a snapshot."""
    may = None if eligible is None else np.asarray(eligible)
    return Cluster(Placement(snapshot(*args, **kwargs)), eligible=may)


def scores(goal: Goal, of: Cluster) -> np.ndarray:
    """The scores of all cells as they are."""
    prepared = goal.prepared(of)
    state = of.partition_state() if goal.scope.of_partitions else of.state(goal.scope)
    return np.asarray(prepared.score(state))
