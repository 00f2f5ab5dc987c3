"""Faults in the code of another package are named in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from balancer import Balancer
from balancer.strategies import StrategyError
from cluster_model import synthetic_snapshot
from goals import Cluster, Goal, GoalError, State


class Faulty(Goal):
    """Raises where it is asked to."""

    where: str

    def prepare(self, cluster: Cluster) -> None:
        if self.where == "prepare":
            raise KeyError("zone")

    def score(self, state: State) -> Any:
        if self.where == "attribute":
            return state.partition
        if self.where == "score":
            raise ZeroDivisionError("my\nscore")
        return state.replica_count * 0 + 1


class Failing:
    """A strategy that raises."""

    name = "failing"

    def propose(self, *_: Any) -> Any:
        raise OSError("no solver")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("prepare", r"goal Faulty: prepare failed \(KeyError: 'zone'\)"),
        ("score", r"goal Faulty: score failed \(ZeroDivisionError: my score\)"),
        ("attribute", r"goal Faulty: score failed \(.*partition"),
    ],
)
def test_a_goal_is_named(where: str, message: str) -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    with pytest.raises(GoalError, match=message) as caught:
        Balancer([Faulty(where=where)]).propose(snapshot)
    assert "\n" not in str(caught.value)


def test_a_strategy_is_named() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3)
    with pytest.raises(StrategyError, match=r"strategy failing failed \(OSError: no solver\)"):
        Balancer(strategy=Failing()).propose(snapshot)
