"""A group on a real Kafka gets the consumers that a skewed load needs, and loses them again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from command_line import invoke
from confluent_kafka import Consumer, Producer, TopicPartition
from consumer_groups import AutoscaleRun, Load
from kafka_cases import alive
from real_kafka import SHARE_CONSUMER, KafkaCluster
from waiting import wait_for

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.kafka_observer import KafkaObserver, Working
from balancer.autoscaling.observation import Observation
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


def test_a_group_of_another_kind_is_one_sentence_and_an_empty_one_may_change(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group = f"{topic}-new"
    at = ("--bootstrap-server", kafka_cluster.bootstrap, "--topics", topic)
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
        # a share group stays when its consumer, which finds no such topic, has gone
        share = ("--topic", "no-such-topic", "--group", f"{group}-share", "--timeout-ms", "1500")
        kafka_cluster.run_tool(SHARE_CONSUMER, *share, check=False)
        for words in ((), ("--command", "true")):
            for name, kind in ((group, "KIP-848"), (f"{group}-share", "KIP-932")):
                line = refused(*at, "--group", name, *words)
                assert kind in line
                assert "group.protocol=classic expected" in line
    finally:
        consumer.close()
    with admin_client(kafka_cluster.bootstrap) as ask:
        observer = KafkaObserver(lambda: nullcontext(ask), group, [topic], Working(1.0))
        # what its members leave behind may be sized: the next one makes a classic group of it
        wait_for(lambda: seen(observer) is not None, lambda: group)


def seen(observer: KafkaObserver) -> Observation | None:
    """What a look finds; None while the group cannot be sized, or arrivals are measured."""
    try:
        return observer.observe()
    except AutoscalingError:
        return None


def test_what_an_open_transaction_holds_back_is_no_lag(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    group, servers = f"{topic}-readers", {"bootstrap.servers": kafka_cluster.bootstrap}
    producer = Producer({**servers, "transactional.id": topic})
    consumer = Consumer({**servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    producer.init_transactions(30.0)
    note = "1 partition with an open transaction: lag counted up to its beginning"
    with admin_client(kafka_cluster.bootstrap) as ask:
        observer = KafkaObserver(lambda: nullcontext(ask), group, [topic], Working(1.0))

        def sees(lag: float, held: bool) -> bool:
            found = seen(observer)
            return found is not None and (found.group.lag[0], note in found.notes) == (lag, held)

        # the mark of the end of a transaction is an offset, too
        for before in (0, 21):
            producer.begin_transaction()
            for _ in range(20):
                producer.produce(topic, b"event", partition=0)
            assert producer.flush(30.0) == 0
            wait_for(partial(sees, before, held=True), lambda: group)
            producer.commit_transaction(30.0)
            wait_for(partial(sees, before + 21, held=False), lambda: group)
