"""On a real Kafka: moves that can neither continue nor be cancelled, and stops in the middle."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import kafka_plans
import pytest
from kafka_cases import Assignment, create_filled, delete_topic, executor, throttles
from kafka_plans import move
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer import PlanDocument
from balancer.execution import Progress
from balancer.execution.cluster import ConfigResource, Kafka, Key
from balancer.execution.throttle import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
)
from cluster_model.kafka import KafkaSourceError, admin_client

SLOW = 300e3
COMMAND = [sys.executable, "-c", "from balancer.cli import main; main()", "execute"]


def plan_of(*actions: tuple[str, int, int, int]) -> PlanDocument:
    """Moves of (topic, partition, source, destination)."""
    return kafka_plans.plan_of(*(move(*action) for action in actions))


Topics = Callable[[Assignment], str]


@pytest.fixture
def create(kafka_cluster: KafkaCluster) -> Iterator[Topics]:
    """Makes topics with some megabytes in each partition; they are deleted afterwards."""
    made: list[str] = []

    def make(replicas: Assignment) -> str:
        name = f"dead-end-{uuid.uuid4().hex[:8]}"
        made.append(name)
        create_filled(kafka_cluster, name, replicas)
        return name

    yield make
    for name in made:
        with suppress(KafkaSourceError), admin_client(kafka_cluster.bootstrap, timeout=30) as ask:
            delete_topic(ask, name)


# Time to end: half of the longest that a command waits here for an answer.
ENDS = 60.0


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; fails where it does not end in time, as one that hangs never does."""
    try:
        reported, _ = process.communicate(timeout=ENDS)
    except subprocess.TimeoutExpired:
        process.kill()
        reported, _ = process.communicate()
        pytest.fail(f"still running after {ENDS:g} s:\n{reported}")
    assert "Traceback" not in reported, reported
    return reported


def shown(process: subprocess.Popen[str], start: str) -> None:
    """Wait for a line of what it prints."""
    assert process.stdout is not None
    assert any(line.startswith(start) for line in process.stdout), f"no line {start!r}"


def started(kafka_cluster: KafkaCluster, *options: object) -> subprocess.Popen[str]:
    command = [*COMMAND, "--bootstrap-server", kafka_cluster.bootstrap, *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_move_whose_only_source_dies_ends_and_so_do_its_recoveries(
    kafka_cluster: KafkaCluster, kafka: Kafka, create: Topics, tmp_path: Path
) -> None:
    single, other = create({0: [1]}), create({0: [0, 1], 1: [0, 1]})
    killed = threading.Event()

    def kill(progress: Progress) -> None:
        if progress.running and progress.bytes_moved and not killed.is_set():
            killed.set()
            kafka_cluster.kill(1)

    try:
        outcome = executor(kafka_cluster, tmp_path, throttle=SLOW).execute(
            plan_of((single, 0, 1, 2), (other, 0, 0, 2)), progress=kill
        )
        assert killed.is_set()
        assert outcome.state == "failed"
        reported = [p for p in outcome.problems if p.startswith(f"{single}-0")]
        assert any("it has no leader" in p and "refuses to cancel it" in p for p in reported), (
            outcome
        )
        assert any("continues in Kafka" in p and "broker 1" in p for p in reported), outcome
        found = throttles(kafka, single, other)
        assert found[ConfigResource("topic", single)] == {
            LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"
        }  # fmt: skip
        assert ConfigResource("topic", other) not in found
        assert ConfigResource("broker", "0") not in found
        # A recovery looks, and ends; by signal too.
        again = executor(kafka_cluster, tmp_path).recover()
        assert again is not None
        assert again.state == "failed"
        with started(kafka_cluster, "--recover", "--journal", tmp_path / "journal") as process:
            shown(process, "moving: ")
            process.send_signal(signal.SIGTERM)
            ended(process)
        assert process.returncode == 1
        # What has nothing to do with it is carried out.
        outcome = executor(kafka_cluster, tmp_path).execute(plan_of((other, 1, 0, 2)))
        assert (outcome.state, outcome.failed) == ("done", 0)
        assert throttles(kafka, single)[ConfigResource("topic", single)]
    finally:
        kafka_cluster.restart(1)
    final = executor(kafka_cluster, tmp_path).recover()
    assert final is not None
    assert final.state in ("done", "stopped"), final
    assert not any(p.moving for p in kafka.view([single, other]).partitions.values())
    assert throttles(kafka, single, other) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None


def test_in_a_dead_end_a_signal_ends_the_command(
    kafka_cluster: KafkaCluster, kafka: Kafka, create: Topics, tmp_path: Path
) -> None:
    single, plan, journal = create({0: [1]}), tmp_path / "plan.json", tmp_path / "journal"
    plan.write_text(plan_of((single, 0, 1, 2)).model_dump_json())
    options = (plan, "--journal", journal, "--yes", "--throttle", "300kB/s")
    try:
        with started(kafka_cluster, *options, "--broker-grace", 600) as process:
            wait_for(lambda: kafka.view([single]).partitions[Key(single, 0)].moving, "it moves")
            kafka_cluster.kill(1)
            wait_for(lambda: kafka.view([single]).partitions[Key(single, 0)].leader is None, "dead")
            process.send_signal(signal.SIGTERM)
            reported = ended(process)
        assert process.returncode == 1
        assert "continues in Kafka" in reported
        assert "stopped: " in reported
        with admin_client(kafka_cluster.bootstrap, timeout=30) as ask:
            delete_topic(ask, single)
        wait_for(lambda: not kafka.view([single]).partitions, "deleted")
    finally:
        kafka_cluster.restart(1)
    executor(kafka_cluster, tmp_path).recover()
    assert throttles(kafka, single) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None


@pytest.mark.parametrize("rollback", [False, True])
def test_what_is_stopped_keeps_its_preference_order_and_leader(
    kafka_cluster: KafkaCluster, kafka: Kafka, create: Topics, tmp_path: Path, rollback: bool
) -> None:
    topic = create({0: [0, 1], 1: [1, 0], 2: [0, 1]})
    running = executor(kafka_cluster, tmp_path, throttle=SLOW, concurrent_moves_per_broker=3)
    stopped = threading.Event()

    def stop(progress: Progress) -> None:
        if progress.running == 3 and not stopped.is_set():
            stopped.set()
            running.stop(rollback=rollback)

    # The leader moves, the follower moves, and the leader of the other order moves.
    plan = plan_of((topic, 0, 0, 2), (topic, 1, 0, 2), (topic, 2, 1, 2))
    outcome = running.execute(plan, progress=stop)
    assert stopped.is_set()
    assert outcome.state == ("rolled back" if rollback else "stopped"), outcome
    found = kafka.view([topic]).partitions
    assert [found[Key(topic, n)].replicas for n in range(3)] == [(0, 1), (1, 0), (0, 1)]
    assert [found[Key(topic, n)].leader for n in range(3)] == [0, 1, 0]
    assert throttles(kafka, topic) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None


def test_a_topic_deleted_while_throttled_leaves_nothing_open(
    kafka_cluster: KafkaCluster, kafka: Kafka, create: Topics, tmp_path: Path
) -> None:
    topic, other = create({0: [0, 1]}), create({0: [0, 1]})
    deleted = threading.Event()
    with admin_client(kafka_cluster.bootstrap, timeout=30) as ask:

        def delete(progress: Progress) -> None:
            if progress.running and not deleted.is_set():
                deleted.set()
                delete_topic(ask, topic)

        outcome = executor(kafka_cluster, tmp_path, throttle=3e6).execute(
            plan_of((topic, 0, 1, 2), (other, 0, 1, 2)), progress=delete
        )
    assert deleted.is_set()
    assert outcome.state == "done", outcome
    assert not any("throttle" in p for p in outcome.problems)
    assert throttles(kafka, other) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None


@pytest.mark.parametrize("answers", [True, False])
def test_a_signal_ends_a_command_that_kafka_does_not_answer(
    kafka_cluster: KafkaCluster, tmp_path: Path, answers: bool
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(plan_of(("none", 0, 1, 2)).model_dump_json())
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        # Connections are taken, and nothing ever comes back.
        silent.listen()
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*COMMAND, str(plan), "--bootstrap-server", where, "--yes", "--timeout", "120"]
        command += ["--journal", str(tmp_path / "journal")]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            # Its first question has come.
            silent.settimeout(120)
            connection, _ = silent.accept()
            if not answers:
                # From now on nobody takes connections.
                silent.close()
                connection.close()
            process.send_signal(signal.SIGTERM)
            reported = ended(process)
            connection.close()
    assert process.returncode == 2
    assert "did not answer" in reported


def test_a_signal_ends_an_execution_whose_kafka_falls_silent(
    kafka_cluster: KafkaCluster, kafka: Kafka, create: Topics, tmp_path: Path
) -> None:
    topic, plan, journal = create({0: [0, 1]}), tmp_path / "plan.json", tmp_path / "journal"
    plan.write_text(plan_of((topic, 0, 1, 2)).model_dump_json())
    options = (plan, "--journal", journal, "--yes", "--throttle", "300kB/s", "--timeout", 120)
    with started(kafka_cluster, *options) as process:
        wait_for(lambda: kafka.view([topic]).partitions[Key(topic, 0)].moving, "it moves")
        with kafka_cluster.frozen():
            # It asks Kafka every two seconds; the test holds whenever the signal arrives.
            time.sleep(2.5)
            process.send_signal(signal.SIGTERM)
            reported = ended(process)
    assert process.returncode == 1
    assert "recover once it answers" in reported
    # It did not become known that it was to stop, or it did: either way a recovery ends it.
    outcome = executor(kafka_cluster, tmp_path, throttle=50e6).recover()
    assert outcome is not None
    assert outcome.state in ("done", "stopped"), outcome
    assert not any(p.moving for p in kafka.view([topic]).partitions.values())
    assert throttles(kafka, topic) == {}
    assert executor(kafka_cluster, tmp_path).recover() is None
