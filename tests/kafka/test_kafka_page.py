"""The page on a real Kafka: a person looks, proposes, approves, and watches the execution end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import yaml
from chromium import Tab, tab
from kafka_cases import create_filled
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from cluster_model.kafka import read_cluster

CAPACITY = {"default": {"disk": 1e12}}
SETTINGS = {
    "interval": 1,
    "settle": 0,
    "max_share_per_cycle": 1.0,
    "approval": {"mode": "manual"},
    "goal_violations": {"rounds": 1, "min_gain_per_share": 0.0},
    "execution": {"progress_interval": 0.2},
}
PARTITIONS = 12


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    def served() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(r"serving (https?://[^\s/]+)", log.read_text())

    found = wait_for(served, log.read_text)
    assert found is not None
    return found[1]


def _click(page: Tab, label: str) -> None:
    button = (
        f"[...document.querySelectorAll('button')].find(b => !b.disabled && "
        f"b.textContent.startsWith({json.dumps(label)}))"
    )
    page.wait(button + " !== undefined")
    page.run(button + ".click()")


@pytest.mark.browser
def test_a_proposal_is_approved_on_the_page_and_moves_data(
    owned_kafka: KafkaCluster, tmp_path: Path
) -> None:
    kafka = owned_kafka
    create_filled(kafka, f"page-{uuid.uuid4().hex[:8]}", {n: [0] for n in range(PARTITIONS)}, 500)
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
    (tmp_path / "capacity.yaml").write_text(yaml.safe_dump(CAPACITY))
    (tmp_path / "server.yaml").write_text(yaml.safe_dump({"proposals": str(tmp_path / "kept")}))
    command = [sys.executable, "-c", "from balancer.cli import main; main()", "run", "--execute"]
    command += ["--bootstrap-server", kafka.bootstrap, "--listen", "127.0.0.1:0"]
    command += ["--capacity", str(tmp_path / "capacity.yaml")]
    command += ["--settings", str(tmp_path / "settings.yaml")]
    command += ["--server-settings", str(tmp_path / "server.yaml")]
    command += ["--journal", str(tmp_path / "run.journal")]
    log = tmp_path / "run.log"
    root = str(Path(__file__).parents[2])
    with log.open("wb") as target:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            env={**os.environ, "PYTHONPATH": root},
        )
    try:
        address = _address(process, log)
        with tab(tmp_path / "profile") as page:
            page.open(address)
            page.wait("fetch('health/ready').then(answer => answer.ok)")
            page.show("/execution")
            page.wait("document.body.innerText.includes('It acts')")
            page.show("/now")
            assert page.run("document.querySelectorAll('.bar').length") == 4
            page.show("/proposals")
            _click(page, "Propose")
            page.wait("document.querySelector('h1').textContent.startsWith('Proposal ')")
            _click(page, "Approve")
            page.show("/execution")
            page.wait(
                "document.body.innerText.includes('No execution is in progress.') && "
                "document.querySelector('.badge.executed') !== null",
            )
            assert "completed" in page.run("document.querySelector('main').innerText")
            assert page.problems() == []
    finally:
        process.terminate()
        process.wait(LIMIT)
    snapshot = read_cluster(kafka.bootstrap, capacity=CAPACITY, resources=["disk"])
    held = dict.fromkeys(snapshot.broker_ids.tolist(), 0)
    for broker in snapshot.broker_ids[snapshot.replica_broker].tolist():
        held[broker] += 1
    assert min(held.values()) >= PARTITIONS // 4 - 1
