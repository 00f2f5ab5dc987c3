"""A sample for ``make kafka``: topics on too few brokers, steady traffic, and measured loads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from kafka_cases import Assignment, create_topic, produce
from real_kafka import KafkaCluster

from cluster_model.kafka import admin_client

METRICS_TOPIC = "metrics"
# Brokers 0 and 1 lead nearly everything, and broker 2 holds one topic in three.
TOPICS: dict[str, Assignment] = {
    "orders": {n: [0, 1] for n in range(8)},
    "payments": {n: [n % 2, 1 - n % 2] for n in range(6)},
    "clicks": {n: [0, 2] for n in range(4)},
}
CAPACITIES = """default: {cpu: 100, network_in: 20MB/s, network_out: 20MB/s, disk: 2GB}
"""
# Kilobytes that each partition holds at first, and all of them together receive each second.
_FILLED, _RATE = 3000, 200
# Properties of the brokers: old records go, so that a cluster left alone does not fill the disk.
KEPT = {
    "log.retention.bytes": "33554432",
    "log.segment.bytes": "8388608",
    "log.retention.check.interval.ms": "30000",
}
_INTERVAL_SECONDS = 5.0


@contextmanager
def sample(kafka: KafkaCluster) -> Iterator[Path]:
    """Make the topics, then write to them and report metrics until the end; yields capacities."""
    capacities = kafka.directory / "capacities.yaml"
    capacities.write_text(CAPACITIES)
    with admin_client(kafka.bootstrap, timeout=30) as ask:
        for topic, replicas in TOPICS.items():
            create_topic(ask, topic, replicas)
    for topic, replicas in TOPICS.items():
        produce(kafka, topic, dict.fromkeys(replicas, _FILLED))
    stop = threading.Event()
    traffic = [
        threading.Thread(target=each, args=(kafka, stop), daemon=True) for each in (_write, _read)
    ]
    for thread in traffic:
        thread.start()
    reporter = subprocess.Popen(_reporter(kafka), stderr=subprocess.DEVNULL)
    try:
        yield capacities
    finally:
        stop.set()
        reporter.terminate()
        reporter.wait()
        for thread in traffic:
            thread.join()


def _write(kafka: KafkaCluster, stop: threading.Event) -> None:
    """Some records a second to every partition; what Kafka refuses is lost."""
    partitions = [(topic, n) for topic, replicas in TOPICS.items() for n in replicas]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    while not stop.wait(1.0):
        for place in range(_RATE):
            topic, partition = partitions[place % len(partitions)]
            producer.produce(topic, b"x" * 1024, partition=partition)
        producer.flush(10)
    producer.purge()


def _read(kafka: KafkaCluster, stop: threading.Event) -> None:
    """Consume what is written: without it, who looks at the cluster is its only reader.

    Then a look would multiply the bytes out, which nothing else confirms, and make Kafka create
    the topic of the groups' offsets, which is not measured for a window.
    """
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "sample", "log_level": 0}
    )
    consumer.subscribe(list(TOPICS))
    while not stop.is_set():
        consumer.consume(1000, 1.0)
    consumer.close()


def _reporter(kafka: KafkaCluster) -> list[str]:
    words = ["--bootstrap-server", kafka.bootstrap, "--metrics-topic", METRICS_TOPIC]
    words += ["--create-topic", "--interval", f"{_INTERVAL_SECONDS:g}", "--source", "prometheus"]
    for broker, url in kafka.exporters.items():
        words += ["--endpoint", f"{broker}={url}"]
    code = "from balancer.cli import main; main()"
    return [sys.executable, "-c", code, "report-metrics", *words]
