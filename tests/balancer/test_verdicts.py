"""Every operation states whether it is fulfilled, and the checker determines it independently."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from balancer_cases import QUICK

from balancer import Balancer, Budget, Operation, Plan
from balancer.verification.checker import check_plan
from cluster_model import BrokerState, Snapshot, synthetic_snapshot


def cluster(**changes: int) -> Snapshot:
    options = {"brokers": 8, "partitions": 60, "replication_factor": 2, "racks": 4, "seed": 3}
    return synthetic_snapshot(**(options | changes))


CASES = [
    (Operation(kind="remove_brokers", brokers=(3,)), r"broker 3 is empty"),
    (Operation(kind="remove_brokers", brokers=(3, 5)), r"brokers 3 and 5 are empty"),
    (Operation(kind="demote_brokers", brokers=(2,)), r"broker 2 leads nothing"),
    (Operation(kind="add_brokers", brokers=(8,)), r"broker 8 holds \d+ replicas"),
    (Operation(kind="fix_offline_replicas"), r"every replica is on a living broker and disk"),
    (
        Operation(kind="change_replication_factor", replication_factor={".*": 3}),
        r"every partition has the number of replicas asked for",
    ),
]
LEFT = [
    (Operation(kind="remove_brokers", brokers=(3,)), r"broker 3 still holds \d+ replicas"),
    (Operation(kind="add_brokers", brokers=(8,)), r"broker 8 holds no replicas"),
    (Operation(kind="fix_offline_replicas"), r"\d+ replicas stay on dead brokers or disks"),
    (
        Operation(kind="change_replication_factor", replication_factor={".*": 3}),
        r"60 partitions have a different number of replicas than requested",
    ),
]


def plan_of(operation: Operation, **limits: int) -> Plan:
    dead = 1 if operation.kind == "fix_offline_replicas" else 0
    new = 1 if operation.kind == "add_brokers" else 0
    snapshot = cluster(dead_brokers=dead, new_brokers=new)
    if operation.kind == "demote_brokers":
        assert (snapshot.broker_state == BrokerState.ALIVE).all()
    budget = Budget(**limits) if limits else None
    plan = Balancer(budget=budget, strategy=QUICK).propose(snapshot, operation)
    report = check_plan(snapshot, plan.document())
    assert report.ok, report
    return plan


@pytest.mark.parametrize(("operation", "sentence"), CASES)
def test_a_fulfilled_operation_says_so_and_a_wrong_verdict_is_found(
    operation: Operation, sentence: str
) -> None:
    plan = plan_of(operation)
    verdict = plan.verdict
    assert verdict is not None
    assert (verdict.fulfilled, verdict.remaining) == (True, 0)
    assert re.fullmatch(sentence, verdict.sentence), verdict.sentence
    for wrong in (
        None,
        verdict.model_copy(update={"fulfilled": False}),
        verdict.model_copy(update={"remaining": 1}),
    ):
        report = check_plan(plan.snapshot, replace(plan, verdict=wrong).document())
        assert {m.kind for m in report.mismatches} == {"verdict"}


@pytest.mark.parametrize(("operation", "sentence"), LEFT)
def test_what_a_budget_leaves_to_do_is_counted(operation: Operation, sentence: str) -> None:
    verdict = plan_of(operation, moves=0).verdict
    assert verdict is not None
    assert not verdict.fulfilled
    assert verdict.remaining > 0
    assert re.match(sentence, verdict.sentence), verdict.sentence


def test_a_rebalance_has_no_verdict_and_none_is_accepted() -> None:
    plan = plan_of(Operation())
    assert plan.verdict is None
    other = plan_of(CASES[0][0]).verdict
    report = check_plan(plan.snapshot, replace(plan, verdict=other).document())
    assert {m.kind for m in report.mismatches} == {"verdict"}
