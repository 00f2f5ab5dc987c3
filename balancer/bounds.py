"""How far from the best possible: what no plan could do better than."""

from __future__ import annotations

import numpy as np

from balancer.candidates import Rules
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints
from goals import Cluster, Goal, OnlineReplicas, RackAwareness


def imbalance_bound(cluster: Cluster, rules: Rules, column: str) -> float:
    """Least worst-broker / fair-share ratio that any placement within the rules can have.

    Some broker carries at least its share; the largest replica lies on some broker
    whole; what may not be moved stays where it is.
    """
    share = cluster.fair_share(column)
    usable = share > 0
    if not usable.any():
        return 1.0
    placement = cluster.placement
    lead, follow = placement.contribution(column)
    largest = float(np.maximum(np.where(follow > 0, follow, 0), 0).max(initial=0.0))
    # a leader may be made a follower, but somebody leads
    largest = max(largest, float(lead.max(initial=0.0)))
    pinned = _pinned(placement, rules, np.minimum(lead, follow))
    return float(max(1.0, largest / share.max(), (pinned[usable] / share[usable]).max(initial=0.0)))


def _pinned(placement: Placement, rules: Rules, least: Floats) -> Floats:
    at = np.flatnonzero((placement.replica_broker >= 0) & ~rules.slots)
    broker = placement.replica_broker[at]
    keep = ~rules.draining[broker]
    load = least[at[keep] // placement.slots]
    return np.bincount(broker[keep], load, placement.snapshot.n_brokers).astype(np.float64)


def bytes_bound(start: Placement, goals: list[Goal], met: list[bool], cluster: Cluster) -> float:
    """Least bytes that any plan must copy to meet the goals that `met` marks.

    The largest of: what must leave each broker (to get under every upper limit, and
    off brokers to be emptied), by the fractional relaxation per broker; what must reach
    each broker below a lower limit; and what racks that hold a partition twice must give
    up. Leadership is shed and taken for nothing.
    """
    s = start.snapshot
    size = (
        s.leader_load[:, s.resource("disk")] if "disk" in s.resources else np.ones(s.n_partitions)
    )
    follow = s.follower_load[:, s.resource("disk")] if "disk" in s.resources else size
    least_size = np.minimum(size, follow)
    at = np.flatnonzero(start.replica_broker >= 0)
    broker, p = start.replica_broker[at], at // start.slots
    leads = at % start.slots == start.leader[p]
    n = s.n_brokers
    out, into = np.zeros(n), np.zeros(n)
    all_bytes = np.bincount(broker, least_size[p], n)
    living = s.broker_state != BrokerState.DEAD
    if any(isinstance(g, OnlineReplicas) and m for g, m in zip(goals, met, strict=True)):
        out[cluster.draining] = all_bytes[cluster.draining]
    for goal, done in zip(goals, met, strict=True):
        limits = getattr(goal, "limits", None)
        if not done or goal.scope != "broker" or limits is None:
            continue
        column: str = goal.column  # type: ignore[attr-defined]
        lead_part, follow_part = start.contribution(column)
        value = start.recompute("broker", column)
        found = limits(cluster)
        lower, upper = found if isinstance(found, tuple) else (np.zeros(n), found)
        free = np.maximum(lead_part - follow_part, 0)[p]
        excess = value - upper - np.bincount(broker[leads], free[leads], n)
        excess[cluster.draining] = 0
        out = np.maximum(
            out, _cheapest(broker, np.minimum(lead_part, follow_part)[p], least_size[p], excess)
        )
        gain = np.bincount(broker[~leads], free[~leads], n)
        lack = np.where(cluster.eligible & living, lower - value - gain, 0)
        rate = np.maximum(lead_part, follow_part) / np.maximum(least_size, 1e-300)
        if (best := float(rate.max(initial=0.0))) > 0:
            into = np.maximum(into, np.maximum(lack, 0) / best)
    bound = max(float(out.sum()), float(into.sum()))
    racks = any(isinstance(g, RackAwareness) and m for g, m in zip(goals, met, strict=True))
    return max(bound, _crowded_bytes(start, least_size)) if racks else bound


def _cheapest(broker: Ints, amount: Floats, size: Floats, excess: Floats) -> Floats:
    """(B,) least bytes of replicas whose amounts reach each broker's excess, fractionally."""
    over = excess > 1e-9 * np.maximum(1.0, np.abs(excess).max(initial=0.0))
    rows = np.flatnonzero(over[broker] & (amount > 0))
    broker, amount, size = broker[rows], amount[rows], size[rows]
    ranked = np.lexsort((-amount / np.maximum(size, 1e-300), broker))
    broker, amount, size = broker[ranked], amount[ranked], size[ranked]
    ahead = np.cumsum(amount) - amount
    first = np.searchsorted(broker, broker)
    ahead -= ahead[first] if len(first) else 0.0
    part = np.clip((excess[broker] - ahead) / np.maximum(amount, 1e-300), 0, 1)
    return np.bincount(broker, part * size, len(excess)).astype(np.float64)


def _crowded_bytes(start: Placement, size: Floats) -> float:
    """Bytes of the replicas beyond the first of each partition in each rack."""
    rack = np.where(start.brokers < 0, -1, start.snapshot.broker_rack[start.brokers])
    rack = np.sort(rack, 1)
    again: Bools = (rack[:, 1:] == rack[:, :-1]) & (rack[:, 1:] >= 0)
    return float((again.sum(1) * size).sum())
