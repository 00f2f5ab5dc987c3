"""Lower bounds on imbalance and copied bytes that no plan can beat."""

from __future__ import annotations

import numpy as np

from balancer.problem.movement_cost import cost_unit, least_copy_cost
from balancer.problem.rules import Rules
from cluster_model.columns import COUNT, Column
from cluster_model.placement import Placement
from cluster_model.scopes import BROKER
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints
from goals import Cluster, Goal, OnlineReplicas, RackAwareness
from goals.capacity import Ceiling
from goals.distribution import Band

# a limit counts as kept if it is exceeded by at most twice this share of it
ROUNDING = 4e-9


def imbalance_bound(cluster: Cluster, rules: Rules, column: Column, ended: Placement) -> float:
    """Lowest worst-broker / fair-share ratio of any plan that leaves no more behind.

    Brokers without a share (dead, removed, excluded) may still hold something: no placement
    within the rules that leaves no more there than `ended` does has a lower ratio. The
    other brokers carry the rest, counts in whole numbers; the largest replica is whole on one of
    them, two of the B + 1 largest are together, and unmovable replicas stay where they are.

    Parameters
    ----------
    cluster
        The cluster whose fair shares are the ratio's denominator.
    rules
        What may move, and where to.
    column
        What is counted, see :meth:`cluster_model.placement.Placement.contribution`.
    ended
        Where the plan ends.
    """
    share = cluster.fair_share(column)
    usable = share > 0
    if not usable.any():
        return 1.0
    carried = float(ended.recompute("broker", column)[usable].sum())
    pinned = _pinned(cluster.placement, rules, column, ended)
    least = max(
        carried / float(share.sum()),
        _whole(carried, share) if column.measure == COUNT else 0.0,
        _largest(cluster, rules, column, ended, usable) / float(share.max()),
        float((pinned[usable] / share[usable]).max()),
    )
    # sums added in a different order differ in their last digits
    return float(f"{least:.12g}")


def _whole(carried: float, share: Floats) -> float:
    """Ratio below which the brokers cannot hold the replicas: each holds a whole number."""
    low, high = 0.0, (carried + 1) / float(share.max())
    for _ in range(60):
        middle = (low + high) / 2
        if np.floor(middle * share).sum() < carried:
            low = middle
        else:
            high = middle
    return low


def _largest(
    cluster: Cluster, rules: Rules, column: Column, ended: Placement, usable: Bools
) -> float:
    """Lower bound on the load of the fullest usable broker, from the sizes of single replicas."""
    start = cluster.placement
    if (rules.receives & ~usable).any():
        return 0.0
    held = np.bincount(ended.replica_broker[ended.replica_broker >= 0], minlength=len(usable))
    refuge = np.append(~usable & (~rules.draining | (held > 0)), False)
    factor = np.minimum((start.brokers >= 0).sum(1), (ended.brokers >= 0).sum(1))
    bound = ~refuge[start.brokers].any(1) & (factor > 0)
    lead, follow = start.contribution(column)
    copies = np.maximum(factor[bound] - 1, 0)
    size = np.concatenate([lead[bound], np.repeat(follow[bound], copies)])
    n = int(usable.sum())
    if len(size) <= n:
        return float(size.max(initial=0.0))
    top = -np.partition(-size, n)[: n + 1]
    return max(float(top.max()), float(np.sort(top)[:2].sum()))


def _pinned(placement: Placement, rules: Rules, column: Column, ended: Placement) -> Floats:
    """(B,) load of each broker that may not be moved, nor led elsewhere."""
    s, f = placement.snapshot, placement.slots
    lead, follow = placement.contribution(column)
    where = placement.replica_broker
    stays = (where >= 0) & ~rules.slots & ~np.append(rules.draining, False)[where]
    if rules.permitted is not None:
        stays &= rules.permitted[np.repeat(s.partition_topic, f), where]
    if len(placement.replica_disk):
        stays &= np.append(s.disk_alive, True)[placement.replica_disk]
    led = np.arange(s.n_partitions) * f + placement.leader
    alone = np.maximum((placement.brokers >= 0).sum(1), (ended.brokers >= 0).sum(1)) == 1
    led_here = stays[led] & (alone | (~rules.movable & rules.leads[where[led]]))
    least = np.repeat(np.where(led_here, follow, np.minimum(lead, follow)), f)
    least[led[led_here]] = lead[led_here]
    at = np.flatnonzero(stays)
    return np.bincount(where[at], least[at], s.n_brokers).astype(np.float64)


def cost_bound(start: Placement, goals: list[Goal], met: list[bool], cluster: Cluster) -> float:
    """Least cost that any plan must pay to meet the goals that `met` marks.

    The largest of: what must leave each broker (to respect every upper limit, and to empty
    brokers), by the fractional relaxation per broker; what must reach each broker below a
    lower limit; and what racks that hold a partition twice must release. Leadership
    transfers cost nothing.
    """
    s = start.snapshot
    least_size = least_copy_cost(start)
    at = np.flatnonzero(start.replica_broker >= 0)
    broker, p = start.replica_broker[at], at // start.slots
    n = s.n_brokers
    out, into = np.zeros(n), np.zeros(n)
    all_bytes = np.bincount(broker, least_size[p], n)
    living = s.broker_state != BrokerState.DEAD
    if any(isinstance(g, OnlineReplicas) and m for g, m in zip(goals, met, strict=True)):
        out[cluster.draining] = all_bytes[cluster.draining]
    for goal, done in zip(goals, met, strict=True):
        if not done or goal.scope != BROKER or not isinstance(goal, Ceiling | Band):
            continue
        column = goal.column
        lead_part, follow_part = start.contribution(column)
        value = start.recompute("broker", column)
        found = goal.limits(cluster)
        lower, upper = found if isinstance(found, tuple) else (np.zeros(n), found)
        # no limit where the goal does not apply to a broker, such as one that may not lead
        binds = np.asarray(goal.score(cluster.state("broker"))) < 1
        lower, upper = np.where(binds, lower, 0.0), np.where(binds, upper, np.inf)
        # every replica may end in the role that favours its broker
        light, heavy = np.minimum(lead_part, follow_part)[p], np.maximum(lead_part, follow_part)[p]
        slack = ROUNDING * (value + np.where(np.isinf(upper), 0.0, upper))
        excess = np.bincount(broker, light, n) - upper - slack
        excess[cluster.draining] = 0
        out = np.maximum(out, _cheapest(broker, light, least_size[p], excess))
        held = np.bincount(broker, heavy, n)
        lack = np.where(cluster.eligible & living, lower - held - slack, 0)
        amount = np.maximum(lead_part, follow_part)
        some = amount > 0
        # if some replica copies nothing, any amount may come without bytes: no bound
        if some.any() and (least_size[some] > 0).all():
            best = float((amount[some] / least_size[some]).max())
            into = np.maximum(into, np.maximum(lack, 0) / best)
    least = max(float(out.sum()), float(into.sum()))
    racks = any(isinstance(g, RackAwareness) and m for g, m in zip(goals, met, strict=True))
    if racks:
        least = max(least, _crowded_bytes(start, least_size))
    if s.cost_unit is None and cost_unit(s) == "replicas":
        # each copy costs 1: in part there is none
        least = float(np.ceil(least - 1e-6))
    return least


def _cheapest(broker: Ints, amount: Floats, size: Floats, excess: Floats) -> Floats:
    """(B,) least bytes of replicas that add up to each broker's excess, fractionally."""
    rows = np.flatnonzero((excess > 0)[broker] & (amount > 0))
    broker, amount, size = broker[rows], amount[rows], size[rows]
    # replicas that copy nothing go first
    gain = np.divide(amount, size, out=np.full(len(rows), np.inf), where=size > 0)
    ranked = np.lexsort((-gain, broker))
    broker, amount, size = broker[ranked], amount[ranked], size[ranked]
    ahead = np.cumsum(amount) - amount
    first = np.searchsorted(broker, broker)
    ahead -= ahead[first] if len(first) else 0.0
    part = np.clip((excess[broker] - ahead) / amount, 0, 1)
    return np.bincount(broker, part * size, len(excess)).astype(np.float64)


def _crowded_bytes(start: Placement, size: Floats) -> float:
    """Bytes of the replicas beyond the first of each partition in each rack."""
    rack = np.where(start.brokers < 0, -1, start.snapshot.broker_rack[start.brokers])
    rack = np.sort(rack, 1)
    again: Bools = (rack[:, 1:] == rack[:, :-1]) & (rack[:, 1:] >= 0)
    return float((again.sum(1) * size).sum())
