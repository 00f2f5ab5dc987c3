"""Healing uses the local search, whatever the strategy, with the parameters that were set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from balancer import Balancer, Operation
from balancer.controller.proposals import Proposals
from balancer.controller.settings import Settings
from balancer.strategies.local_search import LocalSearch
from cluster_model import synthetic_snapshot

GOALS = {"profile": "default", "search": {"passes": 7}}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("milp", LocalSearch(passes=7)),
        ("goals", LocalSearch(passes=7)),
        (
            {"strategy": "goals", "passes": 2, "idle_rounds": 1},
            LocalSearch(passes=2, idle_rounds=1),
        ),
    ],
)
def test_parameters_of_the_search_apply_to_healing(
    strategy: Any, expected: LocalSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(Balancer, "propose", lambda self, *_: used.append(self.strategy))
    detectors: Any = SimpleNamespace()
    proposals = Proposals(Balancer(GOALS, strategy=strategy), detectors, Settings, lambda: None)
    view: Any = SimpleNamespace(incomplete=None)
    finding: Any = SimpleNamespace(kind="dead_brokers")
    heal = Operation(kind="fix_offline_replicas")
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    proposals.propose(view, finding, snapshot, heal, None)
    assert used == [expected]
