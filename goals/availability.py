"""Goals that every placement must meet: replicas on living brokers, leaders where permitted."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from cluster_model.snapshot import Bools, BrokerState
from goals.cluster import Cluster
from goals.goal import Goal, Infeasibility
from goals.infeasibility import named
from goals.slots import count
from goals.state import State
from metrics_reporter.quantities import plural

# brokers named in a reason
_LISTED = 8


def _with_empty(brokers: Bools, empty: bool) -> Bools:
    # index -1 (an empty slot, no disk) reads the last element
    return np.append(brokers, empty)


class OnlineReplicas(Goal):
    """Every replica is on a working disk of a broker that stays and may hold its topic.

    The score of a partition is the share of its replicas that may stay; 0 without any.
    """

    scope: ClassVar = "partition"
    availability: ClassVar[bool] = True
    hard: bool = True
    _leaving: Bools = PrivateAttr()
    _dead_disk: Bools = PrivateAttr()
    _forbidden: Bools | None = PrivateAttr(default=None)

    def prepare(self, cluster: Cluster) -> None:
        """Find the brokers and disks that must be emptied, and what each broker may not hold."""
        self._leaving = _with_empty(cluster.draining, False)
        self._dead_disk = _with_empty(~cluster.snapshot.disk_alive, False)
        allowed = cluster.snapshot.may_hold
        if allowed.size:
            self._forbidden = np.pad(~allowed, ((0, 0), (0, 1)))

    def score(self, state: State) -> Any:
        """Replicas that may stay / replicas."""
        brokers = state.replica_broker
        leaving = self._leaving[brokers]
        if self._dead_disk.any():
            leaving |= self._dead_disk[state.replica_disk]
        if self._forbidden is not None:
            leaving |= self._forbidden[state.topic[..., None], brokers]
        there = count(brokers >= 0)
        return (there - count(leaving)) / np.maximum(there, 1)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Partitions with more replicas than brokers that can hold them."""
        s, brokers = cluster.snapshot, cluster.placement.brokers
        usable = np.full(s.n_partitions, int(cluster.eligible.sum()))
        stays = _with_empty(~cluster.eligible & ~cluster.draining, False)[brokers]
        if s.may_hold.size:
            usable = (s.may_hold & cluster.eligible).sum(1)[s.partition_topic]
            permitted = np.pad(s.may_hold, ((0, 0), (0, 1)))
            stays &= permitted[s.partition_topic[:, None], brokers]
        lacking = cluster.replication_factor - usable - stays.sum(1)
        over = np.flatnonzero(lacking > 0)
        if not len(over):
            return []
        more, first = int(lacking.max()), int(over[0])
        return [
            Infeasibility(
                reason=(
                    f"{named(cluster, over)}: {cluster.replication_factor[first]} replicas, "
                    f"and {_takers(cluster, first, int(usable[first]))}"
                ),
                remedy=f"add at least {plural(more, 'broker')}, or lower the replication factor",
                brokers_to_add=more,
            )
        ]


def _takers(cluster: Cluster, partition: int, usable: int) -> str:
    """How many brokers may receive a partition's replicas; which ones, if its topic is limited."""
    s = cluster.snapshot
    topic = int(s.partition_topic[partition])
    if not s.may_hold.size or s.may_hold[topic].all():
        return f"{plural(usable, 'broker')} that may receive replicas"
    ids = s.broker_ids[s.may_hold[topic] & cluster.eligible].tolist()
    if not ids:
        return f"no broker that may receive replicas of topic {s.topics[topic]}"
    listed = ", ".join(str(i) for i in ids[:_LISTED])
    rest = f" and {len(ids) - _LISTED:,} more" if len(ids) > _LISTED else ""
    which = "broker" if len(ids) == 1 else "brokers"
    return f"topic {s.topics[topic]} may be on {which} {listed}{rest} only"


class EligibleLeaders(Goal):
    """Every partition has a leader, on a broker that may lead.

    The score is 0 without a leader, 0.5 with one on a broker that may not lead, else 1. A
    partition that starts without a leader stays at 0: no plan gives it one, Kafka does as soon
    as a replica in sync is back.
    """

    scope: ClassVar = "partition"
    availability: ClassVar[bool] = True
    hard: bool = True
    _may_lead: Bools = PrivateAttr()
    _leaderless: Bools | None = PrivateAttr(default=None)
    _unassigned: bool = PrivateAttr(default=False)

    def prepare(self, cluster: Cluster) -> None:
        """Find the brokers that may lead, and the partitions without a leader."""
        self._may_lead = _with_empty(cluster.leader_eligible, False)
        # A placement assumes the first replica as leader; only the snapshot knows there is none.
        leaderless = cluster.snapshot.leaderless
        self._leaderless = leaderless if leaderless.any() else None
        self._unassigned = not cluster.snapshot.replication_factor.all()

    def score(self, state: State) -> Any:
        """0, 0.5 or 1, see the class."""
        brokers, leader = state.replica_broker, state.leader
        leads = np.arange(brokers.shape[-1]) == leader[..., None]
        well = count(leads & self._may_lead[brokers])
        led = leader >= 0
        if self._leaderless is not None:
            led = led & ~self._leaderless[state.partition]
        if self._unassigned:
            led = led & (count(brokers >= 0) > 0)
        return np.where(led, 0.5 + 0.5 * well, 0.0)

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """No broker that may lead, and partitions without a possible or present leader.

        Replicas on a dead disk may count as leaders: the score reads brokers, not disks.
        """
        s, brokers = cluster.snapshot, cluster.placement.brokers
        if not cluster.leader_eligible.any():
            return [
                Infeasibility(
                    reason="there is no broker that may lead partitions",
                    remedy="add a broker, or lift the demotion of one",
                    brokers_to_add=1,
                )
            ]
        lives = _with_empty(s.broker_state != BrokerState.DEAD, False)[brokers]
        if s.n_disks:
            disks = cluster.placement.replica_disk.reshape(brokers.shape)
            lives &= _with_empty(s.disk_alive, True)[disks]
        may_lead = _with_empty(cluster.leader_eligible, False)[brokers]
        lost = ~(lives | may_lead).any(1) & s.needs_source
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
            Infeasibility(
                reason=f"{named(cluster, np.flatnonzero(found))}: {reason}", remedy=remedy
            )
            for found, reason, remedy in causes
            if found.any()
        ]
