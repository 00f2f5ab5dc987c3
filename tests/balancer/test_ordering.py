"""The order of steps where brokers are full: refilled brokers, detours, exchanges in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from balancer_cases import (
    QUICK,
    assert_no_step_overfills,
    assert_sound,
    by_hand,
    examples,
    long,
    search_of,
)
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Operation
from balancer.planning.ordering import Steps, align, order, steps_between
from balancer.planning.parameters import PlanningParameters
from balancer.problem.capacity_guards import capacity_guards
from balancer.problem.resolution import resolve
from balancer.search.scorer import Scorer
from balancer.verification.checker import check_plan
from benchmarks.tight import GivenTarget, balanced, exchange
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import MOVE, Batch
from cluster_model.snapshot import BrokerState
from goals import Cluster, RackAwareness, ResourceCapacity, load_goals

seeds = st.integers(0, 10_000)
LIMITS = [{"goal": "ResourceCapacity", "resource": "disk", "threshold": 0.8}]


def ordered(
    snapshot: Snapshot,
    target: Sequence[Sequence[int]],
    goals: Sequence[dict[str, Any]] = LIMITS,
    planning: PlanningParameters | None = None,
    leaders: Sequence[int] | None = None,
    known: Sequence[tuple[int, int]] | None = None,
) -> Steps:
    """The steps from a snapshot to other brokers; slot 0 leads unless given."""
    loaded = load_goals({"goals": list(goals)})
    resolved = resolve(snapshot, Operation())
    start = resolved.start.stated()
    prepared = [g.prepared(resolved.cluster) for g in [*loaded, *capacity_guards(snapshot, loaded)]]
    final = start.copy()
    final.brokers[:] = target
    if leaders is not None:
        final.leader[:] = leaders
    final.invalidate_sums()
    align(start, final)
    scorer = Scorer(Cluster(start.copy()), prepared)
    batch = None
    if known is not None:
        partition, there = np.array(known).T
        batch = Batch.of(MOVE, partition, 0 * partition, there)
    targets = steps_between(start, final)
    return order(scorer, targets, resolved.rules, parameters=planning, known=batch)


def moved(steps: Steps) -> list[tuple[int, int]]:
    """Partition and destination of each step."""
    return list(zip(steps.batch.partition.tolist(), steps.batch.target.tolist(), strict=True))


# --- brokers above a limit at the start


def through_overfull(
    leaves: float, arrives: float, planning: PlanningParameters | None = None
) -> Steps:
    """Broker 0 holds 450 and what leaves; 800 are allowed. Another replica arrives."""
    load = [leaves, 450.0, arrives, 100.0]
    snapshot = by_hand([(0,), (0,), (1,), (2,)], brokers=3, load=load)
    return ordered(snapshot, [(2,), (0,), (0,), (2,)], planning=planning)


def test_a_broker_above_a_limit_is_filled_again_up_to_what_it_held() -> None:
    # 950 at first, then 450, then 850
    steps = through_overfull(leaves=500.0, arrives=400.0)
    assert steps.left_out == 0
    assert moved(steps) == [(0, 2), (2, 0)]


def test_unless_the_operator_forbids_it() -> None:
    steps = through_overfull(500.0, 400.0, PlanningParameters(refill=False))
    assert steps.left_out == 1
    assert moved(steps) == [(0, 2)]


def test_no_broker_is_filled_beyond_what_it_held() -> None:
    # 850 at first, and it would be 950
    steps = through_overfull(leaves=400.0, arrives=500.0)
    assert steps.left_out == 1
    assert moved(steps) == [(0, 2)]


# --- detours


def test_small_replicas_make_room_for_large_ones_and_return() -> None:
    # brokers 0 and 1 exchange 400; 800 are allowed, and broker 2 has room for 300
    load = [400.0, 100.0, 100.0, 100.0]
    snapshot = by_hand([(0,)] * 4 + [(1,)] * 4 + [(2,)], brokers=3, load=[*load, *load, 500.0])
    target = [(1,), (0,), (0,), (0,), (0,), (1,), (1,), (1,), (2,)]
    steps = ordered(snapshot, target)
    assert steps.left_out == 0
    assert moved(steps).count((0, 1)) == moved(steps).count((4, 0)) == 1
    assert sorted(steps.cost.tolist()) == [100.0] * 6 + [400.0] * 2


def test_leadership_makes_room_without_a_copy() -> None:
    # partitions 0 and 1 change places; nothing on brokers 0 and 1 has room on broker 2, but the
    # leadership of partition 2 has
    snapshot = by_hand(
        [(0,), (1,), (1, 2), (2,), (0,)],
        brokers=3,
        resource="network_out",
        load=[270.0, 300.0, 280.0, 310.0, 290.0],
    )
    follow = snapshot.follower_load.copy()
    follow[2] = 30.0
    snapshot = replace(snapshot, follower_load=follow)
    assert snapshot.broker_load()[:, 0].tolist() == [560.0, 580.0, 340.0]
    goals = [{"goal": "ResourceCapacity", "resource": "network_out", "threshold": 0.6}]
    steps = ordered(snapshot, [(1, -1), (0, -1), (1, 2), (2, -1), (0, -1)], goals)
    assert steps.left_out == 0
    assert moved(steps) == [(2, 2), (0, 1), (1, 0), (2, 1)]
    assert steps.cost.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_a_leader_repairs_its_rack_before_a_transfer_that_waits_for_room() -> None:
    # broker 1 has no room to lead partition 0 before partition 1 has left it, which helps nothing
    snapshot = by_hand(
        [(0, 1), (1,)], brokers=4, racks=[0, 0, 1, 1], resource="network_out", load=[300.0, 700.0]
    )
    snapshot = replace(snapshot, follower_load=0.0 * snapshot.follower_load)
    goals: list[dict[str, Any]] = [
        {"goal": "RackAwareness"},
        {"goal": "ResourceCapacity", "resource": "network_out", "threshold": 0.8},
    ]
    steps = ordered(snapshot, [(2, 1), (3, -1)], goals, leaders=[1, 0])
    assert steps.left_out == 0
    assert moved(steps) == [(0, 2), (1, 3), (0, 1)]
    assert steps.leads.tolist() == [True, True, True]


def test_a_detour_goes_where_there_is_room_for_it() -> None:
    snapshot = by_hand(
        [(0,), (1,), (2,), (3,)], brokers=4, load=[700.0, 600.0, 500.0, 100.0], capacity=1000.0
    )
    steps = ordered(snapshot, [(1,), (0,), (2,), (3,)])
    assert steps.left_out == 0
    assert moved(steps) == [(1, 3), (0, 1), (1, 0)]


def test_a_cycle_is_broken_at_its_cheapest_member() -> None:
    snapshot = by_hand(
        [(0,), (1,), (2,), (3,)], brokers=4, load=[700.0, 650.0, 600.0, 100.0], capacity=1000.0
    )
    steps = ordered(snapshot, [(1,), (2,), (0,), (3,)])
    assert steps.left_out == 0
    assert moved(steps) == [(2, 3), (1, 2), (0, 1), (2, 0)]


def test_what_makes_no_room_is_taken_back() -> None:
    # 1 has no room for 0, and only a part of what it holds has room elsewhere
    snapshot = by_hand(
        [(0,), (1,), (1,), (2,)], brokers=3, load=[700.0, 700.0, 50.0, 700.0], capacity=1000.0
    )
    steps = ordered(snapshot, [(1,), (0,), (1,), (2,)])
    assert steps.left_out == 2
    assert moved(steps) == []


# --- steps that are known


@pytest.mark.parametrize("more", [[], [(0, 1)]], ids=["safe", "with an unsafe one"])
def test_known_steps_are_taken_where_no_other_order_is_found(more: list[tuple[int, int]]) -> None:
    snapshot = by_hand([(0,), (1,), (2,), (3,)], brokers=4, load=[700.0, 600.0, 500.0, 100.0])
    target = [(1,), (0,), (2,), (3,)]
    alone = PlanningParameters(detour_rounds=0, explored_orders=0)
    assert ordered(snapshot, target, planning=alone).left_out == 2
    known = [(1, 3), (0, 1), (1, 0)]
    steps = ordered(snapshot, target, planning=alone, known=[*more, *known])
    assert steps.left_out == 0
    assert moved(steps) == known


def test_known_steps_that_lead_no_further_are_taken_back() -> None:
    snapshot = by_hand([(0,), (1,), (2,), (3,)], brokers=4, load=[700.0, 600.0, 500.0, 100.0])
    alone = PlanningParameters(detour_rounds=0, explored_orders=0)
    steps = ordered(snapshot, [(1,), (0,), (3,), (3,)], planning=alone, known=[(3, 2)])
    assert steps.left_out == 2
    assert moved(steps) == [(2, 3)]


# --- what is left


def test_what_stops_the_first_action_that_was_left_out_is_named() -> None:
    load = [7e11, 7e11, 5e10, 7e11]
    snapshot = by_hand([(0,), (1,), (1,), (2,)], brokers=3, load=load, capacity=1e12)
    steps = ordered(snapshot, [(1,), (0,), (1,), (2,)])
    assert steps.left_out == 2
    assert steps.blocked == (
        "t-1, broker 1 to 0: broker 0 would carry 1.4 TB, and ResourceCapacity[disk] allows 0.8 TB"
    )


def test_a_plan_says_so_and_the_checker_expects_it_only_then() -> None:
    snapshot = by_hand([(0,), (1,), (2,)], brokers=3, load=[700.0] * 3)
    target = np.array([[1], [0], [2]])
    plan = Balancer(load_goals({"goals": LIMITS}), strategy=GivenTarget(target)).propose(snapshot)
    assert plan.summary.left_out == 2
    assert "would carry 1.4 kB, and ResourceCapacity[disk] allows 0.8 kB" in plan.summary.blocked
    assert_sound(snapshot, plan)
    done = plan.summary.model_copy(update={"left_out": 0})
    forged = plan.document().model_copy(update={"summary": done, "digest": None})
    assert any("nothing was left out" in m.text for m in check_plan(snapshot, forged).mismatches)


# --- random clusters


@pytest.mark.slow
@examples(6)
@given(seeds)
def test_every_prefix_of_an_exchange_is_safe(seed: int) -> None:
    case = exchange(seed)
    if case is None:
        return
    snapshot, target = case
    limits = {"cpu": 0.7, "network_in": 0.8, "network_out": 0.8, "disk": 0.8}
    goals = [RackAwareness(), *(ResourceCapacity(resource=r) for r in snapshot.resources)]
    plan = Balancer(goals, strategy=GivenTarget(target)).propose(snapshot)
    assert_sound(snapshot, plan)
    assert_no_step_overfills(plan, limits)
    if not plan.summary.left_out:
        assert (np.sort(plan.placement.brokers, 1) == np.sort(target, 1)).all()


@pytest.mark.slow
@examples(6)
@given(seeds)
def test_every_prefix_of_a_plan_for_a_tight_cluster_is_safe(seed: int) -> None:
    plan = balanced(seed, PlanningParameters(), search_of(seed))
    assert_sound(plan.snapshot, plan)
    limits = {"cpu": 0.7, "network_in": 0.8, "network_out": 0.8, "disk": 0.8}
    assert_no_step_overfills(plan, limits)


@pytest.mark.parametrize("seed", [3, *long(5, 15)])
def test_exchanges_that_were_left_out_find_an_order(seed: int) -> None:
    case = exchange(seed)
    assert case is not None
    snapshot, target = case
    goals = [RackAwareness(), *(ResourceCapacity(resource=r) for r in snapshot.resources)]
    plan = Balancer(goals, strategy=GivenTarget(target)).propose(snapshot)
    assert_sound(snapshot, plan)
    assert plan.summary.left_out == 0
    assert (np.sort(plan.placement.brokers, 1) == np.sort(target, 1)).all()


@pytest.mark.parametrize("fill", [1.0, 1.05])
def test_the_checker_accepts_what_a_broker_held_and_no_more(fill: float) -> None:
    snapshot = by_hand([(0,), (0,), (1,), (2,)], brokers=3, load=[500.0, 450.0, 400.0, 100.0])
    plan = Balancer(
        load_goals({"goals": LIMITS}), strategy=GivenTarget(np.array([[2], [0], [0], [2]]))
    ).propose(snapshot)
    assert plan.summary.left_out == 0
    heavier = snapshot.leader_load.copy()
    heavier[2] += 200.0 * (fill > 1)
    changed = replace(snapshot, leader_load=heavier)
    report = check_plan(changed, plan.document())
    over = [v for v in report.violations if v.kind == "over capacity"]
    assert bool(over) == (fill > 1)


def test_offline_replicas_are_healed_in_the_first_half_of_a_plan() -> None:
    """Also where their partition has another action, which balances only."""
    s = synthetic_snapshot(brokers=20, partitions=600, dead_brokers=1)
    rows = Balancer("default", strategy=QUICK).propose(s).rows
    dead = np.append(s.broker_state == BrokerState.DEAD, False)
    healed = np.flatnonzero(dead[rows.source])
    assert len(healed) > 30
    assert healed.max() < len(rows.kind) / 2
