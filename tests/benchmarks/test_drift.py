from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from balancer import Balancer
from benchmarks import drift as module
from benchmarks.registry import BenchmarkError, Options, Row
from cluster_model import synthetic_snapshot

_SMALL = module.Case(6, 120, 3, 6)


def quiet(**changes: Any) -> Options:
    return Options(log=lambda sentence: None, **changes)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CASES", {"S": _SMALL})


def values(rows: list[Row], metric: str) -> dict[str, float]:
    return {row.subject: row.value for row in rows if row.metric == metric}


def test_a_budget_is_kept_in_every_round(small: None) -> None:
    rows = list(module.drift(["S"], quiet(rounds=3)))
    most = values(rows, "bytes moved / all bytes, largest")
    assert most["nothing moved"] == 0
    assert most["0.1 % of the bytes"] <= 0.001
    assert most["0.5 % of the bytes"] <= 0.005
    assert most["no limit"] > 0.005
    left = values(rows, "unmet goals after them, all rounds")
    assert left["no limit"] <= left["0.5 % of the bytes"] <= left["nothing moved"]
    assert {row.subject for row in rows} == {"nothing moved", *module._SUBJECTS}


def test_loads_change_and_their_totals_stay() -> None:
    start = module.balanced(_SMALL, 0)
    loads = module.factors(_SMALL, start, 3)
    now = module.changed(start, start, loads[-1], 0.5)
    assert np.allclose(now.broker_load().sum(0), start.broker_load().sum(0))
    assert not np.allclose(now.leader_load, start.leader_load)
    disk, cpu = start.resource("disk"), start.resource("cpu")
    change = np.log(now.leader_load / start.leader_load)
    assert change[:, disk].std() < change[:, cpu].std()
    assert np.array_equal(loads, module.factors(_SMALL, start, 3))


def test_returns_are_replicas_that_come_back() -> None:
    start = synthetic_snapshot(brokers=3, partitions=2, replication_factor=1, racks=3)
    at = [[0, 0], [1, 0], [0, 2], [2, 0], [0, 2]]
    seen = [replace(start, replica_broker=np.array(brokers)) for brokers in at]
    returns, counts = module.Returns(6), []
    for before, after in pairwise(seen):
        returns.follow(before, after)
        counts.append(returns.count)
    # partition 0 is back on broker 0 twice, partition 1 on broker 0 and then on broker 2
    assert counts == [0, 1, 2, 4]


def test_unmet_goals_are_those_of_the_plan() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=120, racks=3)
    plan = Balancer("default").propose(snapshot)
    assert module.unmet(snapshot) == sum(not g.met_before for g in plan.goal_results)
    assert module.unmet(plan.final_snapshot()) == sum(not g.met_after for g in plan.goal_results)


def test_an_unknown_subject_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'theirs'; there are nothing moved"):
        list(module.drift(["S"], quiet(subjects=("theirs",))))
