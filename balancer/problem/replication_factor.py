"""Changes the number of replicas of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import PrivateAttr

from balancer.problem.disks import pick_disk
from balancer.problem.liveness import living_replicas
from balancer.problem.operation import OperationError
from balancer.problem.topics import matching_partitions
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Ints, Snapshot
from goals import Cluster, Goal, State
from goals.patterns import glob_hint
from goals.racks import majority_set
from metrics_reporter.quantities import plural


class ReplicationFactor(Goal):
    """Every partition has as many replicas as the operation requests.

    The score is present / requested replicas or, if a partition has too many,
    requested / present.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    tier: int | None = 0
    _target: Ints = PrivateAttr()

    @classmethod
    def of(cls, target: Ints) -> ReplicationFactor:
        """The goal that each of the P partitions has its number of replicas."""
        goal = cls()
        goal._target = target
        return goal

    def score(self, state: State) -> Any:
        """Ratio of the smaller to the larger of present and requested replicas."""
        have, target = (state.replica_broker >= 0).sum(-1), self._target[state.partition]
        return np.minimum(have, target) / np.maximum(have, target)

    def too_many(self, cluster: Cluster) -> Bools:
        """(P,) whether a partition has more replicas than its target."""
        more: Bools = cluster.replication_factor > self._target
        return more


def target_replication_factor(s: Snapshot, targets: Mapping[str, int]) -> Ints:
    """(P,) target number of replicas of each partition, by regular expressions of topics.

    Raises
    ------
    OperationError
        If a target is below 1 or above the number of brokers, or a pattern matches nothing.
    """
    factor = s.target_replication_factor
    for pattern, target in targets.items():
        if target < 1:
            raise OperationError(
                f"replication factor of {pattern!r}: {target} found, 1 or more expected"
            )
        hit = matching_partitions(s, pattern)
        if not hit.any():
            raise OperationError(
                f"topic pattern {pattern!r} matches none of the snapshot's topics"
                f"{glob_hint(pattern)}"
            )
        if target > s.n_brokers:
            # Refused here, since a placement with so many slots may not fit into memory.
            topic = s.topics[s.partition_topic[np.flatnonzero(hit)[0]]]
            raise OperationError(
                f"replication factor {target} asked for topic {topic!r}, but the cluster has only "
                f"{plural(s.n_brokers, 'broker')}"
            )
        factor[hit] = target
    return factor


# an addition to the cost of a broker that may not lead, larger than any other
_MUST_LEAD = 1e15


def with_replication_factor(
    start: Placement,
    factor: Ints,
    receives: Bools,
    lost: Bools,
    frozen: Bools,
    permitted: Bools | None = None,
    leads: Bools | None = None,
    strict: bool = True,
) -> tuple[Placement, Bools]:
    """A placement with the requested numbers of replicas, and (P * F,) which are new.

    Dead followers are removed first, then those in crowded racks, then those late in the
    preference order; the last living replica stays while the leader is dead. New replicas
    start on the least used broker of a rack that the partition does not use yet, in the
    broker set that holds most of its topic; the search then improves their place. Lost
    partitions get no new replica, as there is nothing to copy. Frozen partitions stay as
    they are. The first replica of a partition leads it, on a broker that `leads` if one can.

    Raises
    ------
    OperationError
        If too few brokers may receive replicas; without `strict`, the rest is left out.
    """
    s, placement = start.snapshot, start.copy()
    brokers = placement.brokers
    have = (brokers >= 0).sum(1)
    most = int(receives.sum())
    unable = np.flatnonzero((factor > have) & (factor > most) & ~frozen)
    if len(unable) and strict:
        p = unable[0]
        raise OperationError(
            f"replication factor {factor[p]} asked for topic {s.topics[s.partition_topic[p]]!r}, "
            f"but only {plural(most, 'broker')} may receive replicas"
        )
    lives = living_replicas(placement)
    for p in np.flatnonzero((have > factor) & ~frozen):
        row = brokers[p]
        while (row >= 0).sum() > factor[p]:
            follow = (row >= 0) & (np.arange(len(row)) != placement.leader[p])
            # the last living replica is the source for the others
            last = (lives[p] & (row >= 0)).sum() == 1
            slots = np.flatnonzero(follow & ~(lives[p] & last))
            if not len(slots):
                break
            racks = s.broker_rack[row[row >= 0]]
            crowd = [(racks == s.broker_rack[row[f]]).sum() for f in slots]
            row[slots[np.lexsort((slots, crowd, ~lives[p, slots]))[-1]]] = -1
    used = np.bincount(brokers[brokers >= 0], minlength=s.n_brokers).astype(np.float64)
    used[~receives] = np.inf
    added = np.zeros(brokers.shape, np.bool_)
    own = s.broker_set if len(s.broker_set) else np.full(s.n_brokers, -1, np.int64)
    home = majority_set(s, start.brokers, own)
    for p in np.flatnonzero((have < factor) & ~lost & ~frozen):
        row = brokers[p]
        held = row[row >= 0]
        racks = np.isin(s.broker_rack, s.broker_rack[held])
        cost = used + 1e9 * racks
        if home[s.partition_topic[p]] >= 0:
            cost = cost + 1e12 * (own != home[s.partition_topic[p]])
        cost[held] = np.inf
        if permitted is not None:
            cost = np.where(permitted[s.partition_topic[p]], cost, np.inf)
        for slot in np.flatnonzero(row < 0)[: factor[p] - len(held)].tolist():
            most_fit = cost
            if leads is not None and not (row >= 0).any():
                most_fit = cost + _MUST_LEAD * ~leads
            best = int(np.argmin(most_fit))
            if not np.isfinite(cost[best]) and not strict:
                break
            if not np.isfinite(cost[best]):
                raise OperationError(
                    f"replication factor {factor[p]} asked for topic "
                    f"{s.topics[s.partition_topic[p]]!r}, but no further broker may receive "
                    "replicas" + ("" if permitted is None else " of it")
                )
            row[slot], added[p, slot] = best, True
            used[best] += 1
            cost[best] = np.inf
            if not racks[best]:
                mates = s.broker_rack == s.broker_rack[best]
                racks |= mates
                cost[mates] += 1e9
    if len(placement.replica_disk):
        at = np.flatnonzero(added.ravel())
        placement.replica_disk[placement.replica_broker < 0] = -1
        placement.replica_disk[at] = pick_disk(placement, placement.replica_broker[at])
    return placement, added.ravel()
