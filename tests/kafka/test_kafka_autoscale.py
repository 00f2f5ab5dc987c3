"""A group on a real Kafka gets the consumers that a skewed load needs, and loses them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka_cases import alive, python_environment, wait_for
from real_kafka import KafkaCluster

from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Events/s that a consumer processes, and that arrive: the first two partitions are neighbours in
# a range, and too much for one consumer.
CAPACITY = 100
RATES = (60, 50, 10, 10)
_CONSUMER = f"""
import os, signal, sys, time
from confluent_kafka import Consumer

bootstrap, group, topic, log = sys.argv[1:]
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
consumer = Consumer({{
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    "client.id": os.environ["COUNTERPOISE_CONSUMER"],
    "partition.assignment.strategy": "range", "session.timeout.ms": 6000,
    "auto.commit.interval.ms": 500,
}})
consumer.subscribe([topic])
with open(log, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
while not stopped:
    message = consumer.poll(0.2)
    if message is not None and not message.error():
        time.sleep(1 / {CAPACITY})
consumer.close()
"""


class Load:
    """Writes events to each partition at its rate until stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sent, began = [0] * len(RATES), time.monotonic()
        while not self._stop.wait(0.05):
            for partition, rate in enumerate(RATES):
                due = int(rate * (time.monotonic() - began))
                for _ in range(due - sent[partition]):
                    self._producer.produce(self._topic, b"event", partition=partition)
                sent[partition] = due
            self._producer.poll(0)
        self._producer.flush(10.0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20.0)


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"skewed-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": len(RATES), "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new))
    return name


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str) -> Iterator[Load]:
    started = Load(kafka_cluster.bootstrap, topic)
    yield started
    started.stop()


def autoscale(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from balancer.cli import main; main()", "autoscale", "run",
         *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=python_environment(),
    )  # fmt: skip


def test_a_skewed_topic_gets_the_consumers_that_its_ranges_need(
    kafka_cluster: KafkaCluster, topic: str, load: Load, tmp_path: Path
) -> None:
    script, log = tmp_path / "consumer.py", tmp_path / "started"
    script.write_text(_CONSUMER, encoding="utf-8")
    group = f"{topic}-readers"
    at = ("--bootstrap-server", kafka_cluster.bootstrap, "--group", group, "--topics", topic)
    command = f"{sys.executable} {script} {kafka_cluster.bootstrap} {group} {topic} {log}"
    process = autoscale(
        *at, "--capacity", CAPACITY, "--command", command, "--json", "--interval", "1s",
        "--window", "6s", "--rebalance-time", "1s", "--reaction-time", "1s", "--sla", "3s",
        "--down-cooldown", "5s", "--maximum", 6,
    )  # fmt: skip
    rounds: list[dict[str, Any]] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            rounds.append(json.loads(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()

    def last() -> dict[str, Any]:
        return next((r for r in reversed(rounds) if "consumers" in r), {})

    try:
        # a range of two partitions is too much, so each has a consumer; a packing would need two
        wait_for(
            lambda: last().get("running") == last().get("consumers") == 4 and last()["lag"] < 150,
            90.0,
            lambda: rounds[-8:],
        )
        assert any("a packing" in r["reason"] for r in rounds)
        load.stop()
        wait_for(lambda: last().get("running") == 1, 90.0, lambda: rounds[-8:])
        ids = [int(line) for line in log.read_text(encoding="utf-8").split()]
        assert len(ids) >= 4
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
    reader.join(10.0)
    assert process.returncode == 0, process.stderr
    assert not [id_ for id_ in ids if alive(id_)]
    assert not [r for r in rounds if r["kind"] == "failed"], rounds


def test_an_unknown_group_or_topic_is_one_sentence(kafka_cluster: KafkaCluster, topic: str) -> None:
    at = ("--bootstrap-server", kafka_cluster.bootstrap, "--capacity", 100, "--once")
    for words, sentence in (
        (("--group", "nobody"), "group 'nobody' not found"),
        (("--group", "nobody", "--topics", topic), "group 'nobody' not found"),
        (
            ("--group", "nobody", "--topics", "no-such-topic", "--command", "true"),
            "topic 'no-such-topic' not found",
        ),
    ):
        _, said = (done := autoscale(*at, *words)).communicate(timeout=60.0)
        assert done.returncode == 2, said
        (line,) = said.splitlines()
        assert sentence in line


def test_a_group_of_the_new_protocol_is_one_sentence(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group = f"{topic}-new"
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe([topic])
    try:
        wait_for(lambda: consumer.poll(0.1) is None and consumer.assignment(), 60.0, lambda: group)
        at = ("--bootstrap-server", kafka_cluster.bootstrap, "--capacity", 100, "--once")
        for words in ((), ("--command", "true")):
            done = autoscale(*at, "--group", group, "--topics", topic, *words)
            _, said = done.communicate(timeout=60.0)
            assert done.returncode == 2, said
            (line,) = said.splitlines()
            assert "KIP-848" in line
            assert "group.protocol=classic expected" in line
    finally:
        consumer.close()
