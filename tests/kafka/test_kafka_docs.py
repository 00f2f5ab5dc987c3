"""Every command of the guide to a first rebalance runs on a real cluster."""

from __future__ import annotations

import re
import shlex
import uuid
from pathlib import Path

import pytest
from command_line import invoke
from kafka_cases import create_filled
from real_kafka import KafkaCluster
from waiting import wait_for

from balancer.controller import Election
from cluster_model.kafka import read_cluster

PAGE = Path(__file__).parents[2] / "docs" / "first-rebalance.md"


def test_the_first_rebalance_goes_as_the_page_says(
    owned_kafka: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = owned_kafka
    name = f"skewed-{uuid.uuid4().hex[:6]}"
    create_filled(cluster, name, {n: [n % 2, 1 - n % 2] for n in range(24)}, 100)

    # The first vote creates topics, which would be left to balance at the end.
    with Election(cluster.bootstrap, group=name) as vote:
        wait_for(lambda: vote.acting, "a vote")

    ran, said = [], []
    for language, text in re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", PAGE.read_text()):
        if language == "yaml":
            Path("capacities.yaml").write_text(text)
            continue
        for line in text.strip().splitlines():
            words = shlex.split(line.replace("localhost:9092", cluster.bootstrap))
            assert words.pop(0) == "counterpoise"
            result = invoke(words)
            said += [f"$ {line}", result.output]
            assert result.exit_code == 0, "\n".join(said)
            ran.append(words[0])
    assert ran == ["snapshot", "load", "propose", "explain", "verify", "execute", "execute", "run"]
    after = read_cluster(cluster.bootstrap, capacity={"disk": 1e12}, resources=["disk"])
    held = dict.fromkeys(after.broker_ids.tolist(), 0)
    for broker in after.broker_ids[after.replica_broker].tolist():
        held[broker] += 1
    mean = sum(held.values()) / len(held)
    # as ReplicaDistribution asks, whose limits are whole replicas
    assert all(0.9 * mean - 1 < count < 1.1 * mean + 1 for count in held.values()), held
