"""Healing uses the local search, unless the strategy declares that it takes every operation."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from balancer import Balancer, Budget, Operation
from balancer.controller.decision import unmet_first
from balancer.controller.detectors import Detectors
from balancer.controller.finding import Finding
from balancer.controller.proposals import Proposals
from balancer.controller.settings import Settings
from balancer.problem.operations import OPERATIONS, FixOfflineReplicas, OperationType
from balancer.strategies import Problem, ProgressCallback, Proposal
from balancer.strategies.local_search import LocalSearch
from cluster_model import synthetic_snapshot

GOALS = {"profile": "default", "search": {"passes": 7}}


class Own(BaseModel):
    """A strategy of another package."""

    passes: int = 1

    @property
    def name(self) -> str:
        return "own"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        return Proposal(placement=problem.cluster.placement)


class Universal(Own):
    universal: ClassVar[bool] = True


class Searching(Universal):
    takes_search_parameters: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("milp", LocalSearch(passes=7)),
        ("goals", LocalSearch(passes=7)),
        (
            {"strategy": "goals", "passes": 2, "idle_rounds": 1},
            LocalSearch(passes=2, idle_rounds=1),
        ),
        (Own(), LocalSearch(passes=7)),
        (Universal(), Universal()),
        (Searching(), Searching(passes=7)),
        (Searching(passes=4), Searching(passes=4)),
    ],
)
def test_parameters_of_the_search_apply_to_healing(
    strategy: Any, expected: LocalSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    monkeypatch.setattr(Balancer, "propose", lambda self, *_, **__: used.append(self.strategy))
    detectors: Any = SimpleNamespace()
    proposals = Proposals(
        Balancer(GOALS, strategy=strategy), detectors, Settings, lambda: None, Event()
    )
    view: Any = SimpleNamespace(incomplete=None)
    finding: Any = SimpleNamespace(kind="dead_brokers")
    heal = Operation(kind="fix_offline_replicas")
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    proposals.propose(view, finding, snapshot, heal, None)
    assert used == [expected]


def test_parameters_that_a_strategy_does_not_declare_are_reported() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    goals = {"profile": "default", "search": {"passes": 7, "idle_rounds": 2}}
    for strategy, unused in ((Own(), "idle_rounds, passes"), (Searching(), "idle_rounds")):
        warnings = Balancer(goals, strategy=strategy).propose(snapshot).warnings
        assert warnings == (
            f"search: {unused} given together with the goals, but strategy own does not use them",
        )


class Rebuild(FixOfflineReplicas):
    """Heals, under another name."""


class Shuffle(OperationType):
    """Moves replicas, and does not heal."""


@pytest.mark.parametrize(("kind", "left_alone"), [("rebuild", False), ("shuffle", True)])
def test_an_operation_declares_whether_it_heals(
    kind: str, left_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPERATIONS.built_in, "rebuild", Rebuild)
    monkeypatch.setitem(OPERATIONS.built_in, "shuffle", Shuffle)
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, dead_brokers=1)
    finding = Finding(
        subject="broker", sentence="dead", kind="dead_brokers", operation=Operation(kind=kind)
    )
    view: Any = SimpleNamespace(snapshot=snapshot)
    _, operation = Detectors(Settings(), []).resolved(view, finding, [finding])
    assert bool(operation.frozen_partitions) == left_alone
    plan = Balancer("default", budget=Budget(moves=1)).propose(snapshot, operation)
    named = [u.goal for u in unmet_first(plan)]
    assert ("OnlineReplicas" in named[:1]) != left_alone
