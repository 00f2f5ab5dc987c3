"""Which brokers and replicas are dead, and which partitions are lost with them."""

from __future__ import annotations

import numpy as np

from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot


def lost_partitions(start: Placement) -> Bools:
    """(P,) whether a partition that needs a source has no living replica left to copy from."""
    gone: Bools = np.logical_not(living_replicas(start).any(axis=1))
    return gone & start.snapshot.needs_source


def stranded_replicas(start: Placement) -> Ints:
    """(P, F) the broker of each replica on a dead disk, -1 for the others."""
    disks = start.replica_disk.reshape(start.brokers.shape) if start.snapshot.n_disks else None
    if disks is None:
        return np.full(start.brokers.shape, -1)
    alive = np.append(start.snapshot.disk_alive, True)[disks]
    return np.where(alive, -1, start.brokers)


def living_replicas(placement: Placement) -> Bools:
    """(P, F) whether a slot holds a replica on a living broker and disk."""
    s, brokers = placement.snapshot, placement.brokers
    disks = (
        placement.replica_disk.reshape(brokers.shape) if s.n_disks else np.full_like(brokers, -1)
    )
    on_broker: Bools = np.append(~dead_brokers(s), False)[brokers]
    on_disk: Bools = np.append(s.disk_alive, True)[disks]
    lives: Bools = np.logical_and(on_broker, on_disk)
    return lives


def offline_replicas(placement: Placement) -> Bools:
    """(P, F) whether a slot holds a replica on a dead broker or disk."""
    offline: Bools = (placement.brokers >= 0) & ~living_replicas(placement)
    return offline


def dead_brokers(s: Snapshot) -> Bools:
    """(B,) brokers that are dead, or have disks and none of them alive."""
    disks = np.bincount(s.disk_broker, minlength=s.n_brokers)
    alive = np.bincount(s.disk_broker[s.disk_alive], minlength=s.n_brokers)
    dead: Bools = np.logical_or(s.broker_state == BrokerState.DEAD, (disks > 0) & (alive == 0))
    return dead
