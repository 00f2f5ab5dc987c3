"""Limits that capacities and hard goals impose on every single step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from balancer.verification.goals import TOLERANCE, least_leaders, limits, topic_sets
from balancer.verification.replicas import GROUP, ReplicaTable, groups_of
from balancer.verification.stated_request import StatedRequest
from balancer.verification.tallies import ExactSums, Transfer
from cluster_model.snapshot import Floats


class StepLimit:
    """A limit that no step may break, with the current content of its cells.

    A cell above it at the start may be filled again up to what it held then.

    Parameters
    ----------
    name
        Source of the limit, as findings name it.
    start
        The replicas before the first step.
    scope
        Kind of cell: ``broker``, ``host`` or ``disk``.
    column
        The quantity summed in each cell.
    limit : (cells,) float
        The maximum of each cell, infinite for no limit.
    either_end
        Whether the limit also applies to the cell that a step takes from: a follower may
        carry more than it did as leader.
    """

    def __init__(
        self,
        name: str,
        start: ReplicaTable,
        scope: str,
        column: str,
        limit: Floats,
        either_end: bool = True,
    ) -> None:
        self._either_end = either_end
        self._name, self._scope, self._snapshot = name, scope, start.snapshot
        self._limit: list[float] = limit.tolist()
        self._host: list[int] = start.snapshot.broker_host.tolist()
        self._group: list[int] = []
        if scope.startswith(GROUP):
            self._group = groups_of(start.snapshot, scope.removeprefix(GROUP))[0].tolist()
        self._sums = ExactSums(start, scope, column)
        self._began = [self._sums.number(cell) for cell in range(len(self._limit))]

    def exceeded(self, p: int, transfer: Transfer) -> Iterator[str]:
        """Apply a step, destination first; report where that is too much."""
        amount = self._sums.amount(p, transfer)
        gives, takes = self._cell(transfer.source), self._cell(transfer.target)
        if gives == takes or not amount:
            return
        for cell, change in ((takes, amount), (gives, -amount)):
            if cell < 0:
                continue
            self._sums.held[cell] += change
            value, limit = self._sums.number(cell), self._limit[cell]
            if cell == gives and not self._either_end:
                continue
            most = max(limit, self._began[cell]) * (1 + TOLERANCE)
            if change > 0 and value > most:
                where = self._cell_name(cell)
                yield f"{self._name}: {value:.9g} on {where}, at most {limit:.9g} expected"

    def _cell(self, end: tuple[int, int] | None) -> int:
        if end is None:
            return -1
        broker, disk = end
        if self._group:
            return self._group[broker]
        return {"broker": broker, "host": self._host[broker], "disk": disk}[self._scope]

    def _cell_name(self, cell: int) -> str:
        s = self._snapshot
        if self._scope.startswith(GROUP):
            attribute = self._scope.removeprefix(GROUP)
            return f"{attribute} {s.attributes('broker').groups(attribute)[1][cell]}"
        if self._scope == "host":
            return f"host {s.hosts[cell]}"
        if self._scope == "disk":
            return f"disk {s.disk_path[cell]} of broker {s.broker_ids[s.disk_broker[cell]]}"
        return f"broker {s.broker_ids[cell]}"


def step_limits(
    goals: Iterable[Mapping[str, Any]], start: ReplicaTable, request: StatedRequest
) -> Iterator[StepLimit]:
    """The capacities of the cluster, and the hard goals that act as limits."""
    s = request.snapshot
    # a broker to be emptied receives nothing but followers that were leaders there; for an
    # unknown operation, the brokers to be emptied are unknown
    either_end = request.kind.known
    raw = np.where(~request.draining[:, None], s.capacity, np.inf)
    for r, resource in enumerate(s.resources):
        name = f"capacity of {resource}"
        yield StepLimit(name, start, "broker", f"load.{resource}", raw[:, r], either_end)
    if s.n_disks and "disk" in s.resources:
        held = s.disk_alive & ~request.draining[s.disk_broker]
        fits = np.where(held, s.disk_capacity, np.inf)
        yield StepLimit("capacity of the disk", start, "disk", "load.disk", fits, either_end)
    for goal in goals:
        found = limits(goal, request)
        if found is not None and goal["hard"]:
            yield StepLimit(goal["name"], start, *found)


class PartitionRules:
    """Hard goals about the racks, broker sets and leaders of single partitions."""

    def __init__(
        self, goals: Iterable[Mapping[str, Any]], start: ReplicaTable, request: StatedRequest
    ) -> None:
        s = request.snapshot
        hard = {g["goal"]: g for g in goals if g["hard"]}
        self._rack_aware = "RackAwareness" in hard
        self._rack_even = "RackAwareDistribution" in hard
        self._racks: list[int] = s.broker_rack.tolist()
        self._usable_racks = len(np.unique(s.broker_rack[request.eligible]))
        self._request = request
        self._topic: list[int] = s.partition_topic.tolist()
        self._set_of_broker: list[int] = s.broker_set.tolist()
        sets = hard.get("BrokerSetAwareness")
        self._set_of_topic: list[int] = [-1] * len(s.topics)
        if sets is not None:
            self._set_of_topic = topic_sets(sets, start, request).tolist()
        self.least_leaders: list[int] = [0] * len(s.topics)
        if "MinTopicLeaders" in hard:
            self.least_leaders = least_leaders(hard["MinTopicLeaders"], request).tolist()

    def broken(self, p: int, before: list[int], now: list[int]) -> Iterator[tuple[str, str]]:
        """What is worse on these brokers than before the step: a kind, and a sentence."""
        adds = len(now) > len(before)
        if self._rack_aware and self._worse(p, self._shared, before, now):
            yield "racks", "RackAwareness: one more replica shares a rack"
        if self._rack_even and self._worse(p, self._crowded, before, now):
            yield "racks", "RackAwareDistribution: racks are less even"
        home = self._set_of_topic[self._topic[p]]
        if home >= 0:
            was, is_ = (sum(self._set_of_broker[b] != home for b in x) for x in (before, now))
            if is_ > was and not (adds and self._full(p, home, now)):
                yield (
                    "broker sets",
                    "BrokerSetAwareness: one more replica outside its set",
                )

    def _worse(
        self, p: int, measure: Callable[[list[int]], int], before: list[int], now: list[int]
    ) -> bool:
        """Whether a step makes the racks worse, and an added replica had a better place."""
        was, is_ = measure(before), measure(now)
        if is_ <= was or len(now) == len(before):
            return is_ > was
        takes = self._request.receives & self._request.holders(self._topic[p])
        takes[before] = False
        others = {self._racks[b]: b for b in np.flatnonzero(takes).tolist()}
        return any(is_ > max(was, measure([*before, b])) for b in others.values())

    def _shared(self, holders: list[int]) -> int:
        """How many replicas share a rack with an earlier one."""
        return len(holders) - len({self._racks[b] for b in holders})

    def _full(self, p: int, home: int, now: list[int]) -> bool:
        """Whether every broker of a set that receives replicas already has one."""
        takes = self._request.receives & self._request.holders(self._topic[p])
        return not any(
            self._set_of_broker[b] == home and b not in now for b in np.flatnonzero(takes).tolist()
        )

    def _crowded(self, holders: list[int]) -> int:
        """How many replicas exceed an even distribution over the racks."""
        counts: dict[int, int] = {}
        for b in holders:
            counts[self._racks[b]] = counts.get(self._racks[b], 0) + 1
        full, extra = divmod(len(holders), max(1, self._usable_racks))
        above = [n - full for n in counts.values() if n > full]
        return sum(above) - min(extra, len(above))
