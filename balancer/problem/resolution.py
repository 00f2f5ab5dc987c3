"""Lays an operation over a snapshot: who may hold, lead and move what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from balancer.problem.availability import dead_brokers, lost_partitions, stranded_replicas
from balancer.problem.operation import Operation, OperationError
from balancer.problem.replication_factor import target_replication_factor, with_replication_factor
from balancer.problem.rules import LivingRules
from balancer.problem.topics import matching_partitions
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot
from goals import Cluster


@dataclass(frozen=True)
class ResolvedOperation:
    """An operation laid over a snapshot: where the search starts, and its limits.

    Parameters
    ----------
    start
        The placement as it is, with slots enough.
    cluster
        The cluster as goals meet it, replicas removed and added as asked.
    rules
        What may be touched.
    factor : (P,) int
        How many replicas each partition is to have.
    """

    start: Placement
    cluster: Cluster
    rules: LivingRules
    factor: Ints


def resolve(snapshot: Snapshot, operation: Operation) -> ResolvedOperation:
    """Work out who may hold, lead and move what.

    Raises
    ------
    OperationError, SnapshotError
        Naming the broker, topic pattern or number that does not fit the snapshot.
    """
    s, op = snapshot, operation
    named = s.broker_index(op.brokers)
    if op.kind in ("add_brokers", "remove_brokers", "demote_brokers") and not len(named):
        raise OperationError(f"operation {op.kind}: at least one broker expected, none given")
    if op.kind in ("rebalance", "fix_offline_replicas") and len(named):
        raise OperationError(f"operation {op.kind}: takes no brokers, {list(op.brokers)} given")
    if bool(op.replication_factor) != (op.kind == "change_replication_factor"):
        raise OperationError(
            "replication_factor (a topic pattern and a number) goes with the operation "
            "change_replication_factor, and only with it"
        )
    mine = _broker_mask(s, named)
    draining = dead_brokers(s)
    if op.kind == "remove_brokers":
        draining = draining | mine
    barred = _broker_mask(s, s.broker_index(op.excluded_brokers_for_replicas))
    eligible = ~draining & ~barred & s.broker_open
    leads = ~draining & (s.broker_state != BrokerState.DEMOTED)
    leads &= ~_broker_mask(s, s.broker_index(op.excluded_brokers_for_leadership))
    if op.kind == "demote_brokers":
        leads &= ~mine
    receives = eligible.copy()
    if op.destinations is not None:
        receives &= _broker_mask(s, s.broker_index(op.destinations))
    if op.kind == "add_brokers":
        gone = s.broker_ids[mine & draining]
        if len(gone):
            raise OperationError(f"operation add_brokers: broker {gone[0]} is dead")
        closed = s.broker_ids[mine & ~s.broker_open]
        if len(closed):
            raise OperationError(
                f"operation add_brokers: every log directory of broker {closed[0]} is cordoned"
            )
        receives &= mine
    if op.kind == "demote_brokers":
        receives[:] = False

    factor = target_replication_factor(s, op)
    start = Placement(s, int(factor.max(initial=1)))
    frozen = _named(s, op.frozen_partitions) | ~s.partition_settled
    movable = _outside_topics(s, op.excluded_topics) & ~_named(s, op.excluded_partitions) & ~frozen
    slots = np.repeat(movable, start.slots)
    nothing = np.zeros_like(movable)
    where = start.replica_broker
    lost = lost_partitions(start)
    stranded = stranded_replicas(start)
    if op.kind in ("remove_brokers", "fix_offline_replicas"):
        slots = (where >= 0) & draining[where]
        if s.n_disks:
            slots |= (start.replica_disk >= 0) & ~s.disk_alive[start.replica_disk]
    elif op.kind == "change_replication_factor":
        working, slots = with_replication_factor(start, factor, eligible & receives, lost, frozen)
        cluster = Cluster(working, eligible, leads, draining)
        rules = LivingRules(receives, leads, nothing, slots, draining, lost, frozen, stranded)
        return ResolvedOperation(start, cluster, rules, factor)
    if op.kind == "demote_brokers":
        slots = np.zeros_like(slots)
    if op.kind in ("remove_brokers", "fix_offline_replicas", "demote_brokers"):
        movable = nothing
    movable, slots = movable & ~frozen, slots & np.repeat(~frozen, start.slots)
    working = start.copy()
    cluster = Cluster(working, eligible, leads, draining)
    rules = LivingRules(receives, leads, movable, slots, draining, lost, frozen, stranded)
    return ResolvedOperation(start, cluster, rules, factor)


def _broker_mask(s: Snapshot, rows: Ints) -> Bools:
    mask = np.zeros(s.n_brokers, np.bool_)
    mask[rows] = True
    return mask


def _outside_topics(s: Snapshot, patterns: Sequence[str]) -> Bools:
    free = np.ones(s.n_partitions, np.bool_)
    for pattern in patterns:
        free &= ~matching_partitions(s, pattern)
    return free


def _named(s: Snapshot, partitions: Sequence[str]) -> Bools:
    mask = np.zeros(s.n_partitions, np.bool_)
    if partitions:
        wanted = set(partitions)
        pairs = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        mask[:] = [f"{s.topics[t]}-{n}" in wanted for t, n in pairs]
    return mask
