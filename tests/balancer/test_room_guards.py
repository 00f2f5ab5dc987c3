"""Brokers that are emptied fill the others only as far as limits can still be kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from balancer_cases import FEW_RETRIES, assert_sound, by_hand, long

from balancer import Balancer, Operation, Plan
from balancer.planning.why_not import end_of
from balancer.verification.checker import check_plan
from benchmarks.small import small_cluster
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import BrokerState, Floats, Ints
from goals import (
    Goal,
    OnlineReplicas,
    RackAwareness,
    ReplicaCapacity,
    ReplicaDistribution,
    ResourceCapacity,
    UsageDistribution,
)


def held(snapshot: Snapshot) -> Ints:
    return np.bincount(snapshot.replica_broker, minlength=snapshot.n_brokers)


def settled(goals: Sequence[Goal], snapshot: Snapshot, operation: Operation | None = None) -> Plan:
    """A plan that passes the checker, for whose result another plan has no action."""
    balancer = Balancer(goals, strategy=FEW_RETRIES)
    plan = balancer.propose(snapshot, operation)
    assert_sound(snapshot, plan)
    assert not len(balancer.propose(plan.final_snapshot(), operation))
    return plan


REMOVAL = Operation(kind="remove_brokers", brokers=(3,))


def one_too_many(state: str) -> Snapshot:
    """Broker 0 holds one replica too many, and broker 3 holds three, with room for one."""
    return by_hand([(0,), (0,), (3, 0), (3, 1), (3, 1)], brokers=4, states={3: state})


@cache
def removed() -> Plan:
    """The plan that removes broker 3, which is alive."""
    return settled([ReplicaCapacity(limit=2)], one_too_many("alive"), REMOVAL)


def test_a_removed_broker_leaves_room_for_what_exceeds_a_limit() -> None:
    plan = removed()
    assert held(plan.final_snapshot()).tolist() == [3, 2, 1, 2]
    assert not plan.warnings
    reasons = {unmet.goal: unmet.reason for unmet in plan.unmet}
    assert "by the total room within ReplicaCapacity" in reasons["OnlineReplicas"]


def test_the_checker_finds_room_that_is_used_up() -> None:
    kept = removed()
    emptied = Balancer([OnlineReplicas()]).propose(kept.snapshot, REMOVAL).document().actions
    report = check_plan(kept.snapshot, kept.document().model_copy(update={"actions": emptied}))
    assert "ReplicaCapacity: no placement keeps its limit any more after the last step" in [
        fault.text for fault in report.mismatches
    ]


def test_a_plan_that_was_read_says_so_too() -> None:
    plan = removed()
    names = [goal.name for goal in end_of(plan.snapshot, plan.document()).scorer.goals]
    assert "TotalRoom[ReplicaCapacity]" in names


@pytest.mark.parametrize("kind", ["rebalance", "fix_offline_replicas"])
def test_a_limit_that_is_exceeded_already_yields_to_healing(kind: str) -> None:
    snapshot = one_too_many("dead")
    plan = settled([ReplicaCapacity(limit=2)], snapshot, Operation(kind=kind))
    assert held(plan.final_snapshot()).tolist() == [3, 3, 2, 0]
    assert plan.warnings == (
        "ReplicaCapacity: limit 2 is exceeded already and yields to what is on dead brokers and "
        "disks (replicas: 8 needed, 6 within limits); the steps of this plan keep 3",
    )
    (unmet,) = plan.unmet
    assert unmet.reason.endswith("because 2 yields to what is on dead brokers and disks")


def test_a_limit_that_is_not_exceeded_does_not_yield_to_healing() -> None:
    full = by_hand([(0,), (0,), (3, 1), (3, 1)], brokers=4, states={2: "dead", 3: "dead"})
    plan = settled([ReplicaCapacity(limit=2)], full)
    assert held(plan.final_snapshot()).tolist() == [2, 2, 0, 2]
    assert not plan.warnings


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"used": 5}, "more than the least feasible limit"),
        ({"reason": "none"}, "the proof is: replicas: 8 needed"),
        ({"healing": False}, "no proof found"),
    ],
)
def test_the_checker_rejects_a_limit_that_need_not_yield(
    change: dict[str, Any], fault: str
) -> None:
    snapshot = one_too_many("dead")
    document = Balancer([ReplicaCapacity(limit=2)]).propose(snapshot).document()
    results = [
        g.model_copy(update={"relaxed": g.relaxed and g.relaxed.model_copy(update=change)})
        for g in document.goal_results
    ]
    forged = document.model_copy(update={"goal_results": tuple(results), "digest": None})
    assert any(fault in f.text for f in check_plan(snapshot, forged).mismatches)


def crowded(seed: int) -> tuple[Snapshot, int]:
    """A cluster with a dead broker, and a limit near what the others would hold on average."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(3, 7)), int(rng.integers(6, 16))
    on = [tuple(rng.permutation(n)[:2].tolist()) for _ in range(p)]
    limit = max(1, 2 * p // (n - 1) + int(rng.integers(-2, 2)))
    return by_hand(on, brokers=n, states={n - 1: "dead"}), limit


@pytest.mark.parametrize(
    "seed",
    [2, 7, *long(0, 1, 3, 4, 5, 6, 8, 9, 10, 11)],
)
def test_a_limit_that_is_kept_at_the_start_is_kept_at_the_end_and_others_yield(seed: int) -> None:
    snapshot, limit = crowded(seed)
    goals = [
        ReplicaCapacity(limit=limit, tier=0),
        RackAwareness(tier=0),
        ReplicaDistribution(tier=1),
    ]
    plan = settled(goals, snapshot)
    before, after = held(snapshot)[:-1], held(plan.final_snapshot())[:-1]
    room = limit * len(before)
    relaxed = [g.relaxed.used for g in plan.goal_results if g.relaxed is not None]
    if (before <= limit).all():
        assert not relaxed
        assert after.sum() <= room
    else:
        assert not held(plan.final_snapshot())[-1]
    assert (after <= np.maximum(before, max(relaxed, default=limit))).all()


def use(snapshot: Snapshot) -> Floats:
    """(B,) each broker's disk load, of replicas that all have one."""
    load = np.repeat(snapshot.leader_load[:, 0], snapshot.replication_factor)
    return np.bincount(snapshot.replica_broker, load, snapshot.n_brokers).astype(np.float64)


def test_removing_a_broker_does_not_raise_others_that_exceed_a_limit_already() -> None:
    # brokers 0 to 2 carry 80, 80 and 81 of 100; each replica of broker 3 has a copy on broker 2
    on = [(0,)] * 40 + [(1,)] * 40 + [(2, 3)] * 40 + [(2,)]
    snapshot = by_hand(on, brokers=4, load=[2.0] * 120 + [1.0], capacity=100.0)
    for _ in range(3):
        plan = Balancer([ResourceCapacity(resource="disk")]).propose(snapshot, REMOVAL)
        assert_sound(snapshot, plan)
        snapshot = plan.final_snapshot()
    assert use(snapshot)[:3].sum() == 241
    assert use(snapshot).max() <= 80 * 241 / 240 * 1.05


def test_a_few_replicas_more_do_not_stay_on_a_dead_broker_where_a_limit_is_infeasible() -> None:
    whole = synthetic_snapshot(brokers=30, partitions=600, racks=5, seed=3)
    state = np.where(np.arange(30) == 7, BrokerState.DEAD, BrokerState.ALIVE)
    snapshot = replace(whole, broker_state=state)
    goals = [
        ReplicaCapacity(limit=50, tier=0),
        RackAwareness(tier=0),
        ReplicaDistribution(tier=1),
    ]
    plan = settled(goals, snapshot)
    assert [u.goal for u in plan.unmet] == ["ReplicaCapacity"]
    after = held(plan.final_snapshot())
    assert after[7] == 0
    (used,) = (g.relaxed.used for g in plan.goal_results if g.relaxed is not None)
    # 1,800 replicas on 29 brokers, and 5 % more
    assert used == np.ceil(1800 / 29 * 1.05)
    assert after.max() <= used


def sent(leads: Sequence[Sequence[int]], state: str, limit: float) -> tuple[Snapshot, list[Goal]]:
    """Leaders that send 1 each and followers that send nothing, and a limit on what is sent."""
    n = 1 + max(b for on in leads for b in on)
    snapshot = by_hand(
        leads,
        brokers=n,
        load=[1.0] * len(leads),
        capacity=10.0,
        states={n - 1: state},
        resource="network_out",
    )
    snapshot = replace(snapshot, follower_load=np.zeros_like(snapshot.follower_load))
    return snapshot, [ResourceCapacity(resource="network_out", threshold=limit / 10)]


def sends(snapshot: Snapshot) -> list[float]:
    """What each broker sends, in leaders."""
    led = snapshot.replica_broker[snapshot.replica_is_leader]
    return [float(n) for n in np.bincount(led, minlength=snapshot.n_brokers)]


def test_leaders_leave_room_for_what_exceeds_a_limit_of_leaders() -> None:
    # broker 0 leads three, one too many; brokers 1 and 2 have room for one together
    on = [(0,), (0,), (0,), (1,), (1,), (2,), (3,), (3,)]
    snapshot, goals = sent(on, "alive", 2.0)
    for _ in range(2):
        plan = Balancer(goals, strategy=FEW_RETRIES).propose(snapshot, REMOVAL)
        assert_sound(snapshot, plan)
        assert not plan.warnings
        snapshot = plan.final_snapshot()
    assert not len(plan)
    # what is on broker 0 moves only in a plan without an operation
    assert sends(snapshot) == [3, 2, 1, 2]
    plan = Balancer(goals, strategy=FEW_RETRIES).propose(snapshot)
    assert sends(plan.final_snapshot()) == [2, 2, 2, 2]


def test_leadership_alone_leaves_room_too() -> None:
    # the same, with a follower of both partitions of broker 3 on broker 2
    on = [(0,), (0,), (0,), (1,), (1,), (2,), (3, 2), (3, 2)]
    snapshot, goals = sent(on, "alive", 2.0)
    plan = Balancer(goals, strategy=FEW_RETRIES).propose(snapshot, REMOVAL)
    assert_sound(snapshot, plan)
    again = Balancer(goals, strategy=FEW_RETRIES).propose(plan.final_snapshot(), REMOVAL)
    assert not plan.warnings
    assert not again.warnings
    assert sum(sends(plan.final_snapshot())[:3]) == 6


def test_followers_on_a_dead_broker_do_not_make_a_limit_of_leaders_look_feasible() -> None:
    # the brokers that stay lead seven within a limit of six, whatever leaves broker 3
    on = [(0, 3), (0, 3), (0, 3), (1, 3), (1, 3), (2, 3), (2, 3)]
    snapshot, goals = sent(on, "dead", 2.0)
    plan = settled(goals, snapshot)
    (used,) = (g.relaxed.used for g in plan.goal_results if g.relaxed is not None)
    assert used == pytest.approx(7 / 30 * 1.05)
    assert held(plan.final_snapshot())[3] == 0


@pytest.mark.parametrize("seed", [31, *long(16, 17, 56, 67)])
def test_no_plan_for_the_result_needs_a_higher_limit_of_cpu_or_network_out(seed: int) -> None:
    snapshot, goals = busy(seed)
    before = dict[str, float]()
    for number in range(3):
        plan = Balancer(goals, strategy=FEW_RETRIES).propose(snapshot)
        assert_sound(snapshot, plan)
        used = {g.goal: g.relaxed.used for g in plan.goal_results if g.relaxed is not None}
        if number:
            assert not len(plan)
            assert used == pytest.approx(before)
        before, snapshot = used, plan.final_snapshot()


def busy(seed: int) -> tuple[Snapshot, list[Goal]]:
    """A small cluster with a dead broker, and limits near the mean use of the others."""
    rng = np.random.default_rng([seed, 77])
    while True:
        s = small_cluster(rng)
        alive = s.broker_state == BrokerState.ALIVE
        if not alive.all() and s.replication_factor.max() > 1:
            break
    goals: list[Goal] = []
    for name in (["cpu"], ["network_out"], ["cpu", "network_out"])[seed % 3]:
        r = s.resource(name)
        follow = s.follower_load[:, r] * (s.replication_factor - 1)
        share = float((s.leader_load[:, r] + follow).sum() / s.capacity[alive, r].sum())
        threshold = min(share * rng.uniform(0.7, 1.1), 5)
        goals.append(ResourceCapacity(resource=name, threshold=threshold, tier=0))
    if rng.random() < 0.5:
        goals.append(RackAwareness(tier=0 if rng.random() < 0.5 else 1))
    if rng.random() < 0.5:
        goals.append(ReplicaDistribution(tier=2))
    if rng.random() < 0.3:
        goals.append(UsageDistribution(resource=goals[0].resource, tier=2))  # type: ignore[attr-defined]
    return s, goals


def test_a_replica_that_no_other_broker_can_hold_does_not_keep_the_others() -> None:
    # t-0 is everywhere; the second replica of t-1 has room within the limit that is used
    snapshot = by_hand([(0, 1, 2), (0, 2), (0, 1), (0, 1)], brokers=3, states={2: "dead"})
    plan = settled([ReplicaCapacity(limit=3)], snapshot)
    assert held(plan.final_snapshot()).tolist() == [4, 4, 1]


@pytest.mark.parametrize("load", [7.9, 8.4, 12.0])
def test_followers_leave_a_dead_broker_where_what_is_exceeded_is_no_matter_of_theirs(
    load: float,
) -> None:
    # brokers 0 to 2 lead ten partitions each; a follower sends nothing
    on = [(p % 3, 3) for p in range(30)]
    snapshot = by_hand(
        on,
        brokers=4,
        load=[load] * 30,
        capacity=100.0,
        states={3: "dead"},
        resource="network_out",
    )
    snapshot = replace(snapshot, follower_load=np.zeros_like(snapshot.follower_load))
    plan = settled([ResourceCapacity(resource="network_out")], snapshot)
    assert held(plan.final_snapshot())[3] == 0
