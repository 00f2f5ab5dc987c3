"""Records from a source to a topic and back, on librdkafka's built-in broker."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice

import pytest

from metrics_reporter import (
    Record,
    Reporter,
    ReporterError,
    SimulatedSource,
    mock_cluster,
    read_records,
)


def source(**changes: object) -> SimulatedSource:
    options: dict[str, object] = {
        "partitions": [("orders", 0), ("orders", 1), ("logs", 0)],
        "replica_broker": [1, 2, 2, 3, 3],
        "replica_offset": [0, 2, 4, 5],
        "leader": [0, 1, 0],
        "bytes_in": [10.0, 20.0, 30.0],
        "bytes_out": [1.0, 2.0, 3.0],
        "size": [100.0, 200.0, 300.0],
        "cpu": {1: 5.0, 2: 6.0, 3: 7.0},
    }
    return SimulatedSource(**(options | changes))  # type: ignore[arg-type]


def sorted_records(records: Iterator[Record] | list[Record]) -> list[Record]:
    return sorted(records, key=lambda r: (r.time_ms, r.topic or "", r.partition, r.broker))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with mock_cluster() as addresses:
        yield addresses


def test_what_is_reported_is_read(bootstrap: str) -> None:
    reporter = Reporter(source(noise=0.3), bootstrap=bootstrap, topic="all")
    assert reporter.run(intervals=3) == 18
    assert reporter.run(intervals=2) == 12
    sent = [record for report in islice(source(noise=0.3), 5) for record in report]
    reader = read_records(bootstrap, "all")
    assert sorted_records(list(reader)) == sorted_records(sent)
    assert sorted_records(list(reader)) == sorted_records(sent)
    assert reader.malformed == 0


def test_malformed_messages_are_counted_and_skipped(bootstrap: str) -> None:
    import confluent_kafka

    Reporter(source(), bootstrap=bootstrap, topic="dirty").run(intervals=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for junk in (b"", b"junk", None, b"\xc7\x01" + b"\xff" * 40):
        producer.produce("dirty", junk, key=b"k")
    producer.flush(10)
    Reporter(source(seed=1), bootstrap=bootstrap, topic="dirty").run(intervals=1)
    reader = read_records(bootstrap, "dirty")
    assert len(list(reader)) == 12
    assert reader.malformed == 4


def test_following_waits_for_more(bootstrap: str) -> None:
    Reporter(source(), bootstrap=bootstrap, topic="tail").run(intervals=1)
    following = iter(read_records(bootstrap, "tail", follow=True))
    assert len(list(islice(following, 6))) == 6
    Reporter(source(start_ms=5), bootstrap=bootstrap, topic="tail").run(intervals=1)
    assert {r.time_ms for r in islice(following, 6)} == {5}


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key=b"k")
    producer.flush(10)


def test_topics_of_other_balancers_are_read(bootstrap: str) -> None:
    cpu = bytes.fromhex("0000050000018bcfe56800000000033fd0000000000000")
    unknown = cpu[:2] + b"\x70" + cpu[3:]
    produce(bootstrap, "__CruiseControlMetrics", cpu, unknown, b"junk")
    reader = read_records(bootstrap, "__CruiseControlMetrics")
    assert list(reader) == [Record(1_700_000_000_000, 3, {"cpu_ratio": 0.25})]
    assert (reader.malformed, reader.skipped) == (1, 1)
    # Of a time that looks like no time, so that only the topic's name tells what it is.
    early = bytes(9) + b"\x7b" + bytes(8) + b"\0\0\0\1t\0\0\0\5\0\0\0\0"
    produce(bootstrap, "__auto_balancer_metrics", early)
    assert list(read_records(bootstrap, "__auto_balancer_metrics")) == [Record(123, 0, {}, "t", 5)]
    produce(bootstrap, "renamed", early)
    assert list(read_records(bootstrap, "renamed", format="automq")) == [Record(123, 0, {}, "t", 5)]
    assert list(read_records(bootstrap, "renamed")) == []


def test_batches_are_the_same_records(bootstrap: str) -> None:
    Reporter(source(), bootstrap=bootstrap, topic="columns").run(intervals=2)
    reader = read_records(bootstrap, "columns")
    together = [record for batch in reader.batches() for record in batch.records()]
    assert sorted_records(together) == sorted_records(list(reader))
    assert len(together) == 12


def test_a_stopped_reader_ends(bootstrap: str) -> None:
    Reporter(source(), bootstrap=bootstrap, topic="ended").run(intervals=1)
    reader = read_records(bootstrap, "ended", follow=True)
    count = 0
    for _ in reader:
        count += 1
        if count == 6:
            reader.stop()
    assert count == 6


def test_a_missing_topic_is_one_sentence(bootstrap: str) -> None:
    with pytest.raises(ReporterError, match=r"metrics topic 'none' at 127.0.0.1:\d+.*: "):
        list(read_records(bootstrap, "none"))


def test_client_properties_reach_the_client(bootstrap: str) -> None:
    with pytest.raises(ReporterError, match=r"no\.such"):
        list(read_records(bootstrap, "all", client={"no.such": 1}))
    with pytest.raises(ReporterError, match=r"no\.such"):
        Reporter(source(), bootstrap=bootstrap, topic="all", client={"no.such": 1}).run(1)


def test_nobody_there_is_one_sentence() -> None:
    quiet = {"log_level": 0, "message.timeout.ms": 300}
    reporter = Reporter(source(), bootstrap="127.0.0.1:1", topic="t", client=quiet)
    with pytest.raises(ReporterError, match="6 records not delivered: "):
        reporter.run(intervals=1)
    with pytest.raises(ReporterError, match=r"127\.0\.0\.1:1"):
        list(read_records("127.0.0.1:1", "t", timeout=0.3, client={"log_level": 0}))


def test_a_stopped_reporter_sends_nothing(bootstrap: str) -> None:
    reporter = Reporter(source(), bootstrap=bootstrap, topic="stopped", interval=60.0)
    reporter.stop()
    assert reporter.run() == 0


def test_a_source_that_ends_ends_the_run(bootstrap: str) -> None:
    reports = [[Record(1, 1, {"cpu": 1.0})], []]
    assert Reporter(reports, bootstrap=bootstrap, topic="short").run() == 1


def test_the_package_imports_no_client_and_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "import metrics_reporter as m\n"
        "try: list(m.read_records('h:1', 't'))\n"
        "except m.ReporterError as e: print(e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = "confluent_kafka is not installed: pip install 'counterpoise[kafka]'\n"
    assert out.stdout == expected
    code = "import sys, metrics_reporter; assert 'confluent_kafka' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_simulation_is_reproducible_and_near_its_means() -> None:
    def first(seed: int) -> list[list[Record]]:
        return list(islice(source(noise=0.5, seed=seed), 400))

    assert first(1) == first(1)
    assert first(1) != first(2)
    rates = [r.metrics["bytes_in"] for report in first(1) for r in report if r.topic == "logs"]
    assert sum(rates) / len(rates) == pytest.approx(30.0, rel=0.15)


def test_simulated_followers_and_silent_brokers() -> None:
    report = next(iter(source(replica_size=[100.0, 90.0, 190.0, 200.0, 300.0], cpu={1: 1, 2: 2})))
    about = {(r.broker, r.topic, r.partition): dict(r.metrics) for r in report}
    assert about[2, "orders", 0] == {"size": 90.0}
    assert about[1, "orders", 0] == {"size": 100.0, "bytes_in": 10.0, "bytes_out": 1.0}
    assert all(broker != 3 for broker, _, _ in about)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"leader": [0]}, "leader: 1 found, 3 expected"),
        ({"replica_offset": [0, 2, 4, 9]}, "replica_offset: 0 to 9 found, 0 to 5 expected"),
        ({"noise": -1.0}, "noise -1.0"),
    ],
)
def test_a_source_refuses_arrays_that_do_not_fit(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ReporterError, match=says):
        source(**changes)
