"""Proves how many brokers hard goals need at least, whichever brokers these are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cluster_model.columns import Column
from cluster_model.scopes import BROKER
from cluster_model.snapshot import Bools, Floats
from goals import Cluster, Goal, RackAwareness
from goals.capacity import (
    Ceiling,
    PotentialNetworkOut,
    ReplicaCapacity,
    ResourceCapacity,
    TransientCapacity,
)
from goals.curves import TOLERANCE
from goals.infeasibility import described, lacks_room, needed_room, quantities
from metrics_reporter.quantities import plural

# The limits of a broker that do not depend on which others there are.
_OWN_LIMITS = (ResourceCapacity, ReplicaCapacity, PotentialNetworkOut, TransientCapacity)


class LeastBrokers(NamedTuple):
    """A lower bound on the number of living brokers, and why."""

    number: int
    reason: str


def least_brokers(goals: Iterable[Goal], cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """Living brokers that hold all replicas within hard goals: with fewer, no placement does.

    The largest of: the brokers with the largest limits that together have room; the replicas of
    which no two fit on the largest broker; in each rack, the same for partitions with a
    replica in every rack; and the replicas of one partition.

    Parameters
    ----------
    goals
        Prepared goals; soft ones do not count.
    cluster
        The cluster, with no candidate emptied.
    candidates : (B,) bool
        Brokers that may be emptied or left. Other living ones stay, with what they hold. If all
        candidates have too little room, typical brokers are added.
    """
    hard = [g for g in goals if g.hard]
    fixed = ~cluster.draining & ~candidates
    others = int(fixed.sum())
    most = int(cluster.replication_factor.max(initial=0))
    found = [LeastBrokers(1, "")]
    if most > 1:
        found.append(LeastBrokers(most, f"a partition has {most} replicas"))
    racks = any(isinstance(g, RackAwareness) for g in hard) and not others
    for goal in hard:
        # a subclass may have limits of another kind
        if type(goal) in _OWN_LIMITS and isinstance(goal, Ceiling):
            room, items = _room(goal, cluster, candidates), _together(goal, cluster, candidates)
            found += [LeastBrokers(x.number + others, x.reason) for x in (room, items)]
            if racks:
                found.append(_by_rack(goal, cluster, candidates))
    return max(found, key=lambda x: x.number)


def _room(goal: Ceiling, cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """The fewest brokers whose limits together are at least the load to place on them."""
    # brokers that are emptied keep nothing
    limit = np.where(cluster.draining, 0.0, goal.limits(cluster))
    everywhere = np.ones(len(limit), np.bool_)
    needed, _ = needed_room(cluster, BROKER, goal.column, limit, candidates, everywhere)
    room = _summed(limit[candidates])
    enough = [k for k, x in enumerate(room) if not lacks_room(needed, x)]
    if enough:
        number = enough[0]
        before = room[max(number - 1, 0)]
    else:
        added = goal.added_limit(cluster)
        more = math.ceil((needed - room[-1]) / added * (1 - TOLERANCE)) if added > 0 else 1
        number = len(room) - 1 + max(more, 1)
        before = room[-1] + (more - 1) * added
    much, little = quantities(goal.column, needed, float(before))
    return LeastBrokers(
        number,
        f"{described(goal.column)}: {much} needed, {little} within limits of "
        f"{plural(max(number - 1, 0), 'broker')}",
    )


def _together(goal: Ceiling, cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """The replicas of which no two fit on one broker."""
    limit = float(goal.limits(cluster)[candidates].max(initial=0.0))
    if not limit or (~cluster.draining & ~candidates).any():
        return LeastBrokers(0, "")
    lead, follow = cluster.placement.contribution(goal.column)
    factor, half = cluster.replication_factor, limit / 2 * (1 + TOLERANCE)
    number = int((((lead > half) & (factor > 0)) + (follow > half) * np.maximum(factor - 1, 0)).sum())
    return LeastBrokers(
        number,
        f"{described(goal.column)}: no two of {number} replicas fit on one broker",
    )


def _by_rack(goal: Ceiling, cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """What each rack needs for the partitions that have a replica in every rack."""
    s = cluster.snapshot
    limit = goal.limits(cluster)
    racks = np.unique(s.broker_rack[candidates])
    lead, follow = cluster.placement.contribution(goal.column)
    full = cluster.replication_factor >= len(racks)
    needed = float(np.minimum(lead, follow)[full].sum())
    if not full.any() or len(racks) < 2:
        return LeastBrokers(0, "")
    number = 0
    for rack in racks.tolist():
        room = _summed(limit[candidates & (s.broker_rack == rack)])
        # a rack without room needs more than it has: what it has is a bound as well
        number += max(1, next((k for k, x in enumerate(room) if not lacks_room(needed, x)), len(room) - 1))
    much, _ = quantities(goal.column, needed, needed)
    return LeastBrokers(
        number, f"{described(goal.column)}: each rack needs {much} for partitions with a replica there"
    )


def _summed(limit: Floats) -> Floats:
    """(k + 1,) what the 0, 1, … largest limits allow together."""
    return np.concatenate([[0.0], np.cumsum(-np.sort(-limit))])
