"""Lower bounds that no placement can beat, derived without the code that made the plan.

A plan may state a lower bound than these (it holds as well), but not a higher one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from balancer.verification.goals import TOLERANCE, band, limits
from balancer.verification.replicas import ReplicaTable, contribution, sizes, special_costs
from balancer.verification.stated_request import StatedRequest
from cluster_model.snapshot import Bools, Floats, Ints

_BANDS = {
    "UsageDistribution",
    "ReplicaDistribution",
    "LeaderReplicaDistribution",
    "LeaderBytesInDistribution",
}


def least_ratio(
    request: StatedRequest,
    column: str,
    share: Floats,
    base: ReplicaTable,
    ended: ReplicaTable,
    free: bool,
) -> float:
    """Lowest worst-broker / fair-share ratio of a placement that leaves no more behind.

    Parameters
    ----------
    request
        Which brokers may hold and lead, and which replicas may move.
    column
        The quantity.
    share : (B,) float
        Fair shares; brokers without one take no part.
    base
        The start of the plan, with replicas added and removed.
    ended
        The end of the plan.
    free
        Whether replicas that are online may move.
    """
    has = share > 0
    if not has.any():
        return 1.0
    carried = float(ended.per_broker(column)[has].sum())
    found = [
        carried / float(share.sum()),
        _largest(request, column, has, base, ended) / float(share.max()),
        float((_stays(request, column, base, ended, free)[has] / share[has]).max()),
    ]
    if column.endswith("_count"):
        found.append(_whole(carried, share))
    return max(found)


def _whole(carried: float, share: Floats) -> float:
    """Least ratio at which whole numbers of replicas fit: one of (n + 1) / share."""
    low, high = 0.0, (carried + 1) / float(share.max())
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if np.floor(middle * share).sum() < carried:
            low = middle
        else:
            high = middle
    return high


def _largest(
    request: StatedRequest, column: str, has: Bools, base: ReplicaTable, ended: ReplicaTable
) -> float:
    """Least load of the fullest broker, given that replicas are indivisible."""
    if (request.receives & ~has).any():
        return 0.0
    left = np.bincount(ended.broker, minlength=len(has)) > 0
    elsewhere = ~has & (~request.draining | left)
    inside = base.count(elsewhere[base.broker]) == 0
    inside &= np.minimum(base.factor, ended.factor) > 0
    lead, follow = contribution(request.snapshot, column)
    copies = np.maximum(np.minimum(base.factor, ended.factor)[inside] - 1, 0)
    pieces = np.sort(np.concatenate([lead[inside], np.repeat(follow[inside], copies)]))[::-1]
    n = int(has.sum())
    if len(pieces) <= n:
        return float(pieces.max(initial=0.0))
    return max(float(pieces[0]), float(pieces[n - 1] + pieces[n]))


def _stays(
    request: StatedRequest, column: str, base: ReplicaTable, ended: ReplicaTable, free: bool
) -> Floats:
    """(B,) load of each broker that may neither move nor be led elsewhere."""
    s = request.snapshot
    fixed = request.excluded | request.untouched if free else np.ones(s.n_partitions, np.bool_)
    stays = fixed[base.partition] & ~request.draining[base.broker]
    stays &= ~request.forbidden(base.partition, base.broker)
    if s.n_disks:
        stays &= np.append(s.disk_alive, True)[base.disk]
    if request.kind.moves == "changed":
        # added replicas may still move
        original = {*zip(s.replica_partition.tolist(), s.replica_broker.tolist(), strict=True)}
        here = zip(base.partition.tolist(), base.broker.tolist(), strict=True)
        stays &= [pair in original for pair in here]
    lead, follow = contribution(s, column)
    alone = np.maximum(base.factor, ended.factor)[base.partition] == 1
    led = base.leads & (alone | (fixed[base.partition] & request.may_lead[base.broker]))
    # if the leader stays the leader, its followers stay followers
    keeps = np.bincount(base.partition[led & stays], minlength=s.n_partitions) > 0
    amount = np.where(keeps, follow, np.minimum(lead, follow))
    least = np.where(led, lead[base.partition], amount[base.partition])
    return np.bincount(base.broker[stays], least[stays], s.n_brokers).astype(np.float64)


def least_cost(
    request: StatedRequest, start: ReplicaTable, goals: Iterable[Mapping[str, Any]]
) -> float:
    """Least cost that any plan must pay to meet goals; changes of role cost nothing.

    The largest of what must leave brokers, what must reach brokers, and the replicas beyond
    the first of a partition in a rack.
    """
    s = request.snapshot
    size: Floats = np.minimum(*sizes(s))
    for (row, _), cost in special_costs(s).items():
        size[row] = min(size[row], cost)
    p, broker = start.partition, start.broker
    out, into, crowded = np.zeros(s.n_brokers), np.zeros(s.n_brokers), 0.0
    for goal in goals:
        name = goal["goal"]
        if name == "OnlineReplicas":
            held = np.bincount(broker, size[p], s.n_brokers)
            out = np.maximum(out, np.where(request.draining, held, 0.0))
        if name == "RackAwareness":
            partition, replicas = start.rack_counts()
            crowded = float(((replicas - 1) * size[partition]).sum())
        ceiling = limits(goal, request)
        lower = np.zeros(s.n_brokers)
        if ceiling is not None and ceiling[0] == "broker":
            _, column, upper = ceiling
        elif name in _BANDS:
            column, lower, upper, _ = band(goal, start, request)
            lower = np.where(request.takes(column), lower, 0.0)
        else:
            continue
        lead, follow = contribution(s, column)
        upper = np.where(request.draining, np.inf, upper)
        light, heavy = np.minimum(lead, follow), np.maximum(lead, follow)
        # goals accept values this close to a limit
        slack = 2 * TOLERANCE * np.where(np.isinf(upper), 0.0, upper)
        excess = np.bincount(broker, light[p], s.n_brokers) - upper - slack
        out = np.maximum(out, _cheapest(broker, light[p], size[p], excess))
        lack = np.maximum(lower - slack - np.bincount(broker, heavy[p], s.n_brokers), 0.0)
        some = heavy > 0
        if some.any() and (size[some] > 0).all():
            into = np.maximum(into, lack / float((heavy[some] / size[some]).max()))
    return max(float(out.sum()), float(into.sum()), crowded)


def _cheapest(broker: Ints, amount: Floats, size: Floats, excess: Floats) -> Floats:
    """(B,) least bytes of fractional replicas that add up to each broker's excess."""
    found = np.zeros(len(excess))
    for b in np.flatnonzero(excess > 0).tolist():
        mine = np.flatnonzero((broker == b) & (amount > 0))
        order = mine[np.argsort(size[mine] / amount[mine], kind="stable")]
        rest = np.maximum(excess[b] - (np.cumsum(amount[order]) - amount[order]), 0.0)
        found[b] = (size[order] * np.minimum(rest / amount[order], 1.0)).sum()
    return found
