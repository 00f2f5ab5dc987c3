"""Packed consumers on a real Kafka: a skewed load that changes, from 1 to 6 consumers and back.

Every consumer writes down when it processed which record. Nothing is lost, also with ``kill -9`` of
a consumer and of the autoscaler, and no partition is processed by two at a time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from consumer_groups import AutoscaleRun, Load, Written, living, margin
from kafka_cases import python_environment
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer.autoscaling.packed import packed_consumer
from cluster_model.kafka import admin_client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Events/s that a consumer is said to process: little, so that a slow machine can do it. It does
# more, so that it can catch up.
CAPACITY = 25
# Events/s of each partition.
LOW = [1.0] * 12
HIGH = [20.0, 17.0, 15.0, 13.0, 10.0, 10.0, 10.0, 8.0, 7.0, 5.0, 3.0, 2.0]
OTHER = [2.0, 3.0, 5.0, 7.0, 8.0, 10.0, 10.0, 10.0, 13.0, 15.0, 17.0, 20.0]
BATCH = 10
SESSION, ELECTION = 6.0, 6.0
SLA, INTERVAL, WINDOW, REACTION = 3.0, 1.0, 3.0, 1.0
# No event waits longer, but for the margin of the machine. The model: its reader is dead until its
# session is over, or there are too few consumers until the window shows it, a round decides and the
# change takes effect; then the SLA.
BOUND = SESSION + WINDOW + INTERVAL + REACTION + SLA
_CONSUMER = f"""
import json, os, signal, sys, time
from balancer.autoscaling.packed import PackedSettings, packed_consumer

bootstrap, group, topic, folder = sys.argv[1:]
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
log = open(os.path.join(folder, str(os.getpid())), "w", buffering=1)

def tell(*what):
    log.write(json.dumps([time.monotonic(), *what]) + "\\n")

with packed_consumer(
    [topic], group=group, name=os.environ["COUNTERPOISE_CONSUMER"], bootstrap_servers=bootstrap,
    settings=PackedSettings(session_ms={SESSION * 1000:.0f}, heartbeat_ms=300),
    max_poll_records={BATCH},
) as consumer:
    while not stopped:
        batch = consumer.poll(timeout_ms=100)
        for tp, records in batch.items():
            for record in records:
                waited = time.time() - record.timestamp / 1e3
                tell("begin", tp.partition, record.offset, waited)
                time.sleep(1 / {CAPACITY * 1.5})
                tell("end", tp.partition, record.offset)
        if batch:
            begun = time.monotonic()
            consumer.commit()
            tell("commit", time.monotonic() - begun)
"""


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    name = f"packed-{os.getpid()}-{time.monotonic_ns()}"
    new = {name: {"num_partitions": len(LOW), "replication_factor": 1}}
    with admin_client(kafka_cluster.bootstrap) as ask:
        ask(lambda admin: admin.create_topics(new, wait_for_metadata=True))
    return name


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def load(kafka_cluster: KafkaCluster, topic: str, ends: ExitStack) -> Load:
    # nothing waits before there is a consumer
    started = Load(kafka_cluster.bootstrap, topic, [0.0] * len(LOW))
    ends.callback(started.stop)
    return started


@pytest.fixture
def start(kafka_cluster: KafkaCluster, topic: str, ends: ExitStack) -> Callable[..., AutoscaleRun]:
    def started(*words: object) -> AutoscaleRun:
        run = AutoscaleRun.start(
            "--bootstrap-server", kafka_cluster.bootstrap, "--group", f"{topic}-readers",
            "--topics", topic, "--assignor", "packed", "--capacity", CAPACITY,
            "--interval", f"{INTERVAL:g}s", "--window", f"{WINDOW:g}s", "--rebalance-time", "1s",
            "--reaction-time", f"{REACTION:g}s", "--sla", f"{SLA:g}s", "--down-cooldown", "3s",
            "--maximum", 6, *words,
        )  # fmt: skip
        ends.callback(run.process.wait)
        ends.callback(run.process.kill)
        return run

    return started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "written"
    found.mkdir()
    return found


@pytest.fixture
def command(kafka_cluster: KafkaCluster, topic: str, tmp_path: Path, folder: Path) -> list[str]:
    script = tmp_path / "consumer.py"
    script.write_text(_CONSUMER, encoding="utf-8")
    given = (sys.executable, script, kafka_cluster.bootstrap, f"{topic}-readers", topic, folder)
    return list(map(str, given))


@pytest.mark.soak
def test_from_one_consumer_to_six_and_back_with_kills(
    load: Load, start: Callable[..., AutoscaleRun], command: list[str], folder: Path
) -> None:
    chance = random.Random(7)
    first = start("--command", " ".join(command))
    first.wait_settled(1, 0)
    load.rates = LOW
    first.wait_settled(1, 100)
    load.rates = HIGH
    first.wait_settled(6, 300)
    time.sleep(chance.uniform(0.0, 3.0))
    os.kill(chance.choice(living(folder)), signal.SIGKILL)
    first.wait_settled(6, 300)
    before = time.monotonic()
    # another one acts, and starts consumers; those of this one end when it is resumed
    first.process.send_signal(signal.SIGSTOP)
    second = start("--command", " ".join(command))
    wait_for(lambda: bool(second.last()), second.last_rounds)
    time.sleep(chance.uniform(0.0, 2.0))
    first.process.send_signal(signal.SIGCONT)
    second.wait_settled(6, 300)
    wait_for(lambda: len(living(folder)) == 6, lambda: living(folder))
    time.sleep(chance.uniform(0.0, 2.0))
    # its consumers end with it, and the first one acts again
    second.kill()
    begun = len(first.rounds)
    wait_for(lambda: any("consumers" in r for r in first.rounds[begun:]), first.last_rounds)
    first.wait_settled(6, 300)
    at_six = time.monotonic()
    load.rates = LOW
    first.wait_settled(1, 100)
    load.stop()
    first.wait_settled(1, 0)
    first.end()
    assert first.process.returncode == 0
    written = Written.read(folder)
    written.report("kill -9 of a consumer, and of a controller with its consumers; one frozen")
    written.check_one_reader()
    written.check_nothing_lost(load.sent)
    # another controller must have been elected first
    seconds = BOUND + margin()
    # kafka-python reads in rounds
    written.check_model(load, rounds=2)
    written.check_bound(seconds + ELECTION)
    assert max(written.waited_before(before)) < seconds
    written.check_balanced(load, at_six, HIGH, CAPACITY, WINDOW)
    assert not living(folder)
    # of a consumer that is killed, and of those that end with a controller, a batch each
    assert written.again <= 13 * BATCH


@pytest.mark.soak
def test_consumers_read_on_while_their_controller_is_killed(
    load: Load,
    start: Callable[..., AutoscaleRun],
    command: list[str],
    folder: Path,
    ends: ExitStack,
) -> None:
    chance = random.Random(8)
    for n in range(6):
        consumer = subprocess.Popen(
            command, env={**python_environment(), "COUNTERPOISE_CONSUMER": f"consumer-{n}"}
        )
        ends.callback(consumer.wait)
        ends.callback(consumer.kill)
    first = start("--minimum", 6)
    first.wait_settled(6, 0)
    load.rates = HIGH
    first.wait_settled(6, 300)
    second = start("--minimum", 6)
    wait_for(lambda: bool(second.last()), second.last_rounds)
    time.sleep(chance.uniform(0.0, 2.0))
    first.kill()
    load.rates = OTHER
    # what was decided for the load before is too much for one of them
    wait_for(lambda: bool(second.last()["moves"]), second.last_rounds)
    second.wait_settled(6, 300)
    at, rates = time.monotonic(), load.rates
    load.rates = [0.0] * len(LOW)
    load.stop()
    wait_for(lambda: second.last()["lag"] == 0, second.last_rounds)
    written = Written.read(folder)
    second.end()
    ends.close()
    written.report("kill -9 of a controller")
    written.check_one_reader()
    written.check_nothing_lost(load.sent)
    # kafka-python reads in rounds
    written.check_model(load, rounds=2)
    written.check_bound(BOUND + ELECTION + margin())
    written.check_balanced(load, at, rates, CAPACITY, WINDOW)
    assert len(written.processes) == 6
    assert not living(folder)


@pytest.mark.parametrize(
    "poll_ms", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in (1, 100))]
)
def test_a_consumer_that_works_between_its_polls_gets_its_partitions(
    kafka_cluster: KafkaCluster, topic: str, poll_ms: int
) -> None:
    group, deadline = f"{topic}-slow", time.monotonic() + 60.0
    with packed_consumer(
        [topic], group=group, name="a", bootstrap_servers=kafka_cluster.bootstrap
    ) as consumer:
        # longer than a join takes, which so ends between two polls
        while len(consumer.assignment()) < len(LOW):
            assert time.monotonic() < deadline, consumer.assignment()
            consumer.poll(timeout_ms=poll_ms)
            time.sleep(0.3)
