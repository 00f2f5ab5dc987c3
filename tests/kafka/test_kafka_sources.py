"""What sources report about a real Kafka agrees with its brokers' own figures."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_cases import commit
from real_kafka import KafkaCluster
from waiting import LIMIT

from cluster_model import Snapshot
from cluster_model.kafka import admin_client, read_cluster
from cluster_model.live import ClusterModel
from metrics_reporter import Record, Reporter, read_records
from metrics_reporter.admin import AdminSource
from metrics_reporter.exposition import scrape
from metrics_reporter.prometheus import PrometheusSource

# Exporters also report topics that were deleted.
FRESH = True
CAPACITY = {"cpu": 200.0, "network_in": 1e9, "network_out": 1e9, "disk": 1e12}
# Topic to the replicas of its partitions; each broker leads one that has traffic.
TOPICS: dict[str, list[list[int]]] = {
    "skewed": [[0, 1], [0, 2], [0, 1], [1, 2], [1, 0], [2, 0]],
    "dotted.name_too": [[2, 3], [3, 2]],
    "idle": [[0, 1], [1, 2], [2, 0]],
    "of-prometheus": [[0]],
    "of-admin": [[1]],
}
# Kilobytes that each partition is sent, in records of one.
LOAD = {"skewed": [2400, 1200, 0, 600, 300, 150], "dotted.name_too": [800, 100]}
LOCAL_TIMES = [
    f"{request}_local_time_ms_{of}"
    for request in ("produce", "consumer_fetch", "follower_fetch")
    for of in ("mean", "p999")
]
MEASURED = ("skewed", "dotted.name_too", "idle")
WINDOW_MS = 60_000
BROKERS = 4


class Told(NamedTuple):
    """What came of a source: its model's picture, and by broker the seconds between two looks."""

    snapshot: Snapshot
    seconds: dict[int, float]
    records: list[Record]


class World(NamedTuple):
    kafka: KafkaCluster
    real: Snapshot
    # Bytes by what, broker and topic, as the counters of the brokers grew.
    counted: dict[tuple[str, int, str], float]
    reported: dict[str, Told]


def counters(kafka: KafkaCluster) -> dict[tuple[str, int, str], float]:
    """Bytes in and out of topics, off the pages of the exporters and by nothing of ours."""
    line = r'kafka_server_brokertopicmetrics_bytes(in|out)_total\{topic="([^"]+)",?\} (\S+)'
    return {
        (what, broker, topic): float(value)
        for broker, url in kafka.exporters.items()
        for what, topic, value in re.findall(line, scrape(url, LIMIT))
    }


def produce(kafka: KafkaCluster) -> None:
    """Send the load; every replica has it when this returns."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 50})
    for topic, kilobytes in LOAD.items():
        for partition, amount in enumerate(kilobytes):
            for _ in range(amount):
                producer.produce(topic, b"x" * 1000, partition=partition)
            producer.poll(0)
    assert producer.flush(60) == 0


def consume(kafka: KafkaCluster) -> None:
    """Read all of it, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(list(LOAD))
    left, end = sum(map(sum, LOAD.values())), time.monotonic() + LIMIT
    while left:
        assert time.monotonic() < end
        left -= sum(message.error() is None for message in consumer.consume(1000, 0.5))
    consumer.commit(asynchronous=False)
    consumer.close()


def modelled(metadata: Snapshot, records: list[Record]) -> Told:
    # Whenever it was: the second look must not be split by the end of a window.
    late = WINDOW_MS - 1 - max(record.time_ms for record in records) % WINDOW_MS
    records = [record._replace(time_ms=record.time_ms + late) for record in records]
    last = max(record.time_ms for record in records)
    after = last + WINDOW_MS
    model = ClusterModel(metadata, window_ms=WINDOW_MS, min_samples=1, clock=lambda: after)
    model.add_all(records)
    # A window is complete when a later one has begun.
    model.add(Record(after, 0, {"bytes_in": 0.0, "bytes_out": 0.0}, "of-prometheus", 0))
    model.add(Record(after, 0, {"cpu": 0.0}))
    wrong = {k: n for k, n in model.counters.items() if k not in ("added", "split")}
    assert not any(wrong.values()), wrong
    times = {b: {r.time_ms for r in records if r.broker == b} for b in range(BROKERS)}
    assert {len(two) for two in times.values()} == {2}
    seconds = {b: (max(two) - min(two)) / 1000 for b, two in times.items()}
    return Told(model.snapshot(1.0), seconds, records)


@pytest.fixture(scope="module")
def kafka(owned_kafka: KafkaCluster) -> KafkaCluster:
    with admin_client(owned_kafka.bootstrap, timeout=30) as ask:
        requested = {t: {"assignments": dict(enumerate(r))} for t, r in TOPICS.items()}
        ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))
    return owned_kafka


@pytest.fixture(scope="module")
def world(kafka: KafkaCluster) -> World:
    """Both sources look, a skewed load comes and is read, and both look again."""
    # The first reader makes Kafka create its own topic; that is no part of the load.
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers"})
    beginning = [TopicPartition(t, p, 0) for t, sent in LOAD.items() for p in range(len(sent))]
    commit(reader, beginning)
    reader.close()
    sources: dict[str, PrometheusSource | AdminSource] = {
        "prometheus": PrometheusSource(kafka.exporters, timeout=60),
        "admin": AdminSource(partial(admin_client, kafka.bootstrap, timeout=60)),
    }
    looks = {name: iter(source) for name, source in sources.items()}
    before = counters(kafka)
    reports = {name: [next(look)] for name, look in looks.items()}
    produce(kafka)
    consume(kafka)
    for name, look in looks.items():
        reports[name].append(next(look))
        assert sources[name].problems == {}
    after = counters(kafka)
    real = read_cluster(kafka.bootstrap, capacity=CAPACITY, timeout=60)
    reported = {}
    for name, (first, second) in reports.items():
        topic = f"of-{name}"
        reporter = Reporter([first, second], bootstrap=kafka.bootstrap, topic=topic)
        assert reporter.run() == len(first) + len(second)
        reported[name] = modelled(real, list(read_records(kafka.bootstrap, topic)))
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    return World(kafka, real, grown, reported)


def rows(snapshot: Snapshot, topic: str) -> dict[int, int]:
    """Row of each partition of a topic, by number."""
    of = snapshot.partition_topic == snapshot.topics.index(topic)
    return {int(snapshot.partition_number[p]): int(p) for p in np.flatnonzero(of)}


@pytest.mark.parametrize("source", ["prometheus", "admin"])
def test_sizes_are_those_of_the_log_directories(world: World, source: str) -> None:
    found, disk = world.reported[source].snapshot, world.real.resource("disk")
    own = found.resource("disk")
    for topic in MEASURED:
        p = list(rows(world.real, topic).values())
        assert found.leader_load[p, own].tolist() == world.real.leader_load[p, disk].tolist()
        assert found.follower_load[p, own].tolist() == world.real.follower_load[p, disk].tolist()
    assert found.leader_load[rows(found, "skewed")[0], own] > 2_400_000


@pytest.mark.parametrize("source", ["prometheus", "admin"])
def test_bytes_are_those_that_the_brokers_counted(world: World, source: str) -> None:
    reported = world.reported[source]
    s = reported.snapshot
    network_in, network_out = s.resource("network_in"), s.resource("network_out")
    leader = {(t, p): replicas[0] for t, all_ in TOPICS.items() for p, replicas in enumerate(all_)}
    for topic in MEASURED:
        replicas = len(TOPICS[topic][0]) - 1
        for broker in range(BROKERS):
            led = [row for p, row in rows(s, topic).items() if leader[topic, p] == broker]
            bytes_in = s.leader_load[led, network_in].sum()
            bytes_out = s.leader_load[led, network_out].sum() - replicas * bytes_in
            for what, rate in (("in", bytes_in), ("out", bytes_out)):
                counted = world.counted.get((what, broker, topic), 0.0)
                assert rate * reported.seconds[broker] == pytest.approx(counted, rel=0.05, abs=1), (
                    what
                )
    assert world.counted["in", 0, "skewed"] > 3_600_000


@pytest.mark.parametrize("source", ["prometheus", "admin"])
def test_bytes_in_are_reported_by_partition(world: World, source: str) -> None:
    reported = world.reported[source]
    s = reported.snapshot
    for topic in MEASURED:
        for number, row in rows(s, topic).items():
            written = s.leader_load[row, s.resource("disk")]
            rate = s.leader_load[row, s.resource("network_in")]
            bytes_in = rate * reported.seconds[TOPICS[topic][number][0]]
            assert bytes_in == pytest.approx(written, rel=0.05, abs=1), (topic, number)


def test_an_exporter_tells_of_brokers_too(world: World) -> None:
    for broker in range(BROKERS):
        of = [
            r for r in world.reported["prometheus"].records if (r.broker, r.topic) == (broker, None)
        ]
        assert {
            "cpu",
            "bytes_in",
            "replication_bytes_in",
            "request_handler_idle",
            "request_queue_size",
            "produce_total_time_ms_p999",
            "log_flush_time_ms_p999",
            *LOCAL_TIMES,
        } <= of[-1].metrics.keys()
        assert of[-1].metrics["cpu"] > 0
    s = world.reported["prometheus"].snapshot
    assert (s.broker_load()[:, s.resource("cpu")] > 0).all()


@pytest.mark.soak
def test_a_restart_is_seen_and_costs_one_report(kafka: KafkaCluster, world: World) -> None:
    source = PrometheusSource({1: kafka.exporters[1]}, timeout=60)
    reports = iter(source)
    assert not any("cpu" in record.metrics for record in next(reports))
    assert any("cpu" in record.metrics for record in next(reports))
    with kafka.stopped(1):
        assert next(reports) == []
        assert set(source.problems) == {"broker 1"}
    assert not any("cpu" in record.metrics for record in next(reports))
    assert any("cpu" in record.metrics for record in next(reports))
    assert (source.resets, source.failed, source.problems) == (1, 1, {})


def agent(kafka: KafkaCluster, topic: str, *words: str) -> list[str]:
    code = "from balancer.cli import main; main()"
    command = [sys.executable, "-c", code, "report-metrics", "--timeout", "60"]
    return [*command, "--bootstrap-server", kafka.bootstrap, "--metrics-topic", topic, *words]


def scopes(kafka: KafkaCluster, topic: str) -> Mapping[int, set[str]]:
    found: dict[int, set[str]] = {}
    for record in read_records(kafka.bootstrap, topic):
        found.setdefault(record.broker, set()).add(record.scope)
    return found


def test_a_try_of_the_agent_with_all_sources(kafka: KafkaCluster, world: World) -> None:
    sources = ["--source", "prometheus", "--source", "admin", "--source", "host", "--broker", "2"]
    for broker, url in kafka.exporters.items():
        sources += ["--endpoint", f"{broker}={url}"]
    words = agent(kafka, "tried", *sources, "--interval", "1", "--once")
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2
    assert "no such topic" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = subprocess.run([*words, "--create-topic"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[\d,]+ records sent to tried\n", done.stdout)
    assert scopes(kafka, "tried") == {
        broker: {"broker", "topic", "partition"} for broker in range(BROKERS)
    }


def test_the_agent_goes_on_until_it_is_reported_to_end(kafka: KafkaCluster, world: World) -> None:
    words = agent(kafka, "going", "--source", "admin", "--source", "host", "--broker", "0")
    words += ["--interval", "0.5", "--compression", "zstd", "--create-topic"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + LIMIT
            seen: list[Any] = []
            while len(seen) < 200:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(1)
                with admin_client(kafka.bootstrap, timeout=30) as ask:
                    there = "going" in ask(lambda admin: admin.list_topics())
                if there:
                    reader = read_records(kafka.bootstrap, "going")
                    seen = list(islice(iter(reader), 200))
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert [line.partition(" INFO ")[2][:21] for line in said.splitlines()] == [
        "created metrics topic"
    ]
