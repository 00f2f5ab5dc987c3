"""Judges a placement from the snapshot and the placement alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot

Metric = tuple[str, float, str]


def placed(snapshot: Snapshot, replica_broker: Ints, leader: Ints) -> Snapshot:
    """The snapshot after a placement; raises SnapshotError for an impossible one."""
    return replace(
        snapshot,
        replica_broker=replica_broker,
        leader=leader,
        replica_disk=np.full(snapshot.n_replicas if snapshot.n_disks else 0, -1),
    )


def balance_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """Balance and rule violations of a placement.

    For each resource the worst utilisation over that of the whole cluster, and for replicas and
    leaders the largest count over the mean, without dead brokers; then the partitions with two
    replicas in one rack, and the pairs of broker and resource over capacity.
    """
    alive = snapshot.broker_state != BrokerState.DEAD
    load, capacity = snapshot.broker_load()[alive], snapshot.capacity[alive]
    for r, resource in enumerate(snapshot.resources):
        used = np.divide(
            load[:, r], capacity[:, r], out=np.zeros(len(load)), where=capacity[:, r] > 0
        )
        whole = load[:, r].sum() / max(capacity[:, r].sum(), np.finfo(float).tiny)
        yield f"worst / mean {resource}", _ratio(used.max(initial=0.0), whole), "ratio"
    leads = snapshot.replica_is_leader
    for name, holder in (
        ("replicas", snapshot.replica_broker),
        ("leaders", snapshot.replica_broker[leads]),
    ):
        count = np.bincount(holder, minlength=snapshot.n_brokers)[alive]
        yield f"worst / mean {name}", _ratio(float(count.max()), float(count.mean())), "ratio"
    yield "rack violations", float(rack_violations(snapshot)), "partitions"
    yield "capacity violations", float((load > capacity).sum()), "broker resources"


def rack_violations(snapshot: Snapshot) -> int:
    """Number of partitions with two replicas in one rack."""
    rack = snapshot.broker_rack[snapshot.replica_broker]
    key = np.sort(snapshot.replica_partition * len(snapshot.racks) + rack)
    twice = key[1:][key[1:] == key[:-1]] // max(len(snapshot.racks), 1)
    return len(np.unique(twice))


def move_metrics(before: Snapshot, after: Snapshot) -> Iterator[Metric]:
    """Moves and bytes from one placement to another.

    A move is a broker that holds a partition it did not hold before, in any order of the replicas;
    a leadership move is a change of the leader to a broker that already held the partition. A move
    carries the ``disk`` load of what the broker then holds; without that resource no bytes are
    reported.
    """
    gained = ~np.isin(held(after), held(before), kind="sort")
    yield "moves", float(gained.sum()), "replicas"
    was, now = _leader_broker(before), _leader_broker(after)
    at = np.arange(before.n_partitions) * before.n_brokers + now
    stayed = np.isin(at, held(before), kind="sort")
    yield "leadership moves", float(((was != now) & (now >= 0) & stayed).sum()), "partitions"
    if "disk" in before.resources:
        size = _replica_bytes(after)
        moved, total = float(size[gained].sum()), float(_replica_bytes(before).sum())
        yield "bytes moved", moved, "bytes"
        yield "bytes moved / all bytes", _ratio(moved, total), "ratio"


def held(snapshot: Snapshot) -> Ints:
    """(R,) a number for the partition and the broker of each replica."""
    number: Ints = snapshot.replica_partition * snapshot.n_brokers + snapshot.replica_broker
    return number


def _leader_broker(snapshot: Snapshot) -> Ints:
    first, has = snapshot.replica_offset[:-1], snapshot.leader >= 0
    at = np.where(has, first + snapshot.leader, 0)
    broker: Ints = np.where(has, snapshot.replica_broker[at], -1)
    return broker


def _replica_bytes(snapshot: Snapshot) -> Floats:
    disk, of = snapshot.resource("disk"), snapshot.replica_partition
    size: Floats = np.where(
        snapshot.replica_is_leader,
        snapshot.leader_load[of, disk],
        snapshot.follower_load[of, disk],
    )
    return size


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else 0.0
