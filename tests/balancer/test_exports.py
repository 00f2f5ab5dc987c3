"""Exported files: Kafka, given them, would end where the plan ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Event
from typing import Any

import pytest
from balancer_cases import QUICK, examples
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer, Budget, Operation, Plan
from balancer.planning.document import PlanDocument, PlanError
from balancer.planning.exports import (
    assignments_json,
    leader_election_json,
    reassignment_json,
)
from cluster_model import (
    BrokerRecord,
    BrokerState,
    PartitionRecord,
    Snapshot,
    SnapshotDocument,
    build_snapshot,
    synthetic_snapshot,
)

Key = tuple[str, int]
OPERATIONS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rebalance": ({}, {}),
    "limited": ({}, {}),
    "add": ({"new_brokers": 1}, {"kind": "add_brokers"}),
    "remove": ({}, {"kind": "remove_brokers", "brokers": (2,)}),
    "demote": ({}, {"kind": "demote_brokers", "brokers": (2, 3)}),
    "fix": ({"dead_brokers": 1}, {"kind": "fix_offline_replicas"}),
    "disks": ({"disks_per_broker": 2}, {}),
    "more": ({}, {"kind": "change_replication_factor", "replication_factor": {".*": 3}}),
    "less": ({}, {"kind": "change_replication_factor", "replication_factor": {".*": 1}}),
}


def plan_of(name: str, seed: int = 0) -> Plan:
    cluster, operation = OPERATIONS[name]
    snapshot = synthetic_snapshot(
        brokers=6,
        partitions=50,
        racks=3,
        replication_factor=2,
        utilization=0.2,
        seed=seed,
        **cluster,
    )
    if name == "add":
        new = snapshot.broker_ids[snapshot.broker_state == BrokerState.NEW]
        operation = {**operation, "brokers": tuple(new.tolist())}
    budget = Budget(moves=7) if name == "limited" else None
    return Balancer(budget=budget, seed=seed, strategy=QUICK).propose(
        snapshot, Operation(**operation)
    )


def lists(s: Snapshot) -> dict[Key, list[int]]:
    at = s.replica_offset
    return {
        key: s.broker_ids[s.replica_broker[at[p] : at[p + 1]]].tolist()
        for p, key in enumerate(keys(s))
    }


def leaders(s: Snapshot) -> dict[Key, int | None]:
    found = zip(keys(s), s.leader.tolist(), lists(s).values(), strict=True)
    return {key: None if leader < 0 else held[leader] for key, leader, held in found}


def disks(s: Snapshot) -> dict[tuple[Key, int], str]:
    rows = zip(s.replica_partition.tolist(), s.replica_broker.tolist(), s.replica_disk, strict=True)
    names = keys(s)
    return {(names[p], int(s.broker_ids[b])): s.disk_path[d] for p, b, d in rows}


def keys(s: Snapshot) -> list[Key]:
    return [
        (s.topics[t], n)
        for t, n in zip(s.partition_topic, s.partition_number.tolist(), strict=True)
    ]


def read(text: str) -> dict[Key, dict[str, Any]]:
    partitions = json.loads(text)["partitions"]
    found = {(p["topic"], p["partition"]): p for p in partitions}
    assert list(found) == sorted(found)
    assert len(found) == len(partitions)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@examples(2)
@given(seed=st.integers(0, 10_000))
def test_kafka_and_who_reads_the_text_end_where_the_plan_ends(name: str, seed: int) -> None:
    plan = plan_of(name, seed)
    start, end = plan.snapshot, plan.final_snapshot()
    before, after = lists(start), lists(end)
    asked = read(reassignment_json(plan))
    for key, entry in asked.items():
        requested = entry["replicas"]
        assert requested
        assert len(set(requested)) == len(requested)
        assert requested != before[key] or "log_dirs" in entry
    assert before | {key: entry["replicas"] for key, entry in asked.items()} == after

    elected = read(leader_election_json(plan))
    for key, old in leaders(start).items():
        if old is None:
            continue
        # Kafka keeps a leader that stays a replica, else elects the preferred one.
        led = old if old in after[key] else after[key][0]
        if key in elected:
            assert led != after[key][0]
            led = after[key][0]
        assert led == leaders(end)[key]

    again = PlanDocument.model_validate_json(plan.to_json())
    assert again == plan.document()
    assert again.digest == again.content_digest


def test_log_directories_are_named_where_the_plan_chooses_them() -> None:
    plan = plan_of("disks")
    start, end = disks(plan.snapshot), disks(plan.final_snapshot())
    asked = read(reassignment_json(plan))
    named = 0
    for key, entry in asked.items():
        chosen = entry.get("log_dirs", ["any"] * len(entry["replicas"]))
        assert len(chosen) == len(entry["replicas"])
        for broker, path in zip(entry["replicas"], chosen, strict=True):
            stays = start.get((key, broker)) == end[key, broker]
            assert path == ("any" if stays else end[key, broker])
            named += not stays
    kinds = [a.kind for a in plan.actions]
    assert named
    assert named >= len({(a.topic, a.partition) for a in plan.actions if a.kind == "move"})
    assert set(kinds) <= {"move", "move_disk", "leadership"}


def test_demoted_brokers_come_last_everywhere() -> None:
    plan = plan_of("demote")
    after = lists(plan.final_snapshot())
    for held in after.values():
        demoted = [b in (2, 3) for b in held]
        assert demoted == sorted(demoted)
    assert read(reassignment_json(plan)).keys() >= {
        key for key, held in lists(plan.snapshot).items() if held[0] in (2, 3) and held[1] == 1
    }


def test_the_files_themselves() -> None:
    brokers = [BrokerRecord(id=i, capacity={"disk": 1e9}, rack=str(i)) for i in (1, 2, 3)]
    partitions = [
        PartitionRecord(topic="a", partition=0, replicas=(2, 1), leader=2),
        PartitionRecord(topic="a", partition=1, replicas=(1, 3), leader=1),
        PartitionRecord(topic="b", partition=0, replicas=(3, 2), leader=3),
    ]
    snapshot = build_snapshot(
        SnapshotDocument(resources=("disk",), brokers=tuple(brokers), partitions=tuple(partitions))
    )
    demote = Operation(kind="demote_brokers", brokers=(2,))
    plan = Balancer().propose(snapshot, demote)
    assert reassignment_json(plan) == (
        '{"version": 1, "partitions": [\n{"topic": "a", "partition": 0, "replicas": [1, 2]}\n]}\n'
    )
    assert leader_election_json(plan) == ('{"partitions": [\n{"topic": "a", "partition": 0}\n]}\n')


def test_a_plan_without_actions_asks_for_nothing() -> None:
    stop = Event()
    stop.set()
    plan = Balancer().propose(synthetic_snapshot(brokers=4, racks=4), stop=stop)
    assert not plan.actions
    assert json.loads(reassignment_json(plan)) == {"version": 1, "partitions": []}
    assert json.loads(leader_election_json(plan)) == {"partitions": []}


def test_the_plans_json_is_its_document_with_an_action_a_line() -> None:
    snapshot = synthetic_snapshot(brokers=6, partitions=60, racks=3, disks_per_broker=2)
    plan = Balancer("default").propose(snapshot)
    text = plan.to_json()
    assert PlanDocument.model_validate_json(text) == plan.document()
    assert json.loads(text) == plan.document().model_dump(mode="json")
    lines = text.splitlines()
    first = lines.index(' "actions": [') + 1
    assert [json.loads(line.rstrip(","))["kind"] for line in lines[first : first + len(plan)]] == [
        action.kind for action in plan.actions
    ]


def test_the_text_of_a_plan_quotes_its_names() -> None:
    names = ('a"b', "a\\", "é,", "a")
    brokers = [BrokerRecord(id=f'b"{i}', rack=f"r{i}", capacity={"disk": 10.0}) for i in range(4)]
    partitions = [
        PartitionRecord(topic=topic, partition=n, replicas=('b"0',), leader_load={"disk": 1.0})
        for topic in names
        for n in range(2)
    ]
    snapshot = build_snapshot(
        SnapshotDocument(resources=("disk",), brokers=tuple(brokers), partitions=tuple(partitions))
    )
    plan = Balancer({"goals": [{"goal": "ReplicaDistribution"}]}).propose(snapshot)
    assert len(plan) > 0
    read = PlanDocument.model_validate_json(plan.to_json())
    assert read == plan.document()
    assert list(read.replicas) == sorted(read.replicas)


@pytest.mark.parametrize("nodes", [[1, 2], ["a", "b"]])
def test_the_assignment_names_the_node_of_every_unit(nodes: list[Any]) -> None:
    units = [("sum", i, nodes[0], {"cpu": 10.0 + i}) for i in range(4)]
    snapshot = build_snapshot(
        SnapshotDocument(
            resources=("cpu",),
            brokers=tuple(BrokerRecord(id=node, capacity={"cpu": 100}) for node in nodes),
            partitions=tuple(
                PartitionRecord(topic=t, partition=i, replicas=(node,), leader_load=load)
                for t, i, node, load in units
            ),
        )
    )
    plan = Balancer(strategy="milp", budget=Budget(moves=2)).propose(snapshot)
    found = json.loads(assignments_json(plan))
    assert list(found) == ["sum"]
    assert list(found["sum"]) == ["0", "1", "2", "3"]
    assert sorted(found["sum"].values()) == [nodes[0]] * 2 + [nodes[1]] * 2


def test_replicas_are_no_units() -> None:
    with pytest.raises(PlanError, match="partition topic-0-0: 2 replicas found, one expected"):
        assignments_json(plan_of("rebalance"))
