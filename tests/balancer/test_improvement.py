"""Rounds after the search has ended: never worse, sometimes better, and equal for equal seeds."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from balancer import Balancer, Budget, Plan
from balancer.strategies.local_search import LocalSearch
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from goals import load_goals

_CROWDED: dict[str, Any] = {
    "brokers": 9,
    "partitions": 60,
    "racks": 3,
    "topics": 5,
    "utilization": 0.7,
    "skew": 2.0,
    "load_sigma": 1.5,
    "largest_partition": 0.12,
    "rack_violations": 0.2,
}


def crowded(seed: int) -> Snapshot:
    """A cluster on which a plain search leaves goals unmet, some of them without a proof."""
    return synthetic_snapshot(seed=seed, **_CROWDED)


def feasible() -> Snapshot:
    """A cluster with a goal that a plain search leaves unmet, although it can be met."""
    return synthetic_snapshot(
        brokers=8,
        partitions=60,
        racks=4,
        topics=5,
        utilization=0.55,
        skew=1.8,
        load_sigma=1.5,
        largest_partition=0.12,
        seed=19,
    )


@cache
def plain() -> Plan:
    return improved(feasible(), 0)


def improved(snapshot: Snapshot, rounds: int, **budget: Any) -> Plan:
    strategy = LocalSearch(improvement_rounds=rounds, second_searches=0)
    plan = Balancer("default", strategy=strategy, budget=Budget(**budget)).propose(snapshot)
    report = check_plan(snapshot, plan.document())
    assert report.ok, [str(f) for f in (*report.violations, *report.mismatches)]
    return plan


def met(plan: Plan) -> list[int]:
    """How many goals of each tier a plan meets."""
    tier = {goal.name: goal.tier or 0 for goal in load_goals("default")}
    count = Counter(tier.get(g.goal, 0) for g in plan.goal_results if g.met_after)
    return [count[number] for number in sorted(set(tier.values()))]


def test_rounds_meet_a_goal_that_the_search_leaves_unmet() -> None:
    more = improved(feasible(), 10)
    assert [u.goal for u in plain().unmet] == ["LeaderBytesInDistribution"]
    assert not more.unmet
    assert more.to_json() == improved(feasible(), 10).to_json()


def test_more_rounds_end_better() -> None:
    counts = [met(improved(crowded(103), rounds)) for rounds in (0, 6)]
    assert counts[0] < counts[1]


def test_limits_on_moves_end_without_such_rounds() -> None:
    moves = plain().summary.replica_moves
    plan = improved(feasible(), 10, moves=moves, seconds=600.0)
    assert plan.summary.replica_moves <= moves
    assert [u.goal for u in plan.unmet] == ["LeaderBytesInDistribution"]


def test_seconds_that_are_left_bring_more() -> None:
    assert not improved(feasible(), 0, seconds=600.0).unmet
