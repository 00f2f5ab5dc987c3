"""Operations in the check of a plan: unknown kinds, and values that make no sense."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from balancer_cases import QUICK

from balancer import Action, Balancer, Budget, Operation, PlanDocument
from balancer.verification.checker import check_plan
from balancer.verification.report import CheckReport
from cluster_model import BrokerState, Snapshot, synthetic_snapshot

SNAPSHOT = synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2)
# fields of its own, one of them by the name of another operation's field
UNKNOWN = {"kind": "evacuate", "zone": "a", "brokers": "all of the zone"}


@cache
def planned() -> PlanDocument:
    return Balancer("default", strategy=QUICK).propose(SNAPSHOT).document()


def relabelled(plan: PlanDocument, **common: Any) -> PlanDocument:
    """The same plan, as one of an operation that the checker does not know."""
    # without a digest, which would show any change
    return plan.model_copy(update={"operation": UNKNOWN | common, "digest": None})


def checked(action: dict[str, Any], s: Snapshot = SNAPSHOT, **common: Any) -> CheckReport:
    """What is found where the first move of a plan is changed."""
    first = next(a for a in planned().actions if a.kind == "move")
    changed = Action(**first.model_dump() | action)
    return check_plan(s, relabelled(planned().model_copy(update={"actions": (changed,)}), **common))


def unsteady(seed: int) -> Snapshot:
    s = synthetic_snapshot(brokers=6, partitions=24, racks=3, disks_per_broker=2, seed=seed)
    if seed % 2 == 0:
        return s
    state, alive = s.broker_state.copy(), s.disk_alive.copy()
    state[seed % s.n_brokers], alive[0] = BrokerState.DEAD, False
    return replace(s, broker_state=state, disk_alive=alive)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("goals", "seed"),
    [pytest.param("default", 0, marks=pytest.mark.soak), ("default", 3), ("cruise-control", 1)],
)
@pytest.mark.parametrize(
    "operation",
    [
        {},
        {"kind": "add_brokers", "brokers": (3,)},
        {"kind": "remove_brokers", "brokers": (3, 4)},
        {"kind": "demote_brokers", "brokers": (3,)},
        {"kind": "fix_offline_replicas"},
        {"kind": "change_replication_factor", "replication_factor": {"topic-.*": 3}},
        {"kind": "change_replication_factor", "replication_factor": {"topic-.*": 1}},
    ],
)
def test_a_sound_plan_of_an_unknown_operation_has_no_fault(
    goals: str, operation: dict[str, Any], seed: int
) -> None:
    s = unsteady(seed)
    budget = Budget(moves=5) if seed >= 2 else Budget()
    plan = (
        Balancer(goals, budget=budget, strategy=QUICK).propose(s, Operation(**operation)).document()
    )
    report = check_plan(s, relabelled(plan))
    assert not report.violations + report.mismatches


def test_what_depends_on_an_unknown_operation_is_unchecked_and_the_plan_is_not_sound() -> None:
    report = check_plan(SNAPSHOT, relabelled(planned()))
    found = {u.field: u for u in report.unchecked}
    assert not report.ok
    assert found["operation"].hard
    assert found["operation"].reason.startswith("'evacuate' is not known to the check")
    assert found["goal_results"].hard
    assert "OnlineReplicas" in found["goal_results"].reason
    assert {"columns", "actions[].helped", "actions[].hurt", "warnings"} <= found.keys()


def test_a_known_operation_needs_no_such_reservation() -> None:
    report = check_plan(SNAPSHOT, planned())
    assert report.ok
    assert not [u for u in report.unchecked if u.hard]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"cost": 1.0}, "wrong cost"),
        ({"destination": 77}, "unknown broker"),
        ({"destination_disk": "/nowhere"}, "wrong destination disk"),
        ({"topic": "no-such"}, "unknown partition"),
    ],
)
def test_an_impossible_step_of_an_unknown_operation_is_found(
    changes: dict[str, Any], found: str
) -> None:
    assert found in {f.kind for f in checked(changes).violations}


def test_what_every_operation_forbids_is_found() -> None:
    first = next(a for a in planned().actions if a.kind == "move")
    name = f"{first.topic}-{first.partition}"
    others = sorted({*SNAPSHOT.broker_ids.tolist()} - {first.destination})
    kinds = {f.kind for f in checked({}, frozen_partitions=[name]).violations}
    assert kinds == {"frozen"}
    kinds = {f.kind for f in checked({}, destinations=others).violations}
    assert kinds == {"wrong destination"}


def test_a_broker_filled_beyond_its_capacity_is_found() -> None:
    first = next(a for a in planned().actions if a.kind == "move")
    disk, target = SNAPSHOT.resource("disk"), SNAPSHOT.broker_ids == first.destination
    capacity = SNAPSHOT.capacity.copy()
    capacity[target, disk] = SNAPSHOT.broker_load()[target, disk] + 0.5 * first.cost
    report = checked({}, replace(SNAPSHOT, capacity=capacity))
    assert {f.kind for f in report.violations} == {"over capacity"}


def test_fields_of_every_operation_are_read_in_an_unknown_one() -> None:
    (finding,) = check_plan(SNAPSHOT, relabelled(planned(), destinations=[77])).violations
    assert (
        str(finding)
        == "operation: destinations [77] found, ids of brokers of the snapshot expected"
    )


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ({"kind": 3}, "operation: kind 3 found, text expected"),
        (
            {"kind": "change_replication_factor", "replication_factor": [1]},
            "operation: replication_factor [1] found, a number by pattern expected",
        ),
        (
            {"kind": "remove_brokers", "brokers": [[1]]},
            "operation: brokers [[1]] found, ids of brokers of the snapshot expected",
        ),
        (
            {"kind": "rebalance", "destinations": [{}]},
            "operation: destinations [{}] found, ids of brokers of the snapshot expected",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_one_sentence(operation: dict[str, Any], says: str) -> None:
    changed = planned().model_copy(update={"operation": operation})
    assert [str(f) for f in check_plan(SNAPSHOT, changed).violations] == [says]


def test_a_field_that_is_null_counts_as_not_given() -> None:
    operation = {"kind": "rebalance", "brokers": None, "replication_factor": None}
    changed = planned().model_copy(update={"operation": operation, "digest": None})
    assert check_plan(SNAPSHOT, changed).ok


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")
@pytest.mark.parametrize("goals", ["default", "cruise-control"])
def test_a_plan_that_removes_every_replica_is_checked_without_a_warning(goals: str) -> None:
    s = synthetic_snapshot(brokers=6, partitions=20, racks=3)
    plan = Balancer(goals, strategy=QUICK).propose(s).document()
    first, last = s.replica_offset[:2]
    topic, number = s.topics[s.partition_topic[0]], int(s.partition_number[0])
    removed = tuple(
        Action(kind="remove", topic=topic, partition=number, source=broker, destination=None)
        for broker in s.broker_ids[s.replica_broker[first:last]].tolist()
    )
    report = check_plan(s, plan.model_copy(update={"actions": removed}))
    assert {"promise", "leader removed"} <= {f.kind for f in report.violations}
