"""A limit that no placement keeps: the nearest feasible one takes its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from balancer import Balancer, Plan
from balancer.planning.document import PlanDocument, RelaxedLimit
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from goals import (
    Cluster,
    DiskCapacity,
    Goal,
    GroupCapacity,
    HostCapacity,
    ReplicaCapacity,
    ResourceCapacity,
)

# 300 replicas a broker, where 200 are allowed; a fifth of the partitions violates the rack rule
GOALS: dict[str, Any] = {
    "goals": [
        {"goal": "RackAwareness", "tier": 0},
        {"goal": "ReplicaCapacity", "limit": 200, "tier": 0},
        {"goal": "UsageDistribution", "resource": "disk", "tier": 1},
        {"goal": "ReplicaDistribution", "tier": 1},
    ]
}


@pytest.fixture(scope="module")
def crowded() -> Snapshot:
    return synthetic_snapshot(brokers=10, partitions=1000, racks=5, rack_violations=0.2, skew=1.8)


@pytest.fixture(scope="module")
def plan(crowded: Snapshot) -> Plan:
    return Balancer(GOALS).propose(crowded)


def test_every_other_goal_is_met_although_a_hard_limit_cannot_be(plan: Plan) -> None:
    assert [u.goal for u in plan.unmet] == ["ReplicaCapacity"]
    assert plan.summary.left_out == 0


def test_a_soft_limit_that_cannot_be_kept_does_not_stop_lower_tiers() -> None:
    snapshot = synthetic_snapshot(brokers=10, partitions=600)
    plan = Balancer("cruise-control").propose(snapshot)
    (unmet,) = (u for u in plan.unmet if u.goal == "PotentialNetworkOut")
    assert unmet.proven
    result = {r.goal: r for r in plan.goal_results}
    assert result["PotentialNetworkOut"].relaxed is not None
    lower = [r for r in plan.goal_results if r.goal.startswith("UsageDistribution")]
    assert len(lower) == 4
    assert all(r.met_after for r in lower)
    assert check_plan(snapshot, plan.document()).ok


def test_the_goal_is_reported_as_it_is_configured(plan: Plan) -> None:
    (entry,) = plan.unmet
    assert (entry.proven, entry.reason) == (True, "replicas: 3,000 needed, 2,000 within limits")
    (result,) = (g for g in plan.goal_results if g.goal == "ReplicaCapacity")
    assert result.unmet_cells_after == 10
    assert next(g for g in plan.goals if g["goal"] == "ReplicaCapacity")["limit"] == 200
    assert result.relaxed == RelaxedLimit(
        parameter="limit", configured=200, used=316, reason=entry.reason
    )
    assert plan.warnings[0] == (
        "ReplicaCapacity: no placement keeps limit 200 (replicas: 3,000 needed, 2,000 within "
        "limits); the steps of this plan keep 316"
    )


def test_steps_keep_the_limit_that_was_used(plan: Plan) -> None:
    held = np.bincount(plan.final_snapshot().replica_broker, minlength=10)
    assert held.max() <= 316


def test_the_checker_accepts_the_plan_and_its_file(crowded: Snapshot, plan: Plan) -> None:
    report = check_plan(crowded, PlanDocument.model_validate_json(plan.to_json()))
    assert report.ok, (report.violations, report.mismatches)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"used": 400.0}, "more than the least feasible limit"),
        ({"used": 150.0}, "more than the least feasible limit"),
        ({"configured": 100.0}, "is not a limit of the goal"),
        ({"parameter": "weight"}, "is not a limit of the goal"),
        ({"reason": "too many"}, "the proof is: replicas: 3,000 needed"),
    ],
)
def test_the_checker_rejects_a_wrong_limit(
    crowded: Snapshot, plan: Plan, change: dict[str, Any], fault: str
) -> None:
    document = plan.document()
    results = [
        g
        if g.relaxed is None
        else g.model_copy(update={"relaxed": g.relaxed.model_copy(update=change)})
        for g in document.goal_results
    ]
    report = check_plan(
        crowded, document.model_copy(update={"goal_results": tuple(results), "digest": None})
    )
    assert any(fault in f.text for f in report.mismatches), report.mismatches


def test_the_checker_rejects_a_limit_that_was_replaced_without_need() -> None:
    roomy = synthetic_snapshot(brokers=10, partitions=100, racks=5)
    document = Balancer(GOALS).propose(roomy).document()
    relaxed = RelaxedLimit(parameter="limit", configured=200, used=210, reason="none")
    results = [
        g.model_copy(update={"relaxed": relaxed}) if g.goal == "ReplicaCapacity" else g
        for g in document.goal_results
    ]
    report = check_plan(roomy, document.model_copy(update={"goal_results": tuple(results)}))
    assert any("no proof found" in f.text for f in report.mismatches)


def test_a_limit_that_can_be_kept_stays(crowded: Snapshot) -> None:
    goals = GOALS | {"goals": [{"goal": "ReplicaCapacity", "limit": 300}]}
    plan = Balancer(goals).propose(crowded)
    assert all(g.relaxed is None for g in plan.goal_results)
    assert not plan.warnings
    assert "relaxed" not in plan.to_json()


def zoned(utilization: float, **more: Any) -> Snapshot:
    s = synthetic_snapshot(brokers=6, partitions=300, racks=3, utilization=utilization, **more)
    return replace(s, broker_attributes={"zone": ["a", "b", "c"] * 2})


@pytest.mark.parametrize(
    "goal",
    [
        ResourceCapacity(resource="disk"),
        HostCapacity(resource="network_in"),
        GroupCapacity(resource="disk", attribute="zone"),
        DiskCapacity(),
        ReplicaCapacity(limit=100),
    ],
    ids=lambda goal: goal.name,
)
def test_each_limit_is_raised_to_what_is_needed_and_the_room_for_moves(goal: Goal) -> None:
    cluster = Cluster(Placement(zoned(0.9, disks_per_broker=2)))
    found = goal.relaxed(cluster, 0.05)
    assert found is not None
    used = goal.model_copy(update={found.parameter: found.used})
    assert not used.infeasibilities(cluster)
    # without the room it is the least one: a little less cannot be kept
    exact = goal.relaxed(cluster, 0.0)
    assert exact is not None
    assert exact.used < found.used <= exact.used * 1.05 + 1
    less = exact.used - 1 if isinstance(goal, ReplicaCapacity) else exact.used * 0.999
    assert goal.model_copy(update={exact.parameter: less}).infeasibilities(cluster)
    assert used.relaxed(cluster, 0.05) is None


def test_what_closed_brokers_keep_counts_up_to_the_limit_that_is_used() -> None:
    snapshot = zoned(0.9)
    eligible = np.arange(6) >= 2
    cluster = Cluster(Placement(snapshot), eligible=eligible)
    goal = ResourceCapacity(resource="disk")
    exact = goal.relaxed(cluster, 0.0)
    assert exact is not None
    assert not goal.model_copy(update={"threshold": exact.used}).infeasibilities(cluster)
    assert goal.model_copy(update={"threshold": exact.used - 0.001}).infeasibilities(cluster)


def test_no_limit_is_relaxed_beyond_what_a_goal_may_be_configured_with() -> None:
    cluster = Cluster(Placement(zoned(7.0)))
    assert ResourceCapacity(resource="disk").relaxed(cluster, 0.05) is None
