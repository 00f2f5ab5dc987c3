"""Packed consumers on a real Kafka: a skewed load that changes, from 1 to 6 consumers and back.

Every consumer writes down when it processed which record. Nothing is lost, also with ``kill -9``,
and no partition is processed by two at a time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_cases import python_environment, wait_for
from real_kafka import KafkaCluster

from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Events/s that a consumer processes.
CAPACITY = 50
# Seconds after which a phase begins, and the events/s of each partition in it.
PHASES = (
    (0.0, (10, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)),
    (8.0, (40, 35, 30, 25, 20, 20, 20, 15, 15, 10, 5, 5)),
    (30.0, (2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)),
)
ENDS = 40.0
_CONSUMER = f"""
import os, signal, sys, time
from balancer.autoscaling.packed import PackedSettings, packed_consumer

bootstrap, group, topic, folder = sys.argv[1:]
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
name = os.environ["COUNTERPOISE_CONSUMER"]
with open(f"{{folder}}/{{name}}-{{os.getpid()}}", "w", buffering=1) as log, packed_consumer(
    [topic], group=group, name=name, bootstrap_servers=bootstrap,
    settings=PackedSettings(session_ms=6000, heartbeat_ms=300),
    auto_offset_reset="earliest", max_poll_records=10,
) as consumer:
    while not stopped:
        batch = consumer.poll(timeout_ms=100)
        for tp, records in batch.items():
            for record in records:
                began = time.time()
                time.sleep(1 / {CAPACITY})
                log.write(f"{{tp.partition}} {{record.offset}} {{began}} {{time.time()}}\\n")
        if batch:
            consumer.commit()
"""


class Load:
    """Writes events as the phases say, and counts them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written = [0] * len(PHASES[0][1])
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = last = time.monotonic()
        due = [0.0] * len(self.written)
        while not self._stop.wait(0.05):
            now = time.monotonic()
            if now - began >= ENDS:
                break
            rates = next(r for start, r in reversed(PHASES) if now - began >= start)
            for partition, rate in enumerate(rates):
                due[partition] += rate * (now - last)
                while self.written[partition] < int(due[partition]):
                    self._producer.produce(self._topic, b"event", partition=partition)
                    self.written[partition] += 1
            last = now
            self._producer.poll(0)
        assert self._producer.flush(10.0) == 0

    def wait(self) -> None:
        self._thread.join(ENDS + 20.0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20.0)


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"packed-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": len(PHASES[0][1]), "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    return name


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str) -> Iterator[Load]:
    started = Load(kafka_cluster.bootstrap, topic)
    yield started
    started.stop()


def processed(folder: Path) -> dict[int, list[tuple[float, float, int, str]]]:
    """When each record of each partition was processed, and by which process."""
    found = defaultdict(list)
    for path in folder.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            if len(words := line.split()) == 4:
                partition, offset = map(int, words[:2])
                began, ended = map(float, words[2:])
                found[partition].append((began, ended, offset, path.name))
    return {p: sorted(rows) for p, rows in found.items()}


def test_from_one_consumer_to_six_and_back_with_a_kill(
    kafka_cluster: KafkaCluster, topic: str, load: Load, tmp_path: Path
) -> None:
    script, folder = tmp_path / "consumer.py", tmp_path / "processed"
    script.write_text(_CONSUMER, encoding="utf-8")
    folder.mkdir()
    group = f"{topic}-readers"
    environment = python_environment()
    words = [sys.executable, str(script), kafka_cluster.bootstrap, group, topic, str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from balancer.cli import main; main()", "autoscale", "run",
         "--bootstrap-server", kafka_cluster.bootstrap, "--group", group, "--topics", topic,
         "--assignor", "packed", "--capacity", str(CAPACITY), "--command", " ".join(words),
         "--json", "--interval", "1s", "--window", "3s", "--rebalance-time", "1s",
         "--reaction-time", "1s", "--sla", "3s", "--down-cooldown", "3s", "--maximum", "6"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    rounds: list[dict[str, Any]] = []

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            rounds.append(json.loads(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()

    def last() -> dict[str, Any]:
        return next((r for r in reversed(rounds) if "running" in r), {})

    def kill_one() -> None:
        names = sorted(path.name for path in folder.iterdir())
        ids = [int(name.rpartition("-")[2]) for name in names]
        for id_ in random.Random(7).sample(ids, len(ids)):
            try:
                os.kill(id_, signal.SIGKILL)
            except ProcessLookupError:
                continue
            return
        raise AssertionError(names)

    try:
        wait_for(lambda: last().get("running") == 6, 90.0, lambda: rounds[-8:])
        time.sleep(random.Random(7).uniform(0.0, 3.0))
        kill_one()
        load.wait()
        wait_for(
            lambda: last().get("running") == 1 and last()["lag"] == 0, 60.0, lambda: rounds[-8:]
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60.0)
    reader.join(10.0)
    assert process.returncode == 0
    found = processed(folder)
    for partition, count in enumerate(load.written):
        rows = found[partition]
        # nothing is lost
        assert {offset for _, _, offset, _ in rows} == set(range(count)), partition
        for one, other in pairwise(rows):
            assert one[1] <= other[0], (partition, one, other)
    assert max(r.get("running", 0) for r in rounds) == 6
    twice = sum(Counter((p, row[2]) for p, rows in found.items() for row in rows).values())
    # of the consumer that was killed, at most one batch is processed again
    assert twice - sum(load.written) <= 10 * len(load.written)
