"""Judging windows, and reading configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from backtest_cases import skewed

from balancer.backtest import BacktestError, Configuration, judge, load_configurations
from cluster_model import BrokerState, InputError, SnapshotDocument, build_snapshot
from goals import load_goals

GOALS = load_goals(
    {
        "goals": [
            {"goal": "ResourceCapacity", "resource": "network_in", "threshold": 0.5, "tier": 0},
            {"goal": "UsageDistribution", "resource": "network_in", "tier": 1},
        ]
    }
)


def test_the_figures_are_those_worked_out_by_hand() -> None:
    # Broker 1 leads both partitions: 90 of 100 in; broker 2 follows one of them: 30 of 100.
    brokers = [
        {"id": i, "rack": f"r{i}", "capacity": {"network_in": 100.0, "disk": 100.0}} for i in (1, 2)
    ]
    partitions = [
        {"topic": "t", "partition": 0, "replicas": [1, 2], "leader": 1,
         "leader_load": {"network_in": 30.0, "disk": 5.0},
         "follower_load": {"network_in": 30.0, "disk": 5.0}},
        {"topic": "t", "partition": 1, "replicas": [1], "leader": 1,
         "leader_load": {"network_in": 60.0, "disk": 5.0}},
    ]  # fmt: skip
    document = {"resources": ["network_in", "disk"], "brokers": brokers, "partitions": partitions}
    snapshot = build_snapshot(SnapshotDocument.model_validate(document))
    found = judge(snapshot, GOALS, 0.8, known=0.5)
    assert (found.worst, found.worst_broker, found.worst_resource) == (0.9, 1, "network_in")
    assert found.overloaded == 1
    assert judge(snapshot, GOALS, 0.9).overloaded == 0
    assert judge(snapshot, GOALS, 0.2).overloaded == 2
    assert (found.violated, found.violated_hard) == (2, 1)
    assert found.uneven == pytest.approx(90 / 60)
    assert found.known == 0.5
    # Where nothing may be placed, anything is too much.
    nowhere = judge(replace(snapshot, capacity=snapshot.capacity * [1.0, 0.0]), GOALS, 0.9)
    assert (nowhere.worst, nowhere.overloaded) == (0.9, 2)


def test_the_dead_are_not_overloaded_and_not_counted() -> None:
    s = skewed()
    state = np.full(s.n_brokers, BrokerState.ALIVE)
    worst = judge(s, GOALS, 0.8).worst_broker
    state[s.broker_ids == worst] = BrokerState.DEAD
    found = judge(replace(s, broker_state=state), GOALS, 0.0001)
    assert found.worst_broker != worst
    assert found.overloaded == s.n_brokers - 1


def test_configurations_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("goals: [RackAwareness]\n")
    (tmp_path / "tried.yaml").write_text(
        """
gentle:
  settings: {max_moves: 10, goal_violations: {rounds: 2}}
  statistic: p95
  span: 1d
  seed: 3
racks: {goals: mine.yaml, copy_rate: 1e9}
listed: {goals: [{goal: ReplicaDistribution}]}
plain:
"""
    )
    gentle, racks, listed, plain = load_configurations(tmp_path / "tried.yaml")
    assert (gentle.name, gentle.statistic, gentle.span) == ("gentle", "p95", 86400.0)
    assert gentle.settings.max_moves == 10
    assert gentle.balancer.seed == 3
    assert [g.name for g in racks.balancer.goals] == ["RackAwareness"]
    assert racks.copy_rate == 1e9
    assert [g.name for g in listed.balancer.goals] == ["ReplicaDistribution"]
    assert plain == Configuration("plain", plain.balancer)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "list found, a mapping of names expected"),
        ("", "None found, a mapping"),
        ("a: [", "not YAML"),
        ("a: 3", "a: int found, a mapping expected"),
        ("a: {goal: default}", "a: 'goal' found, one of goals, strategy, settings"),
        ("a: {goals: nowhere}", "'nowhere' found, a file or a profile"),
        ("a: {settings: {max_moves: 0}}", "a, settings: max_moves: 0 found"),
        ("a: {statistic: median}", "statistic 'median' found, mean, p95, peak expected"),
        ("a: {span: never}", "span 'never' found, seconds, or text like 250ms"),
        ("a: {span: 0}", "span 0 found, a number above 0 expected"),
        ("a: {copy_rate: -1}", "copy_rate -1 found"),
        ("history: {}", "the name 'history' found"),
        ("a: {settings: {webhooks: ['http://secret']}}", "webhooks.0: a mapping expected"),
        ("a: [{settings: {webhooks: ['http://secret']}}]", "a: list found"),
        ("- settings: {webhooks: ['http://secret']}", "list found"),
        ("a: http://secret", "a: str found"),
    ],
)
def test_wrong_configurations_are_reported_in_one_sentence(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "tried.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        load_configurations(file)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_a_file_that_is_not_there_is_reported_of(tmp_path: Path) -> None:
    with pytest.raises(BacktestError, match=r"none\.yaml: No such file"):
        load_configurations(tmp_path / "none.yaml")
