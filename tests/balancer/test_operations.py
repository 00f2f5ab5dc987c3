"""What each operation promises on any cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import (
    QUICK,
    by_hand,
    examples,
    leaders,
    lists,
    log_dirs,
    long,
    replay,
    search_of,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from balancer import Balancer, Budget, Operation, OperationError, Plan
from balancer.planning.document import Action
from balancer.planning.ordering import Steps, order, steps_between
from balancer.planning.parameters import PlanningParameters
from balancer.problem.capacity_guards import capacity_guards
from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.resolution import resolve
from balancer.search.scorer import Scorer
from balancer.verification.checker import check_plan
from cluster_model import BrokerState, InputError, Snapshot, SnapshotError, synthetic_snapshot
from cluster_model.placement import MOVE, Batch
from goals import Cluster, Goal, ReplicaDistribution, ResourceCapacity, load_goals

seeds = st.integers(0, 10_000)


def roomy(seed: int = 0, **changes: Any) -> Snapshot:
    """Ten brokers in five racks, room enough to lose two of them."""
    sizes: dict[str, Any] = {
        "brokers": 10,
        "partitions": 60,
        "racks": 5,
        "topics": 6,
        "utilization": 0.2,
        "skew": 1.5,
        "seed": seed,
    }
    return synthetic_snapshot(**(sizes | changes))


def proposed(
    snapshot: Snapshot,
    operation: Operation,
    goals: Any = "default",
    strategy: Any = QUICK,
    **budget: Any,
) -> Plan:
    plan = Balancer(goals, budget=Budget(**budget), strategy=strategy).propose(snapshot, operation)
    replay(plan)
    return plan


def unmet(plan: Plan) -> set[str]:
    return {u.goal for u in plan.unmet}


def hard_goals_are_no_worse(plan: Plan) -> None:
    for goal in plan.goal_results:
        if goal.hard:
            assert goal.unmet_cells_after <= goal.unmet_cells_before, goal.goal


# --- add brokers


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_only_added_brokers_are_given_replicas(seed: int) -> None:
    snapshot = roomy(seed, new_brokers=2)
    plan = proposed(
        snapshot, Operation(kind="add_brokers", brokers=(9, 10)), strategy=search_of(seed)
    )
    moves = [a for a in plan.actions if a.kind == "move"]
    assert {a.destination for a in moves} == {9, 10}
    hard_goals_are_no_worse(plan)


def test_added_brokers_end_with_their_share() -> None:
    plan = proposed(roomy(new_brokers=2), Operation(kind="add_brokers", brokers=(9, 10)))
    count = np.bincount(plan.final_snapshot().replica_broker, minlength=10)
    # leaders stay among the others: the loads are even before the counts are
    assert (count[8:] >= 0.75 * 18).all()


def test_adding_brokers_changes_no_leaders_between_others() -> None:
    snapshot = synthetic_snapshot(brokers=10, partitions=80, racks=5, skew=1.5, new_brokers=2)
    new = snapshot.broker_ids[-2:].tolist()
    plan = proposed(snapshot, Operation(kind="add_brokers", brokers=tuple(new)))
    transfers = [a for a in plan.actions if a.kind == "leadership"]
    assert {a.destination for a in transfers} <= {*new}
    assert check_plan(snapshot, plan.document()).ok
    p = next(p for p in range(80) if not np.isin(p, plan.rows.partition))
    held = snapshot.broker_ids[snapshot.replica_broker[2 * p : 2 * p + 2]].tolist()
    name = snapshot.topics[snapshot.partition_topic[p]]
    between = Action(
        kind="leadership",
        topic=name,
        partition=int(snapshot.partition_number[p]),
        source=held[int(snapshot.leader[p])],
        destination=held[1 - int(snapshot.leader[p])],
        leader=True,
    )
    forged = plan.document().model_copy(update={"actions": (*plan.actions, between)})
    faults = check_plan(snapshot, forged).violations
    assert any("add_brokers serves the named brokers alone" in f.text for f in faults)


def test_leaders_leave_a_broker_that_may_not_lead_when_others_are_added() -> None:
    snapshot = by_hand([(0, 1), (1, 0)], brokers=3, states={0: "demoted"})
    plan = proposed(snapshot, Operation(kind="add_brokers", brokers=(2,)))
    assert 0 not in leaders(plan.final_snapshot()).values()


def test_a_new_broker_that_was_not_named_is_given_nothing() -> None:
    plan = proposed(roomy(new_brokers=2), Operation(kind="add_brokers", brokers=(9,)))
    assert 10 not in {b for on in lists(plan.final_snapshot()).values() for b in on}


# --- remove brokers


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_removed_brokers_are_empty_and_nothing_else_moves(seed: int) -> None:
    snapshot = roomy(seed)
    plan = proposed(
        snapshot, Operation(kind="remove_brokers", brokers=(2, 5)), strategy=search_of(seed)
    )
    assert not unmet(plan) & {"OnlineReplicas", "EligibleLeaders"}
    end = lists(plan.final_snapshot())
    for name, before in lists(snapshot).items():
        assert not {2, 5} & set(end[name])
        assert set(before) - {2, 5} <= set(end[name])
        assert len(end[name]) == len(before)
    led = leaders(plan.final_snapshot())
    for name, leader in leaders(snapshot).items():
        assert led[name] == leader if leader not in (2, 5) else led[name] not in (2, 5)
    hard_goals_are_no_worse(plan)


def test_removing_all_but_too_few_brokers_is_reported_and_the_rest_is_planned() -> None:
    # three replicas, and two brokers left to hold them
    snapshot = by_hand([(0, 1, 2), (1, 2, 3), (0, 1, 3)], brokers=4)
    plan = proposed(snapshot, Operation(kind="remove_brokers", brokers=(2, 3)))
    (duty,) = [u for u in plan.unmet if u.goal == "OnlineReplicas"]
    assert duty.proven
    assert duty.hard
    assert duty.brokers_to_add == 1
    left = sum(bool({2, 3} & {b}) for on in lists(plan.final_snapshot()).values() for b in on)
    assert left == 3  # of four replicas there, the only one that has another home has left


@pytest.mark.parametrize(("seed", "partitions", "utilization"), [(14, 79, 0.597), (42, 76, 0.58)])
def test_a_broker_is_emptied_where_there_is_room_only_if_the_largest_leave_first(
    seed: int, partitions: int, utilization: float
) -> None:
    s = synthetic_snapshot(
        brokers=5,
        partitions=partitions,
        racks=5,
        replication_factor=2,
        utilization=utilization,
        skew=1.0,
        seed=seed,
    )
    goals = [ResourceCapacity(resource="disk", threshold=0.8, tier=0)]
    met: list[int] = []
    plan = Balancer(goals).propose(
        s,
        Operation(kind="remove_brokers", brokers=(1,)),
        progress=lambda phase, best, *_: None if phase == "order" else met.append(best),
    )
    assert plan.verdict is not None
    assert plan.verdict.fulfilled
    assert met == sorted(met)
    report = check_plan(s, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]


def test_a_removed_broker_may_be_dead_already() -> None:
    snapshot = by_hand([(0, 1), (1, 2), (2, 0)], brokers=4, states={2: "dead"})
    plan = proposed(snapshot, Operation(kind="remove_brokers", brokers=(2,)))
    assert 2 not in {b for on in lists(plan.final_snapshot()).values() for b in on}


@pytest.mark.parametrize(("kind", "dead"), [("remove_brokers", "broker"), ("right_size", "disk")])
@pytest.mark.parametrize("more", [-3, 3])
def test_a_limit_is_spent_on_the_brokers_that_are_named_before_others(
    kind: str, dead: str, more: int
) -> None:
    whole = roomy(disks_per_broker=2 if dead == "disk" else 0)
    broken = BrokerState.DEAD if dead == "broker" else BrokerState.ALIVE
    state = np.where(np.arange(10) == 5, broken, whole.broker_state)
    alive = ~(whole.disk_broker == 5) | (dead == "broker") | (np.arange(whole.n_disks) % 2 > 0)
    snapshot = replace(whole, broker_state=state, disk_alive=alive)
    held = int(np.sum(snapshot.replica_broker == 3))
    operation = Operation(kind=kind, brokers=tuple(snapshot.broker_ids[3:4].tolist()))
    plan = proposed(snapshot, operation, moves=held + more)
    sources = [a.source for a in plan.actions if a.kind == "move"]
    assert sources.count(operation.brokers[0]) == held + min(more, 0)
    assert plan.verdict is not None
    assert plan.verdict.fulfilled is (more >= 0)
    document = plan.document()
    assert check_plan(snapshot, document).ok
    assert check_plan(
        snapshot, document.model_copy(update={"goals": document.goals[1:]})
    ).mismatches


# --- demote brokers


@examples(3)
@given(seeds)
def test_demoted_brokers_lead_nothing_and_no_replica_moves(seed: int) -> None:
    snapshot = roomy(seed)
    plan = proposed(snapshot, Operation(kind="demote_brokers", brokers=(1, 4)))
    assert {a.kind for a in plan.actions} <= {"leadership"}
    assert not {1, 4} & set(leaders(plan.final_snapshot()).values())
    before, after = lists(snapshot), lists(plan.final_snapshot())
    for name in before:
        assert sorted(before[name]) == sorted(after[name])


def test_demoted_brokers_come_last_in_preference_lists() -> None:
    plan = proposed(roomy(), Operation(kind="demote_brokers", brokers=(1,)))
    for on in lists(plan.final_snapshot()).values():
        assert 1 not in on[:-1]


def test_a_demoted_broker_keeps_a_partition_that_nobody_else_holds() -> None:
    snapshot = by_hand([(0,), (0, 1)], brokers=2)
    plan = proposed(snapshot, Operation(kind="demote_brokers", brokers=(0,)))
    assert leaders(plan.final_snapshot()) == {("t", 0): 0, ("t", 1): 1}
    assert "EligibleLeaders" in unmet(plan)


# --- fix offline replicas


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_replicas_of_dead_brokers_get_a_new_home_and_nothing_else_moves(seed: int) -> None:
    snapshot = roomy(seed, dead_brokers=2)
    dead = set(snapshot.broker_ids[snapshot.broker_state == BrokerState.DEAD].tolist())
    plan = proposed(snapshot, Operation(kind="fix_offline_replicas"), strategy=search_of(seed))
    assert "OnlineReplicas" not in unmet(plan)
    end = lists(plan.final_snapshot())
    for name, before in lists(snapshot).items():
        assert not dead & set(end[name])
        assert set(before) - dead <= set(end[name])
    assert {a.source for a in plan.actions if a.kind == "move"} <= dead
    assert not dead & {a.destination for a in plan.actions}


def jbod(seed: int = 0, **changes: Any) -> Snapshot:
    return roomy(seed, disks_per_broker=3, **changes)


def with_dead_disk(snapshot: Snapshot, disk: int) -> Snapshot:
    alive = snapshot.disk_alive.copy()
    alive[disk] = False
    state = snapshot.broker_state.copy()
    state[snapshot.disk_broker[disk]] = BrokerState.BAD_DISKS
    return replace(snapshot, disk_alive=alive, broker_state=state)


@pytest.mark.slow
@examples(3)
@given(seeds, st.integers(0, 29))
def test_replicas_of_a_dead_disk_leave_it_and_nothing_else_moves(seed: int, disk: int) -> None:
    snapshot = with_dead_disk(jbod(seed), disk)
    broker = int(snapshot.broker_ids[snapshot.disk_broker[disk]])
    path = snapshot.disk_path[disk]
    plan = proposed(snapshot, Operation(kind="fix_offline_replicas"))
    assert "OnlineReplicas" not in unmet(plan)
    before, after = log_dirs(snapshot), log_dirs(plan.final_snapshot())
    for (name, on), where in after.items():
        assert (on, where) != (broker, path)
        if (name, on) in before and (on, before[name, on]) != (broker, path):
            assert before[name, on] == where
    stay = {key for key, where in before.items() if (key[1], where) != (broker, path)}
    assert stay <= after.keys()


def test_a_lost_partition_is_named() -> None:
    snapshot = by_hand([(0, 1), (1, 2)], brokers=4, states={0: "dead", 1: "dead"})
    plan = proposed(snapshot, Operation(kind="fix_offline_replicas"))
    proof = [u for u in plan.unmet if u.proven and "t-0" in u.reason]
    assert proof, plan.unmet
    assert "dead" in proof[0].reason
    # its neighbour is helped all the same
    assert not {0, 1} & set(lists(plan.final_snapshot())["t", 1])


def test_what_is_lost_is_given_no_further_replica() -> None:
    snapshot = by_hand([(0,), (1,)], brokers=4, states={0: "dead"})
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation)
    assert {(a.kind, a.partition) for a in plan.actions} == {("add", 1)}
    (short,) = [u for u in plan.unmet if u.goal == "ReplicationFactor"]
    assert short.proven
    assert "t-0" in short.reason


def test_the_last_living_replica_is_not_removed() -> None:
    snapshot = by_hand([(0, 1, 2)], brokers=4, states={0: "dead", 2: "dead"})
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 1})
    plan = proposed(snapshot, operation)
    assert 1 in lists(plan.final_snapshot())["t", 0]
    (short,) = [u for u in plan.unmet if u.goal == "ReplicationFactor"]
    assert "last living replica" in short.reason
    assert "plan again" in short.remedy


def test_a_broker_without_a_living_disk_is_emptied_and_given_nothing() -> None:
    disks = {"/a": 1000.0}
    snapshot = by_hand(
        [(0, 1), (1, 2), (2, 0)],
        brokers=4,
        disks=disks,
        dead_disks={1: "/a"},
        log_dirs=[("/a", "/a")] * 3,
    )
    plan = proposed(snapshot, Operation())
    assert 1 not in {b for on in lists(plan.final_snapshot()).values() for b in on}
    assert "OnlineReplicas" not in unmet(plan)


def test_a_rebalance_leaves_no_replica_on_a_dead_broker_either() -> None:
    plan = proposed(roomy(dead_brokers=1), Operation())
    assert "OnlineReplicas" not in unmet(plan)


# --- change the replication factor


@examples(3)
@given(seeds, st.integers(1, 5))
def test_partitions_end_with_the_replicas_asked_for(seed: int, factor: int) -> None:
    snapshot = roomy(seed)
    operation = Operation(
        kind="change_replication_factor", replication_factor={r"topic-[03]": factor}
    )
    plan = proposed(snapshot, operation)
    end, lead = lists(plan.final_snapshot()), leaders(plan.final_snapshot())
    for name, before in lists(snapshot).items():
        if name[0] in ("topic-0", "topic-3"):
            assert len(end[name]) == factor
            kept = set(before) & set(end[name])
            assert len(kept) == min(factor, len(before))
            assert lead[name] in end[name]
        else:
            assert sorted(end[name]) == sorted(before)
    kinds = {a.kind for a in plan.actions} - {"leadership"}
    assert kinds <= ({"add"} if factor > 3 else {"remove"})
    hard_goals_are_no_worse(plan)


def test_more_replicas_go_to_racks_that_have_none() -> None:
    snapshot = by_hand([(0,), (1,), (2,)], brokers=6, racks=(0, 0, 1, 1, 2, 2))
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 3})
    end = proposed(snapshot, operation).final_snapshot()
    for on in lists(end).values():
        assert len({b // 2 for b in on}) == 3


def test_fewer_replicas_leave_the_crowded_rack_and_keep_the_leader() -> None:
    snapshot = by_hand([(0, 1, 2), (2, 3, 0)], brokers=4, racks=(0, 0, 1, 1))
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation)
    assert lists(plan.final_snapshot()) == {("t", 0): [0, 2], ("t", 1): [2, 0]}
    assert plan.summary.replicas_removed == 2
    assert plan.summary.cost == 0


def test_no_replica_is_added_over_a_capacity_and_the_rest_is_reported() -> None:
    # three brokers with room for one more replica of 300 each; six are asked for
    snapshot = by_hand([(0,), (1,), (2,)] * 2, brokers=3, load=[300.0] * 6)
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation, {"goals": ["ReplicaDistribution"]})
    assert plan.summary.replicas_added == 3
    assert (plan.final_snapshot().broker_load() <= 1000).all()
    (short,) = [u for u in plan.unmet if u.hard]
    assert short.goal == "ReplicationFactor"
    assert not short.proven
    assert "the capacity of disk" in short.reason
    assert "add brokers" in short.remedy


def test_no_replica_is_added_to_a_full_disk() -> None:
    snapshot = by_hand(
        [(0,), (0,), (1,)],
        brokers=2,
        load=[90.0, 60.0, 30.0],
        disks={"/a": 100.0, "/b": 100.0},
        log_dirs=[("/a",), ("/b",), ("/a",)],
    )
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation, {"goals": ["ReplicaDistribution"]})
    end = plan.final_snapshot()
    held = np.bincount(end.replica_disk, end.follower_load[end.replica_partition, 0], 4)
    assert (held <= 100).all()
    assert plan.summary.replicas_added == 3


def test_a_new_replica_that_ends_elsewhere_leads_only_where_it_may() -> None:
    # the demoted broker 0 should hand over to a new replica; only broker 2, demoted, has room
    snapshot = by_hand(
        [(0,), (1,), (3,)],
        brokers=4,
        load=[300.0, 900.0, 900.0],
        states={0: "demoted", 2: "demoted"},
    )
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation, {"goals": ["ReplicaDistribution"]})
    assert ("add", 2) in {(a.kind, a.destination) for a in plan.actions}
    assert not any(a.leader for a in plan.actions)
    assert "EligibleLeaders" in unmet(plan)


def test_the_leader_is_never_what_is_removed() -> None:
    # a leader on a dead broker moves; the replica that goes is another one
    snapshot = by_hand([(0, 1, 2)] * 3, brokers=5, states={0: "dead"})
    operation = Operation(kind="change_replication_factor", replication_factor={"t": 2})
    plan = proposed(snapshot, operation)
    removed = [a for a in plan.actions if a.kind == "remove"]
    assert len(removed) == 3
    assert not any(a.source == 0 for a in removed)


def test_new_replicas_of_jbod_brokers_have_a_living_disk() -> None:
    snapshot = with_dead_disk(jbod(), 0)
    operation = Operation(kind="change_replication_factor", replication_factor={"topic-0": 4})
    end = proposed(snapshot, operation).final_snapshot()
    before = log_dirs(snapshot)
    for (name, on), where in log_dirs(end).items():
        if (name, on) not in before:
            assert where is not None
            assert (on, where) != (1, snapshot.disk_path[0])


# --- limits that any operation may carry


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_excluded_topics_stay_where_they_are(seed: int) -> None:
    snapshot = roomy(seed)
    plan = proposed(snapshot, Operation(excluded_topics=("topic-[0-2]", "topic-5")))
    assert {a.topic for a in plan.actions} <= {"topic-3", "topic-4"}
    assert len(plan)


def test_excluded_topics_are_whole_names() -> None:
    plan = proposed(roomy(), Operation(excluded_topics=("topic",), allow_unmatched=True))
    assert len(plan)


def test_excluded_topics_leave_dead_brokers_all_the_same() -> None:
    plan = proposed(roomy(dead_brokers=1), Operation(excluded_topics=(".*",)))
    assert "OnlineReplicas" not in unmet(plan)
    dead = plan.snapshot.broker_ids[plan.snapshot.broker_state == BrokerState.DEAD].tolist()
    assert {a.source for a in plan.actions if a.kind == "move"} <= set(dead)


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_excluded_brokers_are_given_nothing(seed: int) -> None:
    operation = Operation(
        excluded_brokers_for_replicas=(3,), excluded_brokers_for_leadership=(6, 7)
    )
    snapshot = roomy(seed)
    plan = proposed(snapshot, operation)
    assert 3 not in {a.destination for a in plan.actions if a.kind == "move"}
    led = [a for a in plan.actions if a.kind == "leadership" or a.leader]
    assert not {6, 7} & {a.destination for a in led}
    before = leaders(snapshot)
    for name, leader in leaders(plan.final_snapshot()).items():
        assert leader not in (6, 7) or before[name] == leader


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_destinations_are_the_only_ones(seed: int) -> None:
    plan = proposed(roomy(seed), Operation(destinations=(1, 2, 3)))
    assert {a.destination for a in plan.actions if a.kind == "move"} <= {1, 2, 3}


def test_destinations_hold_for_removal_too() -> None:
    operation = Operation(kind="remove_brokers", brokers=(4,), destinations=(1, 2, 3, 5, 7))
    plan = proposed(roomy(), operation)
    assert {a.destination for a in plan.actions if a.kind == "move"} <= {1, 2, 3, 5, 7}


def test_no_leadership_passes_over_a_broker_that_may_not_lead() -> None:
    operation = Operation(
        excluded_brokers_for_replicas=(3,), excluded_brokers_for_leadership=(6, 7)
    )
    plan = proposed(roomy(842, partitions=120), operation, strategy="goals")
    assert not {6, 7} & {a.destination for a in plan.actions if a.leader}


# --- budgets


@pytest.mark.slow
@examples(3)
@given(seeds, st.floats(0, 1))
def test_a_budget_of_bytes_is_kept(seed: int, share: float) -> None:
    snapshot = roomy(seed)
    free = proposed(snapshot, Operation()).summary.cost
    plan = proposed(snapshot, Operation(), bytes=share * free)
    assert plan.summary.cost <= share * free
    assert plan.summary.cost == pytest.approx(sum(a.cost for a in plan.actions))
    hard_goals_are_no_worse(plan)


def test_a_budget_that_is_used_up_is_reported_and_the_reason_for_what_is_unmet() -> None:
    plan = proposed(roomy(), Operation(), moves=1)
    assert plan.summary.exhausted is not None
    assert plan.unmet
    assert all(u.proven or "the limit on moves was reached" in u.reason for u in plan.unmet)
    assert proposed(roomy(), Operation(), moves=100_000).summary.exhausted is None


@pytest.mark.parametrize(
    "operation",
    [
        Operation(),
        Operation(kind="remove_brokers", brokers=(2,)),
        Operation(kind="change_replication_factor", replication_factor={"topic-0": 4}),
    ],
    ids=lambda o: o.kind,
)
def test_a_tiny_budget_of_seconds_still_gives_a_plan(operation: Operation) -> None:
    plan = proposed(roomy(), operation, seconds=1e-9)
    assert plan.summary.exhausted == "seconds"
    hard_goals_are_no_worse(plan)


def test_a_budget_cuts_additions_too() -> None:
    operation = Operation(kind="change_replication_factor", replication_factor={"topic-0": 4})
    plan = proposed(roomy(), operation, moves=3)
    assert plan.summary.replicas_added == 3


# --- hard goals that cannot be met


def test_an_impossible_hard_goal_is_reported_and_what_can_be_done_is_planned() -> None:
    # 3 replicas in 2 racks; and all partitions on brokers 0 to 2 of 4
    snapshot = by_hand([(0, 1, 2)] * 8, brokers=4, racks=(0, 0, 1, 1))
    plan = proposed(snapshot, Operation())
    (rack,) = [u for u in plan.unmet if u.goal == "RackAwareness"]
    assert rack.proven
    assert rack.racks_to_add == 1
    assert rack.reason
    assert rack.remedy
    count = np.bincount(plan.final_snapshot().replica_broker, minlength=4)
    assert count.tolist() == [6, 6, 6, 6]


def test_capacity_that_is_short_everywhere_names_how_many_brokers_lack() -> None:
    snapshot = by_hand([(0,), (1,)] * 6, brokers=2, load=[100.0] * 12, capacity=500.0)
    plan = proposed(snapshot, Operation())
    (room,) = [u for u in plan.unmet if u.hard]
    assert room.goal == "ResourceCapacity[disk]"
    assert room.proven
    assert room.brokers_to_add == 1  # 1200 in all, 800 within limits, 400 a broker


def test_a_partition_larger_than_any_broker_is_named() -> None:
    snapshot = by_hand([(0,), (1,)], brokers=2, load=[900.0, 10.0])
    plan = proposed(snapshot, Operation())
    (large,) = [u for u in plan.unmet if u.hard]
    assert large.proven
    assert "t-0" in large.reason


@pytest.mark.slow
@examples(3)
@given(seeds)
def test_brokers_over_capacity_are_relieved_where_there_is_room(seed: int) -> None:
    snapshot = roomy(seed, utilization=0.45, skew=2.5, rack_violations=0.0)
    plan = proposed(snapshot, Operation())
    before, after = snapshot.broker_load(), plan.final_snapshot().broker_load()
    full = snapshot.capacity
    assert (after <= np.maximum(before, full) + 1e-6 * full).all()
    hard_goals_are_no_worse(plan)


def test_a_broken_capacity_is_mended() -> None:
    snapshot = by_hand([(0,)] * 10 + [(1,), (2,)], brokers=3, load=[100.0] * 12)
    plan = proposed(snapshot, Operation())
    assert (plan.final_snapshot().broker_load() <= 800).all()
    assert plan.ok


def test_a_duty_that_is_vetoed_is_reported_with_who_vetoes_it() -> None:
    # broker 1 holds both of the replicas that could lead, and has no room for either's reads
    snapshot = by_hand([(0, 1), (0, 1)], brokers=2, resource="network_out", load=[500.0] * 2)
    follow = np.full_like(snapshot.follower_load, 450.0)
    snapshot = replace(snapshot, follower_load=follow, capacity=np.array([[2000.0], [900.0]]))
    plan = proposed(snapshot, Operation(kind="demote_brokers", brokers=(0,)))
    (duty,) = [u for u in plan.unmet if u.goal == "EligibleLeaders"]
    assert re.search(r"stopped: .* by ResourceCapacity\[network_out\]", duty.reason)
    assert duty.remedy


def test_what_cannot_leave_a_removed_broker_is_reported_with_reason_and_cure() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=90, racks=3)
    plan = proposed(snapshot, Operation(kind="remove_brokers", brokers=(2,)))
    (duty,) = [u for u in plan.unmet if u.goal == "OnlineReplicas"]
    assert "RackAwareness" in duty.reason
    assert duty.remedy


def test_the_limit_that_bound_a_plan_is_named_and_no_other() -> None:
    plan = proposed(roomy(), Operation(), moves=500, moves_per_broker=1)
    assert plan.summary.limited_moves < 500
    assert plan.summary.exhausted == "budget"
    open_ = [u.reason for u in plan.unmet if not u.proven]
    assert open_
    assert all("limited by moves per broker; " in reason for reason in open_)
    assert not check_plan(roomy(), plan.document()).violations


# --- the order of steps


def swap_of_full_brokers(
    third: float,
    threshold: float,
    planning: PlanningParameters | None = None,
    deadline: Deadline = NEVER,
) -> Steps:
    """Topics a and b are each on the one of two full brokers where the other belongs."""
    snapshot = by_hand(
        [(0,), (1,), (2,)],
        brokers=3,
        topics=["a", "b", "c"],
        load=[700.0, 700.0, third],
        sets={0: "east", 1: "west", 2: "east"},
    )
    goals = load_goals(
        {
            "goals": [
                {"goal": "ResourceCapacity", "resource": "disk", "threshold": threshold},
                {"goal": "BrokerSetAwareness", "sets": {"a": "west", "b": "east"}, "hard": False},
            ]
        }
    )
    resolved = resolve(snapshot, Operation())
    prepared = [g.prepared(resolved.cluster) for g in [*goals, *capacity_guards(snapshot, goals)]]
    final = resolved.start.copy()
    final.replica_broker[:2] = [1, 0]
    scorer = Scorer(Cluster(resolved.start.copy()), prepared)
    steps = steps_between(resolved.start, final)
    return order(scorer, steps, resolved.rules, parameters=planning, deadline=deadline)


def test_brokers_that_block_each_other_are_unlocked_by_a_detour() -> None:
    steps = swap_of_full_brokers(third=50.0, threshold=0.8)
    assert steps.left_out == 0
    assert len(steps.batch) == 3
    assert steps.batch.target.tolist()[0] == 2


@pytest.mark.parametrize("name", ["detour_rounds", "detours_per_round", "detour_brokers"])
def test_without_detours_such_brokers_stay_blocked(name: str) -> None:
    none = PlanningParameters.model_validate({name: 0, "explored_orders": 0})
    assert swap_of_full_brokers(third=50.0, threshold=0.8, planning=none).left_out == 2


def test_no_detour_is_tried_once_the_time_is_over() -> None:
    steps = swap_of_full_brokers(third=50.0, threshold=0.8, deadline=Deadline(at=0.0))
    assert steps.left_out == 2
    assert len(steps.batch) == 0


def test_without_room_for_a_detour_nothing_is_begun() -> None:
    steps = swap_of_full_brokers(third=500.0, threshold=0.8)
    assert steps.left_out == 2
    assert len(steps.batch) == 0


# --- how far from the best possible


def test_what_is_left_on_dead_brokers_is_not_asked_of_the_living() -> None:
    snapshot = by_hand([(0, 1), (1, 2), (2, 0)], brokers=3, states={0: "dead"})
    count = proposed(snapshot, Operation(), moves=0).columns["replica_count"]
    assert count.worst_ratio_bound == pytest.approx(2 / 3)
    assert count.after.worst_ratio == pytest.approx(2 / 3)


def test_counts_are_whole_numbers() -> None:
    count = proposed(by_hand([(0,)] * 4, brokers=3), Operation()).columns["replica_count"]
    assert count.worst_ratio_bound == pytest.approx(1.5)
    assert count.after.worst_ratio == pytest.approx(1.5)


def test_of_more_large_replicas_than_brokers_two_lie_together() -> None:
    snapshot = by_hand([(0,), (1,), (2,), (0,)], brokers=3, load=[90.0, 80.0, 70.0, 60.0])
    disk = proposed(snapshot, Operation()).columns["disk"]
    assert disk.worst_ratio_bound == pytest.approx(1.3)


def test_leaders_that_may_not_change_are_counted_where_they_are() -> None:
    snapshot = by_hand([(0, 1)] * 4 + [(1, 0)], brokers=3)
    plan = proposed(snapshot, Operation(kind="demote_brokers", brokers=(2,)))
    assert len(plan) == 0
    leaders_ = plan.columns["leader_count"]
    assert leaders_.worst_ratio_bound == pytest.approx(leaders_.after.worst_ratio)


def test_the_bound_on_bytes_asks_nothing_of_brokers_that_may_not_lead() -> None:
    snapshot = by_hand([(0, 1), (1, 0)], brokers=2)
    operation = Operation(excluded_brokers_for_leadership=(0, 1))
    plan = proposed(snapshot, operation)
    assert np.isfinite(plan.summary.cost_bound)
    assert plan.summary.cost_bound <= plan.summary.cost


# --- goals as configured


def test_hardness_is_a_matter_of_configuration() -> None:
    # only leadership transfers even out the leaders, and a hard PreferredLeader vetoes them
    snapshot = by_hand([(0, 1)] * 6, brokers=2)
    leaders_even = {"goal": "LeaderReplicaDistribution"}
    soft = {"goals": [leaders_even, {"goal": "PreferredLeader"}]}
    hard = {"goals": [leaders_even, {"goal": "PreferredLeader", "hard": True}]}
    assert "LeaderReplicaDistribution" not in unmet(proposed(snapshot, Operation(), soft))
    plan = proposed(snapshot, Operation(), hard)
    assert len(plan) == 0
    assert "LeaderReplicaDistribution" in unmet(plan)


def test_a_hard_goal_may_be_made_soft() -> None:
    snapshot = by_hand([(0, 2)] * 6, brokers=3, racks=(0, 0, 1))
    counts = {"goal": "ReplicaDistribution", "tier": 0}
    strict = {"goals": [counts, {"goal": "RackAwareness", "tier": 1}]}
    loose = {"goals": [counts, {"goal": "RackAwareness", "tier": 1, "hard": False}]}
    assert "RackAwareness" not in unmet(proposed(snapshot, Operation(), strict))
    assert "ReplicaDistribution" not in unmet(proposed(snapshot, Operation(), loose))


def test_a_goal_of_ones_own_vetoes_when_it_is_hard() -> None:
    class NothingOnOne(Goal):
        """Broker 1 is to stay empty."""

        def score(self, state: Any) -> Any:
            return np.where(state.broker == 1, 1 / (1 + state.replica_count), 1.0)

    snapshot = by_hand([(0,)] * 9, brokers=3)
    free = proposed(snapshot, Operation(), [ReplicaDistribution(tier=0), NothingOnOne(tier=1)])
    assert [1] in lists(free.final_snapshot()).values()
    kept = proposed(
        snapshot, Operation(), [ReplicaDistribution(tier=0), NothingOnOne(tier=1, hard=True)]
    )
    assert [1] not in lists(kept.final_snapshot()).values()
    assert [2] in lists(kept.final_snapshot()).values()


# --- disks of one broker


def test_disks_of_a_broker_are_filled_alike_when_that_is_a_goal() -> None:
    disks = {"/a": 1000.0, "/b": 1000.0}
    snapshot = by_hand([(0,)] * 8, brokers=1, load=[50.0] * 8, disks=disks, log_dirs=[("/a",)] * 8)
    plan = proposed(snapshot, Operation(), {"goals": ["DiskUsageDistribution"]})
    assert plan.ok
    assert plan.summary.disk_moves == 4
    assert {(a.kind, a.source, a.destination) for a in plan.actions} == {("move_disk", 0, 0)}
    assert sorted(log_dirs(plan.final_snapshot()).values()) == ["/a"] * 4 + ["/b"] * 4  # type: ignore[type-var]


def test_a_disk_over_capacity_is_relieved_within_its_broker() -> None:
    disks = {"/a": 500.0, "/b": 500.0}
    snapshot = by_hand([(0,)] * 5, brokers=1, load=[100.0] * 5, disks=disks, log_dirs=[("/a",)] * 5)
    plan = proposed(snapshot, Operation(), {"goals": ["DiskCapacity"]})
    assert plan.ok
    assert 1 <= plan.summary.disk_moves == plan.summary.cost / 100 <= 4


def test_replicas_that_move_to_a_jbod_broker_land_on_a_living_disk() -> None:
    snapshot = with_dead_disk(jbod(), 4)
    plan = proposed(snapshot, Operation())
    landed = [(a.destination, a.destination_disk) for a in plan.actions if a.kind == "move"]
    assert landed
    assert all(disk is not None for _, disk in landed)
    dead = (int(snapshot.broker_ids[snapshot.disk_broker[4]]), snapshot.disk_path[4])
    assert dead not in landed


@examples(3)
@given(seeds)
def test_disk_goals_hold_beside_the_others(seed: int) -> None:
    goals = {
        "goals": [
            "RackAwareness",
            "DiskCapacity",
            {"goal": "UsageDistribution", "resource": "disk"},
            "DiskUsageDistribution",
        ]
    }
    plan = proposed(jbod(seed), Operation(), goals)
    # now and then moves between brokers even out the disks as well
    assert plan.summary.disk_moves + plan.summary.replica_moves > 0
    hard_goals_are_no_worse(plan)


def test_disks_are_evened_out_by_moves_within_their_broker() -> None:
    plan = proposed(jbod(0), Operation(), {"goals": ["DiskCapacity", "DiskUsageDistribution"]})
    assert plan.summary.disk_moves > 0
    assert plan.summary.replica_moves == 0


# --- broker sets


def test_topics_stay_in_their_broker_set_and_balance_within_it() -> None:
    sets = {0: "east", 1: "east", 2: "east", 3: "west", 4: "west", 5: "west"}
    replicas = [(0, 1)] * 9 + [(3, 4)] * 3
    snapshot = by_hand(
        replicas, brokers=6, topics=["e"] * 9 + ["w"] * 3, sets=sets, racks=(0, 1, 2) * 2
    )
    plan = proposed(snapshot, Operation())
    end = lists(plan.final_snapshot())
    assert all(set(on) <= {0, 1, 2} for (t, _), on in end.items() if t == "e")
    assert all(set(on) <= {3, 4, 5} for (t, _), on in end.items() if t == "w")
    count = np.bincount(plan.final_snapshot().replica_broker, minlength=6).tolist()
    assert count == [6, 6, 6, 2, 2, 2]


def test_a_topic_that_lies_across_sets_is_brought_home() -> None:
    sets = {0: "east", 1: "east", 2: "west", 3: "west"}
    snapshot = by_hand([(0, 1), (1, 2), (0, 3)], brokers=4, sets=sets)
    plan = proposed(snapshot, Operation())
    assert all(set(on) <= {0, 1} for on in lists(plan.final_snapshot()).values())


# --- errors


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (Operation(kind="remove_brokers", brokers=(77,)), "77"),
        (Operation(kind="add_brokers"), "at least one broker"),
        (Operation(kind="remove_brokers"), "at least one broker"),
        (Operation(kind="demote_brokers"), "at least one broker"),
        (Operation(brokers=(1,)), "takes no brokers"),
        (Operation(kind="fix_offline_replicas", brokers=(1,)), "takes no brokers"),
        (Operation(excluded_topics=("topic-[",)), "topic-\\["),
        (Operation(excluded_brokers_for_replicas=(78,)), "78"),
        (Operation(excluded_brokers_for_leadership=(79,)), "79"),
        (Operation(destinations=(80,)), "80"),
        (Operation(replication_factor={"topic-0": 3}), "change_replication_factor"),
        (Operation(kind="change_replication_factor"), "replication_factor"),
        (
            Operation(kind="change_replication_factor", replication_factor={"topic-0": 0}),
            "0 found",
        ),
        (
            Operation(kind="change_replication_factor", replication_factor={"topic-0": 11}),
            "11 .*topic-0.* 10 brokers",
        ),
        (
            Operation(kind="change_replication_factor", replication_factor={"nothing": 3}),
            "nothing",
        ),
        (Operation(kind="change_replication_factor", replication_factor={"(": 3}), "\\("),
    ],
    ids=str,
)
def test_a_wrong_operation_is_one_sentence(operation: Operation, says: str) -> None:
    with pytest.raises((OperationError, SnapshotError), match=says) as error:
        Balancer().propose(roomy(), operation)
    assert isinstance(error.value, InputError)
    assert "\n" not in str(error.value)


def test_adding_a_dead_broker_is_an_error() -> None:
    snapshot = by_hand([(0, 1)], brokers=3, states={2: "dead"})
    with pytest.raises(OperationError, match="broker 2 is dead"):
        Balancer().propose(snapshot, Operation(kind="add_brokers", brokers=(2,)))


def test_unknown_fields_of_an_operation_are_errors() -> None:
    with pytest.raises(ValidationError, match="brokers_to_go"):
        Operation.model_validate({"brokers_to_go": [1]})


@pytest.mark.parametrize("limit", [{"moves": -1}, {"bytes": float("nan")}, {"seconds": 0}])
def test_budgets_are_checked(limit: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate(limit)


def test_the_snapshot_is_never_changed() -> None:
    snapshot, again = roomy(3), roomy(3)
    proposed(snapshot, Operation())
    assert snapshot == again


def test_the_bound_on_bytes_is_what_must_leave_the_full_broker() -> None:
    # 100 on the first of two brokers; at most 1.1 x 50 may stay, the other is content
    snapshot = by_hand([(0,)] * 10, brokers=2, load=[10.0] * 10)
    even = {"goal": "UsageDistribution", "resource": "disk", "threshold": 1.1, "margin": 1.0}
    plan = Balancer({"goals": [even | {"upper_only": True}]}).propose(snapshot)
    assert plan.ok
    assert plan.summary.cost == 50.0
    assert plan.summary.cost_bound == pytest.approx(45.0)


def test_nothing_goes_to_a_dead_disk_and_no_leader_to_where_nobody_may_lead() -> None:
    snapshot = by_hand(
        [(0, 1), (1, 2), (2, 0)],
        brokers=4,
        states={0: "dead", 3: "demoted"},
        disks={"/a": 500.0, "/b": 500.0},
        dead_disks={1: "/b"},
        log_dirs=[("/a", "/a"), ("/a", "/a"), ("/a", "/a")],
    )
    resolved = resolve(snapshot, Operation())
    disk_of_1, disk_of_3 = snapshot.disk_broker.searchsorted([1, 3]).tolist()
    dead = next(d for d in (disk_of_1, disk_of_1 + 1) if not snapshot.disk_alive[d])
    # a follower to the dead disk of 1; the leader on dead 0, and its follower on 1, to demoted 3
    rows = np.array([[2, 0, 1, dead], [0, 0, 3, disk_of_3], [0, 1, 3, disk_of_3]])
    batch = Batch.of(MOVE, *rows.T)
    assert resolved.rules.legal(resolved.start, batch).tolist() == [False, False, True]


def test_a_replica_on_a_dead_disk_goes_to_another_broker_and_not_to_another_disk() -> None:
    # Kafka copies from the broker's own log only while the log's disk is alive
    snapshot = by_hand(
        [(0, 1), (1, 2), (2, 0)],
        brokers=4,
        disks={"/a": 500.0, "/b": 500.0},
        dead_disks={1: "/b"},
        log_dirs=[("/a", "/b"), ("/b", "/a"), ("/a", "/a")],
    )
    plan = proposed(snapshot, Operation(kind="fix_offline_replicas"))
    assert "OnlineReplicas" not in unmet(plan)
    assert {a.kind for a in plan.actions} <= {"move", "leadership"}
    moves = [a for a in plan.actions if a.kind == "move"]
    assert {(a.source, a.destination) for a in moves} <= {(1, 2), (1, 3), (1, 0)}
    assert len(moves) == 2


def test_a_replica_that_is_removed_from_a_dead_disk_is_no_longer_offline() -> None:
    snapshot = by_hand(
        [(0, 1), (2, 1), (2, 1)],
        brokers=4,
        topics=["a", "a", "b"],
        disks={"/a": 500.0, "/b": 500.0},
        dead_disks={1: "/b"},
        log_dirs=[("/a", "/b")] * 3,
    )
    fewer = Operation(kind="change_replication_factor", replication_factor={"a": 1})
    plan = Balancer("default", budget=Budget(moves=0)).propose(snapshot, fewer)
    assert [a.kind for a in plan.actions if a.kind != "leadership"] == ["remove", "remove"]
    (online,) = [g for g in plan.goal_results if g.goal == "OnlineReplicas"]
    assert (online.unmet_cells_before, online.unmet_cells_after) == (3, 1)


@pytest.mark.parametrize("seed", [0, *long(1, 2, 3)])
def test_a_higher_replication_factor_stays_within_the_broker_set_of_its_topic(seed: int) -> None:
    s = synthetic_snapshot(
        brokers=6, partitions=24, replication_factor=1, racks=3, topics=3, rack_violations=0,
        utilization=0.05, seed=seed,
    )  # fmt: skip
    # A topic in set A, whose brokers hold more than those of B, which lie in the same racks.
    s = replace(
        s,
        broker_rack=np.array([0, 1, 2, 0, 1, 2]),
        broker_sets=("A", "B"),
        broker_set=np.array([0, 0, 0, 1, 1, 1]),
        replica_broker=np.where(s.partition_topic == 2, 3, 0) + np.arange(s.n_partitions) % 3,
    )
    operation = Operation(kind="change_replication_factor", replication_factor={"topic-0": 3})
    plan = proposed(s, operation)
    report = check_plan(s, plan.document())
    assert report.ok, [*report.violations, *report.mismatches]
    sets = next(g for g in plan.goal_results if g.goal == "BrokerSetAwareness")
    assert (sets.met_before, sets.met_after) == (True, True)
    f = plan.final_snapshot()
    grown = f.replica_broker[f.partition_topic[f.replica_partition] == 0]
    assert len(grown) == 3 * (s.partition_topic == 0).sum()
    assert set(f.broker_set[grown].tolist()) == {0}
