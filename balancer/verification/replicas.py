"""Tables of replicas, and their sums in every cell of a scope."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints, Snapshot


@dataclass(frozen=True)
class ReplicaTable:
    """The location of all replicas at one moment; N replicas in preference order per partition."""

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
        """(B,) a column summed by broker; not to be written to."""
        if column not in self._per_broker:
            total = sums(self.broker, self.amounts(column), self.snapshot.n_brokers)
            total.flags.writeable = False
            self._per_broker[column] = total
        return self._per_broker[column]

    @cached_property
    def _per_broker(self) -> dict[str, Floats]:
        """What :meth:`per_broker` has summed: many goals and figures ask for the same columns."""
        return {}

    def per_topic(self, leaders: bool, of_broker: Ints, cells: int) -> Floats:
        """(T, cells) replicas, or leaders, summed by topic and cell of brokers."""
        key = self.snapshot.partition_topic[self.partition] * cells + of_broker[self.broker]
        key = key[self.leads] if leaders else key
        count = np.bincount(key, minlength=len(self.snapshot.topics) * cells)
        return count.reshape(-1, cells).astype(np.float64)

    def per_disk(self) -> Floats:
        """(D,) bytes on each disk."""
        known = self.disk >= 0
        return sums(self.disk[known], self.amounts("load.disk")[known], self.snapshot.n_disks)

    def count(self, replicas: Bools) -> Ints:
        """(P,) number of marked replicas of each partition."""
        return np.bincount(self.partition[replicas], minlength=self.snapshot.n_partitions)

    def rack_counts(self) -> tuple[Ints, Ints]:
        """For every rack that holds a partition: the partition, and its replicas there."""
        racks = max(len(self.snapshot.racks), 1)
        key = self.partition * racks + self.snapshot.broker_rack[self.broker]
        key, held = np.unique(key, return_counts=True)
        return key // racks, held


# beginning of the scope of groups of brokers; the name of the attribute follows
GROUP = "group:"
# beginnings of columns: the load of a resource with that of what has left its broker since the
# start, and the difference of two loads, see `difference`
TRANSIENT, DIFFERENCE = "transient.", "difference."


def groups_of(s: Snapshot, attribute: str) -> tuple[Ints, int]:
    """(B,) the group of each broker by an attribute, -1 for none, and their number."""
    own, names = s.attributes("broker").groups(attribute)
    return own, len(names)


def sums(cell: Ints, value: Floats | Bools, cells: int) -> Floats:
    """(cells,) values summed by cell."""
    return np.bincount(cell, value, cells).astype(np.float64)


def contribution(s: Snapshot, column: str) -> tuple[Floats, Floats]:
    """(P,) what a replica adds to a column as leader, and as follower; nothing once it has left."""
    if column.startswith(DIFFERENCE):
        factor, *resources = json.loads(column.removeprefix(DIFFERENCE))
        one, two = (contribution(s, f"load.{resource}") for resource in resources)
        return factor * one[0] - two[0], factor * one[1] - two[1]
    if column.startswith(TRANSIENT):
        column = f"load.{column.removeprefix(TRANSIENT)}"
    name, _, resource = column.partition(".")
    ones, none = np.ones(s.n_partitions), np.zeros(s.n_partitions)
    if not resource:
        return ones, ones if name == "replica_count" else none
    r = s.resources.index(resource)
    lead = s.leader_load[:, r]
    return lead, {"load": s.follower_load[:, r], "leader_load": none, "potential_load": lead}[name]


def difference(factor: float, one: str, two: str) -> str:
    """The column of a multiple of the load of a resource less the load of another."""
    return DIFFERENCE + json.dumps([factor, one, two])


def led_at_start(s: Snapshot) -> Bools:
    """(N,) replicas of the snapshot that lead; the first one where none is known to."""
    found = np.zeros(s.n_replicas, np.bool_)
    some = np.flatnonzero(s.replication_factor > 0)
    found[s.replica_offset[some] + np.maximum(s.leader[some], 0)] = True
    return found


def left_behind(table: ReplicaTable, column: str) -> Floats:
    """(B,) a column summed over the replicas of the snapshot that their broker holds no longer."""
    s = table.snapshot
    key = s.replica_partition * s.n_brokers + s.replica_broker
    gone = ~np.isin(key, table.partition * s.n_brokers + table.broker)
    lead, follow = contribution(s, column)
    amount = np.where(led_at_start(s), lead[s.replica_partition], follow[s.replica_partition])
    return sums(s.replica_broker[gone], amount[gone], s.n_brokers)


def sizes(s: Snapshot) -> tuple[Floats, Floats]:
    """(P,) cost of a copy to a broker without its own cost, as leader and as follower."""
    if "disk" in s.resources and s.cost_unit is None:
        return contribution(s, "load.disk")
    size = s.state_size if len(s.state_size) else np.ones(s.n_partitions)
    return size, size


def unit_of_cost(s: Snapshot) -> str:
    """The unit that a plan for the snapshot must state its costs in."""
    if s.cost_unit is not None:
        return s.cost_unit
    known = len(s.state_size) > 0 or "disk" in s.resources
    return "bytes" if known else "replicas"


def special_costs(s: Snapshot) -> dict[tuple[int, int], float]:
    """(partition, broker) -> cost of a copy there, for brokers with a different cost."""
    rows = (s.move_cost_partition.tolist(), s.move_cost_broker.tolist(), s.move_cost.tolist())
    return {(p, b): cost for p, b, cost in zip(*rows, strict=True)}


@dataclass(frozen=True)
class PartitionTable:
    """Some partitions, one per row: brokers and disks of (C, F) replicas, -1 for none."""

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

    @property
    def at_least_one(self) -> Ints:
        """(C,) number of replicas for divisions: 1 if a wrong plan leaves none."""
        count: Ints = np.maximum(self.factor, 1)
        return count

    def share(self, good: Bools) -> Floats:
        """(C,) share of the replicas that are marked."""
        part: Floats = (good & self.held).sum(1) / self.at_least_one
        return part

    def of_brokers(self, values: Ints | Bools, empty: int) -> Ints:
        """(C, F) a value of each replica's broker."""
        found: Ints = np.where(self.held, values[self.brokers], empty)
        return found

    @staticmethod
    def of(table: ReplicaTable) -> PartitionTable:
        """All partitions as they are in a table."""
        factor = table.factor
        width = int(factor.max(initial=1))
        rank = np.arange(len(table.partition)) - np.repeat(np.cumsum(factor) - factor, factor)
        tables = np.full((2, len(factor), width), -1, np.int64)
        tables[0, table.partition, rank] = table.broker
        tables[1, table.partition, rank] = table.disk
        return PartitionTable(np.arange(len(factor)), tables[0], tables[1], table.leader)


def values(table: ReplicaTable, scope: str, column: str) -> Floats:
    """(cells,) a column summed in every cell of a scope."""
    s = table.snapshot
    if scope == "disk":
        return table.per_disk()
    if scope == "topic":
        return table.per_topic(
            column == "leader_count", np.arange(s.n_brokers), s.n_brokers
        ).ravel()
    if scope == "topic_rack":
        return table.per_topic(False, s.broker_rack, len(s.racks)).ravel()
    if column.startswith("remote."):
        one, two, rate = pairs(s, float(column.removeprefix("remote.")))
        ends = np.stack([table.leader[one], table.leader[two]])
        apart = ends[0] != ends[1]
        cell, rates = ends[:, apart].ravel(), np.tile(rate[apart], 2)
        # the leader of a partition without replicas is nowhere
        return sums(cell[cell >= 0], rates[cell >= 0], s.n_brokers)
    value = table.per_broker(column)
    if column.startswith(TRANSIENT):
        value = value + left_behind(table, column)
    if scope.startswith(GROUP):
        own, groups = groups_of(s, scope.removeprefix(GROUP))
        inside = own >= 0
        return sums(own[inside], value[inside], groups)
    return value if scope == "broker" else sums(s.broker_host, value, len(s.hosts))


def pairs(s: Snapshot, factor: float) -> tuple[Ints, Ints, Floats]:
    """Partitions that send others over `factor` times their mean, those others, and the rates."""
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
