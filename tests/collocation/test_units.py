"""A snapshot as units and back: loads in percent, costs, permitted nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from collocation_cases import ROUNDS, allocation, examples, streams, talking
from hypothesis import given
from hypothesis import strategies as st

from balancer import Operation
from balancer.allocation.errors import AllocationError
from balancer.allocation.solver import solve
from balancer.allocation.units import Units, fold, units_of
from balancer.collocation.albic import albic
from cluster_model import InputError, Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState
from cluster_model.traffic import distinct_pairs

CLUSTER = synthetic_snapshot(
    brokers=5, partitions=60, replication_factor=1, racks=2, heterogeneity=0.5
)
JOB = streams(
    {"parse": [10, 20, 30], "sum": [5, 15]},
    {"parse": [3, 5, 5], "sum": [3, 8]},
    ids=(3, 5, 8),
    capacity=(100, 200, 100),
    traffic=[(0, 3, 2.0), (0, 3, 3.0), (1, 4, 1.0), (2, 2, 9.0), (1, 3, 0.0)],
)


def test_partitions_are_key_groups_brokers_nodes_and_topics_operators() -> None:
    units = units_of(JOB)
    assert units.operator.tolist() == [0, 0, 0, 1, 1]
    assert units.problem.node.tolist() == [0, 1, 1, 0, 2]
    assert units.unfold(units.problem.node).tolist() == JOB.replica_broker.tolist()


def test_a_pair_stands_once_with_all_it_sends() -> None:
    units = units_of(JOB)
    sent = zip(units.source.tolist(), units.target.tolist(), units.rate.tolist(), strict=True)
    assert list(sent) == [(0, 3, 5.0), (1, 4, 1.0)]
    assert units.local(units.problem.node) == pytest.approx(5 / 6)


def test_loads_are_in_percent_of_what_each_node_can_carry() -> None:
    p = units_of(JOB).problem
    percent = 100 * JOB.broker_load()[:, 0] / JOB.capacity[:, 0]
    assert np.bincount(p.node, p.load) * p.weight == pytest.approx(percent)
    # spread evenly, 80 of 400 are used
    assert p.mean == pytest.approx(20.0)
    assert p.deviation(p.node) == pytest.approx(percent - 20.0)


def test_the_resource_that_is_used_most_is_balanced() -> None:
    usage = CLUSTER.broker_load().sum(axis=0) / CLUSTER.capacity.sum(axis=0)
    most = int(np.argmax(usage))
    p = units_of(CLUSTER).problem
    assert p.mean == pytest.approx(100 * usage[most])
    other = CLUSTER.resources[1 - most if most < 2 else 0]
    named = units_of(CLUSTER, resource=other).problem
    assert named.mean == pytest.approx(100 * usage[CLUSTER.resource(other)])


def test_other_resources_are_ceilings_where_they_can_be_exceeded() -> None:
    assert units_of(CLUSTER, ceiling=100.0).problem.further.shape[1] == 0
    p = units_of(CLUSTER, ceiling=0.6).problem
    assert p.further.shape[1] == 3
    found = solve(p, rounds=ROUNDS)
    load = np.stack([np.bincount(found.node, f, 5) for f in p.further.T], axis=1)
    before = np.stack([np.bincount(p.node, f, 5) for f in p.further.T], axis=1)
    assert (load <= np.maximum(before, p.ceiling) * (1 + 1e-9)).all()


def test_costs_are_counted_or_follow_the_state_or_are_given() -> None:
    state = replace(JOB, state_size=np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert units_of(state).problem.cost.tolist() == [1.0] * 5
    by_size = units_of(state, cost="state", alpha=0.5).problem
    assert by_size.cost.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert units_of(state, cost=np.arange(5.0)).problem.cost.tolist() == [0, 1, 2, 3, 4]


def test_brokers_to_remove_and_dead_ones_are_marked_and_what_was_lost_is_no_key_group() -> None:
    state = np.where(JOB.broker_ids == 5, BrokerState.DEAD, BrokerState.ALIVE)
    units = units_of(
        replace(JOB, broker_state=state), Operation(kind="remove_brokers", brokers=(8,))
    )
    assert units.problem.removed.tolist() == [False, True, True]
    assert units.partition.tolist() == [0, 3, 4]
    assert units.unfold(np.zeros(3, np.int64)).tolist() == [0, 1, 1, 0, 0]
    # of the traffic, what both ends are left of
    assert (units.source.tolist(), units.target.tolist()) == ([0], [1])


@pytest.mark.parametrize(("integrated", "fixed"), [(True, [-1] * 5), (False, [0, 1, 1, 0, -1])])
def test_other_brokers_are_balanced_meanwhile_or_left_alone(
    integrated: bool, fixed: list[int]
) -> None:
    leaving = Operation(kind="remove_brokers", brokers=(8,))
    assert units_of(JOB, leaving, integrated=integrated).problem.fixed.tolist() == fixed


def test_what_is_excluded_stays_unless_its_broker_goes() -> None:
    excluded: dict[str, Any] = {"excluded_topics": ("sum",), "excluded_partitions": ("parse-1",)}
    assert units_of(JOB, Operation(**excluded)).problem.fixed.tolist() == [-1, 1, -1, 0, 2]
    leaving = Operation(kind="remove_brokers", brokers=(8,), **excluded)
    assert units_of(JOB, leaving).problem.fixed.tolist() == [-1, 1, -1, 0, -1]


@pytest.mark.slow
@given(
    st.integers(0, 2**20),
    st.sampled_from(
        [
            Operation(excluded_brokers_for_replicas=(1, 4, 5)),
            Operation(destinations=(2, 3)),
            Operation(kind="add_brokers", brokers=(3,)),
            Operation(kind="remove_brokers", brokers=(2,), destinations=(1,)),
        ]
    ),
)
@examples
def test_brokers_that_nothing_may_go_to_are_given_nothing(seed: int, operation: Operation) -> None:
    snapshot = synthetic_snapshot(
        brokers=6, partitions=40, replication_factor=1, racks=2, new_brokers=1, seed=seed
    )
    units = units_of(snapshot, operation, resource="cpu")
    found = solve(units.problem, rounds=4 * ROUNDS, seed=seed)
    to = snapshot.broker_ids[units.unfold(found.node)]
    went = to[to != snapshot.broker_ids[snapshot.replica_broker]]
    takers = {
        "rebalance": operation.destinations or (2, 3, 6),
        "add_brokers": (3,),
        "remove_brokers": (1,),
    }[operation.kind]
    assert set(went.tolist()) <= set(takers)
    # one broker may be full already
    assert len(went) or len(takers) == 1


def test_groups_migrate_as_one() -> None:
    p = allocation([4, 2, 2, 1], [0, 1, 1, 0], 2, budget=3, cost=[1, 2, 3, 4])
    folded = fold(p, np.array([0, 1, 1, 2]))
    assert folded.load.tolist() == [4, 4, 1]
    assert folded.cost.tolist() == [1, 5, 4]
    assert folded.node.tolist() == [0, 1, 0]
    with pytest.raises(AllocationError, match=r"node, row 0: 0 found, 1 expected.*group 0"):
        fold(p, np.array([0, 0, 1, 2]))


def test_pairs_of_nothing_are_none() -> None:
    none = np.empty(0, np.int64)
    assert [len(x) for x in distinct_pairs(none, none, np.empty(0))] == [0, 0, 0]


def _state(**changes: Any) -> Snapshot:
    return replace(JOB, **changes)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: units_of(synthetic_snapshot(brokers=4, partitions=8, racks=2)),
            "partition topic-0-0: 3 replicas found, 1 expected",
        ),
        (lambda: units_of(JOB, cost="state"), "no state_size"),
        (lambda: units_of(JOB, cost=np.ones(2)), r"cost: shape \(2,\) found, \(5,\) expected"),
        (
            lambda: units_of(JOB, Operation(kind="demote_brokers", brokers=(3,))),
            "operation demote_brokers",
        ),
        (
            lambda: units_of(_state(capacity=np.array([[100.0], [0.0], [100.0]]))),
            "broker 5, capacity of cpu: 0 found",
        ),
        (
            lambda: units_of(JOB, Operation(kind="remove_brokers", brokers=(3, 5, 8))),
            "none of the 3 brokers stays",
        ),
        (lambda: units_of(JOB, resource="gpu"), "no resource 'gpu'"),
        (lambda: units_of(JOB, budget=-1), "budget: -1.0 found"),
        (
            lambda: talking(allocation([1, 1], [0, 0], 1), [0, 1], {(0, 2): 1.0}),
            "key group 2 found, one from 0 to 1 expected",
        ),
        (
            lambda: Units(problem=allocation([1, 1], [0, 0], 1), operator=np.zeros(1, np.int64)),
            "operator: 1 rows found, 2 expected",
        ),
    ],
)
def test_what_does_not_fit_is_named(ask: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()  # type: ignore[operator]


TWO = allocation([4.0, 2.0, 2.0], [0, 1, 1], 2, budget=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"load": np.full(3, 1e308)}, "load: a sum of inf found, at most 1e\\+60 expected"),
        ({"load": np.array([1e200, 0, 0])}, "load: a sum of 1e\\+200 found, at most 1e\\+60"),
        ({"cost": np.full(3, 1e308)}, "cost: a sum of inf found, at most 1e\\+60 expected"),
        (
            {"further": np.full((3, 1), 1e308), "ceiling": np.ones((2, 1))},
            "further: a sum of inf found",
        ),
        ({"load": np.array([1.0, np.nan, 1.0])}, "load, row 1: nan found, a finite number of at"),
        ({"load": np.array([1.0, 1.0, np.inf])}, "load, row 2: inf found, a finite number of at"),
        ({"cost": np.array([1.0, -1.0, 1.0])}, "cost, row 1: -1.0 found, a finite number of at"),
        (
            {"further": np.ones((3, 1)), "ceiling": np.array([[1.0], [np.nan]])},
            "ceiling, row 1: nan found, a number or infinity expected",
        ),
        ({"weight": np.array([1.0, 1e-320])}, "weight, row 1: 1e-320 found, a value from 1e-60"),
        ({"weight": np.array([np.nan, 1.0])}, "weight, row 0: nan found, a value from 1e-60"),
        ({"weight": np.array([1.0, 0.0])}, "weight, row 1: 0.0 found, a value from 1e-60"),
        ({"budget": np.nan}, "budget: nan found, at least 0 expected"),
        ({"removed": np.ones(2, np.bool_)}, "all 2 nodes are marked for removal"),
        ({"weight": np.ones(0), "removed": np.zeros(0, np.bool_)}, "all 0 nodes are marked"),
        (
            {"removed": np.array([True, False]), "fixed": np.array([-1, 0, -1])},
            "fixed, row 1: 0 found, a node that stays expected",
        ),
        ({"node": np.array([0.0, 1.0, 1.0])}, "node: type float64 found, whole numbers expected"),
        ({"removed": np.array([0, 1])}, "removed: type int64 found, truth values expected"),
    ],
)
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_numbers_that_no_allocation_has_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        replace(TWO, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"load": np.full(3, 1e59)},
        {"cost": np.full(3, 1e59)},
        {"weight": np.array([1e-60, 1e60])},
        {"load": np.zeros(3), "cost": np.zeros(3)},
        {"budget": np.inf},
        {"further": np.ones((3, 1)), "ceiling": np.full((2, 1), -np.inf)},
    ],
)
@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_the_greatest_numbers_are_allocated_without_a_warning(changes: dict[str, Any]) -> None:
    p = replace(TWO, **changes)
    found = solve(p, rounds=ROUNDS)
    assert found.cost <= p.budget
    assert np.isfinite(found.distance)
    assert albic(talking(p, [0, 1, 1], {(0, 1): 1.0}), rounds=ROUNDS).solution.cost <= p.budget
