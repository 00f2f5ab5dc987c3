"""Goals that every placement must meet: replicas on living brokers, leaders where permitted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools, BrokerState
from goals.cluster import Cluster
from goals.goal import Goal, Obstacle
from goals.infeasibility import named
from goals.slots import count
from goals.state import State
from metrics_reporter.quantities import plural


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
        """Find the brokers and disks that must be emptied."""
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
        """Partitions with more replicas than brokers that can hold them."""
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
                cure=f"add at least {plural(more, 'broker')}, or lower the replication factor",
                brokers_to_add=more,
            )
        ]


class EligibleLeaders(Goal):
    """Every partition has a leader, on a broker that may lead.

    The score is 0 without a leader, 0.5 with one on a broker that may not lead, else 1. A
    partition that starts without a leader stays at 0: no plan gives it one, Kafka does as soon
    as a replica in sync is back.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    _may_lead: Bools = PrivateAttr()
    _leaderless: Bools | None = PrivateAttr(default=None)

    def prepare(self, cluster: Cluster) -> None:
        """Find the brokers that may lead, and the partitions without a leader."""
        self._may_lead = _with_empty(cluster.leader_eligible, False)
        # A placement assumes the first replica as leader; only the snapshot knows there is none.
        leaderless = cluster.snapshot.leaderless
        self._leaderless = leaderless if leaderless.any() else None

    def score(self, state: State) -> Any:
        """0, 0.5 or 1, see the class."""
        brokers, leader = state.replica_broker, state.leader
        leads = np.arange(brokers.shape[-1]) == leader[..., None]
        well = count(leads & self._may_lead[brokers])
        led = leader >= 0
        if self._leaderless is not None:
            led = led & ~self._leaderless[state.partition]
        return np.where(led, 0.5 + 0.5 * well, 0.0)

    def obstacles(self, cluster: Cluster) -> list[Obstacle]:
        """No broker that may lead, and partitions without a possible or present leader.

        Replicas on a dead disk may count as leaders: the score reads brokers, not disks.
        """
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
        may_lead = _with_empty(cluster.leader_eligible, False)[brokers]
        lost = ~(lives | may_lead).any(1)
        causes = (
            (
                lost,
                "every replica is on a dead broker or a dead disk",
                "bring one of them back: there is nothing left to copy from",
            ),
            (
                s.leaderless & ~lost,
                "no leader, because no replica in sync serves",
                "bring back a broker or disk that holds a replica in sync",
            ),
        )
        return [
            Obstacle(reason=f"{named(cluster, np.flatnonzero(found))}: {reason}", cure=cure)
            for found, reason, cure in causes
            if found.any()
        ]
