"""The controller's log on plans and outcomes: readable units, correct plurals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from balancer import Balancer, Plan
from balancer.controller.decision import outcome_record, outcome_sentence, plan_sentence
from balancer.controller.execution_progress import progress_record, progress_sentence
from balancer.execution import Outcome, Progress
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


@pytest.mark.parametrize("copied", [0.0, 5e9])
def test_what_is_copied_for_a_plan_without_sizes_is_in_bytes_or_unknown(copied: float) -> None:
    outcome = replace(ENDED, failed=0, bytes_moved=copied)
    progress = Progress("move", 4, 2, 0, 0, 1, copied, copied / 2, 10.0, None)
    said = outcome_sentence(outcome, "replicas"), progress_sentence(progress, "replicas")
    records = outcome_record(outcome, "replicas"), progress_record(progress, "replicas")
    if copied:
        assert said == ("done after 90 s, 5 GB moved", "2 of 4 tasks, 2.5 GB of 5 GB, 250 MB/s")
    else:
        assert said == ("done after 90 s", "2 of 4 tasks")
    assert [r["bytes_moved"] for r in records] == ([5e9, 2.5e9] if copied else [None, None])
