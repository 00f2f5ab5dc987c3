"""The controller's log on plans and outcomes: readable units, correct plurals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer import Balancer, Plan
from balancer.controller.decision import outcome_sentence, plan_sentence
from balancer.execution import Outcome
from cluster_model import synthetic_snapshot

ENDED = Outcome("done", 1, 1, 0, 3_430_000.0, 90.0)


@pytest.fixture(scope="module")
def plan() -> Plan:
    snapshot = synthetic_snapshot(brokers=4, partitions=12, racks=2, topics=2, utilization=0.2)
    return Balancer().propose(snapshot)


def test_a_plan_of_one_move_is_in_the_singular(plan: Plan) -> None:
    counts = {
        "replica_moves": 1,
        "leadership_moves": 1,
        "disk_moves": 1,
        "replicas_added": 1,
        "replicas_removed": 1,
    }
    one = plan.summary.model_copy(update={**counts, "cost": 2.85e7})
    said = plan_sentence(replace(plan, summary=one))
    assert said.startswith(
        "1 replica move, 1 leadership transfer, 1 disk move, 1 replica added, 1 replica removed, "
        "28.5 MB, balancedness "
    )


def test_a_plan_of_many_moves_is_in_the_plural(plan: Plan) -> None:
    many = plan.summary.model_copy(update={"disk_moves": 1200, "cost": 1e12})
    said = plan_sentence(replace(plan, summary=many))
    assert "1,200 disk moves, 1 TB" in said


def test_an_outcome_is_reported_in_units_that_people_read() -> None:
    assert (
        outcome_sentence(ENDED) == "done after 90 s, 3.43 MB moved, 1 task failed and 0 cancelled"
    )
