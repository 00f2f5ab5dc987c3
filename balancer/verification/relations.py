"""Counts that relate topics: groups that hold one, replicas that share one, and what they lack.

The scope of such a count is its kind, an attribute of topics (or ``topic``) and what the groups of
brokers are, for example ``apart:tenant:rack``.
"""

from __future__ import annotations

import numpy as np

from balancer.verification.replicas import ReplicaTable, sums
from balancer.verification.tallies import Tally, Transfer
from cluster_model.snapshot import Floats, Ints, Snapshot

APART, NEAR, SPREAD = "apart", "near", "spread"
# what a report calls one of their cells
NOUNS = {APART: "topic placement", NEAR: "topic placement", SPREAD: "topic"}


def relation_of(scope: str) -> str:
    """The kind of a count that relates topics; empty for any other scope."""
    kind = scope.split(":")[0]
    return kind if kind in NOUNS else ""


class Related:
    """The cells of a relation: each kind of topic in each group, or each topic in all groups.

    Parameters
    ----------
    snapshot
        The cluster.
    scope
        What is counted.
    """

    def __init__(self, snapshot: Snapshot, scope: str) -> None:
        s = self.snapshot = snapshot
        self.kind, by, where = scope.split(":")
        self.group, self.groups = _places(s, where)
        listed = [str(x) for x in s.topic_attributes[by].tolist()] if by != "topic" else [*s.topics]
        # the kinds that each topic needs a neighbour of
        self.needs: list[set[str]] = [set() for _ in s.topics]
        own: list[str] = listed
        if self.kind == NEAR:
            for topic, text in enumerate(listed):
                self.needs[topic] = {x.strip() for x in text.split(",")} - {""}
            own = [*s.topics]
            names = set[str]().union(*self.needs)
            for topic, name in enumerate(own):
                self.needs[topic].discard(name)
        else:
            names = {x for x in listed if x not in ("", "nan")}
        # topics in their own order, anything else in any
        ordered = own if self.kind == SPREAD else sorted(names)
        self.number = {name: i for i, name in enumerate(ordered)}
        self.own = [self.number.get(name, -1) for name in own]

    def at(self, topic: int, broker: int) -> tuple[list[int], list[int]]:
        """The (kind, group) places, as one number, that a replica is in and that it needs."""
        group = int(self.group[broker])
        if group < 0:
            return [], []
        own = self.own[topic]
        held = [own * self.groups + group] if own >= 0 else []
        return held, [self.number[x] * self.groups + group for x in self.needs[topic]]

    def counts(self, table: ReplicaTable) -> tuple[Floats, Floats]:
        """Replicas in each place, and replicas that need something there."""
        topics, size = len(self.snapshot.topics), len(self.number) * self.groups
        group = self.group[table.broker]
        inside = group >= 0
        key = self.snapshot.partition_topic[table.partition] * max(self.groups, 1) + group
        per_topic = sums(key[inside], np.ones(int(inside.sum())), topics * self.groups)
        per_topic = per_topic.reshape(topics, self.groups)
        held, needed = (np.zeros((len(self.number), self.groups)) for _ in range(2))
        for topic, row in enumerate(per_topic):
            if self.own[topic] >= 0:
                held[self.own[topic]] += row
            for name in self.needs[topic]:
                needed[self.number[name]] += row
        return held.reshape(size), needed.reshape(size)

    def values(self, table: ReplicaTable) -> Floats:
        """(cells,) what the goal judges in each cell."""
        held, needed = self.counts(table)
        if self.kind == SPREAD:
            held = (held.reshape(len(self.own), self.groups) > 0).sum(1).astype(np.float64)
        if self.kind == NEAR:
            held = np.where(held > 0, 0.0, needed)
        return held


class RelatedTally(Tally):
    """A relation as the steps change it, and every cell that a step touches."""

    def __init__(self, table: ReplicaTable, scope: str) -> None:
        self.related = Related(table.snapshot, scope)
        self._topic: list[int] = table.snapshot.partition_topic.tolist()
        held, needed = self.related.counts(table)
        self._held, self._needed = held.tolist(), needed.tolist()
        self.unit, self.cell, self.before, self.after = [], [], [], []
        self._row = {}

    def _value(self, cell: int) -> float:
        if self.related.kind == SPREAD:
            width = self.related.groups
            return float(sum(x > 0 for x in self._held[cell * width : (cell + 1) * width]))
        if self.related.kind == APART:
            return float(self._held[cell])
        return 0.0 if self._held[cell] > 0 else float(self._needed[cell])

    def carry(self, unit: int | None, p: int, transfer: Transfer, leader: list[int]) -> None:
        """Apply the changes of a step; rows are kept if it has a unit."""
        ends = [
            (sign, *self.related.at(self._topic[p], end[0]))
            for sign, end in ((-1, transfer.source), (1, transfer.target))
            if end is not None
        ]
        places = [place for _, held, needed in ends for place in (*held, *needed)]
        width = self.related.groups
        cells = [x // width for x in places] if self.related.kind == SPREAD else places
        if unit is not None:
            self._touch(unit, cells)
        for sign, held, needed in ends:
            for place in held:
                self._held[place] += sign * (transfer.lead + transfer.follow)
            for place in needed:
                self._needed[place] += sign * (transfer.lead + transfer.follow)
        if unit is not None:
            for cell in cells:
                self.after[self._row[cell]] = self._value(cell)


def tally_of(table: ReplicaTable, scope: str, column: str) -> Tally:
    """The tally of any scope."""
    return RelatedTally(table, scope) if relation_of(scope) else Tally(table, scope, column)


def _places(s: Snapshot, where: str) -> tuple[Ints, int]:
    """(B,) the group of each broker, -1 for none, and the number of groups."""
    if where == "broker":
        return np.arange(s.n_brokers), s.n_brokers
    if where == "rack":
        return s.broker_rack, len(s.racks)
    if where == "host":
        return s.broker_host, len(s.hosts)
    values = [str(x) for x in s.broker_attributes[where].tolist()]
    number = {x: i for i, x in enumerate(sorted({*values} - {"", "nan"}))}
    return np.array([number.get(x, -1) for x in values], np.int64), len(number)
