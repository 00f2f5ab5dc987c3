from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from balancer import Balancer
from benchmarks import budget as module
from benchmarks.harness.environments import PeerMissing
from benchmarks.harness.judge import move_metrics, placed, rack_violations
from benchmarks.registry import BenchmarkError, Options, Row
from benchmarks.subjects import rebalancer
from benchmarks.subjects.greedy import greedy, usage
from cluster_model import Snapshot, synthetic_snapshot

_SMALL = module.Case(6, 100, 3, "default")
_ONE = replace(module._CASES["M"], brokers=8, partitions=400)


def quiet(**changes: Any) -> Options:
    return Options(log=lambda sentence: None, **changes)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CASES", {"S": _SMALL, "M": _ONE})
    monkeypatch.setattr(module, "_SHARES", (0.05, 0.2, 1.0))

    def missing(*_: Any, **__: Any) -> Any:
        raise PeerMissing("no Python")

    monkeypatch.setattr(rebalancer, "measure", missing)


def values(rows: list[Row], metric: str) -> dict[tuple[str, str], float]:
    return {(row.size, row.subject): row.value for row in rows if row.metric == metric}


def test_nobody_exceeds_the_limit_and_all_are_judged_alike(small: None) -> None:
    rows = list(module.budget(["S"], quiet()))
    moves = values(rows, "moves")
    assert {subject for _, subject in moves} == {"counterpoise", "counterpoise, cut", "greedy"}
    for (size, _), moved in moves.items():
        assert moved <= int(size.rsplit(" ", 1)[1].replace(",", ""))
    assert len(values(rows, "worst / mean")) == len(moves) + 1


def test_no_plan_is_below_the_bound(small: None) -> None:
    rows = list(module.budget(["M"], quiet()))
    worst = values(rows, "worst / mean")
    for (size, subject), level in worst.items():
        if subject != "before":
            assert level >= worst[size, "bound"] * (1 - 1e-9), (size, subject)


def test_the_bound_is_what_few_moves_reach_at_best() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        s = module.cluster(replace(_ONE, brokers=3, racks=3, partitions=5), int(rng.integers(1000)))
        load = s.leader_load[:, s.resource("network_in")]
        mean = load.sum() / 3
        for moves in range(4):
            best = np.inf
            for code in np.ndindex(3, 3, 3, 3, 3):
                at = np.array(code)
                if (at != s.replica_broker).sum() <= moves:
                    best = min(best, np.bincount(at, load, 3).max() / mean)
            assert module.bound(s, "network_in", moves) <= best * (1 + 1e-9)


def test_a_cut_of_everything_is_the_plan() -> None:
    snapshot = module.cluster(_SMALL, 0)
    plan = Balancer("default").propose(snapshot)
    after = {}
    for moves in (plan.summary.replica_moves, plan.summary.replica_moves // 2, 0):
        answer = module.cut(plan, moves)
        after[moves] = placed(snapshot, answer.replica_broker, answer.leader)
        counted = {m: v for m, v, _ in move_metrics(snapshot, after[moves])}
        assert counted["moves"] <= moves
    final = plan.final_snapshot()
    whole = after[plan.summary.replica_moves]
    assert np.allclose(whole.broker_load(), final.broker_load())


def _one_broker_full() -> Snapshot:
    s = synthetic_snapshot(brokers=3, partitions=3, replication_factor=1, racks=3)
    load = np.array([3.0, 2.0, 1.0])[:, None] * np.ones(4)
    return replace(
        s,
        replica_broker=np.zeros(3, np.int64),
        leader_load=load,
        follower_load=load,
        capacity=np.full((3, 4), 10.0),
    )


def test_the_greedy_moves_the_largest_replica_that_fits() -> None:
    found = greedy(_one_broker_full(), (0, 1, 2, 9), ("disk",))
    placements = {moves: answer.replica_broker.tolist() for moves, answer in found.items()}
    # After two, the fullest broker has a single replica, which fits nowhere.
    assert placements == {0: [0, 0, 0], 1: [1, 0, 0], 2: [1, 2, 0], 9: [1, 2, 0]}


def test_the_greedy_respects_racks_and_relieves() -> None:
    before = module.cluster(_SMALL, 0)
    answer = greedy(before, (20,))[20]
    after = placed(before, answer.replica_broker, answer.leader)
    assert usage(after).max() < usage(before).max()
    assert rack_violations(after) <= rack_violations(before)


def test_an_unknown_subject_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'theirs'; there are counterpoise"):
        list(module.budget(["S"], quiet(subjects=("theirs",))))


def test_few_moves_relieve_what_is_worst_of_all_goals_of_a_tier() -> None:
    case = module._CASES["S"]
    snapshot = module.cluster(case, 0)
    answer = module._planned(case, snapshot, 263)
    found = {name: value for name, value, _ in module._metrics(case, snapshot, answer)}
    assert found["moves"] == 263
    # what Rebalancer reaches within as many moves
    assert found["worst / mean network_in"] <= 1.364
    assert found["above the target"] <= 6.2
