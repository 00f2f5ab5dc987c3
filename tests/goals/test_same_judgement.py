"""Goals judge a placement alike, to the last digit, wherever a plan for it has started."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from cluster_model.snapshot import BrokerState
from goals import Cluster, DiskUsageDistribution, Goal, load_goals

GOALS: list[Goal] = [
    *load_goals("default"),
    *load_goals("cruise-control"),
    *load_goals("autobalancer"),
]


def shuffled(s: Snapshot, seed: int) -> Snapshot:
    """The same cluster with replicas on other brokers, and with other leaders."""
    rng, factor = np.random.default_rng(seed), s.n_replicas // s.n_partitions
    held = np.stack([rng.permutation(s.n_brokers)[:factor] for _ in range(s.n_partitions)])
    leader = rng.integers(0, factor, s.n_partitions)
    return replace(s, replica_broker=held.ravel(), leader=leader)


def judged_alike(goal: Goal, starts: list[Snapshot]) -> bool:
    """Whether a goal gives a placement the same scores, prepared for plans from any of several."""
    clusters = [Cluster(Placement(start)) for start in starts]
    here = clusters[0]
    state = here.partition_state() if goal.scope.of_partitions else here.state(goal.scope)
    first, *others = (goal.prepared(start).score(state) for start in clusters)
    return all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_a_placement_is_judged_alike_wherever_a_plan_started(goal: Goal, dead: bool) -> None:
    s = synthetic_snapshot(brokers=6, partitions=57, racks=3, load_sigma=1.3)
    state = np.where(dead & (np.arange(6) == 2), BrokerState.DEAD, BrokerState.ALIVE)
    s = replace(s, broker_state=state)
    assert judged_alike(goal, [shuffled(s, seed) for seed in range(8)])


def test_disks_are_judged_alike_whichever_disks_of_its_broker_held_a_replica() -> None:
    s = synthetic_snapshot(brokers=6, partitions=57, racks=3, load_sigma=1.3, disks_per_broker=2)
    disks = np.argsort(s.disk_broker, kind="stable").reshape(s.n_brokers, -1)
    draw = np.random.default_rng(1).integers
    starts = [
        replace(s, replica_disk=disks[s.replica_broker, draw(0, 2, s.n_replicas)]) for _ in range(8)
    ]
    assert judged_alike(DiskUsageDistribution(), starts)
