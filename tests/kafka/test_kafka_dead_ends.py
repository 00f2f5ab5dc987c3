"""The controller on a real Kafka with dead ends: only copies on a dead broker, pauses, SIGTERM."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_cases import create_filled
from real_kafka import KafkaCluster
from test_kafka_controller import CAPACITY, SETTINGS, Running, _until

from cluster_model import Snapshot
from cluster_model.kafka import read_cluster

# What SIGTERM may take at most: less than any other wait.
ENDS = 60.0
AT_ONCE: dict[str, Any] = {
    **SETTINGS,
    "dead_brokers": {"heal_after": "3s", "alert_after": "3s", "cooldown": "1s"},
}


@pytest.fixture(scope="module")
def cluster(owned_kafka: KafkaCluster) -> KafkaCluster:
    """Four brokers; topic "single" has its only copies on broker 2, as one of "pair" has."""
    pairs = {n: [n % 2, 2] if n % 2 else [n % 3, (n + 1) % 3] for n in range(18)}
    create_filled(owned_kafka, "pair", pairs, 100)
    create_filled(owned_kafka, "single", {0: [2], 1: [2], 2: [0]}, 100)
    return owned_kafka


def _look(cluster: KafkaCluster) -> Snapshot:
    return read_cluster(cluster.bootstrap, capacity=CAPACITY, resources=["disk"])


def _on(cluster: KafkaCluster, broker: int, topic: str | None = None) -> int:
    """Replicas on a broker, of a topic."""
    s = _look(cluster)
    of = [s.topics[t] for t in s.partition_topic[s.replica_partition].tolist()]
    held = s.broker_ids[s.replica_broker].tolist()
    return sum(b == broker and topic in (None, t) for b, t in zip(held, of, strict=True))


def _balanced(cluster: KafkaCluster, *living: int) -> bool:
    """Whether each broker holds its share of their replicas, within the 15 % of the goal."""
    s = _look(cluster)
    held = s.broker_ids[s.replica_broker].tolist()
    counts = [held.count(broker) for broker in living]
    share = sum(counts) / len(counts)
    return all(abs(count - share) <= max(1.0, 0.15 * share) for count in counts)


@contextmanager
def _restarted(cluster: KafkaCluster) -> Iterator[Callable[[int], None]]:
    """Gives a function that kills a broker; those that it killed are started again."""
    killed: list[int] = []

    def kill(broker: int) -> None:
        killed.append(broker)
        cluster.kill(broker)

    try:
        yield kill
    finally:
        cluster.restart(*killed)


def _settings(running: Running, **settings: Any) -> None:
    running.settings.write_text(yaml.safe_dump({**AT_ONCE, **settings}))


def test_only_copies_on_a_dead_broker_are_set_aside_and_the_rest_healed_and_balanced(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    with _restarted(cluster) as kill:
        running = Running(cluster.bootstrap, tmp_path, "run")
        _settings(running, excluded_topics=["single"])
        try:
            _until(lambda: running.acting, running.log)
            kill(2)
            _until(lambda: _on(cluster, 2, "pair") == 0, running.log)
            assert _on(cluster, 2, "single") == 2
            _until(lambda: "cannot be healed" in running.log.read_text(), running.log)
            # The rest is balanced, though the dead broker goes on holding what it holds.
            create_filled(cluster, "skewed", {n: [0, 1] for n in range(12)}, 100)
            _until(
                lambda: _on(cluster, 3, "skewed") > 0 and _balanced(cluster, 0, 1, 3), running.log
            )
            reported = running.log.read_text()
            assert "2 partitions (single-0 and single-1) cannot be healed" in reported
            assert reported.count("cannot be healed") == 1
            page = running.page("metrics")
            assert page is not None
            assert "counterpoise_lost_partitions 2" in page

            # Paused by its file, whatever the command line says, it proposes and moves nothing.
            _settings(running, execute=False)
            _until(lambda: "--execute does not override it" in running.log.read_text(), running.log)
            _until(lambda: running.state().get("executing") is None, running.log)
            create_filled(cluster, "later", {n: [0, 1] for n in range(12)}, 100)
            _until(lambda: "proposed: " in running.log.read_text(), running.log)
            rounds = running.state()["rounds"]
            _until(lambda: running.state()["rounds"] > rounds + 4, running.log)
            assert _on(cluster, 3, "later") == 0
            assert not _balanced(cluster, 0, 1, 3)
            _settings(running)
            _until(lambda: _balanced(cluster, 0, 1, 3), running.log)
            running.process.terminate()
            assert running.process.wait(ENDS) == 0
            assert "Traceback" not in running.log.read_text()
        finally:
            running.process.kill()
            running.process.wait()


@pytest.mark.soak
def test_sigterm_ends_it_while_an_execution_goes_on_and_brokers_are_away(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = f"slow-{uuid.uuid4().hex[:6]}"
    create_filled(cluster, topic, {n: [0, 1] for n in range(12)}, 100)
    with _restarted(cluster) as kill:
        running = Running(cluster.bootstrap, tmp_path, "slow")
        # Bytes that hardly move, so that it is in the middle.
        _settings(
            running, execution={"throttle": 1024, "progress_interval": 0.2}, progress_interval=1
        )
        try:

            def progressed() -> bool:
                executing = running.state().get("executing")
                return bool(executing and executing["plan"] and executing["progress"])

            _until(progressed, running.log)
            progress = running.state()["executing"]["progress"]
            assert progress["tasks"] > 0
            assert progress["bytes"] > progress["bytes_moved"] >= 0
            page = running.page("metrics")
            assert page is not None
            assert f"counterpoise_execution_tasks {progress['tasks']}" in page
            _until(lambda: "executing (goal violations): " in running.log.read_text(), running.log)
            for broker in (1, 2, 3):
                kill(broker)
            running.process.terminate()
            running.process.wait(ENDS)
            assert "Traceback" not in running.log.read_text()
        finally:
            running.process.kill()
            running.process.wait()
    # And its next start takes up what it left.
    again = Running(cluster.bootstrap, tmp_path, "slow")
    _settings(again)
    try:
        _until(lambda: _balanced(cluster, 0, 1, 2, 3), again.log)
        _until(lambda: again.state().get("executing") is None, again.log)
        decisions = json.dumps(again.state()["decisions"])
        assert '"kind": "error"' not in decisions, decisions
    finally:
        again.process.terminate()
        again.process.wait(ENDS)
