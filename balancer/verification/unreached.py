"""Rebuilds the placement that a plan states as out of reach, and checks that it is allowed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from balancer.verification.replay import Replay
from balancer.verification.replicas import ReplicaTable
from balancer.verification.report import Fault


def unreached_table(replay: Replay) -> ReplicaTable | None:
    """The location of everything there; None if the plan states no such placement."""
    s = replay.snapshot
    if not replay.plan.unreached or next(unreached_faults(replay), None) is not None:
        return None
    held, disks, leader = list(replay.holders), list(replay.disks), replay.now.leader.copy()
    for p, brokers in _rows(replay).items():
        known = dict(zip(held[p], disks[p], strict=True))
        held[p], disks[p] = brokers, [known.get(b, -1) for b in brokers]
        leader[p] = brokers[0]
    partition = np.repeat(np.arange(s.n_partitions), [len(row) for row in held])
    broker = np.array([b for row in held for b in row], np.int64)
    disk = np.array([d for row in disks for d in row], np.int64)
    return ReplicaTable(s, partition, broker, disk, broker == leader[partition], leader)


def _rows(replay: Replay) -> dict[int, list[int]]:
    """Brokers by partition, as far as both are known."""
    found = {}
    for name, brokers in replay.plan.unreached.items():
        topic, _, number = name.rpartition("-")
        p = replay.row.get((topic, int(number))) if number.isdecimal() else None
        if p is not None:
            found[p] = [replay.index[b] for b in brokers if b in replay.index]
    return found


def unreached_faults(replay: Replay) -> Iterator[Fault]:
    """Partitions and brokers that are unknown, or that the request does not allow."""
    plan, request, s = replay.plan, replay.request, replay.snapshot
    rows = _rows(replay)
    if len(rows) < len(plan.unreached):
        yield Fault("unreached", "unreached: a partition is stated that the snapshot does not have")
    for p, brokers in rows.items():
        start = s.replica_broker[s.replica_offset[p] : s.replica_offset[p + 1]]
        new, count = set(brokers).difference(start.tolist()), len(replay.holders[p])
        if (
            len({*brokers}) != count
            or len(brokers) != count
            or not all(request.receives[b] and replay.may_hold(p, b) for b in new)
            or request.untouched[p]
        ):
            name = f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}"
            yield Fault("unreached", f"unreached: {name} may not be on these brokers")
    if plan.unreached and not any("no safe order of steps" in u.reason for u in plan.unmet):
        yield Fault("unreached", "unreached: stated, but no goal is said to be met there")
