"""The bounds of a plan, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from balancer_cases import by_hand

from balancer import Balancer, Operation
from balancer.cli.tables import overview
from balancer.planning.bounds import cost_bound, imbalance_bound
from balancer.problem.resolution import resolve
from balancer.verification.checker import check_plan
from cluster_model import Snapshot
from cluster_model.columns import Column
from cluster_model.placement import Placement
from goals import (
    Cluster,
    Goal,
    LeaderReplicaDistribution,
    OnlineReplicas,
    RackAwareness,
    ReplicaCapacity,
    ResourceCapacity,
    UsageDistribution,
)


def imbalance(snapshot: Snapshot, column: str = "load.disk", **operation: object) -> float:
    """The bound of plans that leave no more on dead brokers than there is."""
    found = resolve(snapshot, Operation.model_validate(operation))
    return imbalance_bound(found.cluster, found.rules, Column.of(column), found.start)


def on_one(load: Sequence[float], **more: object) -> Snapshot:
    """Two brokers, with everything on the first."""
    return by_hand([[0]] * len(load), brokers=2, load=load, **more)  # type: ignore[arg-type]


def test_what_can_be_divided_evenly_has_a_bound_of_1() -> None:
    assert imbalance(on_one([1, 1, 1, 1])) == 1.0


def test_the_largest_replica_is_on_one_broker() -> None:
    # A share of 6.
    assert imbalance(on_one([9, 1, 1, 1])) == 9 / 6


def test_of_one_more_replica_than_brokers_two_are_together() -> None:
    # A share of 6.5; of 5, 4 and 4 at least 8 are together.
    assert imbalance(on_one([5, 4, 4])) == pytest.approx(8 / 6.5, abs=1e-11)


def test_counts_are_whole_numbers() -> None:
    # A share of 2.5: one of the brokers holds 3.
    assert imbalance(on_one([1] * 5), "replica_count") == pytest.approx(3 / 2.5, abs=1e-11)


def test_what_may_not_move_stays() -> None:
    # A share of 6; 9 may not move.
    s = on_one([3, 3, 3, 1, 1, 1], topics=["big"] * 3 + ["small"] * 3)
    assert imbalance(s) == 1.0
    assert imbalance(s, excluded_topics=("big",)) == 9 / 6


def test_what_is_left_on_a_dead_broker_is_not_carried() -> None:
    # A share of 3, and 2 on each living broker.
    s = by_hand([[0], [1], [2]], brokers=3, load=[2, 2, 2], states={2: "dead"})
    assert imbalance(s) == pytest.approx(2 / 3, abs=1e-11)


def cost(snapshot: Snapshot, *goals: Goal, met: bool = True) -> float:
    """The least cost of meeting the goals."""
    cluster = Cluster(Placement(snapshot))
    prepared = [goal.prepared(cluster) for goal in goals]
    return cost_bound(cluster.placement, prepared, [met] * len(goals), cluster)


def test_where_each_copy_costs_one_so_does_half_of_one() -> None:
    # 5 must leave of replicas of 10: half a copy
    s = by_hand([[0], [0], [0]], brokers=2, resource="cpu", load=[10.0] * 3, capacity=50.0)
    plan = Balancer([ResourceCapacity(resource="cpu", threshold=0.5)]).propose(s)
    assert (plan.summary.cost_bound, plan.summary.cost_unit) == (1.0, "replicas")
    assert check_plan(s, plan.document()).ok
    assert "costs 1 replica (33.3 % of all); no plan meeting these goals costs less than 1 rep" in (
        overview(plan).plain
    )


def test_what_is_above_a_limit_must_leave() -> None:
    s = on_one([6, 3, 2], capacity=10.0)
    room = ResourceCapacity(resource="disk", threshold=0.8)
    assert cost(s, room) == pytest.approx(3)
    assert cost(s, room, met=False) == 0


def test_the_cheapest_leave() -> None:
    s = on_one([6, 3, 2])
    assert cost(s, ReplicaCapacity(limit=2)) == pytest.approx(2)
    assert cost(s, ReplicaCapacity(limit=1)) == pytest.approx(2 + 3)


def test_dead_brokers_must_be_emptied() -> None:
    s = by_hand([[0], [0], [1]], brokers=3, load=[6, 1, 3], states={0: "dead"})
    assert cost(s, OnlineReplicas()) == 7


def test_what_a_lower_limit_lacks_must_arrive() -> None:
    # A share of 4, limits of 3.6 and 4.4: 1.6 leave two brokers each, 3.6 reach the third.
    s = by_hand([[0]] * 3 + [[1]] * 3, brokers=3, load=[2.0] * 6, capacity=20.0)
    band = UsageDistribution(resource="disk", threshold=1.1, margin=1.0, low_utilization=0.0)
    assert cost(s, band) == pytest.approx(3.6)
    above = band.model_copy(update={"upper_only": True})
    assert cost(s, above) == pytest.approx(3.2)


def test_a_second_replica_in_a_rack_must_leave_it() -> None:
    s = by_hand([[0, 1], [0, 2]], brokers=3, load=[5, 3], racks=[0, 0, 1])
    assert cost(s, RackAwareness()) == 5


def test_leadership_costs_nothing() -> None:
    s = by_hand([[0, 1]] * 4, brokers=2)
    assert cost(s, LeaderReplicaDistribution()) == 0


def test_the_largest_of_the_reasons_counts() -> None:
    s = by_hand([[0, 1], [0, 2]], brokers=3, load=[5, 3], racks=[0, 0, 1], capacity=9.0)
    room = ResourceCapacity(resource="disk", threshold=0.8)
    assert cost(s, room) == pytest.approx(0.8)
    assert cost(s, room, RackAwareness()) == 5
