"""Unattended: a load, ``report-metrics``, and ``run --execute`` over the metrics topic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_cases import steady_load
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from balancer.execution.cluster import ConfigResource, Kafka
from balancer.execution.throttle import FOLLOWER_RATE, LEADER_RATE
from cluster_model.kafka import KafkaSourceError, admin_client, read_cluster

TOPIC, PARTITIONS = "loaded", 24
CAPACITY: dict[str, Any] = {"default": {"network_in": 1e9, "network_out": 1e9, "disk": 1e12}}
SETTINGS: dict[str, Any] = {
    "interval": 1.0,
    "settle": 0,
    "max_share_per_cycle": 1.0,
    "goal_violations": {"cooldown": "1s", "rounds": 1, "min_gain_per_share": 0.0},
    # one report a second, of which a busy machine may lose four of five
    # and a load that begins while the first windows are measured, which nothing else confirms
    "model": {
        "window": "10s",
        "windows": 2,
        "min_samples": 2,
        "refresh": 1.0,
        "believed": [0, 1, 2, 3],
    },
    "execution": {"progress_interval": 0.2, "throttle": 50e6},
}
GOALS: dict[str, Any] = {
    "goals": [
        {"goal": "RackAwareness", "hard": True, "tier": 0},
        {"goal": "UsageDistribution", "resource": "network_in", "threshold": 1.3, "tier": 1},
        {"goal": "LeaderBytesInDistribution", "threshold": 1.3, "tier": 1},
    ]
}


@contextmanager
def counterpoise(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process of its own, asked to end when the block ends."""
    code = "from balancer.cli import main; main()"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", code, *words], stdout=out, stderr=out)
        try:
            yield process
            process.terminate()
            assert process.wait(LIMIT) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


@pytest.mark.soak
def test_a_load_is_spread_by_nothing_but_the_two_commands(
    owned_kafka: KafkaCluster, tmp_path: Path
) -> None:
    kafka = owned_kafka
    with admin_client(kafka.bootstrap, timeout=30) as ask:
        requested = {TOPIC: {"assignments": {n: [n % 2, 1 - n % 2] for n in range(PARTITIONS)}}}
        ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))
    files = {"capacity": CAPACITY, "settings": SETTINGS, "goals": GOALS}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    at = ["--bootstrap-server", kafka.bootstrap, "--metrics-topic", "metrics"]
    report = ["report-metrics", *at, "--source", "prometheus", "--interval", "1", "--create-topic"]
    for broker, url in kafka.exporters.items():
        report += ["--endpoint", f"{broker}={url}"]
    run = ["run", *at, "--execute", "--journal", str(tmp_path / "journal"), "--session", "60"]
    for name in files:
        run += [f"--{name}", str(tmp_path / f"{name}.yaml")]

    def is_spread() -> bool:
        """Whether each broker leads a fair part of the topic's partitions."""
        with suppress(KafkaSourceError):
            s = read_cluster(kafka.bootstrap, capacity=CAPACITY["default"], resources=["disk"])
            leads = s.broker_ids[s.replica_broker[s.replica_offset[:-1] + s.leader]]
            of_topic = s.partition_topic == s.topics.index(TOPIC)
            led = [(leads[of_topic] == b).sum() for b in kafka.broker_ids]
            return bool(min(led) >= 0.6 * PARTITIONS / 4)
        return False

    logs = tmp_path / "report.log", tmp_path / "run.log"
    with (
        steady_load(kafka, TOPIC, PARTITIONS, 1000),
        counterpoise(logs[0], *report),
        counterpoise(logs[1], *run),
    ):
        wait_for(is_spread, lambda: "\n".join(log.read_text()[-6000:] for log in logs))
    seen = Kafka(kafka.bootstrap)
    try:
        asked = {
            ConfigResource("broker", str(b)): [LEADER_RATE, FOLLOWER_RATE] for b in kafka.broker_ids
        }
        assert {v for both in seen.configs(asked).values() for v in both.values()} == {None}
    finally:
        seen.close()
