"""Handwritten clusters, and an independent interpretation of what a plan claims to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, Phase, settings

from balancer import Plan
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, SnapshotDocument, build_snapshot, synthetic_snapshot

RESOURCES = ("cpu", "network_in", "network_out", "disk")

# Without retries, those on clusters of up to 50 replicas too, which take most of the time: where
# what is said of a plan is the subject, and not how good it is.
QUICK: dict[str, Any] = {
    "strategy": "goals",
    "perturbed_replicas": 0,
    "second_searches": 0,
    "passes": 1,
    "idle_rounds": 1,
    "explored_placements": 50,
    # a limit of time would be used up otherwise
    "futile_improvements": 1,
}

# Where a small cluster has to meet what it can: a part of the usual retries is enough for most.
FEW_RETRIES = {
    "strategy": "goals",
    "perturbation_tries": 3,
    "second_searches": 1,
    "explored_placements": 100,
}

# One of every kind, for clusters of `small`.
OPERATIONS: list[dict[str, Any]] = [
    {},
    {"kind": "remove_brokers", "brokers": (2,)},
    {"kind": "add_brokers", "brokers": (5,)},
    {"kind": "demote_brokers", "brokers": (1,)},
    {"kind": "fix_offline_replicas"},
    {"kind": "change_replication_factor", "replication_factor": {"topic-0": 3, "topic-1": 1}},
]

_REPLICA = re.compile(r"b(\d+)(\*?)(?:@(\S+?))?\((\S+?)\)")


def examples(number: int) -> settings:
    """So many random examples of what takes long to plan; a profile with more multiplies them."""
    return settings(
        max_examples=number * settings().max_examples // 25,
        # a failing example is small already, and making it smaller takes minutes
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def long(*values: Any) -> Iterator[ParameterSet]:
    """Parameters whose tests are part of the soak only."""
    return (pytest.param(value, marks=pytest.mark.soak) for value in values)


def search_of(seed: int) -> Any:
    """The strategy of a random example: of four, one searches as thoroughly as by default."""
    return QUICK if seed % 4 else "goals"


def small(seed: int = 0, **changes: Any) -> Snapshot:
    """A cluster of six brokers in three racks, with two replicas of sixty partitions."""
    return synthetic_snapshot(
        **{"brokers": 6, "partitions": 60, "replication_factor": 2, "racks": 3, "topics": 3,
           "utilization": 0.3, "seed": seed} | changes
    )  # fmt: skip


def assert_sound(snapshot: Snapshot, plan: Plan) -> None:
    """The independent checker finds no fault in a plan."""
    report = check_plan(snapshot, plan.document())
    assert report.ok, [*report.violations, *report.mismatches]


def written(
    partitions: str,
    racks: Mapping[int, int],
    *,
    capacity: Sequence[float],
    disks: Mapping[str, float] | None = None,
) -> Snapshot:
    """A cluster from lines like ``T1-0 b0*@i00(50/150000/100000/150000) b2(...)``.

    ``*`` marks the leader, the order is the preference order, loads are in the order of
    ``RESOURCES``. A snapshot has one follower load a partition: the first follower's;
    a partition with one replica would follow with what its leader has but the reads.
    """
    brokers = [
        {
            "id": b,
            "rack": f"r{rack}",
            "capacity": dict(zip(RESOURCES, capacity, strict=True)),
            "disks": [{"path": path, "capacity": size} for path, size in (disks or {}).items()],
        }
        for b, rack in racks.items()
    ]
    rows = [_partition(line) for line in partitions.strip().splitlines()]
    return build_snapshot(
        SnapshotDocument.model_validate(
            {"resources": RESOURCES, "brokers": brokers, "partitions": rows}
        )
    )


def _partition(line: str) -> dict[str, Any]:
    name, _, rest = line.strip().partition(" ")
    topic, _, number = name.rpartition("-")
    replicas = [
        (int(b), bool(leads), disk, dict(zip(RESOURCES, map(float, load.split("/")), strict=True)))
        for b, leads, disk, load in _REPLICA.findall(rest)
    ]
    (leader,) = [r for r in replicas if r[1]]
    followers = [load for _, leads, _, load in replicas if not leads]
    row: dict[str, Any] = {
        "topic": topic,
        "partition": int(number),
        "replicas": [r[0] for r in replicas],
        "leader": leader[0],
        "leader_load": leader[3],
        "follower_load": followers[0] if followers else leader[3] | {"network_out": 0.0},
    }
    if any(r[2] for r in replicas):
        row["log_dirs"] = [r[2] for r in replicas]
    return row


def by_hand(
    replicas: Sequence[Sequence[int]],
    *,
    brokers: int,
    load: Sequence[float] | None = None,
    capacity: float = 1000.0,
    racks: Sequence[int] | None = None,
    topics: Sequence[str] | None = None,
    states: Mapping[int, str] | None = None,
    sets: Mapping[int, str] | None = None,
    resource: str = "disk",
    disks: Mapping[str, float] | None = None,
    dead_disks: Mapping[int, str] | None = None,
    log_dirs: Sequence[Sequence[str]] | None = None,
) -> Snapshot:
    """One resource; partition p on brokers ``replicas[p]``, led by the first of them.

    Every broker is a rack of its own unless `racks` says otherwise.
    """
    topics = topics or ["t"] * len(replicas)
    return build_snapshot(
        SnapshotDocument.model_validate(
            {
                "resources": (resource,),
                "brokers": [
                    {
                        "id": b,
                        "rack": f"r{racks[b] if racks else b}",
                        "capacity": {resource: capacity},
                        "state": (states or {}).get(b, "alive"),
                        "broker_set": (sets or {}).get(b),
                        "disks": [
                            {
                                "path": path,
                                "capacity": size,
                                "alive": (dead_disks or {}).get(b) != path,
                            }
                            for path, size in (disks or {}).items()
                        ],
                    }
                    for b in range(brokers)
                ],
                "partitions": [
                    {
                        "topic": topics[p],
                        "partition": list(topics[:p]).count(topics[p]),
                        "replicas": on,
                        "leader": on[0],
                        "leader_load": {resource: load[p] if load else 1.0},
                        "follower_load": {resource: load[p] if load else 1.0},
                        "log_dirs": log_dirs[p] if log_dirs else None,
                    }
                    for p, on in enumerate(replicas)
                ],
            }
        )
    )


Name = tuple[str, int]


def lists(snapshot: Snapshot) -> dict[Name, list[int]]:
    """The replica lists (broker ids) of all partitions."""
    s, end = snapshot, snapshot.replica_offset
    return {
        name: s.broker_ids[s.replica_broker[end[p] : end[p + 1]]].tolist()
        for p, name in enumerate(names(s))
    }


def leaders(snapshot: Snapshot) -> dict[Name, int | None]:
    """The leaders (broker ids) of all partitions."""
    return {
        name: None if at < 0 else held[at]
        for (name, held), at in zip(lists(snapshot).items(), snapshot.leader.tolist(), strict=True)
    }


def log_dirs(snapshot: Snapshot) -> dict[tuple[Name, int], str | None]:
    """The disk of every replica, by partition and broker id."""
    s = snapshot
    return {
        (names(s)[p], int(s.broker_ids[b])): None if k < 0 else s.disk_path[k]
        for p, b, k in zip(
            s.replica_partition.tolist(),
            s.replica_broker.tolist(),
            s.replica_disk.tolist(),
            strict=True,
        )
    }


def names(snapshot: Snapshot) -> list[Name]:
    """(topic, number) of all partitions."""
    s = snapshot
    return [
        (s.topics[t], n)
        for t, n in zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
    ]


def replay(plan: Plan) -> None:
    """Carry out the actions one by one; fails where one is impossible or the end differs."""
    held = {name: set(on) for name, on in lists(plan.snapshot).items()}
    leader = leaders(plan.snapshot)
    for action in plan.actions:
        name = (action.topic, action.partition)
        if action.kind == "leadership":
            assert action.source == leader[name] or leader[name] is None
            assert action.destination in held[name]
            leader[name] = int(action.destination)
        elif action.kind == "move_disk":
            assert action.source == action.destination
            assert action.source in held[name]
            assert action.source_disk != action.destination_disk
        else:
            if action.source is not None:
                held[name].remove(int(action.source))
            if action.destination is not None:
                assert action.destination not in held[name]
                held[name].add(int(action.destination))
            if action.kind == "move" and action.source == leader[name]:
                leader[name] = None if action.destination is None else int(action.destination)
    end = plan.final_snapshot()
    assert held == {name: set(on) for name, on in lists(end).items()}
    assert leader == leaders(end)


def assert_no_step_overfills(plan: Plan, limits: Mapping[str, float] | None = None) -> None:
    """No step leaves a broker or disk with more than its capacity, or than it held at the start.

    `limits` are the parts of the brokers' capacities that may be used, where not all.
    """
    s, n = plan.snapshot, plan.snapshot.n_brokers
    row, broker = ({x: i for i, x in enumerate(of)} for of in (names(s), s.broker_ids.tolist()))
    disk: dict[tuple[object, object], int] = {
        (s.broker_ids[b], s.disk_path[k]): k for k, b in enumerate(s.disk_broker)
    }
    held: list[dict[int, int]] = [{} for _ in row]
    on = s.replica_disk if s.n_disks else np.full(s.n_replicas, -1)
    for p, b, k in zip(s.replica_partition, s.replica_broker, on, strict=True):
        held[p][b] = k
    leader = [list(held[p])[at] if at >= 0 else None for p, at in enumerate(s.leader)]
    # brokers, disks, and the unknown disk
    load = np.zeros((n + s.n_disks + 1, len(s.resources)))
    most = np.full_like(load, np.inf)
    most[:n] = s.capacity * [(limits or {}).get(r, 1.0) for r in s.resources]
    most[n:-1, s.resource("disk")] = s.disk_capacity

    def count(p: int, sign: int) -> None:
        for b, k in held[p].items():
            of = s.leader_load if b == leader[p] else s.follower_load
            load[[b, n + k if k >= 0 else -1]] += sign * of[p]

    for p in range(len(held)):
        count(p, 1)
    most = np.maximum(most, load) * (1 + 1e-9)
    for action in plan.actions:
        p = row[action.topic, action.partition]
        source, target = broker.get(action.source), broker.get(action.destination)
        count(p, -1)
        if action.kind == "leadership" or (source is not None and source == leader[p]):
            leader[p] = target
        if action.kind != "leadership":
            held[p].pop(-1 if source is None else source, None)
            if target is not None:
                held[p][target] = disk.get((action.destination, action.destination_disk), -1)
        count(p, 1)
        assert (load[:-1] <= most[:-1]).all(), action
