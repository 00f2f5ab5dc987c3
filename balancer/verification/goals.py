"""What every goal means, worked out without the goals' own code: the second opinion's half.

A judge scores cells (brokers, hosts, disks, topics on brokers or in racks, partitions) from 0
to 1, for the check of a plan in :mod:`balancer.verification.checker`. Where nobody leads a
partition, its first replica is the leader to be, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from goals.patterns import matching

# Two ways to add up the same loads differ by about this much of the sum.
TOLERANCE = 1e-9
# cells scored at once: a topic has one on every broker
_CHUNK = 1 << 20


class Who:
    """Which brokers may hold, lead and receive what, by the operation's own words."""

    def __init__(self, s: Snapshot, operation: Mapping[str, Any]) -> None:
        self.snapshot, self.operation = s, operation
        self.kind = str(operation.get("kind", "rebalance"))
        self.mine = self._brokers("brokers")
        disks = np.bincount(s.disk_broker, minlength=s.n_brokers)
        broken = np.bincount(s.disk_broker, ~s.disk_alive, s.n_brokers)
        # a broker all of whose disks are dead can hold nothing either
        self.dead = (s.broker_state == BrokerState.DEAD) | ((disks > 0) & (broken == disks))
        self.draining = self.dead | (self.mine & (self.kind == "remove_brokers"))
        self.eligible = ~self.draining & ~self._brokers("excluded_brokers_for_replicas")
        # who has cordoned disks alone is given nothing either
        cordoned = np.zeros(s.n_disks, np.bool_)
        cordoned[: len(s.disk_cordoned)] = s.disk_cordoned
        self.open_disk = s.disk_alive & ~cordoned
        shut = np.bincount(s.disk_broker, ~self.open_disk, s.n_brokers) == disks
        self.eligible &= ~(shut & (np.bincount(s.disk_broker, cordoned, s.n_brokers) > 0))
        self.reassigning = np.zeros(s.n_partitions, np.bool_)
        self.reassigning[: len(s.reassigning)] = s.reassigning
        self.may_lead = ~self.draining & (s.broker_state != BrokerState.DEMOTED)
        self.may_lead &= ~self._brokers("excluded_brokers_for_leadership")
        self.may_lead &= ~(self.mine & (self.kind == "demote_brokers"))
        self.receives = self.eligible.copy()
        if operation.get("destinations") is not None:
            self.receives &= self._brokers("destinations")
        if self.kind == "add_brokers":
            self.receives &= self.mine
        self.receives &= self.kind != "demote_brokers"
        self.excluded = np.zeros(s.n_partitions, np.bool_)
        for pattern in operation.get("excluded_topics", ()):
            self.excluded |= self.topics(pattern)[s.partition_topic]
        self.excluded |= self._partitions("excluded_partitions")
        self.frozen = self._partitions("frozen_partitions")
        self.untouched = self.frozen | self.reassigning
        self.factor = s.replication_factor.copy()
        for pattern, wanted in operation.get("replication_factor", {}).items():
            self.factor[self.topics(pattern)[s.partition_topic]] = wanted
        self.group = s.broker_set + 1 if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
        self.groups = int(self.group.max()) + 1

    def _brokers(self, name: str) -> Bools:
        return np.isin(self.snapshot.broker_ids, list(self.operation.get(name) or ()))

    def _partitions(self, name: str) -> Bools:
        """(P,) those that a list of the operation names."""
        s, wanted = self.snapshot, frozenset(self.operation.get(name, ()))
        if not wanted:
            return np.zeros(s.n_partitions, np.bool_)
        numbered = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        return np.array([f"{s.topics[t]}-{n}" in wanted for t, n in numbered], np.bool_)

    def topics(self, pattern: str) -> Bools:
        """(T,) whether a pattern matches the whole name; an empty one matches none."""
        return matching(pattern, self.snapshot.topics)

    @cached_property
    def size(self) -> Floats:
        """(B,) the mean over resources of capacity / mean capacity, 0 where nothing may go."""
        capacity = self.snapshot.capacity
        known = capacity.mean(0) > 0
        if not known.any():
            return np.where(self.eligible, 1.0, 0.0)
        relative = capacity[:, known] / capacity[:, known].mean(0)
        return np.where(self.eligible, relative.mean(1), 0.0)

    @cached_property
    def led_size(self) -> Floats:
        """(B,) :attr:`size`, 0 where nobody may lead either."""
        return np.where(self.may_lead, self.size, 0.0)

    def per_group(self, values: Floats | Bools) -> Floats:
        """(B,) the sum over each broker's own broker set."""
        return sums(self.group, values, self.groups)[self.group]

    def shared(self, total: Floats, weight: Floats) -> Floats:
        """(B,) a total of each set, except what stays on barred brokers, shared out by weight."""
        counted = self.per_group(np.where(self.eligible | self.draining, total, 0.0))
        weights = self.per_group(weight)
        return np.divide(counted, weights, out=np.zeros_like(total), where=weights > 0) * weight

    def weight(self, column: str) -> Floats:
        """(B,) what a column is shared out by."""
        resource = column.partition(".")[2]
        takes = self.takes(column)
        return np.where(takes, self.capacity(resource) if resource else self.size, 0.0)

    def takes(self, column: str) -> Bools:
        """(B,) who has a part in a column: where replicas, or leaders, may go."""
        takes: Bools = self.eligible
        return takes & self.may_lead if column.startswith("leader_") else takes

    def capacity(self, resource: str) -> Floats:
        """(B,) capacity of a resource."""
        return self.snapshot.capacity[:, self.snapshot.resources.index(resource)]


@dataclass(frozen=True)
class Picture:
    """Which replica is where at one moment; N replicas in preference order of each partition."""

    snapshot: Snapshot
    partition: Ints
    broker: Ints
    disk: Ints
    leads: Bools
    leader: Ints

    @cached_property
    def factor(self) -> Ints:
        return np.bincount(self.partition, minlength=self.snapshot.n_partitions)

    def amounts(self, column: str) -> Floats:
        """(N,) what each replica adds to a column."""
        lead, follow = contribution(self.snapshot, column)
        return np.where(self.leads, lead[self.partition], follow[self.partition])

    def per_broker(self, column: str) -> Floats:
        """(B,) a column added up."""
        return sums(self.broker, self.amounts(column), self.snapshot.n_brokers)

    def per_topic(self, leaders: bool, of_broker: Ints, cells: int) -> Floats:
        """(T, cells) replicas, or leaders, where brokers fall into cells."""
        key = self.snapshot.partition_topic[self.partition] * cells + of_broker[self.broker]
        key = key[self.leads] if leaders else key
        count = np.bincount(key, minlength=len(self.snapshot.topics) * cells)
        return count.reshape(-1, cells).astype(np.float64)

    def per_disk(self) -> Floats:
        """(D,) bytes on each disk."""
        known = self.disk >= 0
        return sums(self.disk[known], self.amounts("load.disk")[known], self.snapshot.n_disks)

    def count(self, replicas: Bools) -> Ints:
        """(P,) how many replicas of each partition are marked."""
        return np.bincount(self.partition[replicas], minlength=self.snapshot.n_partitions)

    def rack_counts(self) -> tuple[Ints, Ints]:
        """For every rack that holds a partition: the partition, and its replicas there."""
        racks = max(len(self.snapshot.racks), 1)
        key = self.partition * racks + self.snapshot.broker_rack[self.broker]
        key, held = np.unique(key, return_counts=True)
        return key // racks, held


def sums(cell: Ints, value: Floats | Bools, cells: int) -> Floats:
    """(cells,) values added up by cell."""
    return np.bincount(cell, value, cells).astype(np.float64)


def contribution(s: Snapshot, column: str) -> tuple[Floats, Floats]:
    """(P,) what a replica adds to a column while it leads, and while it follows."""
    name, _, resource = column.partition(".")
    ones, none = np.ones(s.n_partitions), np.zeros(s.n_partitions)
    if not resource:
        return ones, ones if name == "replica_count" else none
    r = s.resources.index(resource)
    lead = s.leader_load[:, r]
    return lead, {"load": s.follower_load[:, r], "leader_load": none, "potential_load": lead}[name]


def sizes(s: Snapshot) -> tuple[Floats, Floats]:
    """(P,) bytes of a replica while it leads, and while it follows."""
    if "disk" in s.resources:
        return contribution(s, "load.disk")
    size = s.state_size if len(s.state_size) else np.ones(s.n_partitions)
    return size, size


@dataclass(frozen=True)
class Rows:
    """Some partitions, one a row: brokers and disks of (C, F) replicas, -1 for none."""

    partition: Ints
    brokers: Ints
    disks: Ints
    leader: Ints

    @cached_property
    def held(self) -> Bools:
        """(C, F) where there is a replica."""
        found: Bools = self.brokers >= 0
        return found

    @cached_property
    def factor(self) -> Ints:
        """(C,) replicas."""
        count: Ints = self.held.sum(1)
        return count

    def share(self, good: Bools) -> Floats:
        """(C,) the part of the replicas that are marked."""
        part: Floats = (good & self.held).sum(1) / self.factor
        return part

    def of_brokers(self, values: Ints | Bools, empty: int) -> Ints:
        """(C, F) a value of each replica's broker."""
        found: Ints = np.where(self.held, values[self.brokers], empty)
        return found

    @staticmethod
    def of(picture: Picture) -> Rows:
        """All partitions as they are in a picture."""
        factor = picture.factor
        width = int(factor.max(initial=1))
        rank = np.arange(len(picture.partition)) - np.repeat(np.cumsum(factor) - factor, factor)
        tables = np.full((2, len(factor), width), -1, np.int64)
        tables[0, picture.partition, rank] = picture.broker
        tables[1, picture.partition, rank] = picture.disk
        return Rows(np.arange(len(factor)), tables[0], tables[1], picture.leader)


@dataclass(frozen=True)
class Judge:
    """What a goal means.

    Parameters
    ----------
    scope
        What it scores: ``broker``, ``host``, ``disk``, ``topic`` (on a broker), ``topic_rack``
        or ``partition``.
    column
        What is added up in each cell; none for partitions.
    score
        (C,) contentment of cells and their values, or of rows.
    """

    scope: str
    column: str
    score: Callable[[Ints, Floats], Floats] | Callable[[Rows], Floats]

    def of_cells(self, cell: Ints, value: Floats) -> Floats:
        """(C,) contentment of cells with these values."""
        found: Floats = self.score(cell, value)  # type: ignore[call-arg, arg-type]
        return found

    def of_rows(self, rows: Rows) -> Floats:
        """(C,) contentment of partitions."""
        found: Floats = self.score(rows)  # type: ignore[call-arg, arg-type]
        return found

    def everywhere(self, picture: Picture) -> Floats:
        """(cells,) contentment of all cells."""
        if self.scope == "partition":
            return self.of_rows(Rows.of(picture))
        value = values(picture, self.scope, self.column)
        cell = np.arange(len(value))
        parts = [
            self.of_cells(cell[i : i + _CHUNK], value[i : i + _CHUNK])
            for i in range(0, len(value), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def values(picture: Picture, scope: str, column: str) -> Floats:
    """(cells,) a column added up in every cell of a scope."""
    s = picture.snapshot
    if scope == "disk":
        return picture.per_disk()
    if scope == "topic":
        return picture.per_topic(
            column == "leader_count", np.arange(s.n_brokers), s.n_brokers
        ).ravel()
    if scope == "topic_rack":
        return picture.per_topic(False, s.broker_rack, len(s.racks)).ravel()
    if column.startswith("remote."):
        one, two, rate = pairs(s, float(column.removeprefix("remote.")))
        ends = np.stack([picture.leader[one], picture.leader[two]])
        apart = ends[0] != ends[1]
        return sums(ends[:, apart].ravel(), np.tile(rate[apart], 2), s.n_brokers)
    value = picture.per_broker(column)
    return value if scope == "broker" else sums(s.broker_host, value, len(s.hosts))


def judge_of(
    goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float = TOLERANCE
) -> Judge | None:
    """The judge of a goal; None for goals that are not known here.

    Parameters
    ----------
    goal
        Its class, as ``goal``, and all its fields.
    base
        The picture that shares are taken from.
    who
        Who may hold and lead what.
    tolerance
        How far, as a part of it, a value may be beyond a limit.
    """
    ceiling = limits(goal, who)
    if ceiling is not None:
        scope, column, limit = ceiling
        return Judge(scope, column, lambda cell, value: _at_most(value, limit[cell], tolerance))
    build = _JUDGES.get(goal["goal"])
    return None if build is None else build(goal, base, who, tolerance)


def _at_most(value: Floats, limit: Floats, tolerance: float) -> Floats:
    """1 up to a limit, then limit / value; above a limit of 0, 1 / (1 + value), less than 1."""
    over = value > limit * (1 + tolerance)
    finite = np.where(over, limit, 1.0)
    # where nothing may be, however little is too much
    none = np.minimum(1 / (1 + value), 1 - TOLERANCE)
    above = np.where(finite > 0, finite / np.where(over, value, 1.0), none)
    return np.where(over, above, 1.0)


def _curve(distance: Floats, bound: float = 0.0, reach: float = 100.0) -> Floats:
    """1 up to `bound`, linear down to 0.1 at `reach`, then 0.1 / log_reach(distance)."""
    near = 1.0 - 0.9 * (distance - bound) / (reach - bound)
    far = 0.1 * np.log(reach) / np.log(np.maximum(distance, reach))
    return np.where(distance > reach, far, np.minimum(near, 1.0))


def limits(goal: Mapping[str, Any], who: Who) -> tuple[str, str, Floats] | None:
    """Scope, column and (cells,) limits of a goal that is a ceiling; none on what is emptied."""
    s, name = who.snapshot, goal["goal"]
    stays = ~who.draining
    if name == "ResourceCapacity":
        limit = who.capacity(goal["resource"]) * goal["threshold"]
        return "broker", f"load.{goal['resource']}", np.where(stays, limit, np.inf)
    if name == "HostCapacity":
        staying = np.bincount(s.broker_host, stays, len(s.hosts)) > 0
        room = np.where(stays, who.capacity(goal["resource"]) * goal["threshold"], 0.0)
        limit = np.bincount(s.broker_host, room, len(s.hosts))
        return "host", f"load.{goal['resource']}", np.where(staying, limit, np.inf)
    if name == "ReplicaCapacity":
        return "broker", "replica_count", np.where(stays, float(goal["limit"]), np.inf)
    if name == "PotentialNetworkOut":
        limit = who.capacity("network_out") * goal["threshold"]
        return "broker", "potential_load.network_out", np.where(stays, limit, np.inf)
    if name == "DiskCapacity":
        kept = s.disk_alive & stays[s.disk_broker]
        return "disk", "load.disk", np.where(kept, s.disk_capacity * goal["threshold"], np.inf)
    return None


def _fair(base: Picture, who: Who, column: str) -> Floats:
    """(B,) fair shares, for brokers that take nothing as if they did; infinite if none does."""
    takes = who.takes(column)
    share = who.shared(base.per_broker(column), who.weight(column))
    resource = column.partition(".")[2]
    size = who.capacity(resource) if resource else np.ones(len(share))
    sizes = who.per_group(np.where(takes, size, 0.0))
    shares = who.per_group(np.where(takes, share, 0.0))
    rate = np.divide(shares, sizes, out=np.full(len(share), np.inf), where=sizes > 0)
    none = np.isinf(rate)
    return np.where(takes, share, np.where(none, np.inf, np.where(none, 0.0, rate) * size))


def band(
    goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float = 0.0
) -> tuple[str, Floats, Floats, Floats]:
    """Column, (B,) lower and upper limits about a fair share, and (B,) what a share is."""
    name = goal["goal"]
    column = {
        "ReplicaDistribution": "replica_count",
        "LeaderReplicaDistribution": "leader_count",
        "LeaderBytesInDistribution": "leader_load.network_in",
    }.get(name) or f"load.{goal['resource']}"
    share = _fair(base, who, column)
    slack = (goal["threshold"] - 1) * goal["margin"]
    least = 0.0 if goal.get("upper_only") else max(0.0, 1 - slack)
    finite = np.where(np.isinf(share), 0.0, share)
    lower, upper = finite * least, share * (1 + slack)
    if column.endswith("_count"):
        lower, upper = np.floor(lower * (1 + tolerance)), np.ceil(upper * (1 - tolerance))
    if name == "LeaderBytesInDistribution":
        lower = np.zeros_like(lower)
        upper = np.maximum(upper, goal["low_utilization"] * who.capacity("network_in"))
    elif name == "UsageDistribution":
        capacity = who.capacity(goal["resource"])
        low = goal["low_utilization"] * capacity
        idle = share <= low
        lower = np.where(idle, 0.0, lower)
        upper = np.where(idle, np.maximum(upper, goal["margin"] * low), upper)
    return column, lower, upper, np.where(finite > 0, finite, 1.0)


def _usage(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    """Every goal that keeps a column of the brokers within limits about a fair share."""
    column, lower, upper, unit = band(goal, base, who, tolerance)
    lower = np.where(who.takes(column), lower, -np.inf)
    upper = np.where(who.draining, np.inf, upper)

    def score(cell: Ints, value: Floats) -> Floats:
        outside = np.maximum(value - upper[cell], lower[cell] - value)
        # where nothing may be there is nothing to round
        rounding = np.where((value > upper[cell]) & (upper[cell] <= 0), 0.0, tolerance)
        return _curve(100.0 * (outside / unit[cell] - rounding))

    return Judge("broker", column, score)


def _network(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    column = "load.network_in" if "NetworkIn" in goal["goal"] else "load.network_out"
    first = base.per_broker(column)
    mean = float(first[who.eligible | who.draining].sum() / max(1, int(who.eligible.sum())))
    bound = mean * goal["deviation"]

    def score(cell: Ints, value: Floats) -> Floats:
        off = np.abs(value - mean) - tolerance * mean
        idle = (mean < goal["detect_threshold"]) & (value < goal["detect_threshold"])
        off = np.where(idle | (~who.eligible[cell] & (value < mean)), 0.0, off)
        found = _curve(off, bound, bound + goal["baseline"])
        return np.where(who.draining[cell], 1.0, found)

    return Judge("broker", column, score)


def _topic_spread(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    s, leaders = who.snapshot, goal["goal"] == "TopicLeaderDistribution"
    weight = who.led_size if leaders else who.size
    takes = weight > 0
    counted = who.eligible | who.draining
    # what lies on barred brokers falls into a group of its own, which is then cut off
    of_group = np.where(counted, who.group, who.groups)
    totals = base.per_topic(leaders, of_group, who.groups + 1)[:, : who.groups]
    many = who.per_group(takes)
    part = np.divide(weight, who.per_group(weight), out=np.zeros(len(weight)), where=takes)
    part = np.where(takes, part, 1 / np.maximum(many, 1))
    content = who.draining | (many == 0)

    def score(cell: Ints, value: Floats) -> Floats:
        topic, broker = np.divmod(cell, s.n_brokers)
        share = totals[topic, who.group[broker]] * part[broker]
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

    return Judge("topic", "leader_count" if leaders else "replica_count", score)


def _topic_racks(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    s, racks = who.snapshot, len(who.snapshot.racks)
    weight = np.bincount(s.broker_rack, who.size, racks)
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

    return Judge("topic_rack", "replica_count", score)


def least_leaders(goal: Mapping[str, Any], who: Who) -> Ints:
    """(T,) leaders that each broker that may lead is to have of each topic."""
    s = who.snapshot
    partitions = np.bincount(s.partition_topic, minlength=len(s.topics))
    even = partitions // max(1, int((who.may_lead).sum()))
    least = np.full(len(s.topics), goal["minimum"]) if goal["minimum"] else even
    return np.where(who.topics(goal["topics"]), least, 0)


def _min_leaders(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    n, least = who.snapshot.n_brokers, least_leaders(goal, who)

    def score(cell: Ints, value: Floats) -> Floats:
        topic, broker = np.divmod(cell, n)
        needed = np.where(who.may_lead[broker], least[topic], 0)
        return np.where(value >= needed, 1.0, (1 + value) / (1 + needed))

    return Judge("topic", "leader_count", score)


def _in_rack(rows: Rows, racks: Ints) -> tuple[Ints, Bools]:
    """(C, F) how many replicas stand before each in its rack, racks sorted, and where any is."""
    rack = np.sort(rows.of_brokers(racks, -1), axis=1)
    at = np.arange(rack.shape[1])
    new = np.ones(rack.shape, np.bool_)
    new[:, 1:] = rack[:, 1:] != rack[:, :-1]
    return at - np.maximum.accumulate(np.where(new, at, 0), axis=1), rack >= 0


def _racks(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    def score(rows: Rows) -> Floats:
        before, there = _in_rack(rows, who.snapshot.broker_rack)
        distinct: Floats = ((before == 0) & there).sum(1) / rows.factor
        return distinct

    return Judge("partition", "", score)


def _even_racks(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    usable = max(1, len(np.unique(who.snapshot.broker_rack[who.eligible])))

    def score(rows: Rows) -> Floats:
        before, there = _in_rack(rows, who.snapshot.broker_rack)
        full, extra = rows.factor // usable, rows.factor % usable
        crowded = (there & (before > full[:, None])).sum(1)
        fuller = (there & (before == full[:, None])).sum(1)
        even: Floats = (rows.factor - crowded - np.maximum(fuller - extra, 0)) / rows.factor
        return even

    return Judge("partition", "", score)


def topic_sets(goal: Mapping[str, Any], base: Picture, who: Who) -> Ints:
    """(T,) broker set of each topic, -1 for any."""
    s = who.snapshot
    sets = len(s.broker_sets)
    # brokers in no set count in a cell of their own, which is then cut off
    own = np.where(s.broker_set < 0, sets, s.broker_set)
    held = base.per_topic(False, own, sets + 1)[:, :sets]
    wanted = np.where(held.any(1), held.argmax(1), -1)
    for pattern, name in reversed(list(goal["sets"].items())):
        wanted[who.topics(pattern)] = s.broker_sets.index(name)
    wanted[who.topics(goal["exempt"])] = -1
    return wanted


def _broker_sets(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    s = who.snapshot
    wanted = topic_sets(goal, base, who)[s.partition_topic]

    def score(rows: Rows) -> Floats:
        home = wanted[rows.partition]
        inside = rows.share(rows.of_brokers(s.broker_set, -2) == home[:, None])
        return np.where(home < 0, 1.0, inside)

    return Judge("partition", "", score)


def _online(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    alive = np.append(who.snapshot.disk_alive, True)

    def score(rows: Rows) -> Floats:
        stays = rows.of_brokers(~who.draining, 0) > 0
        return rows.share(stays & alive[rows.disks])

    return Judge("partition", "", score)


def _leaders(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    leaderless = who.snapshot.leaderless

    def score(rows: Rows) -> Floats:
        led = ~leaderless[rows.partition]
        return np.where(led, np.where(who.may_lead[rows.leader], 1.0, 0.5), 0.0)

    return Judge("partition", "", score)


def _factor(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    def score(rows: Rows) -> Floats:
        wanted = who.factor[rows.partition]
        part: Floats = np.minimum(rows.factor, wanted) / np.maximum(rows.factor, wanted)
        return part

    return Judge("partition", "", score)


def _preferred(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    def score(rows: Rows) -> Floats:
        able = rows.of_brokers(who.may_lead, 0) > 0
        leads = rows.brokers == rows.leader[:, None]
        before = np.arange(able.shape[1]) < leads.argmax(1)[:, None]
        passed = (able & before).sum(1) / rows.factor
        found = np.where((able & leads).any(1), 1.0 - passed, 0.0)
        return np.where(able.any(1), found, 1.0)

    return Judge("partition", "", score)


def _disks(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    s = who.snapshot
    capacity = np.where(who.open_disk, s.disk_capacity, 0.0)
    # what is on cordoned disks may stay there
    counted = np.where(who.open_disk | ~s.disk_alive, base.per_disk(), 0.0)
    held = np.bincount(s.disk_broker, counted, s.n_brokers)[s.disk_broker]
    size = np.bincount(s.disk_broker, capacity, s.n_brokers)[s.disk_broker]
    rate = np.divide(held, size, out=np.zeros(s.n_disks), where=size > 0)
    share = rate * capacity
    slack = (goal["threshold"] - 1) * goal["margin"] + tolerance
    content = ~who.open_disk | who.draining[s.disk_broker]

    def score(cell: Ints, value: Floats) -> Floats:
        fair = share[cell]
        off = np.abs(value - fair) / np.where(fair > 0, fair, 1.0) - np.where(fair > 0, slack, 0.0)
        return np.where(content[cell], 1.0, _curve(100.0 * off))

    return Judge("disk", "load.disk", score)


def pairs(s: Snapshot, factor: float) -> tuple[Ints, Ints, Floats]:
    """Who sends to whom more than so many times what it sends downstream on average, and what."""
    sent: dict[tuple[int, int], float] = {}
    ends = zip(s.traffic_from.tolist(), s.traffic_to.tolist(), strict=True)
    for pair, rate in zip(ends, s.traffic_rate.tolist(), strict=True):
        if pair[0] != pair[1] and rate > 0:
            sent[pair] = sent.get(pair, 0.0) + rate
    topic, size = s.partition_topic.tolist(), np.bincount(s.partition_topic).tolist()
    output: dict[int, float] = {}
    downstream: dict[int, set[int]] = {}
    for (one, two), rate in sent.items():
        output[one] = output.get(one, 0.0) + rate
        downstream.setdefault(topic[one], set()).add(topic[two])
    width = {t: sum(size[d] for d in down) for t, down in downstream.items()}
    kept = {
        pair: rate
        for pair, rate in sent.items()
        if rate > factor * output[pair[0]] / width[topic[pair[0]]]
    }
    found = np.array(list(kept), np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1], np.array(list(kept.values()), np.float64)


def _collocated(goal: Mapping[str, Any], base: Picture, who: Who, tolerance: float) -> Judge:
    _, _, rate = pairs(who.snapshot, goal["factor"])
    total = 2 * float(rate.sum())
    mean = total / max(1, int(who.eligible.sum()))

    def score(cell: Ints, value: Floats) -> Floats:
        apart = (value > tolerance * total) & ~who.draining[cell]
        return np.where(apart, mean / (mean + np.where(apart, value, 1.0)), 1.0)

    return Judge("broker", f"remote.{float(goal['factor'])!r}", score)


_Builder = Callable[[Mapping[str, Any], Picture, Who, float], Judge]
# goals whose limits are parts of what all brokers carry together
OF_SHARES: dict[str, _Builder] = {
    "UsageDistribution": _usage,
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
_JUDGES: dict[str, _Builder] = OF_SHARES | {
    "MinTopicLeaders": _min_leaders,
    "RackAwareness": _racks,
    "RackAwareDistribution": _even_racks,
    "BrokerSetAwareness": _broker_sets,
    "ReplicationFactor": _factor,
    "OnlineReplicas": _online,
    "EligibleLeaders": _leaders,
    "PreferredLeader": _preferred,
    "CollocationGoal": _collocated,
}
