"""What every placement owes: replicas where they live, leaders where they may lead."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools, BrokerState
from goals.cluster import Cluster
from goals.goal import Goal, Obstacle
from goals.obstacles import named, plural
from goals.slots import count
from goals.state import State


def _with_empty(brokers: Bools, empty: bool) -> Bools:
    # index -1 (an empty slot, no disk) reads the last element
    return np.append(brokers, empty)


class OnlineReplicas(Goal):
    """No replica on a broker that is to be emptied, nor on a dead disk.

    The score of a partition is the share of its replicas that may stay.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    _leaving: Bools = PrivateAttr()
    _dead_disk: Bools = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        """Note which brokers and disks are to be emptied."""
        self._leaving = _with_empty(cluster.draining, False)
        self._dead_disk = _with_empty(~cluster.snapshot.disk_alive, False)

    def score(self, state: State) -> Any:
        """Replicas that may stay / replicas."""
        brokers = state.replica_broker
        leaving = self._leaving[brokers]
        if self._dead_disk.any():
            leaving |= self._dead_disk[state.replica_disk]
        factor = count(brokers >= 0)
        return (factor - count(leaving)) / factor

    def obstacles(self, cluster: Cluster) -> list[Obstacle]:
        """Partitions with more replicas than brokers that could hold them."""
        brokers = cluster.placement.brokers
        usable = int(cluster.eligible.sum())
        kept = _with_empty(~cluster.eligible & ~cluster.draining, False)[brokers].sum(1)
        lacking = cluster.replication_factor - usable - kept
        over = np.flatnonzero(lacking > 0)
        if not len(over):
            return []
        more = int(lacking.max())
        return [
            Obstacle(
                reason=(
                    f"{named(cluster, over)}: {cluster.replication_factor[over[0]]} replicas, "
                    f"and {plural(usable, 'broker')} that may receive replicas"
                ),
                cure=f"add {plural(more, 'broker')}, or lower the replication factor",
                brokers_to_add=more,
            )
        ]


class EligibleLeaders(Goal):
    """Every partition has a leader, on a broker that may lead.

    The score is 0 without a leader, 0.5 with one on a broker that may not lead, else 1.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    _may_lead: Bools = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        """Note which brokers may lead."""
        self._may_lead = _with_empty(cluster.leader_eligible, False)

    def score(self, state: State) -> Any:
        """0, 0.5 or 1, see the class."""
        brokers, leader = state.replica_broker, state.leader
        leads = np.arange(brokers.shape[-1]) == leader[..., None]
        well = count(leads & self._may_lead[brokers])
        return 0.5 * (leader >= 0) + 0.5 * well

    def obstacles(self, cluster: Cluster) -> list[Obstacle]:
        """No broker that may lead, and partitions without a living replica."""
        s, brokers = cluster.snapshot, cluster.placement.brokers
        if not cluster.leader_eligible.any():
            return [
                Obstacle(
                    reason="there is no broker that may lead partitions",
                    cure="add a broker, or lift the demotion of one",
                    brokers_to_add=1,
                )
            ]
        lives = _with_empty(s.broker_state != BrokerState.DEAD, False)[brokers]
        if s.n_disks:
            disks = cluster.placement.replica_disk.reshape(brokers.shape)
            lives &= _with_empty(s.disk_alive, True)[disks]
        lost = np.flatnonzero(~lives.any(1))
        if not len(lost):
            return []
        return [
            Obstacle(
                reason=f"{named(cluster, lost)}: every replica is on a dead broker or a dead disk",
                cure="bring one of them back: there is nothing left to copy from",
            )
        ]
