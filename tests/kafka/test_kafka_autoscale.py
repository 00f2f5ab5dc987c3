"""A group on a real Kafka gets the consumers that a skewed load needs, and loses them again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import invoke
from confluent_kafka import Consumer
from consumer_groups import AutoscaleRun, Load
from kafka_cases import alive
from real_kafka import KafkaCluster
from waiting import wait_for

from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Events/s that a consumer processes, and that arrive: the first two partitions are neighbours in
# a range, and too much for one consumer.
CAPACITY = 40
RATES = (24, 20, 4, 4)
_CONSUMER = f"""
import os, signal, sys, time
from confluent_kafka import Consumer

bootstrap, group, topic, log = sys.argv[1:]
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
consumer = Consumer({{
    "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    "client.id": os.environ["COUNTERPOISE_CONSUMER"],
    "partition.assignment.strategy": "range", "session.timeout.ms": 15000,
    "auto.commit.interval.ms": 500,
}})
consumer.subscribe([topic])
with open(log, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
while not stopped:
    message = consumer.poll(0.2)
    if message is not None and not message.error():
        time.sleep(1 / {CAPACITY * 1.5})
consumer.close()
"""


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"skewed-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": len(RATES), "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    return name


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str) -> Iterator[Load]:
    started = Load(kafka_cluster.bootstrap, topic, RATES)
    yield started
    started.stop()


def refused(*words: object) -> str:
    """The only line that the command reports, with exit code 2."""
    result = invoke(["autoscale", "run", "--capacity", 100, "--once", *words])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


def test_a_skewed_topic_gets_the_consumers_that_its_ranges_need(
    kafka_cluster: KafkaCluster, topic: str, load: Load, tmp_path: Path
) -> None:
    script, log = tmp_path / "consumer.py", tmp_path / "started"
    script.write_text(_CONSUMER, encoding="utf-8")
    group = f"{topic}-readers"
    at = ("--bootstrap-server", kafka_cluster.bootstrap, "--group", group, "--topics", topic)
    command = f"{sys.executable} {script} {kafka_cluster.bootstrap} {group} {topic} {log}"
    run = AutoscaleRun.start(
        *at, "--capacity", CAPACITY, "--command", command, "--interval", "1s", "--window", "3s",
        "--rebalance-time", "1s", "--reaction-time", "1s", "--sla", "3s", "--down-cooldown", "2s",
        "--maximum", 6, session=15.0,
    )  # fmt: skip
    try:
        # a range of two partitions is too much, so each has a consumer; a packing would need two
        wait_for(lambda: run.settled(4, 150), run.last_rounds)
        assert any("a packing" in r["reason"] for r in run.rounds)
        load.stop()
        wait_for(lambda: run.last()["running"] == 1, run.last_rounds)
    finally:
        run.end()
    ids = [int(line) for line in log.read_text(encoding="utf-8").split()]
    assert len(ids) >= 4
    assert run.process.returncode == 0
    assert not [id_ for id_ in ids if alive(id_)]
    assert not [r for r in run.rounds if r["kind"] == "failed"], run.rounds


def test_an_unknown_group_or_topic_is_one_sentence(kafka_cluster: KafkaCluster, topic: str) -> None:
    at = ("--bootstrap-server", kafka_cluster.bootstrap)
    for words, sentence in (
        (("--group", "nobody"), "group 'nobody' not found"),
        (("--group", "nobody", "--topics", topic), "group 'nobody' not found"),
        (
            ("--group", "nobody", "--topics", "no-such-topic", "--command", "true"),
            "topic 'no-such-topic' not found",
        ),
    ):
        assert sentence in refused(*at, *words)


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
        wait_for(lambda: consumer.poll(0.1) is None and consumer.assignment(), lambda: group)
        at = ("--bootstrap-server", kafka_cluster.bootstrap, "--group", group, "--topics", topic)
        for words in ((), ("--command", "true")):
            line = refused(*at, *words)
            assert "KIP-848" in line
            assert "group.protocol=classic expected" in line
    finally:
        consumer.close()
