"""Throttles: set as Kafka's own tool does, and the previous values restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from execution_cases import FakeCluster

from balancer.execution.cluster import ConfigResource, Key, PartitionView
from balancer.execution.limits import Limits
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
    Flow,
    apply,
    flow,
    rates,
    remove,
    settings,
    throttled_replicas,
)

TOPIC, BROKER_1, BROKER_3 = (
    ConfigResource("topic", "a"),
    ConfigResource("broker", "1"),
    ConfigResource("broker", "3"),
)
FLOWS = {Key("a", 0): Flow((1, 2), (3,))}


def test_lists_and_brokers_are_those_of_kafkas_tool() -> None:
    """The vector of its own tests (ReassignPartitionsUnitTest)."""

    def reassigning(replicas: str, adding: str, removing: str) -> PartitionView:
        brokers = (tuple(map(int, text)) for text in (replicas, adding, removing))
        found, new, old = brokers
        return PartitionView(found, adding=new, removing=old)

    flows = {
        Key("foo", 0): flow(reassigning("1234", "4", "3"), (1, 2, 5)),
        Key("foo", 1): flow(reassigning("45678", "78", "45")),
        Key("foo", 2): flow(reassigning("1234", "34", "12"), (3, 4)),
        Key("foo", 3): flow(PartitionView((1, 2)), (5, 6)),
        Key("foo", 4): flow(PartitionView((1, 2)), (3,)),
        Key("foo", 5): flow(PartitionView((1, 2)), (3, 4, 5, 6)),
        Key("bar", 0): flow(PartitionView((2, 3, 4)), (1, 2, 3)),
    }
    assert throttled_replicas(flows) == {
        "foo": {
            LEADER_REPLICAS: "0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2",
            FOLLOWER_REPLICAS: "0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6",
        },
        "bar": {LEADER_REPLICAS: "0:2,0:3,0:4", FOLLOWER_REPLICAS: "0:1"},
    }
    assert sorted(rates(flows, 1e6)) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert rates(flows, 1e6)[8] == {LEADER_RATE: "1000000", FOLLOWER_RATE: "1000000"}


def test_what_is_not_throttled_says_what_that_means(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster({})
    refused = {BROKER_3: "Connection refused", TOPIC: "no answer"}
    monkeypatch.setattr(cluster, "set_configs", lambda values: refused)
    assert apply(cluster, settings(cluster, FLOWS, 5000, [], None)) == [
        "throttle of broker 3 not set: Connection refused; while it is down it copies nothing, "
        "but once back it may copy without this limit",
        "throttle of topic a not set: no answer; its moves may copy without a limit",
    ]


def test_what_is_set_is_removed_without_a_trace() -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000, [2], 6000)
    assert apply(cluster, requested) == []
    assert cluster.values[TOPIC] == {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"}
    assert cluster.values[BROKER_3] == {LEADER_RATE: "5000", FOLLOWER_RATE: "5000"}
    assert cluster.values[ConfigResource("broker", "2")][LOG_DIR_RATE] == "6000"
    assert remove(cluster, requested) == ([], [])
    assert cluster.throttles() == {}


def test_without_a_rate_nothing_is_throttled() -> None:
    assert settings(FakeCluster({}), FLOWS, None, [1], None) == []


def test_what_was_there_before_is_put_back() -> None:
    before = {
        TOPIC: {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "7:9"},
        BROKER_1: {LEADER_RATE: "777"},
    }
    cluster = FakeCluster({}, values={r: dict(v) for r, v in before.items()})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested)
    # All are throttled already; a list is added to.
    assert cluster.values[TOPIC] == {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "0:3,7:9"}
    assert cluster.values[BROKER_1][LEADER_RATE] == "5000"
    assert remove(cluster, requested) == ([], [])
    assert cluster.throttles() == before


def test_the_rate_of_others_is_not_raised_while_they_move_too() -> None:
    cluster = FakeCluster({}, values={BROKER_1: {LEADER_RATE: "777", FOLLOWER_RATE: "9999"}})
    for shared, expected in ((False, "5000"), (True, "777")):
        found = {(s.name, s.key): s.ours for s in settings(cluster, FLOWS, 5000, shared=shared)}
        assert found["1", LEADER_RATE] == expected
        assert found["1", FOLLOWER_RATE] == "5000"


def test_more_of_the_same_execution_remembers_what_was_found_first() -> None:
    cluster = FakeCluster({}, values={BROKER_1: {LEADER_RATE: "777"}})
    first = settings(cluster, FLOWS, 5000)
    apply(cluster, first)
    second = settings(cluster, {Key("a", 1): Flow((1,), (3,))}, 6000, known=first)
    apply(cluster, second)
    assert cluster.values[TOPIC][LEADER_REPLICAS] == "0:1,0:2,1:1"
    assert remove(cluster, second) == ([], [])
    assert cluster.values[BROKER_1] == {LEADER_RATE: "777"}
    assert not cluster.values[TOPIC]


def test_what_another_changed_meanwhile_stays() -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested)
    cluster.values[TOPIC][LEADER_REPLICAS] += ",4:4"
    cluster.values[BROKER_1][LEADER_RATE] = "9000"
    left, problems = remove(cluster, requested)
    assert cluster.throttles() == {TOPIC: {LEADER_REPLICAS: "4:4"}, BROKER_1: {LEADER_RATE: "9000"}}
    assert left == []
    (problem,) = problems
    assert LEADER_RATE in problem
    assert "9000" in problem


def test_the_throttle_of_a_broker_that_is_away_is_left_and_reported() -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested)
    cluster.brokers.remove(3)
    left, problems = remove(cluster, requested)
    assert {s.resource for s in left} == {BROKER_3}
    assert problems == [
        "throttle of broker 3 not yet removed: it does not answer; recover once it is back"
    ]
    cluster.brokers.add(3)
    assert remove(cluster, left) == ([], [])
    assert cluster.throttles() == {}


@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_was_set_only_in_part_is_removed(done: int) -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested[:done])
    assert remove(cluster, requested) == ([], [])
    assert cluster.throttles() == {}


@pytest.mark.parametrize(
    ("limits", "looks"),
    [({}, 3), ({"throttle_confirming_looks": 5}, 6), ({"throttle_looks": 2}, 2)],
)
def test_limits_say_how_often_the_removal_is_looked_at(
    limits: dict[str, Any], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested)
    asked: list[object] = []
    read = cluster.configs

    def counted(resources: Mapping[ConfigResource, Sequence[str]]) -> Any:
        asked.append(resources)
        return read(resources)

    monkeypatch.setattr(cluster, "configs", counted)
    left, _ = remove(cluster, requested, limits=Limits(**limits))
    assert len(asked) == looks
    assert bool(left) == (looks == 2)


def test_limits_say_how_often_an_absent_broker_is_asked() -> None:
    cluster = FakeCluster({})
    requested = settings(cluster, FLOWS, 5000)
    apply(cluster, requested)
    cluster.brokers.remove(3)
    left, _ = remove(cluster, requested, limits=Limits(throttle_attempts=1))
    assert {s.resource for s in left} == {BROKER_3}
