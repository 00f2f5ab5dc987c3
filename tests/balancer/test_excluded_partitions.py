"""Excluded single partitions stay where they are, for the planner and the checker."""

from __future__ import annotations

from balancer import Balancer, Operation, Plan
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot


def _cluster() -> Snapshot:
    return synthetic_snapshot(brokers=6, partitions=80, racks=3, utilization=0.2)


def _touched(plan: Plan) -> set[str]:
    return {f"{a.topic}-{a.partition}" for a in plan.actions}


def test_excluded_partitions_stay_and_the_others_make_up_for_them() -> None:
    snapshot = _cluster()
    free = Balancer("default").propose(snapshot)
    some = tuple(sorted(_touched(free))[::2])
    operation = Operation(excluded_partitions=(*some, "gone-7"))
    plan = Balancer("default").propose(snapshot, operation)
    assert _touched(plan)
    assert not _touched(plan) & {*some}
    assert not check_plan(snapshot, plan.document()).violations


def test_excluded_partitions_leave_brokers_that_are_to_be_empty() -> None:
    snapshot = _cluster()
    every = tuple(f"{snapshot.topics[0]}-{n}" for n in range(80))
    operation = Operation(kind="remove_brokers", brokers=(2,), excluded_partitions=every)
    plan = Balancer("default").propose(snapshot, operation)
    assert not (plan.final_snapshot().replica_broker == 1).any()
    assert not check_plan(snapshot, plan.document()).violations


def test_the_checker_finds_moves_of_excluded_partitions() -> None:
    snapshot = _cluster()
    document = Balancer("default").propose(snapshot).document()
    moved = next(a for a in document.actions if a.kind == "move")
    operation = {"kind": "rebalance", "excluded_partitions": [f"{moved.topic}-{moved.partition}"]}
    report = check_plan(snapshot, document.model_copy(update={"operation": operation}))
    assert {v.kind for v in report.violations} == {"excluded topic"}
