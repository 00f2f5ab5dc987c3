"""Topics with too many replicas on a broker that may hold neither fewer nor more in total."""

from __future__ import annotations

import numpy as np
import pytest

from balancer import Balancer, Plan
from cluster_model import BrokerRecord, PartitionRecord, SnapshotDocument, build_snapshot

BROKERS, EACH = 8, 20
GOALS = {
    "goals": [
        {"goal": "ReplicaDistribution", "threshold": 1.0, "tier": 0},
        {"goal": "TopicReplicaDistribution", "min_gap": 1, "threshold": 1.0, "tier": 1},
    ]
}


def crowded(seed: int) -> Plan:
    """Every broker has as many replicas as it may; those of one topic are all on one of them."""
    rng = np.random.default_rng(seed)
    names = np.repeat([f"t{k}" for k in range(EACH)], BROKERS)
    where = np.tile(np.arange(BROKERS), EACH)
    # the first topic goes to broker 0, in exchange for replicas of its others
    own = np.flatnonzero(names == "t0")
    others = rng.choice(np.flatnonzero((names != "t0") & (where == 0)), BROKERS - 1, replace=False)
    where[others], where[own[own != own[0]]] = where[own[own != own[0]]], 0
    numbers = np.tile(np.arange(BROKERS), EACH)
    partitions = tuple(
        PartitionRecord(topic=name, partition=n, replicas=(b,), leader_load={"disk": 1.0})
        for name, n, b in zip(names.tolist(), numbers.tolist(), where.tolist(), strict=True)
    )
    brokers = tuple(BrokerRecord(id=i, capacity={"disk": 100.0}) for i in range(BROKERS))
    document = SnapshotDocument(resources=("disk",), brokers=brokers, partitions=partitions)
    return Balancer(GOALS).propose(build_snapshot(document))


@pytest.mark.parametrize("seed", range(3))
def test_exchanges_spread_a_topic_where_no_single_move_may(seed: int) -> None:
    plan = crowded(seed)
    assert not plan.goal_results[-1].met_before
    assert plan.ok
