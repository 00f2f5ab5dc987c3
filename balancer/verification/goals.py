"""Defines every built-in goal a second time, without the goals' own code.

A definition scores cells (brokers, hosts, disks, topics on brokers or in racks, partitions) from 0
to 1, for the check of a plan in :mod:`balancer.verification.checker`. A partition
without a leader counts as led by its first replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from balancer.verification.relations import APART, NEAR, SPREAD, Related, relation_of
from balancer.verification.replicas import (
    GROUP,
    TRANSIENT,
    PartitionTable,
    ReplicaTable,
    contribution,
    difference,
    groups_of,
    pairs,
    sizes,
    special_costs,
    sums,
    values,
)
from balancer.verification.stated_request import StatedRequest
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot

# Two ways to sum the same loads differ by about this fraction of the sum.
TOLERANCE = 1e-9
# cells scored at once: a topic has one on every broker
_CHUNK = 1 << 20


@dataclass(frozen=True)
class GoalDefinition:
    """The definition of a goal.

    Parameters
    ----------
    scope
        What it scores: ``broker``, ``host``, ``disk``, ``topic`` (on a broker), ``topic_rack``,
        ``group:`` and an attribute, ``partition``, or a scope of
        :mod:`balancer.verification.relations`.
    column
        The quantity summed in each cell; none for partitions.
    score
        (C,) contentment of cells and their values, or of rows.
    adds_up
        Whether an action counts by what it changes in all cells together; otherwise by the least
        content of them.
    """

    scope: str
    column: str
    score: Callable[[Ints, Floats], Floats] | Callable[[PartitionTable], Floats]
    adds_up: bool = False

    def of_cells(self, cell: Ints, value: Floats) -> Floats:
        """(C,) contentment of cells with these values."""
        found: Floats = self.score(cell, value)  # type: ignore[call-arg, arg-type]
        return found

    def of_rows(self, rows: PartitionTable) -> Floats:
        """(C,) contentment of partitions."""
        found: Floats = self.score(rows)  # type: ignore[call-arg, arg-type]
        return found

    def everywhere(self, table: ReplicaTable) -> Floats:
        """(cells,) contentment of all cells."""
        if self.scope == "partition":
            return self.of_rows(PartitionTable.of(table))
        related = relation_of(self.scope)
        value = (
            Related(table.snapshot, self.scope).values(table)
            if related
            else values(table, self.scope, self.column)
        )
        cell = np.arange(len(value))
        parts = [
            self.of_cells(cell[i : i + _CHUNK], value[i : i + _CHUNK])
            for i in range(0, len(value), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def definition_of(
    goal: Mapping[str, Any],
    base: ReplicaTable,
    request: StatedRequest,
    tolerance: float = TOLERANCE,
) -> GoalDefinition | None:
    """The definition of a goal; None for unknown goals.

    Parameters
    ----------
    goal
        Its class, as ``goal``, and all its fields.
    base
        The replicas that fair shares are taken from.
    request
        Which brokers may hold and lead what.
    tolerance
        How far a value may be beyond a limit, as a part of the limit.
    """
    ceiling = limits(goal, request)
    if ceiling is not None:
        scope, column, limit = ceiling
        return GoalDefinition(
            scope, column, lambda cell, value: _at_most(value, limit[cell], tolerance)
        )
    build = _DEFINITIONS.get(goal["goal"])
    return None if build is None else build(goal, base, request, tolerance)


def _at_most(value: Floats, limit: Floats, tolerance: float) -> Floats:
    """1 up to a limit, then limit / value, or 1 / (1 + ln(1 + value)) where the limit is 0."""
    over = value > limit * (1 + tolerance)
    finite = np.where(over, limit, 1.0)
    # where nothing is allowed, any amount is too much
    none = np.minimum(1 / (1 + np.log1p(np.where(over, value, 0.0))), 1 - TOLERANCE)
    above = np.where(finite > 0, finite / np.where(over, value, 1.0), none)
    return np.where(over, above, 1.0)


def _curve(distance: Floats, bound: float = 0.0, reach: float = 100.0) -> Floats:
    """1 up to `bound`, linear down to 0.1 at `reach`, then 0.1 / log_reach(distance)."""
    near = 1.0 - 0.9 * (distance - bound) / (reach - bound)
    far = 0.1 * np.log(reach) / np.log(np.maximum(distance, reach))
    return np.where(distance > reach, far, np.minimum(near, 1.0))


def limits(goal: Mapping[str, Any], request: StatedRequest) -> tuple[str, str, Floats] | None:
    """Scope, column and (cells,) limits of a goal that is a ceiling; none on what is emptied."""
    s, name = request.snapshot, goal["goal"]
    stays = ~request.draining
    if name == "ResourceCapacity":
        limit = request.capacity(goal["resource"]) * goal["threshold"]
        return "broker", f"load.{goal['resource']}", np.where(stays, limit, np.inf)
    if name == "HostCapacity":
        staying = np.bincount(s.broker_host, stays, len(s.hosts)) > 0
        room = np.where(stays, request.capacity(goal["resource"]) * goal["threshold"], 0.0)
        limit = np.bincount(s.broker_host, room, len(s.hosts))
        return "host", f"load.{goal['resource']}", np.where(staying, limit, np.inf)
    if name == "GroupCapacity":
        own, groups = groups_of(s, goal["attribute"])
        kept = stays & (own >= 0)
        room = sums(own[kept], request.capacity(goal["resource"])[kept], groups)
        staying = sums(own[kept], kept[kept], groups) > 0
        scope = GROUP + goal["attribute"]
        limit = np.where(staying, room * goal["threshold"], np.inf)
        return scope, f"load.{goal['resource']}", limit
    if name == "RackFailureCapacity":
        capacity = request.capacity(goal["resource"])
        in_rack = np.bincount(s.broker_rack, np.where(stays, capacity, 0.0))
        # what is left of all capacity after the failure of the rack that has most of it
        survives = (in_rack.sum() - in_rack.max()) / max(in_rack.sum(), 1e-300)
        limit = np.where(stays, capacity * survives * goal["limit"], np.inf)
        return "broker", f"load.{goal['resource']}", limit
    if name == "ReplicaCapacity":
        return "broker", "replica_count", np.where(stays, float(goal["limit"]), np.inf)
    if name == "PotentialNetworkOut":
        limit = request.capacity("network_out") * goal["threshold"]
        return "broker", "potential_load.network_out", np.where(stays, limit, np.inf)
    if name == "DiskCapacity":
        kept = s.disk_alive & stays[s.disk_broker]
        return "disk", "load.disk", np.where(kept, s.disk_capacity * goal["threshold"], np.inf)
    return None


def _fair(base: ReplicaTable, request: StatedRequest, column: str) -> Floats:
    """(B,) fair shares, for brokers that take nothing as if they did; infinite if none does."""
    takes = request.takes(column)
    share = request.fair_share(base.per_broker(column), request.weight(column))
    resource = column.partition(".")[2]
    size = request.capacity(resource) if resource else np.ones(len(share))
    sizes = request.per_set(np.where(takes, size, 0.0))
    shares = request.per_set(np.where(takes, share, 0.0))
    rate = np.divide(shares, sizes, out=np.full(len(share), np.inf), where=sizes > 0)
    none = np.isinf(rate)
    return np.where(takes, share, np.where(none, np.inf, np.where(none, 0.0, rate) * size))


def band(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float = 0.0
) -> tuple[str, Floats, Floats, Floats]:
    """Column, (B,) lower and upper limits around a fair share, and (B,) the fair shares."""
    name = goal["goal"]
    column = {
        "ReplicaDistribution": "replica_count",
        "LeaderReplicaDistribution": "leader_count",
        "LeaderBytesInDistribution": "leader_load.network_in",
    }.get(name) or f"load.{goal['resource']}"
    share = _fair(base, request, column)
    slack = (goal["threshold"] - 1) * goal["margin"]
    least = 0.0 if goal.get("upper_only") else max(0.0, 1 - slack)
    finite = np.where(np.isinf(share), 0.0, share)
    lower, upper = finite * least, share * (1 + slack)
    if column.endswith("_count"):
        lower, upper = np.floor(lower * (1 + tolerance)), np.ceil(upper * (1 - tolerance))
    if name == "LeaderBytesInDistribution":
        lower = np.zeros_like(lower)
        upper = np.maximum(upper, goal["low_utilization"] * request.capacity("network_in"))
    elif name == "UsageDistribution":
        capacity = request.capacity(goal["resource"])
        low = goal["low_utilization"] * capacity
        idle = share <= low
        lower = np.where(idle, 0.0, lower)
        upper = np.where(idle, np.maximum(upper, goal["margin"] * low), upper)
    return column, lower, upper, np.where(finite > 0, finite, 1.0)


def _usage(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    """Every goal that keeps a column of the brokers within limits around a fair share."""
    column, lower, upper, unit = band(goal, base, request, tolerance)
    lower = np.where(request.takes(column), lower, -np.inf)
    upper = np.where(request.draining, np.inf, upper)
    return GoalDefinition("broker", column, _between(lower, upper, unit, tolerance))


def _group_usage(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    """Every group of brokers within limits about the shares of those that stay."""
    own, groups = groups_of(request.snapshot, goal["attribute"])
    kept = (own >= 0) & ~request.draining
    column = f"load.{goal['resource']}"
    share, capacity, closed, staying = (
        sums(own[kept], of[kept], groups)
        for of in (
            _fair(base, request, column),
            request.capacity(goal["resource"]),
            ~request.takes(column),
            kept,
        )
    )
    slack, low = (goal["threshold"] - 1) * goal["margin"], goal["low_utilization"] * capacity
    finite = np.where(np.isinf(share), 0.0, share)
    lower = finite * (0.0 if goal["upper_only"] else max(0.0, 1 - slack))
    upper, idle = share * (1 + slack), share <= low
    lower = np.where(idle, 0.0, lower)
    upper = np.where(idle, np.maximum(upper, goal["margin"] * low), upper)
    lower = np.where((staying > 0) & (closed == 0), lower, -np.inf)
    upper = np.where(staying > 0, upper, np.inf)
    unit = np.where(finite > 0, finite, 1.0)
    score = _between(lower, upper, unit, tolerance)
    return GoalDefinition(GROUP + goal["attribute"], column, score)


def _between(
    lower: Floats, upper: Floats, unit: Floats, tolerance: float
) -> Callable[[Ints, Floats], Floats]:
    """The score of values within limits, by the distance in percent of a unit outside."""

    def score(cell: Ints, value: Floats) -> Floats:
        outside = np.maximum(value - upper[cell], lower[cell] - value)
        # where nothing is allowed there is nothing to round
        rounding = np.where((value > upper[cell]) & (upper[cell] <= 0), 0.0, tolerance)
        return _curve(100.0 * (outside / unit[cell] - rounding))

    return score


def _network(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    column = "load.network_in" if "NetworkIn" in goal["goal"] else "load.network_out"
    first = base.per_broker(column)
    mean = float(
        first[request.eligible | request.draining].sum() / max(1, int(request.eligible.sum()))
    )
    bound = mean * goal["deviation"]

    def score(cell: Ints, value: Floats) -> Floats:
        off = np.abs(value - mean) - tolerance * mean
        idle = (mean < goal["detect_threshold"]) & (value < goal["detect_threshold"])
        off = np.where(idle | (~request.eligible[cell] & (value < mean)), 0.0, off)
        found = _curve(off, bound, bound + goal["baseline"])
        return np.where(request.draining[cell], 1.0, found)

    return GoalDefinition("broker", column, score)


def _topic_spread(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s, leaders = request.snapshot, goal["goal"] == "TopicLeaderDistribution"
    weight = request.led_size if leaders else request.size
    takes = weight > 0
    counted = request.eligible | request.draining
    # what is on barred brokers falls into a separate group, which is then cut off
    of_group = np.where(counted, request.set_index, request.n_sets)
    totals = base.per_topic(leaders, of_group, request.n_sets + 1)[:, : request.n_sets]
    many = request.per_set(takes)
    part = np.divide(weight, request.per_set(weight), out=np.zeros(len(weight)), where=takes)
    part = np.where(takes, part, 1 / np.maximum(many, 1))
    content = request.draining | (many == 0)

    def score(cell: Ints, value: Floats) -> Floats:
        topic, broker = np.divmod(cell, s.n_brokers)
        share = totals[topic, request.set_index[broker]] * part[broker]
        floor, ceil = np.floor(share + tolerance), np.ceil(share - tolerance)
        lower, upper = floor, ceil
        if not leaders:
            m = (goal["threshold"] - 1) * goal["margin"]
            upper = np.ceil(share * (1 + m) - tolerance)
            upper = np.minimum(np.maximum(upper, ceil + goal["min_gap"]), ceil + goal["max_gap"])
            lower = np.floor(share * max(0.0, 1 - m) + tolerance)
            lower = np.maximum(np.minimum(lower, floor - goal["min_gap"]), floor - goal["max_gap"])
        below = np.where(takes[broker], lower - value, 0.0)
        outside = np.maximum(value - upper, below)
        found = _curve(outside * (100.0 / np.maximum(share, 1.0)))
        return np.where(content[broker], 1.0, found)

    return GoalDefinition("topic", "leader_count" if leaders else "replica_count", score)


def _topic_racks(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s, racks = request.snapshot, len(request.snapshot.racks)
    weight = np.bincount(s.broker_rack, request.size, racks)
    total = base.per_topic(False, s.broker_rack, racks).sum(1)
    part = weight / max(float(weight.sum()), 1e-300)

    def score(cell: Ints, value: Floats) -> Floats:
        topic, rack = np.divmod(cell, racks)
        share = total[topic] * part[rack]
        outside = np.maximum(
            value - np.ceil(share - tolerance), np.floor(share + tolerance) - value
        )
        found = _curve(outside * (100.0 / np.maximum(share, 1.0)))
        return np.where(weight[rack] > 0, found, 1.0)

    return GoalDefinition("topic_rack", "replica_count", score)


def least_leaders(goal: Mapping[str, Any], request: StatedRequest) -> Ints:
    """(T,) number of leaders of each topic that every broker that may lead should have."""
    s = request.snapshot
    partitions = np.bincount(s.partition_topic, minlength=len(s.topics))
    even = partitions // max(1, int((request.may_lead).sum()))
    least = np.full(len(s.topics), goal["minimum"]) if goal["minimum"] else even
    # a topic without partitions needs no leaders
    return np.where(request.topics(goal["topics"]) & (partitions > 0), least, 0)


def _min_leaders(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    n, least = request.snapshot.n_brokers, least_leaders(goal, request)

    def score(cell: Ints, value: Floats) -> Floats:
        topic, broker = np.divmod(cell, n)
        needed = np.where(request.may_lead[broker], least[topic], 0)
        return np.where(value >= needed, 1.0, (1 + value) / (1 + needed))

    return GoalDefinition("topic", "leader_count", score)


def _in_rack(rows: PartitionTable, racks: Ints) -> tuple[Ints, Bools]:
    """(C, F) number of replicas before each one in its rack, sorted by rack, and where one is."""
    rack = np.sort(rows.of_brokers(racks, -1), axis=1)
    at = np.arange(rack.shape[1])
    new = np.ones(rack.shape, np.bool_)
    new[:, 1:] = rack[:, 1:] != rack[:, :-1]
    return at - np.maximum.accumulate(np.where(new, at, 0), axis=1), rack >= 0


def _racks(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(rows: PartitionTable) -> Floats:
        before, there = _in_rack(rows, request.snapshot.broker_rack)
        distinct: Floats = ((before == 0) & there).sum(1) / rows.at_least_one
        return distinct

    return GoalDefinition("partition", "", score)


def _even_racks(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    usable = max(1, len(np.unique(request.snapshot.broker_rack[request.eligible])))

    def score(rows: PartitionTable) -> Floats:
        before, there = _in_rack(rows, request.snapshot.broker_rack)
        full, extra = rows.factor // usable, rows.factor % usable
        crowded = (there & (before > full[:, None])).sum(1)
        fuller = (there & (before == full[:, None])).sum(1)
        kept = rows.factor - crowded - np.maximum(fuller - extra, 0)
        even: Floats = kept / rows.at_least_one
        return even

    return GoalDefinition("partition", "", score)


def home_sets(table: ReplicaTable) -> Ints:
    """(T,) the broker set that holds most replicas of each topic, -1 if none does."""
    held = sets_of_topics(table)
    return np.where(held.any(1), held.argmax(1), -1)


def sets_of_topics(table: ReplicaTable) -> Floats:
    """(T, sets) replicas of each topic in each broker set."""
    s = table.snapshot
    sets = len(s.broker_sets)
    # brokers in no set count in a separate cell, which is then cut off
    own = np.where(s.broker_set < 0, sets, s.broker_set)
    return table.per_topic(False, own, sets + 1)[:, :sets]


def topic_sets(goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest) -> Ints:
    """(T,) broker set of each topic, -1 for any."""
    s = request.snapshot
    home = home_sets(base)
    for pattern, name in reversed(list(goal["sets"].items())):
        home[request.topics(pattern)] = s.broker_sets.index(name)
    home[request.topics(goal["exempt"])] = -1
    return home


def _broker_sets(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s = request.snapshot
    home_of = topic_sets(goal, base, request)[s.partition_topic]

    def score(rows: PartitionTable) -> Floats:
        home = home_of[rows.partition]
        inside = rows.share(rows.of_brokers(s.broker_set, -2) == home[:, None])
        return np.where(home < 0, 1.0, inside)

    return GoalDefinition("partition", "", score)


def _online(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    alive = np.append(request.snapshot.disk_alive, True)

    def score(rows: PartitionTable) -> Floats:
        stays = rows.of_brokers(~request.draining, 0) > 0
        stays &= ~request.forbidden(rows.partition[:, None], rows.brokers)
        return rows.share(stays & alive[rows.disks])

    return GoalDefinition("partition", "", score)


def _empty(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(rows: PartitionTable) -> Floats:
        left: Floats = 1 - rows.share(rows.of_brokers(request.emptied, 0) > 0)
        return left

    return GoalDefinition("partition", "", score)


def _leaders(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    leaderless = request.snapshot.leaderless

    def score(rows: PartitionTable) -> Floats:
        led = ~leaderless[rows.partition] & (rows.leader >= 0)
        return np.where(led, np.where(request.may_lead[rows.leader], 1.0, 0.5), 0.0)

    return GoalDefinition("partition", "", score)


def _factor(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(rows: PartitionTable) -> Floats:
        asked = request.factor[rows.partition]
        part: Floats = np.minimum(rows.factor, asked) / np.maximum(rows.factor, asked)
        return part

    return GoalDefinition("partition", "", score)


def _preferred(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(rows: PartitionTable) -> Floats:
        able = rows.of_brokers(request.may_lead, 0) > 0
        leads = rows.brokers == rows.leader[:, None]
        before = np.arange(able.shape[1]) < leads.argmax(1)[:, None]
        passed = (able & before).sum(1) / rows.at_least_one
        found = np.where((able & leads).any(1), 1.0 - passed, 0.0)
        return np.where(able.any(1), found, 1.0)

    return GoalDefinition("partition", "", score)


def _disks(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s = request.snapshot
    capacity = np.where(request.open_disk, s.disk_capacity, 0.0)
    # what is on cordoned disks may stay there
    counted = np.where(request.open_disk | ~s.disk_alive, base.per_disk(), 0.0)
    held = np.bincount(s.disk_broker, counted, s.n_brokers)[s.disk_broker]
    size = np.bincount(s.disk_broker, capacity, s.n_brokers)[s.disk_broker]
    rate = np.divide(held, size, out=np.zeros(s.n_disks), where=size > 0)
    share = rate * capacity
    slack = (goal["threshold"] - 1) * goal["margin"] + tolerance
    content = ~request.open_disk | request.draining[s.disk_broker]

    def score(cell: Ints, value: Floats) -> Floats:
        fair = share[cell]
        off = np.abs(value - fair) / np.where(fair > 0, fair, 1.0) - np.where(fair > 0, slack, 0.0)
        return np.where(content[cell], 1.0, _curve(100.0 * off))

    return GoalDefinition("disk", "load.disk", score)


def _collocated(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    _, _, rate = pairs(request.snapshot, goal["factor"])
    total = 2 * float(rate.sum())
    mean = total / max(1, int(request.eligible.sum()))

    def score(cell: Ints, value: Floats) -> Floats:
        apart = (value > tolerance * total) & ~request.draining[cell]
        return np.where(apart, mean / (mean + np.where(apart, value, 1.0)), 1.0)

    return GoalDefinition("broker", f"remote.{float(goal['factor'])!r}", score)


def _transient(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    limit = request.capacity(goal["resource"]) * goal["limit"]
    limit = np.where(request.draining, np.inf, limit)

    def score(cell: Ints, value: Floats) -> Floats:
        return _at_most(value, limit[cell], tolerance)

    return GoalDefinition("broker", TRANSIENT + goal["resource"], score)


def _heaviest(request: StatedRequest, resource: str) -> float:
    """The load of a resource if every partition has a replica in its heavier role in one place."""
    return float(np.maximum(*contribution(request.snapshot, f"load.{resource}")).sum())


def _costing(
    goal: Mapping[str, Any], column: str, largest: float, cost: Callable[[Ints, Floats], Floats]
) -> GoalDefinition:
    """Brokers that cost something; nothing of the contentment is left at the largest cost."""
    scale = goal["scale"] or max(largest, 0.0) or 1.0

    def score(cell: Ints, value: Floats) -> Floats:
        left: Floats = np.clip(1 - cost(cell, value) / scale, 0.0, 1.0)
        return left

    return GoalDefinition("broker", column, score, adds_up=True)


def _load_cost(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    resource, above = goal["resource"], goal["above"]
    if isinstance(above, str):
        safe = request.snapshot.attributes("broker")[above]
    else:
        safe = request.capacity(resource) * above
    safe = np.where(request.draining, 0.0, safe)

    def cost(cell: Ints, value: Floats) -> Floats:
        return np.where(value > safe[cell] * (1 + tolerance), value - safe[cell], 0.0)

    largest = _heaviest(request, resource) - float(safe.min())
    return _costing(goal, f"load.{resource}", largest, cost)


def _balance_cost(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    one, two, ratio = goal["resource"], goal["other"], float(goal["ratio"])
    first, second = ratio * request.capacity(one), request.capacity(two)
    stays = ~request.draining
    unused = float((first - second)[stays].max(initial=0.0))

    def cost(cell: Ints, value: Floats) -> Floats:
        lacks = first[cell] - second[cell] - value
        counts = stays[cell] & (lacks > tolerance * (first[cell] + second[cell]))
        return np.where(counts, lacks, 0.0)

    return _costing(goal, difference(ratio, one, two), unused + _heaviest(request, two), cost)


def _price(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    price = request.snapshot.attributes("broker")[goal["attribute"]]

    def cost(cell: Ints, value: Floats) -> Floats:
        paid: Floats = price[cell] * (1 - 0.1 / (value + 0.1))
        return paid

    return _costing(goal, "replica_count", float(price.max()), cost)


def _move_cost(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s = request.snapshot
    n, special = s.n_brokers, special_costs(s) if goal["cost"] == "movement" else {}
    if goal["cost"] == "movement":
        lead, follow = sizes(s)
    elif goal["cost"] == "replica":
        lead = follow = np.ones(s.n_partitions)
    else:
        of_topic = s.attributes("topic")[goal["cost"].removeprefix("topic attribute ")]
        lead = follow = of_topic[s.partition_topic]
    factor = np.ones((n, n))
    group = _names_of_brokers(goal["by"], request) if goal["by"] else None
    for one, row in goal["factors"].items():
        for two, times in row.items():
            factor[np.ix_(group == one, group == two)] = times
    had = s.replication_factor > 0
    origin = np.zeros(s.n_partitions, np.int64)
    origin[had] = s.replica_broker[(s.replica_offset[:-1] + np.maximum(s.leader, 0))[had]]
    there = s.replica_partition * n + s.replica_broker
    dearest = np.maximum(lead, follow)
    for (p, _), own in special.items():
        dearest[p] = max(dearest[p], own)
    most = dearest * factor.max(1)[origin] * had
    width = max(int(request.factor.max(initial=1)), int(s.replication_factor.max(initial=1)))
    scale = goal["scale"] or width * float(most.max(initial=0.0)) or 1.0

    def score(rows: PartitionTable) -> Floats:
        p = rows.partition[:, None]
        moved = rows.held & had[p] & ~np.isin(p * n + rows.brokers, there)
        leads = rows.brokers == rows.leader[:, None]
        each = np.where(leads, lead[p], follow[p])
        if special:
            for i, k in zip(*(x.tolist() for x in np.nonzero(moved)), strict=True):
                pair = int(rows.partition[i]), int(rows.brokers[i, k])
                each[i, k] = special.get(pair, float(each[i, k]))
        paid = np.where(moved, each * factor[origin[p], rows.brokers], 0.0).sum(1)
        left: Floats = np.clip(1 - paid / scale, 0.0, 1.0)
        return left

    return GoalDefinition("partition", "", score, adds_up=True)


def _names_of_brokers(by: str, request: StatedRequest) -> Any:
    """(B,) the name of each broker's group; none for a broker in no group."""
    s = request.snapshot
    if by == "broker":
        return np.array([str(b) for b in s.broker_ids.tolist()], object)
    if by == "rack":
        return np.array(s.racks, object)[s.broker_rack]
    if by == "host":
        return np.array(s.hosts, object)[s.broker_host]
    own, names = s.attributes("broker").groups(by.removeprefix("broker attribute "))
    return np.array([*names, None], object)[own]


def _spread(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s, given = request.snapshot, goal["at_least"]
    if isinstance(given, str):
        asked = np.nan_to_num(s.topic_attributes[given])
    else:
        asked = np.full(len(s.topics), float(given))
    # a topic without partitions needs no groups
    there = np.bincount(s.partition_topic, minlength=len(s.topics)) > 0
    least = np.where(request.topics(goal["topics"]) & there, asked, 0.0)

    def score(cell: Ints, value: Floats) -> Floats:
        found: Floats = np.minimum(1.0, (1 + value) / (1 + least[cell]))
        return found

    return GoalDefinition(f"{SPREAD}:topic:{goal['attribute']}", "groups", score)


def _apart(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(cell: Ints, value: Floats) -> Floats:
        found: Floats = goal["at_most"] / np.maximum(value, goal["at_most"])
        return found

    return GoalDefinition(f"{APART}:{goal['by']}:{goal['attribute']}", "replicas", score)


def _near(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    def score(cell: Ints, value: Floats) -> Floats:
        return 1 / (1 + value)

    return GoalDefinition(f"{NEAR}:{goal['needs']}:{goal['attribute']}", "stranded", score)


def _led_in_rack(
    goal: Mapping[str, Any], base: ReplicaTable, request: StatedRequest, tolerance: float
) -> GoalDefinition:
    s = request.snapshot
    names = [f"{x:.15g}" if isinstance(x, float) else x for x in _named(s, goal["attribute"])]
    free = np.array([x in ("", "nan") for x in names])[s.partition_topic]
    home = np.array([s.racks.index(x) if x in s.racks else -2 for x in names])[s.partition_topic]

    def score(rows: PartitionTable) -> Floats:
        there = rows.of_brokers(s.broker_rack, -1) == home[rows.partition][:, None]
        leads = there & (rows.brokers == rows.leader[:, None])
        follows = 1.0 if goal.get("followers") else 0.5
        part = np.where(leads.any(1), 1.0, np.where(there.any(1), follows, 0.0))
        return np.where(free[rows.partition], 1.0, part)

    return GoalDefinition("partition", "", score)


def _named(s: Snapshot, attribute: str) -> list[Any]:
    """(T,) an attribute of the topics."""
    return list(s.topic_attributes[attribute].tolist())


_Builder = Callable[[Mapping[str, Any], ReplicaTable, StatedRequest, float], GoalDefinition]
# goals whose limits are parts of what all brokers carry together
OF_SHARES: dict[str, _Builder] = {
    "UsageDistribution": _usage,
    "GroupUsageDistribution": _group_usage,
    "ReplicaDistribution": _usage,
    "LeaderReplicaDistribution": _usage,
    "LeaderBytesInDistribution": _usage,
    "NetworkInUsageDistribution": _network,
    "NetworkOutUsageDistribution": _network,
    "TopicReplicaDistribution": _topic_spread,
    "TopicLeaderDistribution": _topic_spread,
    "TopicRackDistribution": _topic_racks,
    "DiskUsageDistribution": _disks,
}
_DEFINITIONS: dict[str, _Builder] = OF_SHARES | {
    "MinTopicLeaders": _min_leaders,
    "RackAwareness": _racks,
    "RackAwareDistribution": _even_racks,
    "BrokerSetAwareness": _broker_sets,
    "ReplicationFactor": _factor,
    "EmptyBrokers": _empty,
    "OnlineReplicas": _online,
    "EligibleLeaders": _leaders,
    "PreferredLeader": _preferred,
    "CollocationGoal": _collocated,
    "TransientCapacity": _transient,
    "LoadCost": _load_cost,
    "BalanceCost": _balance_cost,
    "Price": _price,
    "MoveCost": _move_cost,
    "SpreadAcross": _spread,
    "Apart": _apart,
    "Near": _near,
    "PreferredLeaderRack": _led_in_rack,
}
