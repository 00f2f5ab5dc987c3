"""What an assigned consumer commits, and what ends it; over a Kafka that is in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from balancer.autoscaling.assigned import AssignedConsumer, ConsumerSettings, GroupController
from balancer.autoscaling.assigned import channel as channel_module
from balancer.autoscaling.assigned import consumer as consumer_module
from balancer.autoscaling.assigned.channel import Channel, check_rights, last_messages
from balancer.autoscaling.assigned.messages import Assignment, Heartbeat
from balancer.autoscaling.autoscaler import Autoscaler
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.observation import Observation
from balancer.autoscaling.repairing import RepairPolicy


class Stored(NamedTuple):
    """A record of the only partition."""

    at: int

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> None:
        return None


class Kafka:
    """One partition with so many records, what was committed of it, and an eager controller."""

    def __init__(self) -> None:
        self.records = 10
        self.commits: list[int] = []
        self.lease_seconds = 10.0

    def client(self, kind: str, properties: Mapping[str, Any]) -> Client:
        return Client(self, properties["on_commit"])

    def channel(self, *_: object) -> Control:
        return Control(self)


class Client:
    def __init__(self, kafka: Kafka, on_commit: Callable[[None, list[Any]], None]) -> None:
        self.kafka, self.on_commit = kafka, on_commit
        self.position: int | None = None
        self.answers: list[list[Any]] = []

    def committed(self, places: Sequence[Any], timeout: float) -> list[Any]:
        at = self.kafka.commits[-1] if self.kafka.commits else -1001
        return [TopicPartition(p.topic, p.partition, at) for p in places]

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, self.kafka.records

    def incremental_assign(self, places: Sequence[Any]) -> None:
        for place in places:
            self.position = 0 if place.offset == OFFSET_BEGINNING else place.offset

    def incremental_unassign(self, places: Sequence[Any]) -> None:
        if places:
            self.position = None

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.kafka.commits += [place.offset for place in offsets]
        self.answers.append(offsets)
        return offsets

    def consume(self, most: int, timeout: float) -> list[Stored]:
        for places in self.answers:
            self.on_commit(None, places)
        self.answers.clear()
        if self.position is None or self.position >= self.kafka.records:
            time.sleep(0.01)
            return []
        found = [Stored(at) for at in range(self.position, self.kafka.records)]
        self.position = self.kafka.records
        return found

    def close(self) -> None: ...


class Control:
    """The controller gives everything to who asks."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka, self.answers, self.count = kafka, deque[bytes](), 0

    def partitions(self, within: float) -> int:
        return 3

    def read(self, partition: int) -> None: ...

    def receive(self, timeout: float) -> list[bytes]:
        time.sleep(0.01)
        found = list(self.answers)
        self.answers.clear()
        return found

    def send(self, partition: int, value: bytes) -> None:
        beat = Heartbeat.decode(value)
        assert beat is not None
        self.count += 1
        message = Assignment(
            id=beat.id, epoch=1, number=self.count, heartbeat=beat.number,
            lease_seconds=self.kafka.lease_seconds, partitions={"orders": (0,)},
        )  # fmt: skip
        self.answers.append(message.encode())

    def close(self) -> None: ...


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    found = Kafka()
    monkeypatch.setattr(consumer_module, "create", found.client)
    monkeypatch.setattr(consumer_module, "Channel", found.channel)
    return found


def fail_at(consumer: AssignedConsumer, offset: int) -> None:
    for record in consumer:
        if record.offset() == offset:
            raise ValueError(f"record {offset}")


def test_a_record_that_failed_is_not_committed_however_the_consumer_is_closed(
    kafka: Kafka,
) -> None:
    consumer = AssignedConsumer("localhost:9092", "g", "a-1")
    try:
        with pytest.raises(ValueError, match="record 4"):
            fail_at(consumer, 4)
    finally:
        consumer.close()
    assert kafka.commits[-1] == 4
    with (
        pytest.raises(ValueError, match="record 6"),
        AssignedConsumer("localhost:9092", "g", "a-1") as consumer,
    ):
        fail_at(consumer, 6)
    assert kafka.commits[-1] == 6
    with (
        AssignedConsumer("localhost:9092", "g", "a-1") as consumer,
        pytest.raises(ValueError, match="record 7"),
    ):
        fail_at(consumer, 7)
    assert kafka.commits[-1] == 7
    # of a poll too, only records count after which another one was asked for
    with AssignedConsumer("localhost:9092", "g", "a-1") as consumer:
        for record in consumer.poll(5.0):
            if record.offset() == 8:
                break
    assert kafka.commits[-1] == 8


def test_a_loop_that_is_stopped_has_processed_all(kafka: Kafka) -> None:
    with AssignedConsumer("localhost:9092", "g", "a-1") as consumer:
        for record in consumer:
            if record.offset() == 5:
                consumer.stop()
    assert kafka.commits[-1] == 6


class Refused(NamedTuple):
    """An error of the client, of a partition or of all."""

    of: tuple[str, int] | None

    def topic(self) -> str | None:
        return self.of and self.of[0]

    def partition(self) -> int | None:
        return self.of and self.of[1]

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("of", [("orders", 0), None])
def test_an_error_that_concerns_what_is_read_ends_the_consumer(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, of: tuple[str, int] | None
) -> None:
    refuse_from(5, Refused(of), monkeypatch)
    with (
        AssignedConsumer("localhost:9092", "g", "a-1") as consumer,
        pytest.raises(
            AutoscalingError,
            match="consumer a-1: Broker: Topic authorization failed; give the client's user the "
            f"right to READ on {'topic orders' if of else 'its topics'}$",
        ),
    ):
        read(consumer, lambda: False)


def test_a_late_error_of_a_partition_that_was_given_up_ends_nothing(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_from(5, Refused(("orders", 1)), monkeypatch)
    with AssignedConsumer("localhost:9092", "g", "a-1") as consumer:
        assert len(read(consumer, lambda: kafka.commits[-1:] == [10])) == 10


def refuse_from(calls: int, error: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client report an error beside its records from so many calls on."""
    consume, count = Client.consume, iter(range(10**9))

    def refusing(client: Client, most: int, timeout: float) -> list[Any]:
        found: list[Any] = list(consume(client, most, timeout))
        return [*found, error] if client.position and next(count) >= calls else found

    monkeypatch.setattr(Client, "consume", refusing)


def read(consumer: AssignedConsumer, enough: Callable[[], bool]) -> list[int]:
    """Offsets until there is enough."""
    found: list[int] = []
    deadline = time.monotonic() + 30.0
    while not enough() and time.monotonic() < deadline:
        found += [record.offset() for record in consumer.poll(0.05)]
    return found


def test_the_end_at_which_a_consumer_begins_is_where_the_next_one_goes_on(kafka: Kafka) -> None:
    with AssignedConsumer("localhost:9092", "g", "a-1", start="latest") as consumer:
        assert read(consumer, lambda: bool(consumer.partitions)) == []
        # before anything is read
        assert kafka.commits == [10]
    # they come while nobody reads
    kafka.records = 15
    with AssignedConsumer("localhost:9092", "g", "b-2", start="latest") as consumer:
        found = []
        for record in consumer:
            found.append(record.offset())
            if record.offset() == 14:
                consumer.stop()
    assert found == [10, 11, 12, 13, 14]


def test_positions_are_committed_again_without_records(kafka: Kafka) -> None:
    kafka.commits = [10]
    settings = ConsumerSettings(commit_seconds=0.01, renewal_seconds=0.1)
    with AssignedConsumer("localhost:9092", "g", "a-1", settings=settings) as consumer:
        assert read(consumer, lambda: len(kafka.commits) > 3) == []
    assert set(kafka.commits) == {10}
    assert len(kafka.commits) > 3


def test_a_lease_that_is_too_short_for_a_record_is_one_sentence(kafka: Kafka) -> None:
    kafka.lease_seconds = 30.5
    settings = ConsumerSettings(record_seconds=30.0)
    with AssignedConsumer("localhost:9092", "g", "a-1", settings=settings) as consumer:
        with pytest.raises(AutoscalingError, match=r"lease of 30\.5 s is too short for records"):
            read(consumer, lambda: False)
        assert consumer.partitions == frozenset()
    assert kafka.commits == []


def test_a_name_that_no_message_can_hold_is_one_sentence(kafka: Kafka) -> None:
    for name in ("n" * 218, "n" * 500):
        with pytest.raises(AutoscalingError, match=r"characters found, 1 to 217 expected"):
            AssignedConsumer("localhost:9092", "g", name)
    with AssignedConsumer("localhost:9092", "g", "n" * 217) as consumer:
        read(consumer, lambda: bool(consumer.partitions))
        assert consumer.partitions


def test_the_end_of_heartbeats_ends_the_iteration(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive(self: Control, timeout: float) -> list[bytes]:
        raise RuntimeError("no threads left\nat all")

    monkeypatch.setattr(Control, "receive", receive)
    with (
        AssignedConsumer("localhost:9092", "g", "a-1") as consumer,
        pytest.raises(AutoscalingError, match="heartbeats have ended") as ended,
    ):
        for _ in consumer:
            pass
    assert "\n" not in str(ended.value)


class Denied:
    """A client of a topic that the user may not read or write."""

    def __init__(self, kind: str, properties: Mapping[str, Any]) -> None:
        self.kind = kind
        self.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]

    def error(self) -> KafkaError:
        return self.errors[0]

    def consume(self, most: int, timeout: float) -> list[Denied]:
        return [self] if DENIED == "read" else []

    def poll(self, timeout: float) -> None: ...

    def produce(self, topic: str, value: bytes, partition: int, on_delivery: Any) -> None:
        if DENIED == "write":
            on_delivery(self.errors[0], None)

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


DENIED = "read"


@pytest.mark.parametrize("right", ["read", "write"])
def test_a_control_topic_without_rights_is_said(
    right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "create", Denied)
    monkeypatch.setitem(globals(), "DENIED", right)
    channel = Channel("localhost:9092", {}, "control", 1.0)
    channel.send(0, b"")
    said = f"topic control: .*uthorization failed; .* right to {right.upper()} on topic control$"
    with pytest.raises(AutoscalingError, match=said):
        channel.receive(0.0)


def test_a_control_topic_that_a_broker_does_not_know_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    answers = [KafkaException(unknown), SimpleNamespace(authorized_operations=None)]

    class Answer:
        def result(self, timeout: float) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    admin = SimpleNamespace(describe_topics=lambda topics, **options: {"control": Answer()})
    monkeypatch.setattr(channel_module, "_admin", lambda *_: admin)
    check_rights("localhost:9092", {}, "control", 60.0)
    assert not answers

    answers.append(KafkaException(unknown))
    with pytest.raises(AutoscalingError, match=r"^topic control at localhost:9092: .*[Uu]nknown"):
        check_rights("localhost:9092", {}, "control", 0.0)


def test_what_was_said_in_a_topic_that_is_not_known_is_not_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    consumer = SimpleNamespace(
        list_topics=lambda topic, timeout: SimpleNamespace(topics={topic: listed}),
        assign=lambda places: None,
        close=lambda: None,
    )
    monkeypatch.setattr(channel_module, "create", lambda *_: consumer)
    with pytest.raises(AutoscalingError, match=r"^topic control: .*[Uu]nknown"):
        last_messages("localhost:9092", {}, "control", 1, 60.0)


def test_a_controller_that_may_not_read_says_so_in_its_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Open(Denied):
        def list_topics(self, topic: str, timeout: float) -> Any:
            return self

        @property
        def topics(self) -> dict[str, Any]:
            return {"counterpoise-control-g": self}

        @property
        def partitions(self) -> dict[int, None]:
            return dict.fromkeys(range(3))

        def assign(self, places: Sequence[Any]) -> None: ...

    monkeypatch.setattr(channel_module, "create", Open)
    monkeypatch.setitem(globals(), "DENIED", "read")
    with GroupController("localhost:9092", "g", None, 2) as controller:
        deadline = time.monotonic() + 30.0
        said = ""
        while "uthorization" not in said and time.monotonic() < deadline:
            with pytest.raises(AutoscalingError) as refused:
                controller.members()
            said = str(refused.value)
            time.sleep(0.01)
    assert "uthorization" in said


def test_a_dry_run_knows_of_no_other_controller() -> None:
    group = Group(
        rate=np.ones(1), lag=np.zeros(1), consumer=np.zeros(1, np.int64), capacity=np.full(1, 9.0),
        new_capacity=9.0,
    )  # fmt: skip
    seen = Observation(name="g", group=group, partitions=("t-0",), consumers=("a",))
    listens = GroupController("localhost:9092", "g", None, 2)
    loop = Autoscaler(lambda: seen, RepairPolicy(), assignor="assigned", assign=listens.assign)
    done = loop.round()
    assert done.kind == "decided"
    assert "another controller" not in done.reason
