"""Goals and strategies can only read what the engine gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from balancer import Balancer, Budget
from balancer.problem.problem import Problem
from balancer.strategies import ProgressCallback, Proposal, StrategyError
from goals import Cluster, Goal, GoalError, Infeasibility, Relaxation, ReplicaDistribution, State
from goals.testing import example_snapshots

# with disks
SNAPSHOT = replace(example_snapshots()[2], broker_attributes={"zone": ["a", "a", "b", "b"]})
WRITES: dict[str, Callable[[Cluster], Any]] = {
    "eligible": lambda c: c.eligible,
    "leader_eligible": lambda c: c.leader_eligible,
    "draining": lambda c: c.draining,
    "typical": lambda c: c.typical,
    "typical_disks": lambda c: c.typical_disks,
    "replication_factor": lambda c: c.replication_factor,
    "eligible_racks": lambda c: c.eligible_racks,
    "group": lambda c: c.group,
    "weight": lambda c: c.weight,
    "capacity": lambda c: c.capacity("disk"),
    "attribute": lambda c: c.broker_attribute("zone"),
    "groups of an attribute": lambda c: c.snapshot.attributes("broker").groups("zone")[0],
    "replicas": lambda c: c.placement.brokers,
    "disks": lambda c: c.placement.replica_disk,
    "leaders": lambda c: c.placement.leader,
    "start": lambda c: c.placement.start,
    "sums": lambda c: c.placement.sums("broker", "load.disk"),
    "contributions": lambda c: c.placement.contribution("load.disk")[0],
    "traffic": lambda c: c.placement.traffic(1.0).total,
    "loads": lambda c: c.snapshot.leader_load,
}


class Writer(Goal):
    """Writes into an array of the cluster in one of its methods."""

    what: str = "eligible"
    when: str = "prepare"

    def _write(self, cluster: Cluster, now: str) -> None:
        if now == self.when:
            WRITES[self.what](cluster)[:] = 0

    def prepare(self, cluster: Cluster) -> None:
        self._write(cluster, "prepare")

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        self._write(cluster, "infeasibilities")
        return []

    def relaxed(self, cluster: Cluster, room: float) -> Relaxation | None:
        self._write(cluster, "relaxed")
        return None

    def score(self, state: State) -> Any:
        return state.load("disk") * 0.0


@pytest.mark.parametrize("when", ["prepare", "relaxed", "infeasibilities"])
@pytest.mark.parametrize("what", WRITES)
def test_no_array_of_the_cluster_can_be_changed(what: str, when: str) -> None:
    with pytest.raises(GoalError, match=f"goal Writer: {when} failed .*read-only"):
        Balancer([Writer(what=what, when=when)]).propose(SNAPSHOT)


class ScoreWriter(Goal):
    """Writes into the state that it scores."""

    column: str = "load.disk"

    def score(self, state: State) -> Any:
        value = state.column(self.column)
        value -= value
        return value * 0.0


@pytest.mark.parametrize("column", ["load.disk", "leader_count", "capacity.disk", "broker", "rack"])
def test_no_array_of_a_state_can_be_changed(column: str) -> None:
    with pytest.raises(GoalError, match=r"goal ScoreWriter: score failed .*read-only"):
        Balancer([ScoreWriter(column=column)]).propose(SNAPSHOT)


class StrategyWriter:
    """Writes into what the plan is judged by."""

    name = "writer"

    def __init__(self, what: str) -> None:
        self.what = what

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        array = problem.start.brokers if self.what == "start" else getattr(problem.rules, self.what)
        array[:] = 0
        return Proposal(placement=problem.cluster.placement)


@pytest.mark.parametrize("what", ["start", "receives", "movable", "draining", "frozen"])
def test_no_strategy_changes_what_its_plan_is_judged_by(what: str) -> None:
    with pytest.raises(StrategyError, match=r"strategy writer failed .*read-only"):
        Balancer([ReplicaDistribution()], strategy=StrategyWriter(what)).propose(SNAPSHOT)
