"""Slow brokers: detected by three measures, demoted, and restored when they recover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from controller_cases import Stage, even

from cluster_model import Snapshot, synthetic_snapshot

SIGNAL = "log_flush_time_ms_p999"
USUAL = {"slow_brokers": {"min_history": 5, "max_share": 0.5, "cooldown": 0}}


def _measured(stage: Stage, slow: dict[int, float] | None = None, usual: float = 500.0) -> None:
    stage.model.measured = {SIGNAL: dict.fromkeys(range(1, 7), usual) | (slow or {})}


def _led_by(stage: Stage, broker: int) -> int:
    s = stage.model.cluster
    leads = s.replica_broker[s.replica_is_leader]
    return int((leads == s.broker_index([broker])[0]).sum())


def _stage(**more: Any) -> Stage:
    stage = Stage(even(), {"slow_brokers": {**USUAL["slow_brokers"], **more}})
    _measured(stage)
    stage.rounds(10)
    return stage


def test_a_slow_broker_gives_up_leading_and_gets_it_back_later() -> None:
    stage = _stage()
    _measured(stage, {3: 5000.0})
    assert "executed" not in stage.rounds(4)
    assert _led_by(stage, 3)
    assert stage.rounds(1) == ["executed"]
    assert not _led_by(stage, 3)
    assert "broker 3 is slow (score 5): log_flush_time_ms_p999 is 5,000" in str(
        stage.controller.decisions[-2].reason
    )
    held = (stage.model.cluster.replica_broker == 2).sum()
    # it stays demoted, and is given nothing, while goals are looked after
    stage.rounds(60)
    assert not _led_by(stage, 3)
    assert (stage.model.cluster.replica_broker == 2).sum() <= held
    assert stage.controller.state()["demoted"] == [3]
    _measured(stage)
    stage.rounds(10)
    assert stage.controller.state()["demoted"] == []
    stage.now += 6 * 3600
    stage.rounds(10)
    assert _led_by(stage, 3)


def test_each_measure_alone_is_not_enough() -> None:
    # Slow for its past and its peers, but below the floor.
    stage = _stage()
    _measured(stage, {3: 900.0}, usual=100.0)
    stage.rounds(10)
    assert not stage.controller.state()["slow_scores"]
    # Slow for its past, as all its peers are now.
    stage = _stage()
    _measured(stage, usual=5000.0)
    stage.rounds(10)
    assert not stage.controller.state()["slow_scores"]
    # Slow for its peers, but it always was.
    stage = Stage(even(), USUAL)
    _measured(stage, {3: 5000.0})
    stage.rounds(20)
    assert not stage.controller.state()["slow_scores"]


def test_a_single_bad_round_is_forgiven() -> None:
    stage = _stage()
    for _ in range(20):
        _measured(stage, {3: 5000.0})
        stage.rounds(1)
        _measured(stage)
        stage.rounds(1)
    assert not stage.executor.plans


def test_rounds_without_a_new_measurement_do_not_count() -> None:
    stage = _stage()
    _measured(stage, {3: 5000.0})
    stage.rounds(3)
    stage.model.measured = {}
    stage.rounds(20)
    assert stage.controller.state()["slow_scores"] == {"3": 3}


def test_idle_brokers_are_not_judged() -> None:
    stage = _stage(min_bytes_in=1e15)
    _measured(stage, {3: 5000.0})
    stage.rounds(10)
    assert not stage.controller.state()["slow_scores"]


def test_many_slow_brokers_are_reported_and_left_alone() -> None:
    stage = _stage(max_share=0.1)
    # Two of six have the other four as peers.
    _measured(stage, {3: 5000.0, 4: 5000.0})
    kinds = stage.rounds(6)
    assert kinds[-1] == "unfixable"
    assert "brokers 3 and 4 are slow, 2 of 6; at most 1 would be demoted" in stage.reason
    assert not stage.executor.plans


def test_a_broker_that_stays_slow_is_emptied_where_that_is_requested() -> None:
    stage = _stage(remove=True, remove_score=8)
    _measured(stage, {3: 5000.0})
    stage.rounds(12)
    assert not np.isin(stage.model.cluster.replica_broker, [2]).any()


def _three(brokers: int = 3) -> Snapshot:
    return synthetic_snapshot(
        brokers=brokers, partitions=24, racks=1, replication_factor=2, utilization=0.1
    )


@pytest.mark.parametrize("drained", [[], [2]])
def test_a_slow_broker_receives_what_is_healed(drained: list[int]) -> None:
    # Whatever broker 3 holds can go nowhere else than to the slow one, or to the drained one.
    settings = {
        "slow_brokers": {**USUAL["slow_brokers"], "max_share": 1.0},
        "dead_brokers": {"heal_after": 0},
        "goal_violations": {"enabled": False},
        "drained_brokers": {"brokers": drained, "act": False},
    }
    stage = Stage(_three(3 + len(drained)), settings)
    stage.model.measured = {SIGNAL: dict.fromkeys((1, 2, 3, 4), 500.0)}
    stage.rounds(10)
    stage.model.measured = {SIGNAL: {1: 5000.0, 2: 500.0, 3: 500.0, 4: 500.0}}
    stage.rounds(10)
    assert stage.controller.state()["demoted"] == [1]
    s = stage.model.cluster
    slow, spare = ((s.replica_broker == b).sum() for b in (0, 1))
    stage.model.with_states(dead=[3])
    stage.rounds(3)
    s = stage.model.cluster
    assert not (s.replica_broker == 2).any()
    assert (s.replica_broker == 0).sum() > slow
    # The slow broker is enough: the drained one is given nothing.
    assert not drained or (s.replica_broker == 1).sum() <= spare


def test_a_drained_broker_receives_what_is_healed_only_if_no_other_can() -> None:
    settings = {
        "dead_brokers": {"heal_after": 0, "max_share": 0.9},
        "goal_violations": {"enabled": False},
        "drained_brokers": {"brokers": [2], "act": False},
    }
    stage = Stage(_three(), settings)
    stage.model.with_states(dead=[3])
    # First what broker 1 can take; what it holds already goes to the drained broker.
    assert stage.rounds(1) == ["executed"]
    assert (stage.model.cluster.replica_broker == 2).any()
    assert "executed" in stage.rounds(6)
    assert not (stage.model.cluster.replica_broker == 2).any()
    without_cooling, last = stage.executor.plans
    assert 2 not in {a.destination for a in without_cooling.actions if a.kind == "move"}
    assert {a.destination for a in last.actions if a.kind == "move"} == {2}
    reported = [d.reason for d in stage.controller.decisions if d.kind == "started"]
    said = "broker 2, to be empty, may receive replicas, because no other broker can"
    assert [said in reason for reason in reported] == [False, True]


def test_a_drained_broker_is_the_last_one_that_can_receive() -> None:
    settings = {
        "dead_brokers": {"heal_after": 0, "max_share": 0.9},
        "drained_brokers": {"brokers": [1, 2], "act": False},
    }
    stage = Stage(_three(), settings)
    stage.model.with_states(dead=[3])
    assert stage.rounds(1) == ["executed"]
    assert not (stage.model.cluster.replica_broker == 2).any()
