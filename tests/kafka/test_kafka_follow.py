"""A model follows a real Kafka while its topics and brokers come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from confluent_kafka import Producer
from real_kafka import KafkaCluster
from waiting import wait_for

from cluster_model.follow import follow_kafka
from cluster_model.kafka import admin_client, read_cluster
from cluster_model.snapshot import BrokerState, Snapshot
from metrics_reporter import Record, encode

CAPACITY = {"cpu": 800.0, "network_in": 1e9, "network_out": 1e9}
HOUR_MS = 3_600_000


def create(kafka: KafkaCluster, topic: str, replicas: Sequence[Sequence[int]]) -> None:
    with admin_client(kafka.bootstrap) as ask:
        requested = {topic: {"assignments": dict(enumerate(replicas))}}
        ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))


def delete(kafka: KafkaCluster, topic: str) -> None:
    with admin_client(kafka.bootstrap) as ask:
        ask(lambda admin: admin.delete_topics([topic]))
        wait_for(lambda: topic not in ask(lambda admin: admin.list_topics()))


def report(kafka: KafkaCluster, topic: str, records: Sequence[Record]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    for record in records:
        producer.produce(topic, encode(record), partition=0, timestamp=record.time_ms)
    assert producer.flush(60) == 0


def partitions(cluster: Snapshot, topic: str) -> int:
    return sum(cluster.topics[t] == topic for t in cluster.partition_topic.tolist())


def leader(cluster: Snapshot, topic: str, partition: int) -> int:
    """Id of the broker that leads: only its records of the partition's rates count."""
    of_topic = cluster.partition_topic == cluster.topics.index(topic)
    p = int(np.flatnonzero(of_topic & (cluster.partition_number == partition))[0])
    replica = cluster.replica_offset[p] + cluster.leader[p]
    return int(cluster.broker_ids[cluster.replica_broker[replica]])


def test_topics_and_brokers_come_and_go(kafka_cluster: KafkaCluster) -> None:
    kafka = kafka_cluster
    create(kafka, "followed", [[0, 1], [1, 0]])
    create(kafka, "followed-metrics", [[0, 1]])
    now = time.time_ns() // 1_000_000

    def reported(first: int, last: int, broker: int, partition: int = 0) -> list[Record]:
        return [
            Record(now - i, broker, {"bytes_in": 1.0, "bytes_out": 0.0}, "followed", partition)
            for i in range(first, last)
        ]

    first = leader(read_cluster(kafka.bootstrap, capacity=CAPACITY), "followed", 0)
    long_ago = [r._replace(time_ms=r.time_ms - 5 * HOUR_MS) for r in reported(0, 50, first)]
    report(kafka, "followed-metrics", [*long_ago, *reported(0, 5, first)])
    follower = follow_kafka(
        kafka.bootstrap,
        "followed-metrics",
        capacity=CAPACITY,
        consumer={"log_level": 0},
        refresh=0.5,
        retry=0.5,
    )
    with follower:
        model = follower.model

        def about() -> object:
            return model.counters, follower.problems, model.metadata.leader

        wait_for(lambda: model.counters["added"] == 5, about)
        # What is older than the windows was not even read.
        assert sum(model.counters.values()) == 5

        delete(kafka, "followed-metrics")
        create(kafka, "followed-metrics", [[1, 0]])
        first = leader(model.metadata, "followed", 0)
        report(kafka, "followed-metrics", reported(10, 13, first))
        wait_for(lambda: model.counters["added"] == 8, about)

        delete(kafka, "followed")
        wait_for(lambda: "followed" not in model.metadata.topics, about)
        create(kafka, "followed", [[0, 1], [1, 0], [2, 0]])
        wait_for(lambda: partitions(model.metadata, "followed") == 3, about)

        with kafka.stopped(2):
            wait_for(lambda: model.metadata.broker_state[2] == BrokerState.DEAD, about)
            before = model.counters["added"]
            second = leader(model.metadata, "followed", 1)
            report(kafka, "followed-metrics", reported(200, 210, second, partition=1))
            wait_for(lambda: model.counters["added"] == before + 10, about)
        wait_for(lambda: model.metadata.broker_state[2] == BrokerState.ALIVE, about)
        wait_for(lambda: follower.problems == (), about)
    assert not any(thread.is_alive() for thread in follower._threads)
