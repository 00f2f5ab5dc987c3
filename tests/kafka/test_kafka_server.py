"""The server of a controller on a real Kafka: Cruise Control's client, and proposals exactly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kafka import TopicPartition
from kafka_cases import create_filled
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from cluster_model import Snapshot
from cluster_model.kafka import admin_client, read_cluster

CAPACITY = {"default": {"disk": 1e12}}
SETTINGS = {
    "interval": 0.5,
    "settle": 0,
    "max_share_per_cycle": 1.0,
    "moved_cooldown": 0,
    "approval": {"mode": "manual"},
}
CLIENT = "cruisecontrolclient.client.cccli"
ROOT = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def cluster(owned_kafka: KafkaCluster) -> KafkaCluster:
    """Four brokers on four racks, the last of them empty."""
    return owned_kafka


@pytest.fixture
def topic(cluster: KafkaCluster) -> str:
    """A topic of twelve partitions, none of them on broker 3."""
    name = f"served-{uuid.uuid4().hex[:8]}"
    create_filled(cluster, name, {n: [n % 2, 2 if n % 3 else 1 - n % 2] for n in range(12)}, 200)
    return name


@pytest.fixture
def server(cluster: KafkaCluster, topic: str, tmp_path: Path) -> Iterator[str]:
    """Address of the server of ``counterpoise run --execute``."""
    files = {"settings": SETTINGS, "capacity": CAPACITY}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    log = tmp_path / "run.log"
    command = [sys.executable, "-c", "from balancer.cli import main; main()", "run", "--execute"]
    command += ["--bootstrap-server", cluster.bootstrap, "--capacity", "capacity.yaml"]
    command += ["--settings", "settings.yaml", "--listen", "127.0.0.1:0"]
    command += ["--journal", "journal", "--session", "60"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONPATH": ROOT},
        )
    try:

        def ready() -> str:
            assert process.poll() is None, log.read_text()
            found = re.search(r"serving http://([^/\s]+)", log.read_text())
            if found is None:
                return ""
            health = httpx.get(f"http://{found[1]}/health/ready")
            # Ready without the vote too: then it approves nothing.
            state = httpx.get(f"http://{found[1]}/api/v1/state").json()
            return found[1] if health.status_code == 200 and state["acting"] else ""

        yield wait_for(ready)
    finally:
        process.terminate()
        process.wait(LIMIT)
        print(log.read_text()[-5000:])


def cccli(server: str, *words: str) -> Any:
    """What Cruise Control's client prints, run as its command is."""
    found = subprocess.run(
        [sys.executable, "-m", CLIENT, "-a", server, *words, "--json", "true"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def answer(server: str, endpoint: str, **asked: str) -> Any:
    """What the server answers to such a client."""
    address = f"http://{server}/kafkacruisecontrol/{endpoint}"
    return httpx.get(address, params={**asked, "json": "true"}, timeout=LIMIT).json()


def held_by(cluster: KafkaCluster) -> tuple[Snapshot, dict[str, list[int]]]:
    """The cluster, and the brokers of each partition."""
    s = read_cluster(cluster.bootstrap, capacity=CAPACITY, resources=["disk"])
    found = {
        f"{s.topics[t]}-{n}": s.broker_ids[s.replica_broker[a:b]].tolist()
        for t, n, a, b in zip(
            s.partition_topic.tolist(),
            s.partition_number.tolist(),
            s.replica_offset[:-1].tolist(),
            s.replica_offset[1:].tolist(),
            strict=True,
        )
    }
    return s, found


def test_the_client_of_cruise_control_looks_and_moves_data(
    cluster: KafkaCluster, server: str, topic: str
) -> None:
    before, held = held_by(cluster)
    brokers = {b["Broker"]: b for b in cccli(server, "load")["brokers"]}
    assert sorted(brokers) == [0, 1, 2, 3]
    assert sum(b["Replicas"] for b in brokers.values()) == before.n_replicas
    assert brokers[3]["Replicas"] < brokers[0]["Replicas"]
    parts = cccli(server, "partition_load", "--topic", topic)["records"]
    assert len(parts) == 12
    state = cccli(server, "kafka_cluster_state")
    assert state["KafkaBrokerState"]["Summary"]["Brokers"] == 4
    assert state["KafkaPartitionState"]["offline"] == []

    # At first it looks for what an execution that died has left.
    idle = "NO_TASK_IN_PROGRESS"
    wait_for(lambda: answer(server, "state")["ExecutorState"]["state"] == idle)
    assert cccli(server, "state")["ExecutorState"]["state"] == idle
    assert cccli(server, "proposals")["summary"]["numReplicaMovements"] > 0
    for name, key in (("user_tasks", "userTasks"), ("review_board", "RequestInfo")):
        assert isinstance(cccli(server, name)[key], list)
    dry = cccli(server, "rebalance", "--dry-run")
    assert "message" not in dry or "executed" not in dry["message"]
    assert held_by(cluster)[1] == held
    said = cccli(server, "rebalance", "--verbose", "true")
    assert "is executed exactly as it is" in said.get("message", ""), said
    assert said["summary"]["dataToMoveMB"] >= 1
    asked = {"endpoints": "rebalance", "types": "Completed"}
    wait_for(lambda: len(answer(server, "user_tasks", **asked)["userTasks"]) == 2)
    tasks = cccli(server, "user_tasks", "--endpoint", "rebalance", "--types", "Completed")
    assert len(tasks["userTasks"]) == 2
    _, now = held_by(cluster)
    for change in said["proposals"]:
        where = change["topicPartition"]
        assert now[f"{where['topic']}-{where['partition']}"] == change["newReplicas"]
    assert sum(3 in brokers for brokers in now.values()) >= 3
    changed = {
        f"{c['topicPartition']['topic']}-{c['topicPartition']['partition']}"
        for c in said["proposals"]
    }
    assert {name for name in now if now[name] != held[name]} <= changed


def test_what_is_approved_is_what_kafka_has_afterwards(
    cluster: KafkaCluster, server: str, topic: str
) -> None:
    with httpx.Client(base_url=f"http://{server}/api/v1", timeout=LIMIT) as client:
        job = client.post("/proposals?wait=60", json={"reason": "a test"}).json()
        path = f"/proposals/{job['proposal']}"
        kept, plan = client.get(path).json(), client.get(f"{path}/plan").json()
        assert plan["actions"]
        client.post(f"{path}/approve", json={"digest": kept["digest"]}).raise_for_status()
        wait_for(lambda: client.get(path).json()["state"] not in ("approved", "executing"))
        assert client.get(path).json()["state"] == "executed"
    _, now = held_by(cluster)
    for action in plan["actions"]:
        if action["kind"] == "move":
            assert action["destination"] in now[f"{action['topic']}-{action['partition']}"]


def test_a_topic_that_changes_in_between_makes_a_proposal_stale(
    cluster: KafkaCluster, server: str, topic: str
) -> None:
    with httpx.Client(base_url=f"http://{server}/api/v1", timeout=LIMIT) as client:
        job = client.post("/proposals?wait=60", json={}).json()
        path = f"/proposals/{job['proposal']}"
        kept = client.get(path).json()
        actions = client.get(f"{path}/actions?limit=1000").json()["actions"]
        # Of any topic of these tests: which one moves is the plan's choice.
        moved = next(a for a in actions if a["kind"] == "move" and a["topic"].startswith("served-"))
        topic, number = moved["topic"], moved["partition"]
        # Another person moves that partition to brokers that the plan does not know of.
        others = [b for b in range(4) if b != moved["source"]][:2]
        # Brokers answer from what they know, which may be older than another's answer.
        expected = {**held_by(cluster)[1], f"{topic}-{number}": others}
        with admin_client(cluster.bootstrap, timeout=30) as ask:
            asked: Any = {TopicPartition(topic, number): others}
            ask(lambda admin: admin.alter_partition_reassignments(asked))
        wait_for(lambda: held_by(cluster)[1] == expected)
        wait_for(lambda: client.get(f"{path}/changes").json())
        client.post(f"{path}/approve", json={"digest": kept["digest"]}).raise_for_status()
        wait_for(lambda: client.get(path).json()["state"] == "stale")
        wait_for(lambda: held_by(cluster)[1] == expected)
