"""The controller on a real Kafka: unattended, two of them, with brokers and controllers killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import invoke
from kafka_cases import create_filled, create_topic
from real_kafka import KafkaCluster
from waiting import LIMIT, wait_for

from balancer.controller import Election
from cluster_model import BrokerState, Snapshot
from cluster_model.kafka import KafkaSourceError, admin_client, read_cluster
from cluster_model.live import simulated_source
from metrics_reporter import Reporter

TIMEOUT = 300.0
SESSION = 6.0
CAPACITY = {"default": {"disk": 1e12}}
SETTINGS: dict[str, Any] = {
    "interval": 0.5,
    "settle": 0,
    "max_share_per_cycle": 1.0,
    "moved_cooldown": 0,
    "goal_violations": {"cooldown": "1s", "rounds": 1, "min_gain_per_share": 0.0},
    "dead_brokers": {"heal_after": "3s", "alert_after": "1s", "cooldown": "1s"},
    "drained_brokers": {"cooldown": "1s"},
    "execution": {"progress_interval": 0.2},
}


class Running:
    """``counterpoise run --execute`` in a process of its own."""

    def __init__(self, bootstrap: str, directory: Path, name: str) -> None:
        self.settings = directory / f"{name}.yaml"
        self.settings.write_text(yaml.safe_dump(SETTINGS))
        capacity = directory / "capacity.yaml"
        capacity.write_text(yaml.safe_dump(CAPACITY))
        self.log = directory / f"{name}.log"
        command = [sys.executable, "-c", "from balancer.cli import main; main()", "run"]
        command += ["--bootstrap-server", bootstrap, "--capacity", str(capacity)]
        command += ["--settings", str(self.settings), "--execute", "--listen", "127.0.0.1:0"]
        command += ["--journal", str(directory / f"{name}.journal"), "--session", str(SESSION)]
        root = str(Path(__file__).parents[2])
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,  # where it keeps its proposals
                env={**os.environ, "PYTHONPATH": root},
            )

    def page(self, name: str) -> str | None:
        """A page of its endpoint; None while it does not answer."""
        found = re.search(r"serving http://([^\s/]+)", self.log.read_text())
        if found is None:
            assert self.process.poll() is None, self.log.read_text()
            return None
        with urllib.request.urlopen(f"http://{found[1]}/{name}", timeout=LIMIT) as answer:
            return str(answer.read().decode())

    def state(self) -> dict[str, Any]:
        page = self.page("state")
        found: dict[str, Any] = {"acting": False, "decisions": []} if page is None else {}
        return found if page is None else json.loads(page)

    @property
    def acting(self) -> bool:
        return bool(self.state()["acting"])


def _until(met: Callable[[], Any], *logs: Path) -> None:
    # Who has just died may be asked still.
    unless = (KafkaSourceError,)
    wait_for(met, lambda: "\n".join(log.read_text()[-3000:] for log in logs), unless=unless)


@pytest.fixture(scope="module")
def cluster(owned_kafka: KafkaCluster) -> KafkaCluster:
    """Four brokers on four racks, the last of them empty."""
    name = f"busy-{uuid.uuid4().hex[:8]}"
    held = {n: [n % 2, 2 if n % 3 else 1 - n % 2] for n in range(24)}
    create_filled(owned_kafka, name, held, 200)
    return owned_kafka


def _replicas(cluster: KafkaCluster) -> dict[int, int]:
    """Replicas by broker, of those that hold any."""
    held: dict[int, int] = {}
    snapshot = read_cluster(cluster.bootstrap, capacity=CAPACITY, resources=["disk"])
    for broker in snapshot.broker_ids[snapshot.replica_broker].tolist():
        held[broker] = held.get(broker, 0) + 1
    return held


@pytest.mark.soak
def test_unattended_it_balances_drains_and_heals_and_another_takes_over(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    running = [Running(cluster.bootstrap, tmp_path, f"run-{i}") for i in range(2)]
    logs = [r.log for r in running]
    try:
        # A broker that was empty is given its share.
        _until(lambda: _replicas(cluster).get(3, 0) >= 8, *logs)
        _until(lambda: sum(r.acting for r in running) == 1, *logs)
        (actor,) = (r for r in running if r.acting)
        (standby,) = (r for r in running if r is not actor)
        assert standby.state()["decisions"][0]["kind"] == "standby"
        assert not any(d["kind"] == "started" for d in standby.state()["decisions"])
        # A broker that is to be empty, by settings that change while it runs.
        for one in running:
            one.settings.write_text(
                yaml.safe_dump({**SETTINGS, "drained_brokers": {"brokers": [1], "cooldown": "1s"}})
            )
        _until(lambda: 1 not in _replicas(cluster), *logs)
        for one in running:
            one.settings.write_text(yaml.safe_dump(SETTINGS))
        _until(lambda: _replicas(cluster).get(1, 0) >= 8, *logs)
        # The one that acts is killed, and a broker with it: the other heals.
        actor.process.kill()
        actor.process.wait()
        cluster.kill(3)
        _until(lambda: standby.acting, *logs)
        _until(lambda: 3 not in _replicas(cluster), *logs)

        def healed() -> bool:
            decisions = standby.state()["decisions"]
            return any(d["kind"] == "executed" and d["cause"] == "dead_brokers" for d in decisions)

        _until(healed, *logs)
        page = standby.page("metrics")
        assert page is not None
        assert "counterpoise_acting 1" in page
        # It ends in good order when asked to.
        standby.process.terminate()
        assert standby.process.wait(LIMIT) == 0
        assert "Traceback" not in standby.log.read_text()
    finally:
        for one in running:
            one.process.kill()
            one.process.wait()


def _once(
    cluster: KafkaCluster,
    directory: Path,
    settings: dict[str, Any],
    capacity: dict[str, Any],
    *more: str,
) -> dict[str, Any]:
    """The decision of one round."""
    files = {"--settings": settings, "--capacity": capacity}
    arguments = ["run", "--once", "--json", "--bootstrap-server", cluster.bootstrap, *more]
    for option, content in files.items():
        path = directory / f"{option.strip('-')}.yaml"
        path.write_text(yaml.safe_dump(content))
        arguments += [option, str(path)]
    done = invoke([*arguments, "--timeout", "120"])
    assert done.exit_code in (0, 1), done.output
    decision: dict[str, Any] = json.loads(done.stdout)
    return decision


def test_metrics_of_a_topic_are_judged(cluster: KafkaCluster, tmp_path: Path) -> None:
    everything = {"default": {"cpu": 800.0, "network_in": 1e8, "network_out": 1e8, "disk": 1e12}}
    topic = f"metrics-{uuid.uuid4().hex[:8]}"
    with admin_client(cluster.bootstrap, timeout=30) as ask:
        requested = {topic: {"num_partitions": 2, "replication_factor": 1}}
        ask(lambda admin: admin.create_topics(requested, wait_for_metadata=True))
    found = read_cluster(cluster.bootstrap, capacity=everything)
    load = found.leader_load.copy()
    load[:, 0], load[:, 1], load[:, 2] = 1.0, 1e6, 3e6
    measured = replace(found, leader_load=load, follower_load=load * [0.2, 1.0, 0.0, 1.0])
    start_ms = int(1000 * time.time()) - 60_000
    source = simulated_source(measured, start_ms=start_ms, interval_ms=1000)
    assert Reporter(source, bootstrap=cluster.bootstrap, topic=topic).run(60) > 0
    kept = {"window": "10s", "windows": 3, "min_samples": 2}
    settings = {"model": kept, "stale_metrics": {"max_age": "1h"}}
    decision = _once(cluster, tmp_path, settings, everything, "--metrics-topic", topic)
    assert decision["kind"] in (
        "proposed",
        "trivial",
        "balanced",
        "insufficient_gain",
        "waiting",
    ), decision
    plan, facts = decision["plan"], decision["facts"]
    judged = facts["evenness"]["ratios"] if plan is None else plan["worst_ratios"]
    assert {"cpu", "network_in", "network_out", "disk"} <= set(judged)


def test_on_a_real_kafka_who_joins_takes_nothing_away(cluster: KafkaCluster) -> None:
    group = f"vote-{uuid.uuid4().hex[:8]}"
    options: dict[str, Any] = {"group": group, "session": 2 * SESSION}
    with Election(cluster.bootstrap, **options) as first, admin_client(cluster.bootstrap) as ask:
        _until(lambda: first.acting)
        with Election(cluster.bootstrap, **options) as second:

            def both_are_members() -> bool:
                assert first.acting
                assert not second.acting
                found = ask(lambda admin: admin.describe_groups([group]))[group]
                return (len(found["members"]), found["group_state"]) == (2, "Stable")

            _until(both_are_members)
            assert first.acting
            assert not second.acting
            first.close()
            assert not first.acting
            _until(lambda: second.acting)


def test_a_dead_disk_is_healed_elsewhere(cluster: KafkaCluster, tmp_path: Path) -> None:
    def look() -> Snapshot:
        return read_cluster(cluster.bootstrap, capacity=CAPACITY, resources=["disk"])

    cluster.renew()
    _until(lambda: (look().broker_state == BrokerState.ALIVE).tolist() == [True] * 4)
    cluster.fail_disk(2, 1)
    with admin_client(cluster.bootstrap, timeout=30) as ask:
        for n in range(4):
            # New logs are made where there are fewest, and that fails.
            name = f"fresh-{n}-{uuid.uuid4().hex[:6]}"
            create_topic(ask, name, {0: [2, 0]}, must=False)

    def held() -> int:
        """Replicas on dead disks that another one can be copied from."""
        s = look()
        dead = ~np.append(s.disk_alive, True)[s.replica_disk]
        offline = np.bincount(s.replica_partition, dead, s.n_partitions)
        return int(offline[offline < s.replication_factor].sum())

    _until(lambda: held() > 0)
    acting = ["--execute", "--session", str(SESSION), "--group", f"once-{uuid.uuid4().hex[:8]}"]
    acting += ["--journal", str(tmp_path / "journal")]
    settings = {**SETTINGS, "dead_disks": {"heal_after": 0}}
    decision = _once(cluster, tmp_path, settings, CAPACITY, *acting)
    assert decision["cause"] == "dead_disks", decision
    assert decision["outcome"]["state"] == "done", decision
    assert held() == 0
