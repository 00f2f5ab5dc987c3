"""What Kafka knows besides placement: identity, reassignments, cordons, file systems, rights."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke
from kafka_cases import account, create_topic, delete_topic, grant, produce
from real_kafka import CLUSTER_ID, KafkaCluster
from typer.testing import Result
from waiting import wait_for

from balancer import Balancer, Operation
from balancer.execution import ExecutionError, Executor
from balancer.execution.cluster import Kafka
from balancer.verification.checker import check_plan
from cluster_model import Snapshot
from cluster_model.kafka import Ask, KafkaSourceError, admin_client, read_cluster

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_configs(ask: Ask, kind: str, name: str, values: Mapping[str, str | None]) -> None:
    from kafka.admin import AlterConfigOp, ConfigResource

    ops = {
        key: (AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
        for key, value in values.items()
    }
    resource = ConfigResource(kind, name, ops)
    ask(lambda admin: admin.alter_configs([resource], raise_on_unknown=False, incremental=True))


def read(kafka: KafkaCluster | str, **more: Any) -> Snapshot:
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap
    return read_cluster(servers, resources=("disk",), timeout=30, **more)


def row(s: Snapshot, topic: str, number: int) -> int:
    named = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
    return next(p for p, (t, n) in enumerate(named) if (s.topics[t], n) == (topic, number))


def replicas(s: Snapshot, topic: str, number: int) -> list[int]:
    p = row(s, topic, number)
    held: list[int] = s.broker_ids[
        s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]]
    ].tolist()
    return held


def command(*args: object) -> Result:
    result = invoke(args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def ask(kafka_cluster: KafkaCluster) -> Iterator[Ask]:
    with admin_client(kafka_cluster.bootstrap, timeout=30) as found:
        yield found


# --- identity


def test_the_snapshot_says_of_which_cluster_and_when(kafka_cluster: KafkaCluster) -> None:
    before = 1000 * time.time() - 1
    s = read(kafka_cluster)
    assert s.cluster_id == CLUSTER_ID
    assert s.taken_ms is not None
    assert before <= s.taken_ms <= 1000 * time.time()
    assert s.metadata_version is not None
    assert s.metadata_version >= 30


def test_a_plan_of_another_cluster_is_refused(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    """The plan is real, and so is the cluster that is not its own."""
    with admin_client(kafka_cluster.bootstrap, timeout=30) as ask:
        create_topic(ask, "refused", {n: [0, 1] for n in range(4)})
    found, plan = tmp_path / "cluster.json", tmp_path / "plan.json"
    server = ["--bootstrap-server", kafka_cluster.bootstrap]
    command("snapshot", "kafka", *server, "-o", found)
    document = json.loads(found.read_text())
    assert document["cluster_id"] == CLUSTER_ID
    document["cluster_id"] = "b3RoZXItY2x1c3Rlci0wMQ"
    found.write_text(json.dumps(document))
    command("propose", found, "--remove-brokers", 1, "-o", plan)
    result = command("execute", plan, *server, "--yes", "--journal", tmp_path / "journal")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "plan is for cluster b3RoZXItY2x1c3Rlci0wMQ, but the brokers" in line
    assert f"to cluster {CLUSTER_ID}" in line
    del document["cluster_id"]
    found.write_text(json.dumps(document))
    command("propose", found, "--remove-brokers", 1, "-o", plan)
    result = command("execute", plan, *server, "--journal", tmp_path / "journal")
    assert result.exit_code == 2
    assert "names no cluster" in result.stderr
    stated = command(
        "execute", plan, *server, "--journal", tmp_path / "journal", "--cluster-id", CLUSTER_ID
    )
    assert stated.exit_code == 0
    executor = Executor(kafka_cluster.bootstrap, journal=tmp_path / "journal")
    plan_now = Balancer().propose(read(kafka_cluster), Operation())
    with pytest.raises(ExecutionError, match="cluster x stated"):
        executor.execute(plan_now, cluster_id="x")


# --- a reassignment under way


@pytest.fixture
def moving(kafka_cluster: KafkaCluster, ask: Ask) -> Iterator[tuple[str, str]]:
    """A topic goes from 0, 1 to 2, 1 and another from 1 alone to 2, too slowly to end."""
    from kafka import TopicPartition

    topics = "under-way-two", "under-way-one"
    create_topic(ask, topics[0], {0: [0, 1]})
    create_topic(ask, topics[1], {0: [1]})
    for broker in range(3):
        set_configs(ask, "broker", str(broker), dict.fromkeys(RATES, "1024"))
    for topic in topics:
        produce(kafka_cluster, topic, {0: 3000})
        set_configs(ask, "topic", topic, dict.fromkeys(LISTS, "*"))
    requested: dict[Any, Any] = {
        TopicPartition(topics[0], 0): [2, 1],
        TopicPartition(topics[1], 0): [2],
    }
    ask(lambda admin: admin.alter_partition_reassignments(requested))
    yield topics
    cancelled = dict.fromkeys(ask(lambda admin: admin.list_partition_reassignments()))
    if cancelled:
        ask(lambda admin: admin.alter_partition_reassignments(cancelled))
    for broker in range(3):
        set_configs(ask, "broker", str(broker), dict.fromkeys(RATES))
    ask(lambda admin: admin.delete_topics(list(topics)))


def test_a_reassignment_under_way_is_seen_as_it_ends_and_left_alone(
    kafka_cluster: KafkaCluster, ask: Ask, moving: tuple[str, str], tmp_path: Path
) -> None:
    def listed() -> dict[str, list[int]]:
        described = ask(lambda admin: admin.describe_topics(list(moving)))
        return {t["name"]: sorted(t["partitions"][0]["replica_nodes"]) for t in described}

    # a broker learns of it a little later than the controller
    expected = dict(zip(moving, ([0, 1, 2], [1, 2]), strict=True))
    wait_for(lambda: listed() == expected, "reassigning")
    wait_for(lambda: np.count_nonzero(read(kafka_cluster).reassigning) == 2, "seen")
    s = read(kafka_cluster)
    assert [replicas(s, topic, 0) for topic in moving] == [[2, 1], [2]]
    rows = [row(s, topic, 0) for topic in moving]
    assert s.leader[rows].tolist() == [0, 0]
    assert np.flatnonzero(s.reassigning).tolist() == sorted(rows)
    # It is as large as the replica that is copied, not as the copy that is begun.
    assert (s.leader_load[rows, 0] >= 3000 * 1024).all()
    assert (s.follower_load[rows, 0] >= 3000 * 1024).all()
    for operation in (
        Operation(),
        Operation(kind="remove_brokers", brokers=(2,)),
        Operation(kind="demote_brokers", brokers=(2,)),
    ):
        plan = Balancer().propose(s, operation)
        assert not {*moving} & {a.topic for a in plan.actions}
        assert check_plan(s, plan.document()).ok
    server = ["--bootstrap-server", kafka_cluster.bootstrap]
    said = command("propose", *server, "-o", tmp_path / "plan.json").stderr
    both = "under-way-one-0, under-way-two-0"
    assert f"Kafka is reassigning 2 partitions ({both})" in " ".join(said.split())


# --- log directories


@pytest.fixture
def cordoned(kafka_cluster: KafkaCluster, ask: Ask) -> Iterator[str]:
    """The second log directory of broker 2, cordoned."""
    log_dir = kafka_cluster.log_dirs[2][1]
    set_configs(ask, "broker", "2", {"cordoned.log.dirs": log_dir})
    yield log_dir
    set_configs(ask, "broker", "2", {"cordoned.log.dirs": None})


def test_a_cordoned_log_directory_is_given_nothing(
    kafka_cluster: KafkaCluster, ask: Ask, cordoned: str
) -> None:
    create_topic(ask, "cordon", {n: [0, 1] for n in range(20)})
    wait_for(lambda: len(read(kafka_cluster).disk_cordoned) > 0, "cordoned")
    s = read(kafka_cluster)
    shut = [s.disk_path[d] for d in np.flatnonzero(s.disk_cordoned)]
    assert shut == [cordoned]
    plan = Balancer().propose(s, Operation(kind="remove_brokers", brokers=(1,)))
    given = {a.destination_disk for a in plan.actions if a.kind == "move" and a.destination == 2}
    assert given == {kafka_cluster.log_dirs[2][0]}
    assert check_plan(s, plan.document()).ok


def test_a_shared_file_system_counts_once(kafka_cluster: KafkaCluster) -> None:
    said: list[str] = []
    s = read(kafka_cluster, notice=said.append)
    disk = shutil.disk_usage(kafka_cluster.log_dirs[0][0])
    assert (s.capacity[:, 0] < disk.total).all()
    assert s.capacity[:, 0] == pytest.approx(disk.free, rel=0.2)
    (shared,) = [x for x in said if "share a file system" in x]
    assert "3 of 3 brokers" in shared
    assert kafka_cluster.log_dirs[0][1] in shared
    kafka = Kafka(kafka_cluster.bootstrap)
    try:
        found = kafka.free([0, 2])
    finally:
        kafka.close()
    for broker in (0, 2):
        (system,) = found[broker]
        assert sorted(system.paths) == sorted(kafka_cluster.log_dirs[broker])
        assert system.usable == pytest.approx(disk.free, rel=0.2)
    apart = read(kafka_cluster, capacity={"default": {}, "log_dirs": "separate"})
    assert apart.capacity[:, 0] == pytest.approx(2 * disk.free, rel=0.2)
    said.clear()
    stated = read(
        kafka_cluster,
        capacity={"default": {"disk": 1e15}, "log_dirs": "shared"},
        notice=said.append,
    )
    assert stated.capacity[:, 0].tolist() == [1e15] * 3
    assert len(said) == 3
    assert "a disk capacity of 1 PB is stated" in said[0]


# --- rights


# By user: the row of the table in docs/operating.md, and a command that it must suffice for.
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "proposer": ("`snapshot kafka`, `propose`, `run`", ["propose"]),
    "watcher": ("`snapshot kafka`, `propose`, `run`", ["run", "--once"]),
    "measurer": ("the same with `--metrics-topic`", ["propose", "--metrics-topic", "metrics"]),
    "executor": ("`execute`, `run --execute`", ["execute", "PLAN", "--yes", "--throttle", "1MB/s"]),
    "controller": ("`execute`, `run --execute`", ["run", "--once", "--execute", "--group", "g"]),
    "reporter": (
        "`report-metrics --source admin`",
        ["report-metrics", "--source", "admin", "--once", "--metrics-topic", "metrics",
         "--interval", "1"],
    ),
}  # fmt: skip


def documented(row: str) -> dict[str, set[str]]:
    """Rights by kind of resource, as the table in the documentation has them."""
    page = Path(__file__).parents[2] / "docs" / "operating.md"
    text = page.read_text().split("## Rights")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    table = {cells[0].strip(): cells[1:] for cells in rows}
    found: dict[str, set[str]] = {}
    for kind, cell in zip(("CLUSTER", "TOPIC", "GROUP"), table[row], strict=True):
        words = set(re.findall(r"`([A-Z]\w+)`", cell))
        snake = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).upper() for word in words}
        found[kind] = snake
    return found


@pytest.mark.parametrize("who", [*COMMANDS])
def test_the_documented_rights_suffice(guarded: str, who: str, tmp_path: Path) -> None:
    row_, given = COMMANDS[who]
    with admin_client(guarded, account("admin"), timeout=30) as ask:
        names = {"CLUSTER": "kafka-cluster", "TOPIC": "*", "GROUP": "*"}
        for kind, operations in documented(row_).items():
            for operation in operations:
                grant(ask, who, kind, names[kind], operation)
        if who == "executor":
            create_topic(ask, "shifted", {0: [0], 1: [0]})
            plan = Balancer().propose(
                read(guarded, client_properties=account("admin")),
                Operation(replication_factor={"shifted": 2}, kind="change_replication_factor"),
            )
            assert plan.summary.replicas_added == 2
            plan.save(tmp_path / "plan.json")
    wait_for(lambda: _sees_all(guarded, who), "granted")
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in account(who).items()))
    options = ["--bootstrap-server", guarded, "--command-config", config]
    if "run" in given or "execute" in given:
        options += ["--journal", tmp_path / "journal"]
    arguments = [tmp_path / "plan.json" if g == "PLAN" else g for g in given]
    result = command(*arguments, *options)
    # The metrics topic could be read, and is empty.
    empty = who == "measurer" and "no complete window of metrics" in result.stderr
    assert empty or result.exit_code in (0, 1), result.output
    for word in ("authoriz", "right", "denied", "refused"):
        assert word not in result.output.lower(), result.output
    if who == "executor":
        assert result.stdout.startswith("done: "), result.output


def _sees_all(kafka: str, who: str) -> bool:
    try:
        return "seen" in read(kafka, client_properties=account(who)).topics
    except KafkaSourceError:
        return False


def test_a_reader_with_the_documented_rights_sees_all(guarded: str) -> None:
    wait_for(lambda: _sees_all(guarded, "reader"), "granted")
    s = read(guarded, client_properties=account("reader"))
    whole = read(guarded, client_properties=account("admin"))
    assert s.topics == whole.topics
    assert {"secret", "seen"} <= {*s.topics}
    assert s.replica_broker.tolist() == whole.replica_broker.tolist()
    assert s.disk_path == whole.disk_path


def test_hidden_topics_are_an_error_unless_asked_for(guarded: str, tmp_path: Path) -> None:
    with pytest.raises(KafkaSourceError, match=r"not all topics can be described.*kafka-acls"):
        read(guarded, client_properties=account("half"))
    with pytest.raises(KafkaSourceError, match=r"topic __consumer_offsets cannot be described"):
        read(guarded, client_properties=account("denied"))
    said: list[str] = []
    s = read(guarded, client_properties=account("half"), partial_view=True, notice=said.append)
    assert s.topics == ("seen",)
    assert any("the snapshot is without them" in x for x in said)
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in account("half").items()))
    options = ["--bootstrap-server", guarded, "--command-config", config]
    refused = command("propose", *options)
    assert refused.exit_code == 2
    assert "--partial-view" in refused.stderr
    assert command("propose", *options, "--partial-view").exit_code in (0, 1)


def test_leftovers_of_deleted_topics_are_not_hidden_topics(guarded: str) -> None:
    with admin_client(guarded, account("admin"), timeout=30) as ask:
        create_topic(ask, "gone", {0: [0]})
        delete_topic(ask, "gone")
    assert "gone" not in read(guarded, client_properties=account("reader")).topics


def test_missing_rights_on_the_cluster_are_named(guarded: str) -> None:
    with pytest.raises(KafkaSourceError, match="lacks the right to Describe cluster") as error:
        read(guarded, client_properties=account("nobody"))
    assert "--cluster --operation Describe" in str(error.value)
