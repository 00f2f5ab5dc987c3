"""Judges goals of other packages by their own code, if the checker has no definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.verification.replicas import PartitionTable, ReplicaTable
from balancer.verification.stated_request import StatedRequest
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Floats, Ints
from goals import Cluster, Goal, State
from goals.capacity import Ceiling


def cluster_of(table: ReplicaTable, request: StatedRequest) -> Cluster:
    """A table of replicas, in the form that the goals' own code reads."""
    rows = PartitionTable.of(table)
    placement = Placement(table.snapshot, rows.brokers.shape[1])
    width = rows.brokers.shape[1]
    placement.brokers[:] = -1
    placement.brokers[:, :width] = rows.brokers
    if len(placement.replica_disk):
        disks = placement.replica_disk.reshape(placement.brokers.shape)
        disks[:] = -1
        disks[:, :width] = rows.disks
    placement.leader[:] = (rows.brokers == rows.leader[:, None]).argmax(1)
    return Cluster(placement, request.eligible, request.may_lead, request.draining)


def own_scores(goal: Goal, cluster: Cluster) -> Floats:
    """(cells,) contentment of all cells by the goal's own code."""
    placement = cluster.placement.stated()
    if placement is not cluster.placement:
        c = cluster
        cluster = Cluster(placement, c.eligible, c.leader_eligible, c.draining)
    state = cluster.partition_state() if goal.scope.of_partitions else cluster.state(goal.scope)
    return np.asarray(goal.score(state), np.float64)


PartitionState = tuple[list[int], list[int], int]


def own_effects(
    goal: Goal,
    cluster: Cluster,
    units: int,
    steps: Sequence[tuple[int, int, PartitionState, PartitionState]],
) -> tuple[Floats, Floats]:
    """(units,) how much each raises the lower contentment, and the largest fall of a cell.

    With a goal that adds up, the former is of all contentments together. A cell of a goal that is
    a limit only falls below what it was at the start.

    Parameters
    ----------
    goal
        Prepared.
    cluster
        The start of the steps; modified to their end.
    units
        Number of units.
    steps
        For each step its unit, its partition, and the partition before and after it.
    """
    diff, fall = np.zeros(units), np.zeros(units)
    began = own_scores(goal, cluster) if isinstance(goal, Ceiling) else None
    first = 0
    while first < len(steps):
        last = first
        while last < len(steps) and steps[last][0] == steps[first][0]:
            last += 1
        batches = [_batch(cluster.placement, *step[1:]) for step in steps[first:last]]
        keys = np.unique(np.concatenate([_cells(goal, cluster.placement, b) for b in batches]))
        keys = keys[keys >= 0]
        before = _scores_of(goal, cluster, keys)
        for batch in batches:
            cluster.placement.apply(batch)
        after = _scores_of(goal, cluster, keys)
        unit = steps[first][0]
        diff[unit] = (
            (after - before).sum()
            if goal.aggregate == "sum"
            else after.min(initial=1.0) - before.min(initial=1.0)
        )
        least = before if began is None else np.minimum(before, began[keys])
        fall[unit] = (least - after).max(initial=0.0)
        first = last
    return diff, fall


def _batch(placement: Placement, p: int, before: PartitionState, after: PartitionState) -> Batch:
    row = placement.brokers[p].tolist()
    one = np.array([p])
    moved = [i for i, (a, b) in enumerate(zip(before[0], after[0], strict=True)) if a != b]
    if moved:
        at = row.index(before[0][moved[0]])
        target, disk = after[0][moved[0]], after[1][moved[0]]
        return Batch.of(MOVE, one, np.array([at]), np.array([target]), np.array([disk]))
    if before[2] != after[2]:
        at = row.index(after[2])
        return Batch.of(LEAD, one, np.array([at]), np.array([after[2]]))
    changed = [i for i, (a, b) in enumerate(zip(before[1], after[1], strict=True)) if a != b]
    i = changed[0] if changed else 0
    at = row.index(before[0][i])
    return Batch.of(
        MOVE_DISK, one, np.array([at]), np.array([before[0][i]]), np.array([after[1][i]])
    )


def _cells(goal: Goal, placement: Placement, batch: Batch) -> Ints:
    if goal.scope.of_partitions:
        return batch.partition
    ends = (
        (placement.source(batch), placement.source_disk(batch)),
        (batch.target, placement.target_disk(batch)),
    )
    return np.concatenate(
        [placement.keys(goal.scope, batch.partition, broker, disk) for broker, disk in ends],
        axis=None,
    )


def _scores_of(goal: Goal, cluster: Cluster, keys: Ints) -> Floats:
    if goal.scope.of_partitions:
        return np.asarray(goal.score(cluster.partition_state(keys)), np.float64)
    scope = goal.scope
    state = State(lambda name: cluster.fetch(scope, name, keys))
    return np.asarray(goal.score(state), np.float64)
