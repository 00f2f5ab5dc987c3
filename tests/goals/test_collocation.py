from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import QUICK, long
from clusters import scores

from balancer import Balancer, Operation
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from cluster_model.traffic import Traffic, communicating, connected
from goals import Cluster, CollocationGoal, GoalError, UsageDistribution
from goals.testing import example_snapshots


def talking(*pairs: tuple[int, int, float], brokers: tuple[int, ...] = (0, 1, 0, 1)) -> Snapshot:
    """Two topics of two partitions on the given ones of three brokers."""
    s = synthetic_snapshot(
        brokers=3, partitions=4, topics=2, replication_factor=1, racks=1, utilization=0.2
    )
    source, target, rate = zip(*pairs, strict=True)
    return replace(
        s,
        partition_topic=np.array([0, 0, 1, 1]),
        partition_number=np.array([0, 1, 0, 1]),
        replica_broker=np.array(brokers),
        traffic_from=np.array(source),
        traffic_to=np.array(target),
        traffic_rate=np.array(rate),
    )


def test_a_broker_is_less_content_the_more_of_its_communication_is_not_local() -> None:
    s = talking((0, 2, 9.0), (0, 3, 1.0), (1, 2, 3.0))
    # 0 and 2 are together, 1 is apart from 2; the pair 0-3 is not worth it
    found = scores(CollocationGoal(), Cluster(Placement(s)))
    mean = 2 * (9 + 3) / 3
    np.testing.assert_allclose(found, [mean / (mean + 3), mean / (mean + 3), 1])
    assert scores(CollocationGoal(factor=100), Cluster(Placement(s))).tolist() == [1, 1, 1]


def test_even_communication_with_everybody_need_not_be_local() -> None:
    s = talking((0, 2, 4.0), (0, 3, 4.0), (1, 2, 5.0), (1, 3, 5.0))
    assert scores(CollocationGoal(), Cluster(Placement(s))).tolist() == [1, 1, 1]
    every = scores(CollocationGoal(factor=0), Cluster(Placement(s)))
    np.testing.assert_allclose(every, [12 / 21, 12 / 21, 1])


def test_a_broker_to_be_emptied_is_content() -> None:
    s = talking((0, 3, 9.0), (1, 2, 9.0))
    away = Cluster(Placement(s), draining=np.array([True, False, False]))
    assert scores(CollocationGoal(), away).tolist() == [1, 0.5, 1]


def test_what_is_all_apart_comes_together() -> None:
    s = talking((0, 2, 9.0), (1, 3, 9.0), brokers=(0, 1, 1, 0))
    assert Balancer([CollocationGoal()]).propose(s).ok


def test_what_no_broker_can_hold_together_is_proven() -> None:
    s = talking((0, 3, 9.0), (1, 2, 9.0))
    load = s.leader_load.copy()
    load[[0, 3], 0] = 0.6 * s.capacity[0, 0]
    s = replace(s, leader_load=load, follower_load=load)
    (infeasibility,) = CollocationGoal().infeasibilities(Cluster(Placement(s)))
    assert "topic-0-0 and 1 more belong together" in infeasibility.reason
    plan = Balancer([CollocationGoal()]).propose(s)
    assert [u.proven for u in plan.unmet] == [True]
    assert plan.goal_results[-1].contentment_after > plan.goal_results[-1].contentment_before


def test_a_list_of_ones_own_asks_for_traffic() -> None:
    s = synthetic_snapshot(brokers=3, partitions=9, racks=3)
    with pytest.raises(GoalError, match="CollocationGoal: the snapshot has no traffic"):
        Balancer([CollocationGoal()]).propose(s)


def test_pairs_are_reported_once_and_both_ways_add_up() -> None:
    s = talking((0, 2, 2.0), (0, 2, 3.0), (2, 0, 4.0), (0, 0, 99.0), (1, 3, 0.0))
    assert [x.tolist() for x in communicating(s, 0)] == [[0, 2], [2, 0], [5.0, 4.0]]
    traffic = Traffic(s, 0)
    assert (traffic.one.tolist(), traffic.two.tolist()) == ([0], [2])
    assert traffic.total.tolist() == [9, 0, 9, 0]
    assert traffic.local(s.replica_broker, 3).tolist() == [18, 0, 0]


def test_sets_are_the_union_of_all_pairs_that_have_one_in_common() -> None:
    rng = np.random.default_rng(0)
    for n in (0, 1, 5, 300):
        one, two = rng.integers(0, max(n, 1), (2, n // 2))
        label = connected(n, one, two)
        kin = {i: {i} for i in range(n)}
        for a, b in zip(one.tolist(), two.tolist(), strict=True):
            union = kin[a] | kin[b]
            kin.update(dict.fromkeys(union, union))
        assert label.tolist() == [min(kin[i]) for i in range(n)]
    chain = np.arange(9_999)
    assert not connected(10_000, chain, chain + 1).any()


@pytest.mark.parametrize("number", [*long(0), 1])
@pytest.mark.parametrize(
    "operation",
    [
        Operation(),
        Operation(kind="fix_offline_replicas"),
        Operation(kind="remove_brokers", brokers=(1,)),
        Operation(kind="demote_brokers", brokers=(3,)),
        Operation(kind="change_replication_factor", replication_factor={"topic-0": 1, ".*1": 3}),
    ],
    ids=lambda operation: operation.kind,
)
def test_plans_of_all_operations_stand_up_to_the_checker(number: int, operation: Operation) -> None:
    s = example_snapshots(0)[number]
    goals = [CollocationGoal(), UsageDistribution(resource="disk")]
    plan = Balancer(goals, strategy=QUICK).propose(s, operation)
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    plan.placement.check()
