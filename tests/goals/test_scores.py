from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clusters import cluster, scores, snapshot
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer
from balancer.composition.proposal import concerns
from balancer.verification.checker import check_plan
from cluster_model import BrokerState
from cluster_model.placement import Placement
from goals import (
    BrokerSetAwareness,
    Cluster,
    DiskCapacity,
    EligibleLeaders,
    GoalError,
    LeaderReplicaDistribution,
    MinTopicLeaders,
    NetworkInUsageDistribution,
    OnlineReplicas,
    PreferredLeader,
    RackAwareDistribution,
    RackAwareness,
    ReplicaCapacity,
    ReplicaDistribution,
    ResourceCapacity,
    State,
    TopicLeaderDistribution,
    TopicReplicaDistribution,
    UsageDistribution,
    distance,
)

MIB = 2.0**20


def autobalancer_case() -> Cluster:
    """Three brokers with 600, 900 and 0 MiB/s, and one of 500 outside the mean."""
    loads = [50 * MIB] * 30 + [500 * MIB]
    replicas = [[0]] * 12 + [[1]] * 18 + [[3]]
    return cluster(
        replicas,
        brokers=4,
        load=loads,
        resource="network_in",
        eligible=[True, True, True, False],
    )


def test_the_autobalancers_broker_scores() -> None:
    goal = NetworkInUsageDistribution(deviation=0.15, baseline=50 * MIB, detect_threshold=0)
    found = scores(goal, autobalancer_case())
    assert found == pytest.approx([0.55, 0.094142, 0.093095, 1.0], abs=1e-6)
    assert found[2] < found[1] < 0.1 < found[0] < 1


@pytest.mark.parametrize("source", [0, 1])
def test_the_autobalancers_action_scores(source: int) -> None:
    goal = NetworkInUsageDistribution(deviation=0.15, baseline=50 * MIB, detect_threshold=0)
    goal = goal.prepared(autobalancer_case())
    load = np.array([600, 900, 0, 500]) * MIB
    before = goal.score(State.of(load={"network_in": load}, broker=np.arange(4)))
    load[[source, 2]] += [-50 * MIB, 50 * MIB]
    after = goal.score(State.of(load={"network_in": load}, broker=np.arange(4)))
    ends = [source, 2]
    assert (after[ends].min() - before[ends].min() + 1) / 2 == pytest.approx(0.50024, abs=1e-5)


def test_the_curve_is_the_autobalancers_step_normaliser() -> None:
    # reversed Step(min 0, step 100, value 0.9): 1 - 0.9 x / 100 up to 100, then above 0
    found = distance([0, 40, 100, 120], bound=0, var=100)
    assert found[:3] == pytest.approx([1, 0.64, 0.1])
    assert 0 < found[3] < 0.1


def test_below_the_detect_threshold_brokers_are_met_only_if_the_mean_is_too() -> None:
    quiet = cluster([[0], [0], [1]], brokers=2, load=[1e5, 2e5, 1e5], resource="network_in")
    assert scores(NetworkInUsageDistribution(), quiet).tolist() == [1, 1]
    busy = cluster([[0], [1]], brokers=2, load=[1e8, 1e5], resource="network_in")
    assert (scores(NetworkInUsageDistribution(), busy) < 1).all()


def test_draining_brokers_are_content_and_their_load_is_shared_out() -> None:
    state = [BrokerState.ALIVE, BrokerState.ALIVE, BrokerState.DEAD]
    of = cluster([[0]] * 3 + [[1]] * 3 + [[2]] * 6, brokers=3, broker_state=state)
    found = scores(ReplicaDistribution(), of)  # the share is 6, limits 5 to 7
    assert found[2] == 1
    assert found[:2] == pytest.approx(1 - 0.9 * 2 / 6)


def test_brokers_that_receive_nothing_have_no_lower_limit() -> None:
    of = cluster([[0]] * 4 + [[1]] * 4, brokers=3, eligible=[True, True, False])
    assert scores(ReplicaDistribution(), of).tolist() == [1, 1, 1]
    assert scores(UsageDistribution(resource="disk"), of).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("share", "lower", "upper"), [(1, 0, 2), (10, 9, 11), (11, 10, 12), (100, 91, 109)]
)
def test_bounds_of_counts_are_cruise_controls(share: int, lower: int, upper: int) -> None:
    of = cluster([[b] for b in range(4) for _ in range(share)], brokers=4)
    for goal, column in (
        (ReplicaDistribution(), "replica_count"),
        (LeaderReplicaDistribution(), "leader_count"),
    ):
        counts = np.arange(3 * share + 2)
        state = State.of(broker=np.zeros_like(counts), **{column: counts})
        met = np.flatnonzero(goal.prepared(of).score(state) == 1)
        assert (met[0], met[-1], len(met)) == (lower, upper, upper - lower + 1)


@pytest.mark.parametrize(
    ("share", "lower", "upper"), [(1, 0, 3), (2, 0, 6), (10, 0, 28), (50, 10, 90), (100, 60, 140)]
)
def test_bounds_of_topics_are_cruise_controls(share: int, lower: int, upper: int) -> None:
    of = cluster([[b] for b in range(3) for _ in range(share)], brokers=3)
    counts = np.arange(4 * share + 9)
    state = State.of(
        broker=np.zeros_like(counts), topic=np.zeros_like(counts), replica_count=counts
    )
    met = np.flatnonzero(TopicReplicaDistribution().prepared(of).score(state) == 1)
    assert (met[0], met[-1], len(met)) == (lower, upper, upper - lower + 1)


def test_load_is_shared_out_by_capacity() -> None:
    of = cluster([[0], [1]], brokers=2, load=[100, 300], capacity=[200, 600])
    assert scores(UsageDistribution(resource="disk"), of).tolist() == [1, 1]
    of = cluster([[0], [1]], brokers=2, load=[200, 200], capacity=[200, 600])
    assert (scores(UsageDistribution(resource="disk"), of) < 1).all()


def test_low_utilization_is_not_worth_balancing() -> None:
    of = cluster([[0], [1]], brokers=2, load=[50, 150], capacity=1000)
    assert (scores(UsageDistribution(resource="disk"), of) < 1).all()
    assert (scores(UsageDistribution(resource="disk", low_utilization=0.2), of) == 1).all()


def test_averages_are_taken_within_broker_sets() -> None:
    of = cluster(
        [[0]] * 2 + [[1]] * 2 + [[2]] * 9 + [[3]] * 9,
        brokers=4,
        broker_sets=("small", "large"),
        broker_set=[0, 0, 1, 1],
    )
    assert (scores(ReplicaDistribution(), of) == 1).all()
    assert (scores(TopicLeaderDistribution(), of) == 1).all()


@pytest.mark.parametrize(
    ("racks", "distinct", "spread"),
    [
        ([0, 1, 2], 1, 1),
        ([0, 0, 1], 2 / 3, 2 / 3),
        ([0, 0, 0], 1 / 3, 1 / 3),
    ],
)
def test_racks_with_racks_enough(racks: list[int], distinct: float, spread: float) -> None:
    of = cluster([[0, 1, 2]], brokers=6, racks=[*racks, 0, 1, 2])
    assert scores(RackAwareness(), of) == pytest.approx(distinct)
    assert scores(RackAwareDistribution(), of) == pytest.approx(spread)


@pytest.mark.parametrize(
    ("racks", "score"),
    [([0, 0, 1], 1), ([0, 1, 1], 1), ([0, 0, 0], 2 / 3), ([0, 0, 1, 1], 1), ([0, 0, 0, 1], 3 / 4)],
)
def test_replicas_spread_evenly_over_too_few_racks(racks: list[int], score: float) -> None:
    of = cluster([list(range(len(racks)))], brokers=len(racks) + 2, racks=[*racks, 0, 1])
    assert scores(RackAwareDistribution(), of) == pytest.approx(score)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 4))
def test_rack_spread_is_met_exactly_where_racks_differ_by_one_at_most(
    racks: list[int], usable: int
) -> None:
    racks = [r % usable for r in racks]
    of = cluster(
        [list(range(len(racks)))], brokers=len(racks) + usable, racks=[*racks, *range(usable)]
    )
    counts = np.bincount(racks, minlength=usable)
    (score,) = scores(RackAwareDistribution(), of)
    assert (score == 1) == (counts.max() - counts.min() <= 1)
    # the score counts the replicas that have to move
    full, extra = divmod(len(racks), usable)
    target = np.full(usable, full) + (np.arange(usable) < extra)
    moves = np.maximum(np.sort(counts)[::-1] - target, 0).sum()
    assert score == pytest.approx(1 - moves / len(racks))


def test_too_few_racks_are_an_infeasibility() -> None:
    of = cluster([[0, 1, 2], [0, 1]], brokers=3, racks=[0, 0, 1])
    (infeasibility,) = RackAwareness().infeasibilities(of)
    assert infeasibility.racks_to_add == 1
    assert infeasibility.reason.startswith("t0-0: 3 replicas, and 2 racks")
    assert RackAwareness().infeasibilities(cluster([[0, 1], [1, 0]], brokers=2, racks=[0, 1])) == []


def test_topics_stay_in_the_set_that_holds_most_of_them() -> None:
    sets: dict[str, Any] = {"broker_sets": ("a", "b"), "broker_set": [0, 0, 1, 1]}
    of = cluster([[0, 1], [0, 2]], brokers=4, **sets)
    assert scores(BrokerSetAwareness(), of).tolist() == [1, 0.5]
    assert scores(BrokerSetAwareness(sets={"t.*": "b"}), of).tolist() == [0, 0.5]
    assert scores(BrokerSetAwareness(exempt="t0"), of).tolist() == [1, 1]
    with pytest.raises(GoalError, match="broker set 'c' found, one of a, b expected"):
        BrokerSetAwareness(sets={"t.*": "c"}).prepared(of)
    (infeasibility,) = BrokerSetAwareness().infeasibilities(cluster([[0, 1, 2]], brokers=4, **sets))
    assert infeasibility.brokers_to_add == 1
    assert "broker set a" in infeasibility.reason


def test_capacity_counts_missing_brokers() -> None:
    of = cluster([[0], [1], [0], [1]], brokers=2, load=[500] * 4, capacity=1000)
    (infeasibility,) = ResourceCapacity(resource="disk").infeasibilities(of)  # 2000 on 2 x 800
    assert infeasibility.brokers_to_add == 1
    assert ResourceCapacity(resource="disk", threshold=1.0).infeasibilities(of) == []
    (infeasibility,) = ReplicaCapacity(limit=1).infeasibilities(of)
    assert infeasibility.brokers_to_add == 2


def test_a_partition_larger_than_every_limit_is_named() -> None:
    of = cluster([[0], [1], [2], [3]], brokers=4, load=[10, 10, 900, 850], capacity=1000)
    (infeasibility,) = ResourceCapacity(resource="disk").infeasibilities(of)
    assert infeasibility.reason.startswith(
        "t0-2 and 1 more: load (disk) of a single replica is 900"
    )


def test_capacity_scores_fall_with_the_excess() -> None:
    of = cluster([[0], [1]], brokers=2, load=[1600, 800], capacity=1000)
    assert scores(ResourceCapacity(resource="disk"), of).tolist() == pytest.approx([0.5, 1])


def test_dead_brokers_do_not_hide_what_happens_to_the_living() -> None:
    state = [BrokerState.ALIVE, BrokerState.DEAD]
    of = cluster([[0], [1]], brokers=2, load=[1600, 8000], broker_state=state)
    assert scores(ResourceCapacity(resource="disk"), of).tolist() == pytest.approx([0.5, 1])


def test_each_broker_leads_some_of_a_topic() -> None:
    of = cluster([[0, 1, 2]] * 3 + [[1, 0, 2]] * 3, brokers=3)
    assert scores(MinTopicLeaders(topics="t0"), of).tolist() == [1, 1, 0.5]
    assert scores(MinTopicLeaders(topics="t0", minimum=0), of).tolist() == [1, 1, 1 / 3]
    assert scores(MinTopicLeaders(), of).tolist() == [1, 1, 1]
    (infeasibility,) = MinTopicLeaders(topics=".*", minimum=3).infeasibilities(of)
    assert "topic t0 has 6 partitions, and its brokers need 9 leaders" in infeasibility.reason


def test_leaders_of_a_topic_lie_between_floor_and_ceiling() -> None:
    of = cluster([[0]] * 3 + [[1]] * 1, brokers=3)  # the share is 4/3
    assert scores(TopicLeaderDistribution(), of).tolist() == pytest.approx([0.325, 1, 0.325])


def test_the_first_replica_that_may_lead_is_preferred() -> None:
    state = [BrokerState.ALIVE, BrokerState.DEMOTED, BrokerState.ALIVE]
    of = cluster(
        [[0, 1, 2], [1, 0, 2], [1, 0, 2], [2, 0, 1], [1]],
        brokers=3,
        broker_state=state,
        leader=[0, 0, 1, 1, 0],
    )
    assert scores(PreferredLeader(), of) == pytest.approx([1, 0, 1, 2 / 3, 1])
    assert scores(EligibleLeaders(), of).tolist() == [1, 0.5, 1, 1, 0.5]


def test_partitions_without_a_living_replica_are_named() -> None:
    state = [BrokerState.ALIVE, BrokerState.DEAD]
    of = cluster([[0], [1], [1, 0]], brokers=2, broker_state=state, leader=[0, -1, -1])
    assert scores(OnlineReplicas(), of).tolist() == [1, 0, 0.5]
    assert (scores(EligibleLeaders(), of) < 1).tolist() == [False, True, True]
    gone, leaderless = EligibleLeaders().infeasibilities(of)
    assert gone.reason.startswith("t0-1: every replica is on a dead broker")
    assert leaderless.reason == "t0-2: no leader, because no replica in sync serves"
    (infeasibility,) = OnlineReplicas().infeasibilities(of)
    assert infeasibility.brokers_to_add == 1


def test_a_partition_without_a_leader_is_not_content_on_living_brokers() -> None:
    of = cluster([[0, 1], [1, 0]], brokers=2, leader=[-1, 0])
    assert scores(EligibleLeaders(), of).tolist() == [0, 1]
    plan = Balancer().propose(of.snapshot)
    assert [u.goal for u in plan.unmet] == ["EligibleLeaders"]
    assert not plan.ok
    assert check_plan(of.snapshot, plan.document()).ok
    assert concerns(of.snapshot) == [
        "1 partition (t0-0) has no leader, because no replica in sync serves"
    ]
    # Where no leader is known at all, that tells nothing.
    assert scores(EligibleLeaders(), cluster([[0, 1]], brokers=2, leader=[-1])).tolist() == [1]


def test_a_partition_without_a_leader_is_worse_than_one_led_from_the_wrong_broker() -> None:
    goal = EligibleLeaders().prepared(cluster([[0, 1]], brokers=2))
    state = State.of(replica_broker=[[0, 1], [0, 1]], leader=[-1, 1])
    assert goal.score(state).tolist() == [0, 1]
    assert PreferredLeader().prepared(cluster([[0, 1]], brokers=2)).score(state)[0] == 0


def test_dead_disks_are_to_be_emptied_and_have_no_limit() -> None:
    jbod = snapshot(
        [[0], [0]],
        brokers=1,
        load=[900, 100],
        disk_broker=[0, 0],
        disk_path=("/a", "/b"),
        disk_capacity=[1000.0, 1000.0],
        disk_alive=[False, True],
        replica_disk=[0, 1],
    )
    of = Cluster(Placement(jbod))
    assert scores(OnlineReplicas(), of).tolist() == [0, 1]
    assert scores(DiskCapacity(), of).tolist() == [1, 1]
    assert DiskCapacity().infeasibilities(of) == []  # met as it is: no proof of the contrary


GOALS_BY_COUNT = [ReplicaCapacity(limit=4), ReplicaDistribution()]


@given(st.integers(0, 60), st.integers(1, 40))
def test_scores_fall_with_every_step_outside_the_limits(count: int, more: int) -> None:
    of = cluster([[b] for b in range(3) for _ in range(10)], brokers=3)
    for goal in GOALS_BY_COUNT:
        prepared = goal.prepared(of)
        state = State.of(replica_count=[count + 20, count + 20 + more], broker=[0, 0])
        near, far = prepared.score(state)
        assert 0 < far < near < 1
