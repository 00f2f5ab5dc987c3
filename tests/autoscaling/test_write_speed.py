"""Write speeds are measured over a window, published, and read; what is not known is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from balancer.autoscaling import write_speed
from balancer.autoscaling.errors import AutoscalingError, NotYetError
from balancer.autoscaling.write_speed import (
    PublishedSpeeds,
    SpeedPublisher,
    SpeedWindow,
    TopicSpeeds,
)
from metrics_reporter.records import Record


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def step(**speeds: float) -> list[Record]:
    """A report of partitions 0 of topics; and what is of no use here."""
    measured = [Record(0, 1, {"bytes_in": v, "size": 1.0}, t, 0) for t, v in speeds.items()]
    return [Record(0, 1, {"cpu": 1.0}), Record(0, 1, {"size": 5.0}, "follower", 0), *measured]


def test_speeds_are_means_over_the_window() -> None:
    clock = Clock()
    window = SpeedWindow(30.0, clock)
    assert window.add(step()) == {}
    clock.now += 10
    assert window.add(step(a=100.0)) == {("a", 0): 100.0}
    clock.now += 20
    assert window.add(step(a=400.0)) == {("a", 0): 300.0}
    clock.now += 20
    # the first step no longer counts
    assert window.add(step(a=0.0)) == {("a", 0): 200.0}


def test_a_step_that_was_not_measured_is_no_speed_of_zero() -> None:
    clock = Clock()
    window = SpeedWindow(30.0, clock)
    window.add(step())
    for speeds, expected in (
        ({"a": 100.0, "b": 10.0}, {("a", 0): 100.0, ("b", 0): 10.0}),
        # the leader of b has changed, or its topic was deleted and made again
        ({"a": 100.0}, {("a", 0): 100.0}),
        ({"a": 100.0, "b": 30.0}, {("a", 0): 100.0, ("b", 0): 20.0}),
    ):
        clock.now += 10
        assert window.add(step(**speeds)) == expected


class Message:
    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def error(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value


class Consumer:
    """A consumer of a topic that holds these values."""

    def __init__(self, topics: Sequence[str], values: list[bytes | None]) -> None:
        self.topics = dict.fromkeys(topics, self)
        self.partitions = {0: None}
        self.values = values

    def list_topics(self, timeout: float) -> Consumer:
        return self

    def assign(self, partitions: Sequence[Any]) -> None:
        assert [(p.topic, p.partition) for p in partitions] == [(write_speed.TOPIC, 0)]

    def consume(self, most: int, timeout: float) -> list[Message]:
        found, self.values = self.values, []
        return [Message(value) for value in found]


def published(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes | None], topics: Sequence[str]
) -> PublishedSpeeds:
    consumer = Consumer(topics, values)
    monkeypatch.setattr(write_speed, "create", lambda kind, properties: consumer)
    return PublishedSpeeds("localhost:9092", {})


def message(topic: str, age: float, **speeds: float) -> bytes:
    numbers = {int(name[1:]): speed for name, speed in speeds.items()}
    found = TopicSpeeds(topic=topic, at=time.time() - age, window=30.0, speeds=numbers)
    return found.model_dump_json().encode()


def test_the_last_speeds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [
        message("a", 60.0, p0=1.0, p1=1.0),
        # while the monitor's clock was ahead
        message("a", -1e6, p0=2.0, p1=2.0),
        message("a", 5.0, p0=100.0, p1=50.0),
        message("b", 1.0, p0=7.0),
        *(None, b"{}", b"\xff", message("a", 0.0).replace(b"30.0", b"1e999")),
    ]
    speeds = published(monkeypatch, values, [write_speed.TOPIC])
    assert speeds([("a", 1), ("b", 0), ("a", 0)]) == [50.0, 7.0, 100.0]
    assert speeds([]) == []


def test_a_topic_that_is_written_to_without_end_is_read_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Endless(Consumer):
        def consume(self, most: int, timeout: float) -> list[Message]:
            clock.now += 1.0
            assert clock.now < 200.0
            return [Message(message("a", 0.0, p0=3.0))]

    clock = Clock()
    monkeypatch.setattr(write_speed, "boot_clock", clock)
    consumer = Endless([write_speed.TOPIC], [])
    monkeypatch.setattr(write_speed, "create", lambda kind, properties: consumer)
    assert PublishedSpeeds("localhost:9092", {}, timeout=10.0)([("a", 0)]) == [3.0]


def test_what_is_not_known_or_too_old_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = message("c", 20_000.0, p0=1.0).replace(b"30.0", b"1e300")
    values: list[bytes | None] = [message("a", 100.0, p0=1.0), message("b", 0.0, p0=1.0), endless]
    speeds = published(monkeypatch, values, [write_speed.TOPIC])
    with pytest.raises(NotYetError, match="the write speed of 3 partitions is not known"):
        speeds([("a", 0), ("b", 0), ("b", 1), ("c", 0)])


def test_a_missing_topic_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = published(monkeypatch, [], ["other"])
    with pytest.raises(AutoscalingError, match=r"topic 'monitor\.write-speed' not found"):
        speeds([("a", 0)])


class Cluster:
    """The admin API of two brokers that may leave or not answer."""

    def __init__(self) -> None:
        self.brokers, self.silent = [1, 2], set[int]()
        self.looks = 0

    @contextmanager
    def connect(self) -> Iterator[Callable[[Callable[[Any], Any]], Any]]:
        self.looks += 1
        yield lambda f: f(self)

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": b} for b in self.brokers]}

    def describe_topics(self) -> list[dict[str, Any]]:
        leaders = [1, self.brokers[-1]]
        return [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": n, "leader_id": b, "replica_nodes": [1, 2][: n + 1]}
                    for n, b in enumerate(leaders)
                ],
            }
        ]

    def list_partition_offsets(self, asked: dict[Any, int]) -> dict[Any, Any]:
        return {p: SimpleNamespace(offset=0 if at == -2 else 100 * self.looks)
                for p, at in asked.items()}  # fmt: skip

    def describe_log_dirs(self, held: dict[str, list[int]], brokers: list[int]) -> list[Any]:
        if self.silent & set(brokers):
            raise TimeoutError("no answer")
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": n, "partition_size": 1e3, "is_future_key": False}
                    for n in numbers
                ],
            }
            for topic, numbers in held.items()
        ]
        return [{"log_dirs": [{"error_code": 0, "topics": topics}]}]


class Producer:
    def __init__(self) -> None:
        self.values: list[TopicSpeeds] = []

    def produce(self, topic: str, value: bytes, **_: Any) -> None:
        self.values.append(TopicSpeeds.model_validate_json(value))

    def flush(self, timeout: float) -> int:
        return 0


def test_what_is_known_is_published_although_a_broker_does_not_answer() -> None:
    cluster, producer = Cluster(), Producer()
    publisher = SpeedPublisher(cluster.connect, producer)
    assert publisher.publish() == 0
    assert publisher.publish() == 2
    cluster.silent.add(2)
    with pytest.raises(AutoscalingError, match="broker 2 reported no sizes: no answer"):
        publisher.publish()
    assert set(producer.values[-1].speeds) == {0}
    # it has left, and another one leads its partition
    cluster.brokers.remove(2)
    publisher.publish()
    assert publisher.publish() == 2
