"""A consumer group as it was seen: its state as arrays, with the names that people know."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import Group
from balancer.autoscaling.policy import Decision, evenly
from cluster_model.snapshot import Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Observation:
    """A group at one moment.

    Parameters
    ----------
    name
        The consumer group.
    group
        Its state.
    partitions
        Name of each partition, ``TOPIC-NUMBER``, those of a topic in a row.
    consumers
        Name of each running consumer.
    notes
        What was left out and why, one sentence each.
    unknown
        Number of partitions that were left out, as nothing is known of what they receive.
    measured
        Events/s that consumers can process, by name, as far as it was measured.
    measuring
        Whether what consumers can process is neither stated nor measured yet; the capacities of
        the group are then none to decide on.
    rebalance_measured
        Seconds that a rebalance takes, as measured; None until one was seen.
    """

    name: str
    group: Group
    partitions: tuple[str, ...]
    consumers: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    unknown: int = 0
    measured: Mapping[str, float] = field(default_factory=dict)
    measuring: bool = False
    rebalance_measured: float | None = None

    def __post_init__(self) -> None:
        found = len(self.partitions), len(self.consumers)
        expected = len(self.group.rate), self.group.consumers
        if found != expected:
            raise AutoscalingError(
                f"group {self.name}: {found[0]} names of partitions and {found[1]} of consumers "
                f"found, {expected[0]} and {expected[1]} expected"
            )

    def names_after(self, decision: Decision) -> tuple[str, ...]:
        """Names of the consumers that a decision speaks of, those to start included."""
        highest = int(decision.consumer.max(initial=-1)) + 1
        count = max(self.group.consumers + decision.start, highest)
        taken = set(self.consumers)
        free = (name for n in itertools.count(1) if (name := f"new {n}") not in taken)
        return (*self.consumers, *itertools.islice(free, count - self.group.consumers))

    def after(self, decision: Decision) -> int:
        """Consumers that run once the decision is carried out, with or without partitions."""
        return self.group.consumers + decision.start - len(decision.stop)

    def filled(self, decision: Decision) -> Decision:
        """The decision with idle consumers in the places of those that it would start."""
        running = self.group.consumers
        used = np.unique(decision.consumer[decision.consumer >= 0])
        idle = np.setdiff1d(np.arange(running), used)
        new = used[used >= running]
        place = {int(n): int(i) for n, i in zip(new, idle, strict=False)}
        # those that are still to be started have numbers without gaps
        place |= {int(n): running + k for k, n in enumerate(new[len(idle) :])}
        consumer = np.array([place.get(c, c) for c in decision.consumer.tolist()], np.int64)
        taken = set(place.values())
        return replace(
            decision,
            consumer=consumer,
            start=max(0, decision.start - len(idle)),
            stop=tuple(c for c in decision.stop if c not in taken),
        )

    def targets(self, decision: Decision) -> dict[str, str]:
        """Name of the consumer that is to read each partition, of those that run.

        What a consumer is to read that is yet to start stays where it is; if nobody reads it, who
        has least to do reads it until then.
        """
        group, running = self.group, self.group.consumers
        if not running:
            return {}
        to = np.where(decision.consumer < running, decision.consumer, group.consumer)
        load = group.load(to, group.rate, running) / group.capacity
        for row in np.flatnonzero(to < 0):
            to[row] = np.argmin(load)
            load[to[row]] += group.rate[row] / group.capacity[to[row]]
        return {p: self.consumers[c] for p, c in zip(self.partitions, to.tolist(), strict=True)}

    def in_use(self, decision: Decision) -> int:
        """Consumers that have partitions now, or once the decision is carried out."""
        both = np.concatenate([self.group.consumer, decision.consumer])
        return len(np.unique(both[both >= 0]))

    def needed(self, decision: Decision) -> int:
        """Consumers that have partitions once the decision is carried out."""
        used = decision.consumer[decision.consumer >= 0]
        return len(np.unique(used))

    def leaving(self, decision: Decision) -> tuple[str, ...]:
        """Names of the running consumers that the decision leaves without a partition.

        Those of them that it does not stop yet, stop by a later decision if they stay idle.
        """
        used = set(decision.consumer.tolist())
        return tuple(n for i, n in enumerate(self.consumers) if i not in used)


def enough_in_ranges(observation: Observation, least: int, fill: float) -> int:
    """Fewest consumers, at least so many, none of which has too much if ranges are assigned.

    Kafka's range assignor gives each consumer an equal number of partitions of each topic, one
    after the other, whatever they carry: one heavy partition may make several more consumers
    necessary. What more consumers cannot change does not count: a partition that is too much
    for a consumer alone, or partitions with the same number of several topics, which ranges give
    to the same consumer however many there are.

    Parameters
    ----------
    observation
        The group.
    least
        Where to begin; what a packing needs.
    fill
        Share of a consumer's capacity that may be used.

    Returns
    -------
    int
        The number, at most that of partitions of the largest topic unless `least` is more.
    """
    group = observation.group
    topics = _topics(observation.partitions)
    most = max((len(rows) for rows in topics), default=0)
    limit = group.new_capacity * fill
    place = np.empty(len(group.rate), np.int64)
    for rows in topics:
        place[rows] = np.arange(len(rows))
    for count in range(max(least, 1), most):
        consumer = np.empty(len(group.rate), np.int64)
        for rows in topics:
            consumer[rows] = evenly(len(rows), np.arange(count))
        load = np.bincount(consumer, weights=group.rate)
        # with as many consumers as partitions each has those of its own number
        less = np.bincount(consumer, weights=consumer != place) > 0
        less &= np.bincount(consumer) > 1
        if not (less & (load > limit)).any():
            return count
    return max(least, most)


def _topics(partitions: Sequence[str]) -> list[Ints]:
    """Rows of the partitions of each topic."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(partitions):
        rows.setdefault(name.rpartition("-")[0], []).append(row)
    return [np.array(found) for found in rows.values()]
