"""Goals over groups of brokers: what zones carry together is limited, evened out and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from balancer import Balancer, Operation
from balancer.planning.document import PlanDocument
from balancer.planning.plan import Plan
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.scopes import BROKER, Grouping, scope_of
from goals import Goal, GoalError, GroupCapacity, GroupUsageDistribution, State, at_most

RESOURCE = "network_in"


def zoned(zones: Sequence[str | None], seed: int = 0) -> Snapshot:
    """Eight brokers, of which the first four hold most of the data."""
    s = synthetic_snapshot(brokers=8, partitions=160, replication_factor=2, racks=4, seed=seed)
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, s.n_partitions)
    second = np.where(rng.random(s.n_partitions) < 0.3, 4 + first, (first + 1) % 4)
    brokers = np.stack([first, second], axis=1).ravel()
    return replace(s, replica_broker=brokers, broker_attributes={"zone": list(zones)})


def clean(snapshot: Snapshot, plan: Plan) -> None:
    report = check_plan(snapshot, PlanDocument.model_validate_json(plan.to_json()))
    assert not report.violations
    assert not report.mismatches
    assert not [u for u in report.unchecked if "Group" in str(u)]


TWO: list[str | None] = [*["a"] * 4, *["b"] * 4]
SOME: list[str | None] = ["a", "a", "a", None, "b", "b", "b", None]


@pytest.mark.parametrize("zones", [TWO, SOME])
@pytest.mark.parametrize("seed", [0, 1])
def test_zones_are_evened_out_and_the_plan_is_checked(zones: list[str | None], seed: int) -> None:
    snapshot = zoned(zones, seed)
    plan = Balancer([GroupUsageDistribution(resource=RESOURCE, attribute="zone")]).propose(snapshot)
    assert len(plan)
    (result,) = (r for r in plan.goal_results if r.goal.startswith("Group"))
    assert result.goal == f"GroupUsageDistribution[{RESOURCE} by zone]"
    assert not result.met_before
    assert result.met_after
    clean(snapshot, plan)


@pytest.mark.parametrize(
    "operation",
    [
        Operation(),
        Operation(kind="remove_brokers", brokers=(2,)),
        Operation(excluded_brokers_for_replicas=(5,)),
    ],
    ids=lambda operation: str(operation.kind),
)
@pytest.mark.parametrize("zones", [TWO, SOME])
def test_limits_of_zones_hold_in_every_step(zones: list[str | None], operation: Operation) -> None:
    snapshot = zoned(zones)
    load = snapshot.broker_load()[:, snapshot.resource(RESOURCE)]
    share = float(load.sum() / snapshot.capacity[:, snapshot.resource(RESOURCE)].sum())
    goals: list[Goal] = [
        GroupCapacity(resource=RESOURCE, attribute="zone", threshold=1.2 * share),
        GroupUsageDistribution(resource=RESOURCE, attribute="zone", low_utilization=0.01),
    ]
    plan = Balancer(goals).propose(snapshot, operation)
    clean(snapshot, plan)
    assert plan.ok == (operation.kind == "rebalance")


def test_what_no_zone_can_carry_is_proven_only_if_every_broker_is_in_a_zone() -> None:
    tight = GroupCapacity(resource=RESOURCE, attribute="zone", threshold=1e-3)
    for zones, proven in ((TWO, True), (SOME, False)):
        plan = Balancer([tight]).propose(zoned(zones))
        assert {u.proven for u in plan.unmet if u.goal == tight.name} == {proven}
        clean(zoned(zones), plan)


def test_a_cluster_without_the_attribute_is_one_sentence() -> None:
    goal = GroupCapacity(resource=RESOURCE, attribute="zone")
    with pytest.raises(GoalError, match=r"by zone\]: the snapshot has no broker attribute 'zone'"):
        Balancer([goal]).propose(synthetic_snapshot(brokers=4, partitions=16))


class OfZones(Goal):
    """Few replicas in each zone."""

    scope = "broker attribute zone"

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, 200.0)


def test_a_scope_may_be_named_by_an_attribute() -> None:
    assert OfZones.scope == Grouping("zone") == scope_of("broker attribute zone")
    assert OfZones.scope != BROKER
    assert Balancer([OfZones()]).propose(zoned(TWO)).ok
