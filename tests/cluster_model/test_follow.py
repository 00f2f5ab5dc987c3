"""A model keeps following a topic, whatever happens to the topic and the brokers."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from waiting import wait_for

from cluster_model import BrokerRecord, InputError, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.build import build_snapshot
from cluster_model.follow import Follower, FollowError, follow_kafka
from metrics_reporter import Record, RecordReader, encode, mock_cluster, read_records

START = 1_700_000_000_000
CAPACITY = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12}


def cluster(*topics: str) -> Snapshot:
    return build_snapshot(
        SnapshotDocument(
            resources=tuple(CAPACITY),
            brokers=tuple(BrokerRecord(id=i, capacity=CAPACITY) for i in (1, 2)),
            partitions=tuple(
                PartitionRecord(topic=t, partition=0, replicas=(1, 2), leader=1) for t in topics
            ),
        )
    )


def rates(time_ms: int, topic: str) -> bytes:
    return encode(Record(time_ms, 1, {"bytes_in": 5.0, "bytes_out": 1.0, "size": 9.0}, topic, 0))


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster() as addresses:
        yield addresses


def produce(bootstrap: str, *values: bytes | None) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce("metrics", value, key=b"k")
    assert producer.flush(10) == 0


def test_a_model_follows_topic_and_metadata(bootstrap: str) -> None:
    states: list[Snapshot | Exception] = [cluster("a")]
    requested: list[int] = []

    def metadata() -> Snapshot:
        if isinstance(states[-1], Exception):
            raise states[-1]
        return states[-1]

    def records(since_ms: int) -> RecordReader:
        requested.append(since_ms)
        if len(requested) == 1:
            return read_records(bootstrap, "metrics", follow=True, format="automq")
        # The built-in broker knows no offsets of times.
        return read_records(bootstrap, "metrics", follow=True)

    options = {"window_ms": 1000, "windows": 2, "min_samples": 1, "clock": lambda: START + 3000}
    produce(bootstrap, rates(START, "a"), b"junk", None, rates(START, "b"))
    follower = Follower(metadata, records, refresh=0.05, retry=0.05, **options)
    with pytest.raises(FollowError, match=r"no model before start"):
        _ = follower.model
    with follower:
        model = follower.model
        wait_for(lambda: follower.malformed == 4)
        assert follower._reader is not None
        follower._reader.stop()
        wait_for(lambda: follower.malformed == 6)
        wait_for(lambda: model.counters == model.counters | {"added": 1, "unknown": 1})
        assert requested[:2] == [START + 1000, START + 1000]
        assert follower.problems == ()

        states.append(InputError("the brokers went away"))
        wait_for(lambda: follower.problems == ("metadata not refreshed: the brokers went away",))
        states.append(RuntimeError("a bug of the client"))
        wait_for(lambda: follower.problems == ("metadata not refreshed: a bug of the client",))
        states.append(cluster("b"))
        wait_for(lambda: model.metadata.topics == ("b",))
        wait_for(lambda: follower.problems == ())
        assert follower.metadata_age < 20.0

        produce(bootstrap, rates(START, "b"), rates(START + 1000, "b"))
        wait_for(lambda: model.counters["added"] == 3)
        found = model.snapshot()
        assert found.leader_load[:, found.resource("network_in")].tolist() == [5.0]
        with pytest.raises(FollowError, match="already started"):
            follower.start()
    follower.stop()
    assert not any(thread.is_alive() for thread in follower._threads)


def test_a_topic_that_comes_late(bootstrap: str) -> None:
    quiet = {"log_level": 0, "allow.auto.create.topics": False}

    def records(_since_ms: int) -> RecordReader:
        return read_records(bootstrap, topics[-1], follow=True, timeout=2.0, client=quiet)

    topics = ["no such\ntopic"]
    options = {"window_ms": 1000, "min_samples": 1}
    with Follower(lambda: cluster("a"), records, retry=0.05, **options) as follower:
        wait_for(lambda: len(follower.problems) == 1)
        assert follower.problems[0].startswith("metrics not read: metrics topic 'no such")
        produce(bootstrap, rates(START, "a"))
        topics.append("metrics")
        wait_for(lambda: follower.model.counters["added"] == 1)
        wait_for(lambda: follower.problems == ())


def test_nobody_there_is_reported_at_the_start() -> None:
    follower = follow_kafka("127.0.0.1:1", "metrics", timeout=0.3)
    with pytest.raises(InputError, match=r"Kafka at 127\.0\.0\.1:1 "):
        follower.start()
    follower.stop()


@pytest.mark.parametrize("argument", ["refresh", "retry"])
def test_arguments_are_named(argument: str) -> None:
    with pytest.raises(InputError, match=f"follower, {argument}: 0 found"):
        follow_kafka("127.0.0.1:1", "metrics", **{argument: 0})  # type: ignore[arg-type]
