"""What an action costs: data of the snapshot, by partition and destination, with a unit."""

from __future__ import annotations

import numpy as np

from cluster_model.copy_cost import copy_cost as copy_cost
from cluster_model.placement import LEAD, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot


def cost_unit(snapshot: Snapshot) -> str:
    """The unit of movement costs: ``bytes``, the snapshot's own unit, or ``replicas``.

    The snapshot's :attr:`~cluster_model.Snapshot.cost_unit` if it names one. Otherwise bytes
    if there is a resource ``disk`` or the size of the state is known; if nothing is known,
    each replica that moves costs 1.
    """
    if snapshot.cost_unit is not None:
        return snapshot.cost_unit
    return "bytes" if "disk" in snapshot.resources or len(snapshot.state_size) else "replicas"


def cost_at(placement: Placement, partition: Ints, leads: Bools, broker: Ints) -> Floats:
    """(C,) cost of copying replicas of partitions to brokers; -1 for any broker."""
    lead, follow = copy_cost(placement)
    cost: Floats = np.where(leads, lead[partition], follow[partition])
    s = placement.snapshot
    return s.move_cost_of(partition, broker, cost) if len(s.move_cost) else cost


def least_copy_cost(placement: Placement) -> Floats:
    """(P,) the least that a copy of each partition costs, in any role and anywhere."""
    least: Floats = np.minimum(*copy_cost(placement))
    s = placement.snapshot
    if len(s.move_cost):
        least = least.copy()
        np.minimum.at(least, s.move_cost_partition, s.move_cost)
    return least


def movement_cost(placement: Placement, batch: Batch) -> Floats:
    """(C,) cost of each action in the unit of :func:`cost_unit`; leadership transfers are free.

    A move to another disk of the same broker costs as much as a move to any broker.
    """
    leads = batch.slot == placement.leader[batch.partition]
    destination = batch.target
    if len(placement.snapshot.move_cost):
        destination = np.where(batch.kind == MOVE_DISK, -1, destination)
    cost = cost_at(placement, batch.partition, leads, destination)
    cost[batch.kind == LEAD] = 0.0
    return cost


def relative_cost(placement: Placement, batch: Batch, overhead: float) -> Floats:
    """(C,) cost in units of the mean replica, plus a fixed cost per action."""
    lead, _ = copy_cost(placement)
    unit = float(lead.mean()) if len(lead) else 0.0
    cost = movement_cost(placement, batch)
    cost /= unit or 1.0
    cost += overhead
    return cost
