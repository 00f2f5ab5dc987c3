"""Proves how many brokers hard goals need at least, whichever brokers these are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cluster_model.scopes import BROKER
from cluster_model.snapshot import Bools, Floats
from goals import Cluster, Goal, OnlineReplicas, RackAwareness
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


class Need(NamedTuple):
    """What brokers must have room for together, whichever of them stay.

    Parameters
    ----------
    goal
        The goal with the limit.
    limit : (B,)
        Limit of each broker that counts; 0 for others.
    needed
        What their limits together must be at least.
    rack
        The rack of the brokers that count; None for all.
    """

    goal: Ceiling
    limit: Floats
    needed: float
    rack: int | None


def least_brokers(needs: Sequence[Need], cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """Living brokers that hold all replicas within hard goals: with fewer, no placement does.

    The largest of: the brokers with the largest limits that together have room; the replicas of
    which no two fit on the largest broker; in each rack, the brokers with room for partitions
    with a replica in every rack; and the replicas of one partition.

    Parameters
    ----------
    needs
        Of the goals, see :func:`needs_of`.
    cluster
        The cluster, with no candidate emptied.
    candidates : (B,) bool
        Brokers that may be emptied or left. Other living ones stay, with what they hold. If all
        candidates have too little room, typical brokers are added.
    """
    others = int((~cluster.draining & ~candidates).sum())
    # what dead brokers hold may stay there if availability is no hard goal
    held = cluster.placement.brokers
    alive = (held >= 0) & ~np.append(cluster.draining, False)[held]
    most = int(alive.sum(1).max(initial=0))
    found = [LeastBrokers(1, "")]
    if most > 1:
        found.append(LeastBrokers(most, f"a partition has {most} replicas"))
    for need in needs:
        if need.rack is None:
            bound = _room(need, cluster, candidates)
            found.append(LeastBrokers(bound.number + others, bound.reason))
            if not others:
                found.append(_together(need.goal, cluster, candidates))
    for goal in {need.goal.name: need.goal for need in needs if need.rack is not None}.values():
        found.append(_by_rack([n for n in needs if n.rack is not None and n.goal is goal]))
    return max(found, key=lambda x: x.number)


def needs_of(goals: Iterable[Goal], cluster: Cluster, candidates: Bools) -> list[Need]:
    """What the candidates that stay must have room for, by hard goal, and by rack.

    A rack needs room of its own for partitions with as many replicas as there are racks, if no two
    may be in one rack, and no other broker holds any.

    Parameters
    ----------
    goals
        Prepared goals; soft ones do not count.
    cluster, candidates
        See :func:`least_brokers`.
    """
    hard = [g for g in goals if g.hard]
    s, found = cluster.snapshot, list[Need]()
    racks = np.unique(s.broker_rack[candidates])
    full = cluster.replication_factor >= len(racks)
    aware = any(isinstance(g, RackAwareness) for g in hard)
    if cluster.draining.any() and not any(isinstance(g, OnlineReplicas) for g in hard):
        return []
    spread = aware and len(racks) > 1 and not (~cluster.draining & ~candidates).any()
    for goal in hard:
        # a subclass may have limits of another kind
        if type(goal) not in _OWN_LIMITS or not isinstance(goal, Ceiling):
            continue
        # brokers that are emptied keep nothing
        limit = np.where(cluster.draining, 0.0, goal.limits(cluster))
        staying = np.ones(len(limit), np.bool_)
        needed, _ = needed_room(cluster, BROKER, goal.column, limit, candidates, staying)
        limit = np.where(candidates, limit, 0.0)
        found.append(Need(goal, limit, needed, None))
        if spread and full.any():
            lead, follow = cluster.placement.contribution(goal.column)
            each = float(np.minimum(lead, follow)[full].sum())
            for rack in racks.tolist():
                own = np.where(s.broker_rack == rack, limit, 0.0)
                found.append(Need(goal, own, each, rack))
    return found


def room_without(needs: Sequence[Need], kept: Bools) -> Floats:
    """(S,) for sets of brokers that stay, the scarcest room as a multiple of what is needed.

    Below 1, no placement on these brokers meets all hard goals.

    Parameters
    ----------
    needs
        See :func:`needs_of`.
    kept : (S, B) bool
        The brokers that stay.
    """
    scarcest = np.full(len(kept), np.inf)
    for need in needs:
        if need.needed > 0:
            # compared as `lacks_room` does
            room = (kept @ need.limit) / need.needed * (1 + 2 * TOLERANCE)
            scarcest = np.minimum(scarcest, room)
        if need.rack is not None:
            scarcest = np.where((kept & (need.limit > 0)).any(1), scarcest, 0.0)
    return scarcest


def _room(need: Need, cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """The fewest brokers whose limits together are at least the load to place on them."""
    goal, needed = need.goal, need.needed
    room = _summed(need.limit[candidates])
    number = next((k for k, x in enumerate(room) if not lacks_room(needed, x)), len(room))
    before = float(room[max(number - 1, 0)])
    if number == len(room):
        added = goal.added_limit(cluster)
        if added > 0:
            more = max(1, math.ceil((needed - room[-1]) / added * (1 - TOLERANCE)))
            number, before = number - 1 + more, before + (more - 1) * added
    much, little = quantities(goal.column, needed, before)
    return LeastBrokers(
        number,
        f"{described(goal.column)}: {much} needed, {little} within limits of "
        f"{plural(max(number - 1, 0), 'broker')}",
    )


def _together(goal: Ceiling, cluster: Cluster, candidates: Bools) -> LeastBrokers:
    """The replicas of which no two fit on one broker."""
    half = float(goal.limits(cluster)[candidates].max(initial=0.0)) / 2 * (1 + TOLERANCE)
    if not half:
        return LeastBrokers(0, "")
    lead, follow = cluster.placement.contribution(goal.column)
    factor = cluster.replication_factor
    large = (lead > half) & (factor > 0), (follow > half) * np.maximum(factor - 1, 0)
    number = int(large[0].sum() + large[1].sum())
    why = f"{described(goal.column)}: no two of {number} replicas fit on one broker"
    return LeastBrokers(number, why)


def _by_rack(needs: Sequence[Need]) -> LeastBrokers:
    """What the racks need for the partitions that have a replica in each of them."""
    number = 0
    for need in needs:
        room = _summed(need.limit[need.limit > 0])
        enough = (k for k, x in enumerate(room) if not lacks_room(need.needed, x))
        # a rack without room needs more than it has: what it has is a bound as well
        number += max(1, next(enough, len(room) - 1))
    column = needs[0].goal.column
    (much,) = quantities(column, needs[0].needed)
    return LeastBrokers(
        number, f"{described(column)}: each rack needs {much} for partitions that are in every rack"
    )


def _summed(limit: Floats) -> Floats:
    """(k + 1,) what the 0, 1, … largest limits allow together."""
    return np.concatenate([[0.0], np.cumsum(-np.sort(-limit))])
