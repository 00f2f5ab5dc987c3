"""Clusters that were once planned wrongly: the plan passes its check, and no step overfills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from balancer_cases import QUICK, assert_no_step_overfills, assert_sound

from balancer import Balancer, Budget, Operation
from cluster_model import SnapshotDocument, build_snapshot

FOLDER = Path(__file__).parent / "clusters"


@pytest.mark.parametrize(
    ("name", "least"),
    [
        # no partitions, and a goal that counts groups of brokers with a topic
        ("spread-crash", 0),
        # many tiny loads, next to a disk and a broker that are full
        ("verify-disk", 200),
        ("verify-network-out", 200),
    ],
)
def test_a_plan_for_an_observed_cluster_passes_its_check(name: str, least: int) -> None:
    case: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    snapshot = build_snapshot(SnapshotDocument.model_validate(case["snapshot"]))
    balancer = Balancer(case["goals"], strategy=QUICK, budget=Budget(**case["budget"]))
    plan = balancer.propose(snapshot, Operation(**case["operation"]))
    assert len(plan.actions) >= least
    assert_sound(snapshot, plan)
    assert_no_step_overfills(plan)
