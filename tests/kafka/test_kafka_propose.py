"""Kafka's own tools carry out what is proposed for a real Kafka, and it ends as planned."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml
from command_line import invoke
from kafka_cases import create_topic, produce
from real_kafka import LEADER_ELECTION, REASSIGN_PARTITIONS, KafkaCluster
from typer.testing import Result
from waiting import wait_for

from balancer import Balancer, Operation, PlanDocument, load_plan
from balancer.composition.source import KafkaSource
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, load_snapshot
from cluster_model.kafka import admin_client, read_cluster
from cluster_model.live import simulated_source
from metrics_reporter import Reporter

Replicas = dict[tuple[str, int], tuple[list[int], int | None]]

# Kilobytes of the partitions of `skewed`, whose replicas are all on brokers 0, 1 and 2.
# Replicas of all topics are counted, internal ones too.
FRESH = True
SIZES = (600, 500, 400, 300, 200, 200, 100, 100)
# Two of them in one rack.
RACKS = ("rack-a", "rack-b", "rack-c", "rack-a")
# Stated, for every look at the cluster: the bytes that are free change between two of them.
CAPACITY = {"default": {"disk": 1e12}}


@pytest.fixture(scope="module")
def skewed(owned_kafka: KafkaCluster) -> KafkaCluster:
    """Four brokers on three racks; a topic that weighs on three of them, one against the racks."""
    kafka = owned_kafka
    kafka.renew(racks=RACKS)
    with admin_client(kafka.bootstrap) as ask:
        create_topic(ask, "skewed", {n: [n % 2, 2] for n in range(len(SIZES))})
        # Brokers 0 and 3 are in one rack.
        create_topic(ask, "crowded", {n: [0, 3] for n in range(4)})
    produce(kafka, "skewed", dict(enumerate(SIZES)))
    produce(kafka, "crowded", dict.fromkeys(range(4), 100))
    return kafka


def counterpoise(*args: object) -> Result:
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1), result.output
    return result


def replicas(s: Snapshot) -> Replicas:
    """Replicas in preference order and leader, by partition."""
    found: Replicas = {}
    at = s.replica_offset
    for p, (t, number) in enumerate(zip(s.partition_topic, s.partition_number, strict=True)):
        held = s.broker_ids[s.replica_broker[at[p] : at[p + 1]]].tolist()
        leader = int(s.leader[p])
        found[s.topics[t], int(number)] = (held, None if leader < 0 else held[leader])
    return found


def carry_out(kafka: KafkaCluster, moves: Path, leaders: Path) -> None:
    """With Kafka's own tools, as their manual says."""

    def reassign(*options: str) -> str:
        return kafka.run_tool(REASSIGN_PARTITIONS, "--reassignment-json-file", moves, *options)

    asked = json.loads(moves.read_text())["partitions"]
    assert asked
    assert "Successfully started partition reassignments" in reassign("--execute")
    with admin_client(kafka.bootstrap) as ask:
        under_way = partial(ask, lambda admin: admin.list_partition_reassignments())
        wait_for(lambda: not under_way(), "plan carried out")
    said = reassign("--verify")
    for p in asked:
        assert f"Reassignment of partition {p['topic']}-{p['partition']} is completed" in said
    if json.loads(leaders.read_text())["partitions"]:
        kafka.run_tool(
            LEADER_ELECTION, "--election-type", "preferred", "--path-to-json-file", leaders
        )


def _look(kafka: KafkaCluster, directory: Path) -> tuple[object, ...]:
    """Options to read a cluster with the stated capacity."""
    capacity = directory / "capacity.yaml"
    capacity.write_text(yaml.safe_dump(CAPACITY))
    return ("--bootstrap-server", kafka.bootstrap, "--capacity", capacity)


def expected(operation: Operation, before: Snapshot) -> Snapshot:
    """The end of the plan that the command line must have made too: equal in, equal out."""
    return Balancer().propose(before, operation).final_snapshot()


def test_a_plan_for_a_real_kafka_is_carried_out_by_its_tools(
    skewed: KafkaCluster, tmp_path: Path
) -> None:
    cluster, plan, moves, leaders = (
        tmp_path / n for n in ("cluster.json", "plan.json", "moves.json", "leaders.json")
    )
    look = _look(skewed, tmp_path)
    counterpoise("snapshot", "kafka", *look, "-o", cluster)
    before = load_snapshot(cluster)
    # Cpu and network are unknown to Kafka: their goals are left out, and nothing else is said.
    assert before.resources == ("disk",)
    result = counterpoise(
        "propose", *look, "-o", plan,
        "--reassignment-json", moves, "--leader-election-json", leaders,
    )  # fmt: skip
    document = load_plan(plan)
    found = check_plan(before, document)
    assert not found.violations
    # It was made from a look of its own, at other free bytes of the log directories.
    assert {m.kind for m in found.mismatches} <= {"other snapshot"}
    assert_balanced(document)
    left_out = [line for line in result.stdout.splitlines() if line.startswith("Left out: ")]
    assert any("ResourceCapacity[network_in]" in line for line in left_out)
    rest = [line for line in result.stdout.splitlines() if line not in left_out]
    assert "network" not in "\n".join(rest)
    requested = expected(Operation(), before)
    for held, _ in replicas(requested).values():
        assert len({skewed.racks[b] for b in held}) == len(held)

    carry_out(skewed, moves, leaders)
    wait_for(
        lambda: replicas(read(skewed)) == replicas(requested), "the cluster is as the plan says"
    )
    assert log_dirs(read(skewed)) == log_dirs(requested)
    again = counterpoise("propose", *look, "-o", plan)
    assert "replica move" not in again.stdout


def assert_balanced(plan: PlanDocument) -> None:
    met = {g.goal: g.met_after for g in plan.goal_results}
    assert met["RackAwareness"]
    assert met["ReplicaDistribution"]
    assert met["LeaderReplicaDistribution"]
    count, disk = plan.columns["replica_count"], plan.columns["disk"]
    assert count.before.max == 8
    assert 5 <= count.after.min <= count.after.max <= 7
    assert disk.before.worst_ratio > 1.6
    assert disk.after.worst_ratio < 1.3


def read(kafka: KafkaCluster) -> Snapshot:
    return read_cluster(kafka.bootstrap, capacity=CAPACITY, resources=("disk",))


def log_dirs(s: Snapshot) -> dict[tuple[int, int], str]:
    rows = zip(s.replica_partition.tolist(), s.replica_broker.tolist(), s.replica_disk, strict=True)
    return {(p, b): s.disk_path[d] for p, b, d in rows if d >= 0}


def test_a_broker_is_demoted_and_emptied(skewed: KafkaCluster, tmp_path: Path) -> None:
    def placed(requested: Snapshot) -> bool:
        return replicas(read(skewed)) == replicas(requested)

    for option, operation in (
        ("--demote-brokers", Operation(kind="demote_brokers", brokers=(0,))),
        ("--remove-brokers", Operation(kind="remove_brokers", brokers=(0,))),
    ):
        before = read(skewed)
        moves, leaders = tmp_path / "moves.json", tmp_path / "leaders.json"
        counterpoise(
            "propose", *_look(skewed, tmp_path), option, 0,
            "--reassignment-json", moves, "--leader-election-json", leaders,
        )  # fmt: skip
        requested = expected(operation, before)
        carry_out(skewed, moves, leaders)
        wait_for(partial(placed, requested), f"{option} done")
        after = replicas(read(skewed)).values()
        assert all(leader != 0 for _, leader in after)
    assert all(0 not in held for held, _ in after)


def test_a_metrics_topic_gives_the_loads_kafka_does_not_know(
    skewed: KafkaCluster, tmp_path: Path
) -> None:
    capacity, cluster = tmp_path / "capacity.yaml", tmp_path / "cluster.json"
    capacity.write_text("default: {cpu: 400, network_in: 1000000, network_out: 2000000}\n")
    with admin_client(skewed.bootstrap) as ask:
        create_topic(ask, "metrics", {0: [0]})
    source = ["--bootstrap-server", skewed.bootstrap, "--capacity", capacity]
    bare = KafkaSource(skewed.bootstrap, capacity, {}, "metrics", 30.0, print).read()
    load = bare.leader_load.copy()
    load[:, bare.resource("network_in")] = 1000.0
    # at the start of a window, and so that the newest record is a few minutes old
    start_ms = (int(time.time()) - 900) // 300 * 300_000
    measured = simulated_source(
        replace(bare, leader_load=load, follower_load=load), start_ms=start_ms
    )
    Reporter(measured, bootstrap=skewed.bootstrap, topic="metrics").run(intervals=11)
    counterpoise("snapshot", "kafka", *source, "--metrics-topic", "metrics", "-o", cluster)
    found = load_snapshot(cluster)
    assert found.leader_load[:, found.resource("network_in")] == pytest.approx(1000.0)


def test_without_measured_loads_only_what_needs_none_is_planned(
    skewed: KafkaCluster, tmp_path: Path
) -> None:
    capacity, cluster = tmp_path / "capacity.yaml", tmp_path / "cluster.json"
    capacity.write_text("default: {cpu: 400, network_in: 1000000, network_out: 2000000}\n")
    with admin_client(skewed.bootstrap) as ask:
        create_topic(ask, "silent", {0: [0]})
    source = ["--bootstrap-server", skewed.bootstrap, "--capacity", capacity]
    said = counterpoise("snapshot", "kafka", *source, "-o", cluster).output
    assert load_snapshot(cluster).resources == ("disk",)
    assert "cpu, network_in, network_out: left out" in said
    silent = [*source, "--metrics-topic", "silent"]
    for refused in (["load"], ["propose"], ["snapshot", "kafka", "-o", cluster]):
        result = invoke([*refused, *silent])
        assert result.exit_code == 2, result.output
        assert "no complete window" in result.output
    plan = tmp_path / "plan.json"
    result = counterpoise("propose", *silent, "--remove-brokers", "1", "-o", plan)
    assert "only the sizes of replicas are used" in result.output
    assert set(load_plan(plan).columns) == {"disk", "replica_count", "leader_count"}
