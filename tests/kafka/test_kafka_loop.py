"""The whole loop on a real Kafka: load, reporter, model, plan, throttled execution, balance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from real_kafka import KafkaCluster
from waiting import LIMIT

from balancer import Balancer
from balancer.execution import Executor, Limits
from balancer.execution.cluster import ConfigResource, Kafka
from balancer.execution.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from cluster_model import Snapshot
from cluster_model.kafka import admin_client, read_cluster
from cluster_model.live import ClusterModel
from cluster_model.snapshot import Bools
from goals import load_goals
from metrics_reporter import Record, Reporter, read_records
from metrics_reporter.admin import AdminSource
from metrics_reporter.exposition import scrape
from metrics_reporter.prometheus import PrometheusSource

CAPACITY = {"network_in": 1e9, "network_out": 1e9, "disk": 1e12}
LOADED, PARTITIONS = "loaded", 24
WINDOW_MS = 60_000
GOALS = {
    "goals": [
        {"goal": "RackAwareness", "hard": True, "tier": 0},
        {"goal": "UsageDistribution", "resource": "network_in", "threshold": 1.15, "tier": 1},
        {"goal": "UsageDistribution", "resource": "disk", "threshold": 1.15, "tier": 1},
        {"goal": "LeaderBytesInDistribution", "threshold": 1.15, "tier": 1},
    ]
}
Report = list[Record]


def records_of(partition: int) -> int:
    """How many records of a kilobyte each load has for a partition."""
    return 150 + 30 * (partition % 5)


def load(kafka: KafkaCluster) -> None:
    """Some megabytes, more of them to some partitions; every replica has them afterwards."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 50})
    for partition in range(PARTITIONS):
        for _ in range(records_of(partition)):
            producer.produce(LOADED, b"x" * 1000, partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def counted(kafka: KafkaCluster) -> dict[int, float]:
    """Bytes of the topic that each broker has counted so far, off the exporters' pages."""
    line = rf'kafka_server_brokertopicmetrics_bytesin_total\{{topic="{LOADED}",?\}} (\S+)'
    return {
        broker: sum(map(float, re.findall(line, scrape(url, LIMIT))))
        for broker, url in kafka.exporters.items()
    }


def measured(
    kafka: KafkaCluster, topic: str, reports: Iterable[Report]
) -> tuple[Snapshot, dict[int, float]]:
    """The model of what was reported, over the topic, and the seconds it speaks of."""
    given = list(reports)
    assert Reporter(given, bootstrap=kafka.bootstrap, topic=topic).run() == sum(map(len, given))
    records = list(read_records(kafka.bootstrap, topic))[-sum(map(len, given)) :]
    times = {b: {r.time_ms for r in records if r.broker == b} for b in kafka.broker_ids}
    after = max(r.time_ms for r in records) + WINDOW_MS
    real = read_cluster(kafka.bootstrap, capacity=CAPACITY, resources=[*CAPACITY], timeout=60)
    model = ClusterModel(real, window_ms=WINDOW_MS, min_samples=1, clock=lambda: after)
    model.add_all(records)
    # A window is complete when a later one has begun.
    model.add(Record(after, 0, {"bytes_in": 0.0, "bytes_out": 0.0}, LOADED, 0))
    return model.snapshot(0.5), {
        b: (max(two) - min(two)) / 1000 if two else 0.0 for b, two in times.items()
    }


def leads(snapshot: Snapshot, broker: int) -> Bools:
    """Which partitions of the snapshot are of the topic and led by a broker."""
    first = snapshot.replica_offset[:-1] + snapshot.leader
    mine: Bools = snapshot.broker_ids[snapshot.replica_broker[first]] == broker
    mine &= snapshot.partition_topic == snapshot.topics.index(LOADED)
    return mine


def led(snapshot: Snapshot, broker: int) -> float:
    """Bytes/s that clients send to the partitions of the topic that a broker leads."""
    mine = leads(snapshot, broker)
    return float(snapshot.leader_load[mine, snapshot.resource("network_in")].sum())


@pytest.fixture(scope="module")
def kafka(owned_kafka: KafkaCluster) -> KafkaCluster:
    """Four brokers, two of them idle."""
    found = owned_kafka
    with admin_client(found.bootstrap, timeout=30) as ask:
        requested = {LOADED: {"assignments": {n: [n % 2, 1 - n % 2] for n in range(PARTITIONS)}}}
        requested |= {
            f"of-{name}": {"assignments": {0: [0, 1]}} for name in ("prometheus", "admin")
        }
        ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))
    return found


def test_load_is_measured_planned_for_and_evened_out(kafka: KafkaCluster, tmp_path: Path) -> None:
    sources: dict[str, PrometheusSource | AdminSource] = {
        "prometheus": PrometheusSource(kafka.exporters, timeout=60),
        "admin": AdminSource(partial(admin_client, kafka.bootstrap, timeout=60)),
    }
    looks = {name: iter(source) for name, source in sources.items()}
    load(kafka)
    # Every source looks before the load and after it, and its model agrees with the brokers.
    before, first = counted(kafka), {name: list(next(look)) for name, look in looks.items()}
    load(kafka)
    second = {name: list(next(look)) for name, look in looks.items()}
    grown = {broker: value - before[broker] for broker, value in counted(kafka).items()}
    assert grown[0] > 2e6
    assert grown[2] == grown[3] == 0
    found: dict[str, Snapshot] = {}
    for name in sources:
        found[name], seconds = measured(kafka, f"of-{name}", (first[name], second[name]))
        for broker, value in grown.items():
            reported = led(found[name], broker) * seconds[broker]
            assert reported == pytest.approx(value, rel=0.05), (name, broker)

    balancer = Balancer(load_goals(GOALS))
    plan = balancer.propose(found["prometheus"])
    assert plan.ok, plan.unmet
    assert {a.destination for a in plan.actions if a.kind == "move"} == {2, 3}
    executor = Executor(
        kafka.bootstrap,
        journal=tmp_path / "journal",
        limits=Limits.of(throttle=20e6, progress_interval=0.3),
    )
    outcome = executor.execute(plan)
    assert (outcome.state, outcome.differences, outcome.problems) == ("done", (), ())

    # The throttles are gone, and the next load is shared by all.
    seen = Kafka(kafka.bootstrap)
    try:
        asked = {
            ConfigResource("broker", str(b)): [LEADER_RATE, FOLLOWER_RATE] for b in kafka.broker_ids
        }
        asked[ConfigResource("topic", LOADED)] = [LEADER_REPLICAS, FOLLOWER_REPLICAS]
        left = [v for values in seen.configs(asked).values() for v in values.values()]
        assert left == [None] * 10
    finally:
        seen.close()
    before = counted(kafka)
    load(kafka)
    shared = {broker: value - before[broker] for broker, value in counted(kafka).items()}
    # How even that is depends on what was measured: two of four brokers had all of it.
    assert max(shared.values()) < 1.5 * sum(shared.values()) / 4
    after = plan.final_snapshot()
    for broker, value in shared.items():
        numbers = after.partition_number[leads(after, broker)].tolist()
        sent = 1000 * sum(map(records_of, numbers))
        assert value == pytest.approx(sent, rel=0.05), broker
