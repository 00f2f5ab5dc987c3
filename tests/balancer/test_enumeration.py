"""Statements of plans, compared with all placements of tiny clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import FEW_RETRIES, by_hand, examples, search_of
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Operation, OperationError, Plan
from balancer.planning.bounds import cost_bound
from balancer.planning.document import Action
from balancer.problem.resolution import resolve
from balancer.verification.checker import check_plan
from benchmarks.enumeration import (
    Enumeration,
    TooManyError,
    false_statements,
    tiny_cluster,
    tiny_goals,
    tiny_operation,
)
from cluster_model import BrokerState, Snapshot, synthetic_snapshot
from cluster_model.placement import MOVE_DISK, Batch, Placement
from goals import (
    BrokerSetAwareness,
    Cluster,
    DiskCapacity,
    Goal,
    RackAwareness,
    ResourceCapacity,
    UsageDistribution,
)


@pytest.mark.slow
@examples(12)
@given(st.integers(0, 2**31))
def test_no_statement_of_a_plan_is_false(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = tiny_cluster(rng)
    operation = tiny_operation(rng, snapshot)
    goals = tiny_goals(rng, snapshot)
    try:
        plan = Balancer(goals, strategy=search_of(seed)).propose(snapshot, operation)
    except OperationError:
        return
    try:
        assert list(false_statements(plan, operation)) == []
    except TooManyError:
        return


def proposed(goals: list[Goal], snapshot: Snapshot, operation: Operation | None = None) -> Plan:
    plan = Balancer(goals, strategy=FEW_RETRIES).propose(snapshot, operation)
    assert list(false_statements(plan, operation or Operation())) == []
    return plan


def proven(plan: Plan) -> set[str]:
    return {u.goal for u in plan.unmet if u.proven}


def test_all_placements_of_a_cluster_by_hand_are_counted() -> None:
    snapshot = by_hand([(0, 1), (2,)], brokers=3)
    # three pairs with either of them leading, times three brokers
    assert Enumeration(snapshot, Operation()).count == 18
    kept = Operation(excluded_partitions=("t-0",))
    assert Enumeration(snapshot, kept).count == 3
    demoted = Operation(kind="demote_brokers", brokers=(0,))
    assert Enumeration(snapshot, demoted).count == 2
    with pytest.raises(TooManyError):
        Enumeration(snapshot, Operation(), most=17)


def test_leadership_that_makes_a_follower_lighter_costs_no_bytes() -> None:
    # broker 0 follows with 900 of 1000 bytes, and would lead with 100
    start = by_hand([(1, 0)], brokers=2, load=[100.0])
    start = replace(start, follower_load=np.array([[900.0]]))
    goal = ResourceCapacity(resource="disk", threshold=0.9, hard=False)
    uneven = replace(start, capacity=np.array([[200.0], [1000.0]]))
    plan = proposed([goal], uneven)
    assert plan.ok
    assert plan.summary.cost == plan.summary.cost_bound == 0
    cluster = Cluster(Placement(uneven))
    prepared = goal.prepared(cluster)
    assert cost_bound(Placement(uneven), [prepared], [True], cluster) == 0


def test_what_may_be_left_on_a_dead_broker_needs_no_room() -> None:
    # the lost partition's 900 are not what keeps broker 0 above its 800
    snapshot = by_hand(
        [(0,), (0,), (1,)], brokers=3, load=[500.0, 400.0, 900.0], states={1: "dead"}
    )
    goal = ResourceCapacity(resource="disk")
    assert goal.infeasibilities(Cluster(Placement(snapshot))) == []
    barred = Operation(excluded_brokers_for_replicas=(1,), excluded_topics=("t",))
    assert "ResourceCapacity[disk]" not in proven(proposed([goal], snapshot, barred))


def test_a_rack_of_a_dead_broker_still_tells_replicas_apart() -> None:
    snapshot = by_hand([(0, 2), (0, 1)], brokers=3, racks=(0, 0, 1), states={2: "dead"})
    plan = proposed([RackAwareness()], snapshot)
    # t-1 lies twice in rack 0, and rack 1 is out of reach for it, not for t-0
    (infeasibility,) = RackAwareness().infeasibilities(Cluster(Placement(snapshot)))
    assert infeasibility.reason.startswith("t-1: 2 replicas")
    assert proven(plan) == {"RackAwareness"}


def test_a_broker_set_keeps_what_lies_on_its_dead_broker() -> None:
    snapshot = by_hand([(0, 1)], brokers=3, states={1: "dead"}, sets={0: "a", 1: "a", 2: "b"})
    assert BrokerSetAwareness().infeasibilities(Cluster(Placement(snapshot))) == []


def test_leadership_makes_room_on_a_broker_that_takes_nothing() -> None:
    # broker 0 takes no replicas, but may lead: then it carries 700 of the 1400
    snapshot = by_hand([(1, 0), (1, 0)], brokers=2, load=[700.0, 700.0])
    snapshot = replace(snapshot, follower_load=np.full((2, 1), 50.0))
    operation = Operation(excluded_brokers_for_replicas=(0,))
    plan = proposed([ResourceCapacity(resource="disk")], snapshot, operation)
    assert plan.ok


def test_limits_are_those_of_the_start_wherever_the_plan_ends() -> None:
    snapshot = by_hand([(0, 1), (0, 2), (0, 1)], brokers=3, load=[9.0, 2.0, 1.0])
    snapshot = replace(snapshot, follower_load=np.full((3, 1), 3.0))
    proposed([UsageDistribution(resource="disk")], snapshot)


def test_what_lies_on_a_dead_disk_is_not_too_large_for_a_living_one() -> None:
    snapshot = by_hand(
        [(0,), (1,)],
        brokers=2,
        load=[900.0, 10.0],
        disks={"/a": 1000.0, "/b": 1000.0},
        dead_disks={0: "/a"},
        log_dirs=[("/a",), ("/a",)],
    )
    plan = proposed([DiskCapacity()], snapshot)
    assert "DiskCapacity" not in proven(plan)


@pytest.mark.parametrize("reassigning", [True, False])
def test_a_partition_lost_with_its_disk_does_not_prove_that_another_has_no_leader(
    reassigning: bool,
) -> None:
    # Broker 0 leads t-0 from a dead disk; t-1 is led by a demoted broker, and could be by 0.
    snapshot = by_hand(
        [(0,), (1, 0)],
        brokers=2,
        load=[10.0, 10.0],
        disks={"/a": 500.0, "/b": 500.0},
        dead_disks={0: "/a"},
        log_dirs=[("/a",), ("/a", "/b")],
    )
    snapshot = replace(
        snapshot,
        broker_state=np.array([BrokerState.ALIVE, BrokerState.DEMOTED]),
        reassigning=np.array([False, reassigning]),
    )
    plan = proposed([DiskCapacity()], snapshot)
    assert ("EligibleLeaders" in [u.goal for u in plan.unmet]) == reassigning
    assert "EligibleLeaders" not in proven(plan)


def test_a_hard_goal_is_not_given_up_for_soft_goals_of_its_tier() -> None:
    # t-2 must leave broker 1; soft goals of the same tier gain more where it stays
    snapshot, operation, goals = tiny_case(611)
    plan = Balancer(goals).propose(snapshot, operation)
    assert "ResourceCapacity[network_in]" not in {u.goal for u in plan.unmet}


@pytest.mark.soak
def test_replicas_that_leave_a_dead_broker_push_no_others_away() -> None:
    # brokers 0 and 3 are alike: the search exchanged what they hold, in five moves
    snapshot = synthetic_snapshot(
        brokers=4, partitions=4, racks=3, replication_factor=2, utilization=0.53, skew=1.47, seed=21
    )
    states = np.where(np.arange(4) == 1, BrokerState.DEAD, snapshot.broker_state)
    plan = Balancer().propose(replace(snapshot, broker_state=states))
    assert plan.summary.replica_moves == 2


def test_a_small_plan_copies_no_more_than_what_it_reaches_needs() -> None:
    # a move that two transfers of leadership replace
    snapshot, operation, goals = tiny_case(270)
    assert proposed(goals, snapshot, operation).summary.cost == 0


def tiny_case(seed: int) -> tuple[Snapshot, Operation, list[Goal]]:
    rng = np.random.default_rng(seed)
    snapshot = tiny_cluster(rng)
    return snapshot, tiny_operation(rng, snapshot), tiny_goals(rng, snapshot)


def led_by_a_dead_disk() -> Snapshot:
    """Broker 0 is to lead nothing; the other replica of t-0 is on a dead disk of broker 1."""
    return by_hand(
        [(0, 1), (1,)],
        brokers=2,
        load=[10.0, 10.0],
        disks={"/a": 500.0, "/b": 500.0},
        dead_disks={1: "/a"},
        log_dirs=[("/a", "/a"), ("/b",)],
    )


def test_nothing_is_elected_on_a_dead_disk() -> None:
    demote = Operation(kind="demote_brokers", brokers=(0,))
    snapshot = led_by_a_dead_disk()
    plan = proposed([DiskCapacity()], snapshot, demote)
    assert not plan.actions
    elected = Action(
        kind="leadership",
        topic="t",
        partition=0,
        source=0,
        destination=1,
        source_disk="/a",
        leader=True,
    )
    forged = plan.document().model_copy(update={"actions": (elected,)})
    assert "dead disk" in str(check_plan(snapshot, forged).violations)


def test_nothing_moves_between_the_disks_of_a_dead_broker() -> None:
    snapshot = by_hand(
        [(0, 1)],
        brokers=2,
        disks={"/a": 500.0, "/b": 500.0},
        states={0: "dead"},
        log_dirs=[("/a", "/a")],
    )
    plan = proposed([DiskCapacity()], snapshot)
    assert [action.kind for action in plan.actions] == ["leadership"]
    moved = Action(
        kind="move_disk",
        topic="t",
        partition=0,
        source=0,
        destination=0,
        source_disk="/a",
        destination_disk="/b",
        cost=1.0,
    )
    forged = plan.document().model_copy(update={"actions": (moved,)})
    assert "dead source" in {f.kind for f in check_plan(snapshot, forged).violations}
    rules = resolve(snapshot, Operation()).rules
    batch = Batch.of(MOVE_DISK, *(np.array([x]) for x in (0, 0, 0, 1)))
    assert not rules.legal(Placement(snapshot), batch).any()


def test_leadership_takes_bytes_off_the_disks_that_are_known() -> None:
    # 900 bytes are led on a disk for 800; where it is not known which disk, 50 follow
    snapshot = by_hand(
        [(0, 1)],
        brokers=2,
        load=[900.0],
        disks={"/a": 1000.0},
        log_dirs=[("/a", "/a")],
    )
    snapshot = replace(
        snapshot,
        follower_load=np.array([[50.0]]),
        replica_disk=np.array([0, -1]),
        disk_capacity=np.array([1000.0, 10.0]),
        # the transfer is out of the question, for another reason
        capacity=np.array([[1000.0], [500.0]]),
    )
    assert DiskCapacity().infeasibilities(Cluster(Placement(snapshot))) == []
    assert not proven(proposed([DiskCapacity()], snapshot))


def test_a_broker_that_is_given_nothing_may_rearrange_its_disks() -> None:
    # 900 are on a disk for 800, and fit beside it on one for 1600
    snapshot = by_hand(
        [(0,)],
        brokers=1,
        load=[900.0],
        disks={"/a": 1000.0, "/b": 2000.0},
        log_dirs=[("/a",)],
    )
    barred = Operation(excluded_brokers_for_replicas=(0,))
    plan = proposed([DiskCapacity()], snapshot, barred)
    assert plan.ok
    cluster = Cluster(Placement(snapshot), eligible=np.zeros(1, np.bool_))
    assert DiskCapacity().infeasibilities(cluster) == []
