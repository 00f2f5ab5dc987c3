"""A snapshot of a real Kafka agrees with that Kafka; what it cannot contain is one sentence."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_cases import account, commit, create_topic, produce
from real_kafka import LEADER_ELECTION, REASSIGN_PARTITIONS, KafkaCluster
from waiting import wait_for

from cluster_model import BrokerState, InputError, Snapshot, load_snapshot, save_snapshot
from cluster_model.capacities import Capacities, CapacityError, load_capacities
from cluster_model.kafka import (
    KafkaSourceError,
    PartitionLoad,
    admin_client,
    as_document,
    read_cluster,
)

CAPACITY = {"cpu": 100.0, "network_in": 1e6, "network_out": 2e6, "disk": 1e9}


def snapshot(kafka: KafkaCluster, **more: Any) -> Snapshot:
    return read_cluster(kafka.bootstrap, **{"capacity": CAPACITY, **more})


def partition_of(s: Snapshot, topic: str, number: int) -> int:
    (p,) = (
        p
        for p in range(s.n_partitions)
        if s.topics[s.partition_topic[p]] == topic and s.partition_number[p] == number
    )
    return p


def replicas_of(s: Snapshot, topic: str, number: int) -> list[int]:
    p = partition_of(s, topic, number)
    at = s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]]
    held: list[int] = s.broker_ids[at].tolist()
    return held


def leader_of(s: Snapshot, topic: str, number: int) -> int | None:
    position = int(s.leader[partition_of(s, topic, number)])
    return None if position < 0 else replicas_of(s, topic, number)[position]


def log_dirs_of(s: Snapshot, topic: str, number: int) -> dict[int, str]:
    p = partition_of(s, topic, number)
    rows = range(s.replica_offset[p], s.replica_offset[p + 1])
    return {
        int(s.broker_ids[s.replica_broker[n]]): s.disk_path[s.replica_disk[n]]
        for n in rows
        if s.replica_disk[n] >= 0
    }


@pytest.fixture(scope="module")
def orders(kafka_cluster: KafkaCluster) -> str:
    """A topic that weighs on broker 0 with 300 KB, 30 KB and none; `lone` has one replica."""
    with admin_client(kafka_cluster.bootstrap) as ask:
        create_topic(ask, "orders", {0: [0, 2, 1], 1: [0, 1, 2], 2: [1, 0, 2]})
        create_topic(ask, "lone", {0: [2]})
    produce(kafka_cluster, "orders", {0: 300, 1: 30})
    return "orders"


def test_brokers_have_their_racks_hosts_and_capacity(kafka_cluster: KafkaCluster) -> None:
    s = snapshot(kafka_cluster, capacity={"default": CAPACITY, "brokers": {2: {"cpu": 800}}})
    assert s.broker_ids.tolist() == [0, 1, 2]
    assert [s.racks[r] for r in s.broker_rack] == ["rack-a", "rack-b", "rack-c"]
    assert s.hosts == ("127.0.0.1",)
    assert s.broker_state.tolist() == [BrokerState.ALIVE] * 3
    assert s.capacity[:, s.resource("cpu")].tolist() == [100, 100, 800]
    assert s.capacity[:, s.resource("disk")].tolist() == [1e9] * 3


def test_replicas_are_in_preference_order_with_their_leaders(
    kafka_cluster: KafkaCluster, orders: str
) -> None:
    s = snapshot(kafka_cluster)
    assert [replicas_of(s, orders, n) for n in range(3)] == [[0, 2, 1], [0, 1, 2], [1, 0, 2]]
    assert [leader_of(s, orders, n) for n in range(3)] == [0, 0, 1]
    assert replicas_of(s, "lone", 0) == [2]


def test_sizes_and_log_directories_are_those_of_the_files(
    kafka_cluster: KafkaCluster, orders: str
) -> None:
    s = snapshot(kafka_cluster)
    disk = s.resource("disk")
    paths = [d for dirs in kafka_cluster.log_dirs for d in dirs]
    assert sorted(s.disk_path) == sorted(paths)
    assert s.disk_alive.all()
    # What is free, and the directory's own replicas; a broker's directories share it.
    free = shutil.disk_usage(paths[0]).free
    parts = {path: free / len(dirs) for dirs in kafka_cluster.log_dirs for path in dirs}
    assert s.disk_capacity == pytest.approx([parts[path] for path in s.disk_path], rel=0.2)
    for number, least in ((0, 300 * 1024), (1, 30 * 1024)):
        p = partition_of(s, orders, number)
        where = log_dirs_of(s, orders, number)
        assert sorted(where) == sorted(replicas_of(s, orders, number))
        for broker, log_dir in where.items():
            assert log_dir in kafka_cluster.log_dirs[broker]
            files = Path(log_dir, f"{orders}-{number}").glob("*.log")
            size = sum(f.stat().st_size for f in files)
            assert size >= least
            load = s.leader_load if broker == leader_of(s, orders, number) else s.follower_load
            assert load[p, disk] == size
    assert not s.leader_load[partition_of(s, orders, 2)].any()


def test_a_stated_load_wins_and_the_rest_is_zero(kafka_cluster: KafkaCluster, orders: str) -> None:
    given = PartitionLoad({"cpu": 3.0, "disk": 5.0}, {"network_in": 7.0})
    s = snapshot(kafka_cluster, loads={(orders, 0): given})
    p, other = partition_of(s, orders, 0), partition_of(s, orders, 1)
    assert s.leader_load[p].tolist() == [3, 0, 0, 5]
    assert s.follower_load[p, :3].tolist() == [0, 7, 0]
    assert s.follower_load[p, 3] > 300 * 1024
    assert s.leader_load[other, :3].tolist() == [0, 0, 0]


def test_unstated_disk_capacity_is_what_the_log_directories_hold(
    kafka_cluster: KafkaCluster,
) -> None:
    s = read_cluster(kafka_cluster.bootstrap, resources=("disk",))
    # Both directories of each broker share one file system, whose free bytes count once.
    free = shutil.disk_usage(kafka_cluster.log_dirs[0][0]).free
    assert s.resources == ("disk",)
    assert s.capacity[:, 0] == pytest.approx([free] * 3, rel=0.2)


def test_a_resource_without_capacity_is_named(kafka_cluster: KafkaCluster) -> None:
    with pytest.raises(CapacityError, match=r"broker 0: no value for resource 'cpu'"):
        read_cluster(kafka_cluster.bootstrap)


def test_the_snapshot_survives_a_file(
    kafka_cluster: KafkaCluster, orders: str, tmp_path: Path
) -> None:
    s = snapshot(kafka_cluster)
    assert s.n_partitions >= 4
    save_snapshot(s, tmp_path / "cluster.json")
    assert load_snapshot(tmp_path / "cluster.json") == s


def test_internal_topics_are_topics(kafka_cluster: KafkaCluster, orders: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap, "group.id": "readers"})
    commit(consumer, [TopicPartition(orders, 0, 1)])
    consumer.close()
    s = snapshot(kafka_cluster)
    assert "__consumer_offsets" in s.topics
    assert sorted(replicas_of(s, "__consumer_offsets", 0)) == [0, 1, 2]


def test_kafkas_own_tools_carry_out_a_reassignment_and_an_election(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with admin_client(kafka_cluster.bootstrap) as ask:
        create_topic(ask, "moving", {0: [0, 1], 1: [1, 2]})
    produce(kafka_cluster, "moving", {0: 50})
    to = kafka_cluster.log_dirs[2][1]
    moves = [
        {"topic": "moving", "partition": 0, "replicas": [0, 2], "log_dirs": ["any", to]},
        {"topic": "moving", "partition": 1, "replicas": [2, 1]},
    ]
    plan, election = tmp_path / "plan.json", tmp_path / "election.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    election.write_text(json.dumps({"partitions": [{"topic": "moving", "partition": 1}]}))

    def reassign(*options: str) -> str:
        return kafka_cluster.run_tool(
            REASSIGN_PARTITIONS, "--reassignment-json-file", plan, *options
        )

    assert "Successfully started partition reassignments" in reassign("--execute")
    wait_for(lambda: "is still in progress" not in reassign("--verify"), "plan carried out")
    assert "Reassignment of partition moving-0 is completed" in reassign("--verify")

    s = snapshot(kafka_cluster)
    assert replicas_of(s, "moving", 0) == [0, 2]
    assert log_dirs_of(s, "moving", 0)[2] == to
    assert replicas_of(s, "moving", 1) == [2, 1]
    assert leader_of(s, "moving", 1) == 1
    kafka_cluster.run_tool(
        LEADER_ELECTION, "--election-type", "preferred", "--path-to-json-file", election
    )
    wait_for(lambda: leader_of(snapshot(kafka_cluster), "moving", 1) == 2, "leader elected")


def test_a_stopped_broker_is_dead_and_keeps_its_replicas(
    kafka_cluster: KafkaCluster, orders: str
) -> None:
    def states() -> list[int]:
        return [*snapshot(kafka_cluster).broker_state.tolist()]

    alive, dead = BrokerState.ALIVE, BrokerState.DEAD
    with kafka_cluster.stopped(2):
        wait_for(lambda: states() == [alive, alive, dead], "broker 2 dead")
        s = snapshot(kafka_cluster)
        assert s.racks[s.broker_rack[2]] == "rack-c"
        assert replicas_of(s, orders, 0) == [0, 2, 1]
        assert sorted(log_dirs_of(s, orders, 0)) == [0, 1]
        assert leader_of(s, "lone", 0) is None
        assert not (s.disk_broker == 2).any()
    wait_for(lambda: states() == [alive] * 3, "broker 2 alive")
    wait_for(lambda: leader_of(snapshot(kafka_cluster), "lone", 0) == 2, "lone has its leader")


def test_client_properties_reach_the_client(guarded: str) -> None:
    s = read_cluster(guarded, capacity=CAPACITY, client_properties=account("admin"))
    assert s.n_brokers == 3
    with pytest.raises(KafkaSourceError, match=r"127\.0\.0\.1.*security settings") as refused:
        read_cluster(guarded, client_properties=account("admin", "wrong"), timeout=3)
    assert "\n" not in str(refused.value)


def test_a_log_directory_that_fails_makes_bad_disks(kafka_cluster: KafkaCluster) -> None:
    def bad() -> bool:
        return BrokerState.BAD_DISKS in snapshot(kafka_cluster).broker_state

    names = [f"t{n}" for n in range(4)]
    try:
        # Kafka puts its metadata into the first directory and dies with that one.
        kafka_cluster.fail_disk(2, 1)
        with admin_client(kafka_cluster.bootstrap) as ask:
            for name in names:
                create_topic(ask, name, {0: [2]}, must=False)
        wait_for(bad, "log directory seen to fail")
        s = snapshot(kafka_cluster)
        assert {p for p, alive in zip(s.disk_path, s.disk_alive, strict=True) if not alive} == {
            kafka_cluster.log_dirs[2][1]
        }
    finally:
        kafka_cluster.renew()


def test_no_broker_there_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KafkaSourceError) as error:
        read_cluster("127.0.0.1:1", capacity=CAPACITY, timeout=1)
    assert isinstance(error.value, InputError)
    assert "Kafka at 127.0.0.1:1 did not answer in 1 s: check that" in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_server_that_says_nothing_is_not_waited_for(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(KafkaSourceError, match="did not answer in 1 s"):
            read_cluster(address, client_properties={"security.protocol": protocol}, timeout=1)


@pytest.mark.parametrize(
    ("servers", "properties", "said"),
    [
        ("", {}, "bootstrap servers: none found"),
        ("kafka:port", {}, "bootstrap servers: 'kafka:port' found, host:port expected"),
        ("kafka:1", {"acks": "all"}, "client properties: Unrecognized configs: {'acks'}"),
        ("kafka:1", {"security.protocol": "tls"}, "security_protocol 'TLS' found, one of PLAIN"),
        ("kafka:1", {"ssl.ca.location": "/none"}, "ssl_cafile '/none' found, a file expected"),
    ],
)
def test_a_wrong_connection_setting_is_named(
    servers: str, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(KafkaSourceError) as error:
        read_cluster(servers, client_properties=properties)
    assert said in str(error.value)


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_capacity_file_gives_defaults_and_exceptions(tmp_path: Path, suffix: str) -> None:
    content = {"default": {"cpu": 100, "disk": 5e9}, "brokers": {"1": {"cpu": 400}}}
    path = tmp_path / f"capacity.{suffix}"
    path.write_text(
        json.dumps(content)
        if suffix == "json"
        else "default: {cpu: 100, disk: 5e9}\nbrokers:\n  1: {cpu: 400}\n"
    )
    capacities = load_capacities(path)
    assert capacities.of(0) == {"cpu": 100, "disk": 5e9}
    assert capacities.of(1) == {"cpu": 400, "disk": 5e9}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log_dirs: both", "log_dirs.default: 'both' found, shared or separate expected"),
        ("log_dirs: {7: both}", "log_dirs.7: 'both' found, shared or separate expected"),
        ("log_dirs: [shared]", "log_dirs: ['shared'] found, a mapping expected"),
        ("log_dirs: {b1: shared}", "log_dirs.b1: 'b1' found, a broker id or default expected"),
        ("default: {cpu: -1}", "default.cpu: -1 found, a finite number of at least 0 expected"),
        ("default: {cpu: .inf}", "line 1: number .inf found, a finite one expected"),
        ("brokers: {b1: {cpu: 1}}", "brokers.b1: 'b1' found, a broker id expected"),
        ("brokers: {1: 7}", "brokers.1: 7 found, a mapping expected"),
        ("borkers: {}", "borkers: {} found, default, brokers, log_dirs or measured expected"),
        ("- cpu", "list found, a mapping with default and brokers expected"),
        ("default: {", "not YAML, line "),
        (None, "No such file or directory"),
    ],
)
def test_a_wrong_capacity_file_is_named_with_the_place(
    tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "capacity.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CapacityError) as error:
        load_capacities(path)
    assert str(error.value).startswith(f"capacity file {path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def log_dir(path: str, sizes: Mapping[int, int] | None, **more: Any) -> dict[str, Any]:
    """A broker's answer about one directory with partitions of topic t; None for offline."""
    partitions = [
        {"partition_index": n, "partition_size": size, "is_future_key": False}
        for n, size in (sizes or {}).items()
    ]
    return {
        "error_code": 56 if sizes is None else 0,
        "log_dir": path,
        "topics": [{"name": "t", "partitions": partitions}],
        **more,
    }


def answered(log_dirs: Mapping[int, list[dict[str, Any]]], replicas: Sequence[int]) -> Any:
    partition = {"partition_index": 0, "leader_id": replicas[0], "replica_nodes": list(replicas)}
    topics = [{"name": "t", "error_code": 0, "partitions": [partition]}]
    brokers = [{"broker_id": b, "rack": None, "host": f"h{b}"} for b in log_dirs]
    stated = Capacities(default={"disk": 900.0})
    return as_document(brokers, topics, log_dirs, stated, {}, ("disk",))


def test_the_largest_follower_counts() -> None:
    dirs = {b: [log_dir("/d", {0: size})] for b, size in ((1, 500), (2, 40), (3, 480))}
    (p,) = answered(dirs, (1, 2, 3)).partitions
    assert (p.leader_load, p.follower_load) == ({"disk": 500}, {"disk": 480})


def test_a_leader_without_size_is_as_large_as_its_largest_follower() -> None:
    dirs = {1: [log_dir("/d", {})], 2: [log_dir("/d", {0: 40})]}
    (p,) = answered(dirs, (1, 2)).partitions
    assert (p.leader_load, p.follower_load) == ({"disk": 40}, {"disk": 40})
    assert p.log_dirs == (None, "/d")


def test_a_replica_is_where_it_is_and_not_where_it_is_moving_to() -> None:
    there = log_dir("/new", {0: 10})
    there["topics"][0]["partitions"][0]["is_future_key"] = True
    (p,) = answered({1: [there, log_dir("/old", {0: 99})]}, (1,)).partitions
    assert (p.log_dirs, p.leader_load) == (("/old",), {"disk": 99})


def test_disks_without_a_reported_size_share_the_brokers() -> None:
    (b,) = answered(
        {1: [log_dir("/a", {0: 1}), log_dir("/b", {}), log_dir("/c", None)]}, (1,)
    ).brokers
    assert [(d.path, d.capacity, d.alive) for d in b.disks] == [
        ("/a", 300, True),
        ("/b", 300, True),
        ("/c", 0, False),
    ]
    assert b.state == "bad_disks"


def test_a_broker_known_from_replica_lists_only_is_dead() -> None:
    document = answered({1: [log_dir("/d", {0: 1}, total_bytes=700)]}, (1, 9))
    one, nine = document.brokers
    assert (one.state, one.disks[0].capacity, one.capacity) == ("alive", 700, {"disk": 900})
    assert (nine.id, nine.state, nine.disks) == (9, "dead", ())
