"""Running sums of the replay: the content of touched cells before and after each step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balancer.verification.replicas import (
    GROUP,
    TRANSIENT,
    ReplicaTable,
    contribution,
    groups_of,
    led_at_start,
    pairs,
    values,
)


@dataclass(frozen=True)
class Transfer:
    """What a step moves: how many leaders and followers of its partition, from where to where.

    Parameters
    ----------
    source, target
        Broker and disk; None if a replica is added or removed.
    lead, follow
        Leaders and followers that go from source to target; -1 for a follower that returns.
    """

    source: tuple[int, int] | None
    target: tuple[int, int] | None
    lead: int
    follow: int

    @staticmethod
    def of(source: tuple[int, int] | None, target: tuple[int, int] | None, leads: bool) -> Transfer:
        """A single replica, which leads or follows."""
        return Transfer(source, target, int(leads), int(not leads))


class ExactSums:
    """Sums of a column in each cell of a scope, as whole multiples of a power of two.

    Adding and removing an amount leaves no residue, however large it was.
    """

    def __init__(self, table: ReplicaTable, scope: str, column: str) -> None:
        s = table.snapshot
        lead, follow = contribution(s, column)
        self._lead, self._follow = lead.tolist(), follow.tolist()
        finest = [int(np.frexp(x[x != 0])[1].min(initial=0)) for x in (lead, follow)]
        self._shift = max(0, 53 - min(finest))
        self._unit = 1 << self._shift
        if scope in ("topic", "topic_rack"):
            self.held = [int(n) << self._shift for n in values(table, scope, column).tolist()]
            return
        cell, cells = table.broker, s.n_brokers
        if scope == "host":
            cell, cells = s.broker_host[cell], len(s.hosts)
        if scope == "disk":
            cell, cells = table.disk, s.n_disks
        if scope.startswith(GROUP):
            own, cells = groups_of(s, scope.removeprefix(GROUP))
            cell = own[cell]
        self.held = [0] * cells
        amount = np.where(cell < 0, 0.0, table.amounts(column))
        part, exponent = np.frexp(amount)
        digits = np.ldexp(part, 53).astype(np.int64)
        for e in np.unique(exponent[amount != 0]).tolist():
            rows = np.flatnonzero((exponent == e) & (amount != 0))
            # halves of 27 bits, which add up without rounding
            for half, place in ((digits[rows] >> 26, 26), (digits[rows] & (2**26 - 1), 0)):
                found = np.bincount(cell[rows], half, cells).astype(np.int64)
                for at in np.flatnonzero(found).tolist():
                    self.held[at] += int(found[at]) << (e - 53 + self._shift + place)

    def amount(self, p: int, transfer: Transfer) -> int:
        """The amount that a step moves from one cell to another."""
        lead, follow = (
            times * int(math.ldexp(of[p], self._shift)) if times else 0
            for times, of in ((transfer.lead, self._lead), (transfer.follow, self._follow))
        )
        return lead + follow

    def number(self, cell: int) -> float:
        """The exact content of a cell."""
        return self.held[cell] / self._unit


class Tally:
    """A column of a scope as the steps change it, and every cell that a step touches.

    Changes are recorded in units: a step, or all steps of a group. Each unit has a row for
    each cell it touches: the content of the cell before and after.
    """

    def __init__(self, table: ReplicaTable, scope: str, column: str) -> None:
        s = table.snapshot
        self.scope = scope
        self._topic: list[int] = s.partition_topic.tolist()
        self._brokers, self._racks = s.n_brokers, len(s.racks)
        self._host: list[int] = s.broker_host.tolist()
        self._rack: list[int] = s.broker_rack.tolist()
        self._group: list[int] = []
        if scope.startswith(GROUP):
            self._group = groups_of(s, scope.removeprefix(GROUP))[0].tolist()
        self.unit: list[int] = []
        self.cell: list[int] = []
        self.before: list[float] = []
        self.after: list[float] = []
        self._row: dict[int, int] = {}
        self._partners: dict[int, list[tuple[int, float]]] = {}
        self._remote: list[float] = []
        self._sums: ExactSums | None = None
        # whether each replica of the start led, for a column that counts it once it has left
        self._start: dict[tuple[int, int], bool] = {}
        if column.startswith(TRANSIENT):
            held = zip(s.replica_partition.tolist(), s.replica_broker.tolist(), strict=True)
            self._start = dict(zip(held, led_at_start(s).tolist(), strict=True))
        if column.startswith("remote."):
            self._remote = values(table, scope, column).tolist()
            ends = pairs(s, float(column.removeprefix("remote.")))
            for one, two, rate in zip(*(x.tolist() for x in ends), strict=True):
                self._partners.setdefault(one, []).append((two, rate))
                self._partners.setdefault(two, []).append((one, rate))
        else:
            self._sums = ExactSums(table, scope, column)

    def _value(self, cell: int) -> float:
        return self._remote[cell] if self._sums is None else self._sums.number(cell)

    def cell_of(self, p: int, broker: int, disk: int) -> int:
        """The cell of a replica; -1 for none."""
        if self.scope == "broker":
            return broker
        if self.scope == "topic":
            return self._topic[p] * self._brokers + broker
        if self.scope == "host":
            return self._host[broker]
        if self._group:
            return self._group[broker]
        if self.scope == "topic_rack":
            return self._topic[p] * self._racks + self._rack[broker]
        return disk

    def carry(self, unit: int | None, p: int, transfer: Transfer, leader: list[int]) -> None:
        """Apply the changes of a step; rows are kept if it has a unit."""
        ends = [
            -1 if end is None else self.cell_of(p, *end)
            for end in (transfer.source, transfer.target)
        ]
        if unit is not None:
            self._touch(unit, [c for c in ends if c >= 0])
        if self._sums is None:
            if transfer.lead and transfer.target:
                source = transfer.source[0] if transfer.source else -1
                self._leave(p, source, transfer.target[0], leader)
        elif ends[0] != ends[1]:
            amount = self._sums.amount(p, transfer)
            changes = [-amount, amount]
            # a replica that comes or goes; a change of roles leaves both where they are
            if transfer.lead + transfer.follow:
                for i, sign in enumerate((1, -1)):
                    changes[i] += sign * self._at_start(p, ends[i])
            for cell, change in zip(ends, changes, strict=True):
                if cell >= 0:
                    self._sums.held[cell] += change
        if unit is not None:
            for cell in ends:
                if cell >= 0:
                    self.after[self._row[cell]] = self._value(cell)

    def _at_start(self, p: int, broker: int) -> int:
        """What a broker keeps of a replica that it held at the start, once that has left."""
        led = self._start.get((p, broker))
        if led is None or self._sums is None:
            return 0
        return self._sums.amount(p, Transfer.of(None, None, led))

    def _touch(self, unit: int, cells: list[int]) -> None:
        if not self.unit or self.unit[-1] != unit:
            self._row = {}
        for cell in cells:
            if cell not in self._row:
                self._row[cell] = len(self.cell)
                self.unit.append(unit)
                self.cell.append(cell)
                self.before.append(self._value(cell))
                self.after.append(self._value(cell))

    def _leave(self, p: int, source: int, target: int, leader: list[int]) -> None:
        """Move leadership from one broker, or from nowhere (-1), to another; followers stay."""
        for partner, rate in self._partners.get(p, ()):
            there = leader[partner]
            for broker, by in ((source, -rate), (target, rate)):
                if there == broker:
                    continue
                for end in (broker, there):
                    if end >= 0:
                        self._remote[end] += by
