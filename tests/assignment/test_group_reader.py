"""The consumer of single partitions reports only what concerns the partitions that it reads."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

from balancer.assignment.group import GroupError  # noqa: E402
from balancer.assignment.group import reader as readers  # noqa: E402

ERRORS = confluent_kafka.KafkaError


class StubConsumer:
    """Returns what is put into it, also of partitions that have been removed."""

    def __init__(self) -> None:
        self.arrived: list[Any] = []

    def incremental_assign(self, partitions: list[Any]) -> None:
        pass

    def incremental_unassign(self, partitions: list[Any]) -> None:
        pass

    def consume(self, maximum: int, timeout: float) -> list[Any]:
        arrived, self.arrived = self.arrived, []
        return arrived


def message(partition: int, offset: int, code: int | None = None) -> SimpleNamespace:
    error = None if code is None else ERRORS(code)
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: error)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> StubConsumer:
    consumer = StubConsumer()
    monkeypatch.setattr(readers, "create", lambda *_: consumer)
    return consumer


def test_events_of_a_removed_partition_are_dropped(consumer: StubConsumer) -> None:
    reader = readers.PartitionReader("x:1", "changelog")
    reader.add(0, 5)
    reader.add(1, 7)
    reader.remove(0)
    # librdkafka does not drop an error of a former assignment, as it does messages.
    codes = (ERRORS._PARTITION_EOF, ERRORS._AUTO_OFFSET_RESET, ERRORS.OFFSET_OUT_OF_RANGE)
    consumer.arrived = [message(p, 9, code) for p in (0, 1) for code in (None, *codes)]
    found = reader.read(100, 0)
    assert [*found.messages] == [1]
    assert found.ends == {1: 9}
    assert found.missing == {1}


def test_a_refusal_of_a_removed_partition_is_none(consumer: StubConsumer) -> None:
    reader = readers.PartitionReader("x:1", "changelog")
    reader.add(1, 7)
    refused = ERRORS.TOPIC_AUTHORIZATION_FAILED
    consumer.arrived = [message(0, 9, refused)]
    assert reader.read(100, 0) == readers.Batch()
    # -1 stands for no partition in particular.
    for partition in (1, -1):
        consumer.arrived = [message(partition, 9, refused)]
        with pytest.raises(GroupError, match="topic changelog"):
            reader.read(100, 0)


def test_the_error_of_a_position_that_the_client_cannot_find_ends_with_the_partition() -> None:
    """With the client itself and its stub of a broker: most of these errors arrive late."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x"})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    for _ in range(5):
        producer.produce("lines", b"a", partition=0)
    assert producer.flush(30) == 0
    reader = readers.PartitionReader(f"{broker.host}:{broker.port}", "lines")
    reader.add(1, 0)
    for offset in range(10, 20):
        reader.add(0, offset)
        time.sleep(0.1)
        reader.remove(0)
        found = reader.read(10, 0.05)
        assert 0 not in found.missing | found.ends.keys() | found.messages.keys()
    # While it is read, its own error is told.
    reader.add(0, 50)
    deadline = time.monotonic() + 30
    while 0 not in reader.read(10, 0.05).missing:
        assert time.monotonic() < deadline
    reader.close()
