"""Sums are exact, numbers stay finite, and a capacity of 0 means that nothing may be placed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from balancer_cases import QUICK, by_hand, examples
from hypothesis import example, given
from hypothesis import strategies as st

from balancer import Balancer, Operation, OperationError, PlanError, load_plan
from balancer.planning.parameters import PlanningParameters
from balancer.planning.remedies import RemedyLimits
from balancer.verification.checker import check_plan
from benchmarks.enumeration import tiny_cluster, tiny_goals, tiny_operation
from cluster_model import BrokerState, Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.snapshot import Floats
from goals import (
    Cluster,
    DiskCapacity,
    Goal,
    RackAwareDistribution,
    RackAwareness,
    ResourceCapacity,
    State,
    UsageDistribution,
    at_most,
)
from goals.racks import earlier_in_rack

amounts = st.floats(1e-14, 1e14)


@given(st.lists(amounts, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_where_a_capacity_is_0_sums_are_the_same_in_any_order_to_the_last_bit(
    loads: list[float], random: object
) -> None:
    snapshot = by_hand([(0,)] * len(loads), brokers=3, load=loads)
    placement = Placement(replace(snapshot, capacity=np.array([[0.0], [1e3], [1e3]])))
    held = placement.sums("broker", "load.disk")
    for _ in range(3):
        target = np.array([random.randrange(3) for _ in loads])  # type: ignore[attr-defined]
        for p in random.sample(range(len(loads)), len(loads)):  # type: ignore[attr-defined]
            at = np.array([p])
            placement.apply(Batch.of(MOVE, at, np.zeros(1, np.int64), target[at]))
        fresh = Placement(replace(placement.snapshot, replica_broker=target))
        assert held.tolist() == fresh.sums("broker", "load.disk").tolist()
        assert not held[np.bincount(target, minlength=3) == 0].any()
    assert held.sum() == pytest.approx(sum(loads), rel=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9, 1e14])
def test_a_broker_without_capacity_is_emptied_whatever_its_load(size: float) -> None:
    loads = list(np.random.default_rng(0).uniform(0.5, 1.5, 300) * size)
    snapshot = by_hand([(n % 3,) for n in range(300)], brokers=3, load=loads, capacity=1e3 * size)
    snapshot = replace(snapshot, capacity=np.array([[0.0], [1e3 * size], [1e3 * size]]))
    plan = Balancer([ResourceCapacity(resource="disk")]).propose(snapshot)
    assert plan.ok
    assert plan.final_snapshot().broker_load()[0].item() == 0
    assert len(plan.actions) == 100
    assert check_plan(snapshot, plan.document()).ok


@pytest.mark.parametrize("state", [BrokerState.DEAD, BrokerState.ALIVE])
def test_a_plan_states_loads_as_they_are_whatever_has_no_capacity(state: BrokerState) -> None:
    # Next to 3 PB, 139 bytes are fewer than the sums of a search can tell from 140.
    loads = [2.5e12] * 600 + [139.0] * 3
    snapshot = by_hand(
        [(n % 3,) for n in range(600)] + [(0, 3)] * 3, brokers=4, load=loads, capacity=2e15
    )
    snapshot = replace(
        snapshot,
        capacity=np.array([[2e15], [2e15], [2e15], [0.0]]),
        broker_state=np.array([0, 0, 0, int(state)]),
    )
    plan = Balancer([ResourceCapacity(resource="disk")]).propose(snapshot)
    assert [action.cost for action in plan.actions] == [139.0] * 3
    assert plan.summary.cost == 3 * 139.0
    assert check_plan(snapshot, plan.document()).ok


def test_loads_of_a_hundred_orders_of_magnitude_are_stated_as_they_are() -> None:
    loads = [0.1, 1e23, 1e35, 1e71]
    snapshot = by_hand([(0,)] * 4, brokers=3, load=loads, capacity=1e75)
    snapshot = replace(snapshot, capacity=np.array([[0.0], [1e75], [1e75]]))
    plan = Balancer([ResourceCapacity(resource="disk")]).propose(snapshot)
    assert sorted(action.cost for action in plan.actions) == loads
    assert check_plan(snapshot, plan.document()).ok


@pytest.mark.parametrize("goals", ["default", "cruise-control", "autobalancer"])
def test_nothing_is_placed_where_there_is_no_capacity(goals: str) -> None:
    s = synthetic_snapshot(brokers=6, partitions=30, racks=3, new_brokers=1, utilization=0.3)
    capacity = s.capacity.copy()
    empty = int(np.argmin(np.bincount(s.replica_broker, minlength=6)))
    capacity[empty, s.resource("network_in")] = 0.0
    snapshot = replace(s, capacity=capacity)
    plan = Balancer(goals).propose(snapshot)
    assert not plan.final_snapshot().broker_load()[empty].any()
    assert check_plan(snapshot, plan.document()).ok


def test_a_disk_without_capacity_is_given_nothing() -> None:
    snapshot = by_hand(
        [(0,)] * 4,
        brokers=2,
        load=[300.0] * 4,
        capacity=2000.0,
        disks={"/a": 1000.0, "/b": 0.0},
        log_dirs=[("/a",)] * 4,
    )
    plan = Balancer("default").propose(snapshot)
    assert all(a.destination_disk == "/a" for a in plan.actions if a.destination_disk)
    assert check_plan(snapshot, plan.document()).ok


def test_however_little_on_nothing_is_too_much() -> None:
    assert (at_most([0.0, 1e-300, 1e-14, 1.0], 0.0) < 1).tolist() == [False, True, True, True]
    assert at_most([1.0, 1e9], -5.0).tolist() == at_most([1.0, 1e9], 0.0).tolist()


def test_what_is_far_too_full_is_not_filled_further() -> None:
    # 10^10 times the capacity, and as good as nothing more
    snapshot = by_hand([(0,), (1,)], brokers=2, load=[1e10, 1.0])
    snapshot = replace(snapshot, capacity=np.array([[1.0], [100.0]]))
    from balancer.search.scorer import Scorer
    from balancer.search.transition import Transition

    cluster = Cluster(Placement(snapshot))
    scorer = Scorer(cluster, [ResourceCapacity(resource="disk").prepared(cluster)])
    come = Batch.of(MOVE, np.array([1]), np.array([0]), np.array([0]))
    assert scorer.diff(0, Transition(cluster, come))[1].all()


def test_loads_that_add_up_to_no_number_are_refused_in_one_sentence() -> None:
    snapshot = by_hand([(0,), (1,)], brokers=2)
    for field in ("leader_load", "follower_load"):
        too_much: dict[str, Any] = {field: np.array([[1e300], [1e308]])}
        with pytest.raises(SnapshotError, match=f"{field}: values that add up to .* at most 1e"):
            replace(snapshot, **too_much)
    with pytest.raises(SnapshotError, match="capacity: values that add up to inf"):
        replace(snapshot, capacity=np.full((2, 1), 1.7e308))


def test_the_largest_loads_there_may_be_make_a_plan_of_numbers() -> None:
    snapshot = by_hand([(0,), (0,), (1,)], brokers=2, load=[1e99, 2e99, 3e98], capacity=5e99)
    text = Balancer("default").propose(snapshot).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


@given(st.lists(st.lists(st.integers(-1, 4), min_size=12, max_size=12), min_size=1, max_size=6))
def test_racks_of_many_replicas_are_counted_as_those_of_few(rows: list[list[int]]) -> None:
    racks = np.array(rows)
    expected = [[-1 if r < 0 else row[:f].count(r) for f, r in enumerate(row)] for row in rows]
    assert earlier_in_rack(racks).tolist() == expected
    racks[:, 0] = 0
    state = State.of(replica_rack=racks)
    distinct = [len(set(row) - {-1}) / sum(r >= 0 for r in row) for row in racks.tolist()]
    assert np.asarray(RackAwareness().score(state)).tolist() == pytest.approx(distinct)
    assert (np.asarray(RackAwareDistribution().score(state)) <= 1).all()


def many_brokers(brokers: int) -> Snapshot:
    return synthetic_snapshot(
        brokers=brokers, partitions=6, racks=3, replication_factor=2, utilization=0.001
    )


def test_hundreds_of_replicas_of_a_partition_are_planned() -> None:
    snapshot = many_brokers(90)
    operation = Operation(kind="change_replication_factor", replication_factor={".*": 80})
    balancer = Balancer([UsageDistribution(resource="disk")], strategy=QUICK)
    plan = balancer.propose(snapshot, operation)
    assert plan.summary.replicas_added == 6 * 78
    assert (plan.final_snapshot().replication_factor == 80).all()
    assert check_plan(snapshot, plan.document()).ok


def test_more_replicas_than_brokers_are_refused_at_once() -> None:
    operation = Operation(kind="change_replication_factor", replication_factor={".*": 310})
    with pytest.raises(OperationError, match=r"310 asked for .* only 90 brokers"):
        Balancer().propose(many_brokers(90), operation)


def cluster_with_a_dead_disk(**changes: Any) -> Snapshot:
    snapshot = by_hand(
        [(0, 1), (0,)],
        brokers=2,
        load=[1e11, 1e11],
        capacity=2e12,
        disks={"/a": 1e12, "/b": 1e12},
        dead_disks={0: "/a"},
        log_dirs=[("/a", "/a"), ("/a",)],
    )
    return replace(snapshot, disk_capacity=np.array([0.0, 1e12, 1e12, 1e12]), **changes)


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "snapshot",
    [
        cluster_with_a_dead_disk(),
        # replicas without bytes, brokers that nobody may use, and loads next to nothing
        cluster_with_a_dead_disk(leader_load=np.array([[0.0], [1e99]])),
        cluster_with_a_dead_disk(broker_state=np.full(2, BrokerState.DEAD)),
        cluster_with_a_dead_disk(
            leader_load=np.array([[5e-324], [1e-300]]), follower_load=np.full((2, 1), 5e-324)
        ),
    ],
)
@pytest.mark.parametrize("upper_only", [False, True])
def test_ordinary_and_absurd_numbers_are_divided_without_a_warning(
    snapshot: Snapshot, upper_only: bool
) -> None:
    goals: list[Goal] = [
        DiskCapacity(),
        ResourceCapacity(resource="disk"),
        UsageDistribution(resource="disk", upper_only=upper_only),
    ]
    text = Balancer(goals, strategy=QUICK).propose(snapshot).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
def test_replicas_without_bytes_carry_traffic_for_nothing() -> None:
    snapshot = by_hand([(0,), (0,), (1,)], brokers=2, load=[0.0, 0.0, 1.0])
    traffic = np.array([[0.0, 1e9], [0.0, 1e9], [1.0, 1.0]])
    snapshot = replace(
        snapshot,
        resources=("disk", "network_in"),
        capacity=np.full((2, 2), 1.6e9),
        leader_load=traffic,
        follower_load=traffic,
    )
    plan = Balancer([ResourceCapacity(resource="network_in")]).propose(snapshot)
    assert plan.ok
    assert plan.summary.cost_bound == 0


@pytest.mark.parametrize("field", ["capacity", "disk_capacity"])
@pytest.mark.parametrize("least", [5e-324, 1e-51])
def test_a_capacity_next_to_none_is_refused_in_one_sentence(field: str, least: float) -> None:
    snapshot = cluster_with_a_dead_disk()
    with pytest.raises(SnapshotError, match=f"{field}, row .* 0, or a capacity of at least 1e-50"):
        replace(snapshot, **{field: np.full_like(getattr(snapshot, field), least)})


def test_a_load_next_to_nothing_is_none() -> None:
    snapshot = cluster_with_a_dead_disk(leader_load=np.array([[1e-51], [1e-50]]))
    assert snapshot.leader_load.tolist() == [[0.0], [1e-50]]


def test_ids_that_kafka_cannot_have_are_refused_and_none_is_made_up() -> None:
    snapshot = by_hand([(0, 1)], brokers=2, load=[900.0], capacity=1000.0)
    with pytest.raises(SnapshotError, match="2147483648 found, an id of at most 2147483647"):
        replace(snapshot, broker_ids=np.array([0, 2**31]))
    snapshot = replace(snapshot, broker_ids=np.array([0, 2**31 - 1]))
    goals = [ResourceCapacity(resource="disk", threshold=0.5)]
    plan = Balancer(goals, remedies=RemedyLimits()).propose(snapshot)
    assert plan.remedy is None or not plan.remedy.tried
    snapshot = by_hand([(0,), (0,), (0,)], brokers=1, load=[300.0] * 3)
    snapshot = replace(snapshot, broker_ids=np.array([2**31 - 1]))
    plan = Balancer(goals, remedies=RemedyLimits()).propose(snapshot)
    assert plan.remedy is not None
    assert not plan.remedy.tried


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("goals", 0), {}, "goals: .* entry 0: goal and name, as text, expected"),
        (("goals", 0, "name"), [], "goals: .* entry 0: goal and name, as text, expected"),
        (("summary", "group_moves"), 10**400, "summary.group_moves: 1000"),
        (("summary", "disk_moves"), True, "summary.disk_moves: True"),
    ],
)
def test_a_plan_with_what_is_no_goal_or_number_is_refused(
    tmp_path: Path, place: tuple[str, ...], value: object, said: str
) -> None:
    plan = json.loads(Balancer([DiskCapacity()]).propose(cluster_with_a_dead_disk()).to_json())
    within = plan
    for step in place[:-1]:
        within = within[step]
    within[place[-1]] = value
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(PlanError, match=said) as error:
        load_plan(tmp_path / "plan.json")
    assert "\n" not in str(error.value)


def absurd(rng: np.random.Generator) -> Snapshot:
    """A tiny cluster with loads and capacities from 1e-6 to 1e18, or none, side by side."""
    s = tiny_cluster(rng)

    def mixed(like: Floats) -> Floats:
        some: Floats = np.where(rng.random(like.shape) < 0.8, 1.0, 0.0)
        return 10.0 ** rng.uniform(-6, 18, like.shape) * some

    changes: dict[str, Any] = {"leader_load": mixed(s.leader_load)}
    changes["follower_load"] = (
        mixed(s.leader_load) if rng.random() < 0.5 else changes["leader_load"]
    )
    for name in ("capacity", "disk_capacity"):
        if rng.random() < 0.7:
            changes[name] = mixed(getattr(s, name))
    return replace(s, **changes)


@pytest.mark.slow
@examples(12)
@given(st.integers(0, 2**31))
@example(2815)
def test_a_plan_passes_its_check_whatever_the_magnitudes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = absurd(rng)
    try:
        balancer = Balancer(tiny_goals(rng, snapshot), strategy=QUICK if seed % 4 else "goals")
        plan = balancer.propose(snapshot, tiny_operation(rng, snapshot))
    except OperationError:
        return
    checked = check_plan(snapshot, plan.document())
    assert checked.ok, checked


@pytest.mark.parametrize("disks", [None, {"/a": 1e6}])
@pytest.mark.parametrize(
    ("factor", "capacity", "held", "each"),
    [(2, 1e6, 1.1e6, 8e-7), (2, 0.0, 1e8, 1e-3), (1, 1e6, 1.1e6, 8e-7)],
    ids=["full", "nothing", "added"],
)
@pytest.mark.parametrize("many", [False, True])
def test_many_tiny_amounts_do_not_fill_what_is_full(
    many: bool,
    factor: int,
    capacity: float,
    held: float,
    each: float,
    disks: dict[str, float] | None,
) -> None:
    # each of them is too little to change the score of broker 0, where alone they may go
    number = (400 if capacity else 40) if many else 20
    rows = [(0,), *[(1, 2)[-factor:]] * number]
    snapshot = by_hand(
        rows,
        brokers=3,
        load=[held] + [each] * number,
        capacity=1e6,
        states={1: "dead"},
        disks=disks,
        log_dirs=[("/a",) * len(row) for row in rows] if disks else None,
    )
    if capacity == 0:
        nothing: dict[str, Any] = {"capacity": np.array([[0.0], [1e6], [1e6]])}
        if disks:
            nothing["disk_capacity"] = np.array([0.0, 1e6, 1e6])
        snapshot = replace(snapshot, **nothing)
    operation = Operation()
    if factor == 1:
        operation = Operation(kind="change_replication_factor", replication_factor={".*": 2})
    # none of the goals is about capacities
    balancer = Balancer(
        [RackAwareness()], strategy=QUICK, planning=PlanningParameters(detour_rounds=0)
    )
    plan = balancer.propose(snapshot, operation)
    after = plan.final_snapshot().broker_load()[0, 0]
    assert after <= held * (1 + 1e-9)
    assert check_plan(snapshot, plan.document()).ok
    assert (len(plan.actions) < number) == many


def test_a_demotion_beside_a_broker_without_capacity_passes_its_check() -> None:
    # nobody receives anything, so that the largest replica stays where there is a share
    snapshot = by_hand([(0, 1)], brokers=3, load=[0.3], capacity=4.0)
    snapshot = replace(
        snapshot,
        follower_load=np.zeros((1, 1)),
        capacity=np.array([[4.0], [4.0], [0.0]]),
        broker_state=np.array([0, 1, 0]),
    )
    operation = Operation(
        kind="demote_brokers", brokers=(0,), excluded_brokers_for_leadership=(1, 2)
    )
    plan = Balancer([UsageDistribution(resource="disk")]).propose(snapshot, operation)
    assert plan.columns["disk"].worst_ratio_bound > 1
    assert check_plan(snapshot, plan.document()).ok


def test_a_small_bound_is_not_rounded_up() -> None:
    snapshot = by_hand([(0,), (1,)], brokers=3, load=[1e18, 3.4e6], states={0: "dead"})
    snapshot = replace(snapshot, capacity=np.full((3, 1), 1e18), reassigning=np.array([True] * 2))
    plan = Balancer([UsageDistribution(resource="disk")]).propose(snapshot)
    column = plan.columns["disk"]
    assert column.worst_ratio_bound <= column.after.worst_ratio * (1 + 1e-11)
    assert check_plan(snapshot, plan.document()).ok
