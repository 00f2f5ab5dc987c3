"""Simulates a consumer group event by event, with rebalances that make events wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.allocation.packing.bound import fewest_bins
from balancer.allocation.packing.exact import exact
from balancer.allocation.packing.least_loaded import least_loaded
from balancer.allocation.packing.naming import keep_names
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import LEAST, MOST, Group
from balancer.autoscaling.policy import Decision, Policy, become
from cluster_model.snapshot import Floats, Ints
from metrics_reporter.quantities import rounded

# Seconds by which sums of times may differ through rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a simulated group works.

    Parameters
    ----------
    capacities : tuple of float
        Events per second of the consumers, in the order in which they start, again and again.
    interval
        Seconds between two decisions.
    heartbeat
        Seconds between two heartbeats of a consumer: it hears of a rebalance at the next one.
    rebalance_seconds
        How long a rebalance takes once all consumers have heard of it.
    start_seconds
        How long a consumer takes to start; it is paid from the beginning.
    blocking
        Whether a rebalance stops all consumers, or only the partitions that move.
    eager
        Whether each of them stops at its own heartbeat, as with Kafka's eager assignors, and waits
        for the others; otherwise all go on until the last has heard of it.
    seed
        Seed of the phases of the heartbeats.
    most_decisions
        Most decisions of a run; by default nearly six days at one per second.
    most_events
        Most events of a trace; by default as many as fit into a few gigabytes.

    Raises
    ------
    AutoscalingError
        Naming the field and the value.
    """

    capacities: tuple[float, ...] = (200.0,)
    interval: float = 1.0
    heartbeat: float = 3.0
    rebalance_seconds: float = 0.05
    start_seconds: float = 0.0
    blocking: bool = True
    eager: bool = False
    seed: int = 0
    most_decisions: int = 500_000
    most_events: int = 50_000_000

    def __post_init__(self) -> None:
        if not self.capacities or not all(LEAST <= c <= MOST for c in self.capacities):
            raise AutoscalingError(
                f"simulation, capacities: {self.capacities} found, numbers above 0 expected, from "
                f"{LEAST:g} to {MOST:g}"
            )
        if not 0 < self.interval < np.inf:
            raise AutoscalingError(
                f"simulation, interval: {self.interval} found, a number above 0 expected"
            )
        for name in ("most_decisions", "most_events"):
            if getattr(self, name) < 1:
                raise AutoscalingError(
                    f"simulation, {name}: {getattr(self, name)} found, at least 1 expected"
                )
        for name in ("heartbeat", "rebalance_seconds", "start_seconds"):
            if not 0 <= getattr(self, name) < np.inf:
                raise AutoscalingError(
                    f"simulation, {name}: {getattr(self, name)} found, 0 or more expected"
                )
        if self.eager and not self.blocking:
            raise AutoscalingError("simulation: eager found, blocking expected with it")

    @property
    def stop_seconds(self) -> float:
        """How long a consumer's partitions are not read in a rebalance, at most."""
        return self.rebalance_seconds + (self.heartbeat if self.eager else 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What became of the events, and what it cost.

    Parameters
    ----------
    latency : (E,) float
        Seconds from the arrival of each event to the end of its processing.
    reader : (E,) int
        The consumer that processed it, numbered in the order in which they started.
    replica_minutes
        Minutes of consumers, from their start to their stop or the last decision.
    ups, downs
        Number of times that consumers were started and stopped, without the first.
    rebalances
        Number of rebalances, without the first.
    """

    latency: Floats
    reader: Ints
    replica_minutes: float
    ups: int
    downs: int
    rebalances: int

    def within(self, sla: float) -> float:
        """Share of events within a latency; 1 if there were none."""
        return float((self.latency <= sla + _ROUNDING).mean()) if len(self.latency) else 1.0


@dataclass
class _Consumer:
    number: int
    capacity: float
    phase: float
    free_at: float


@dataclass
class _Change:
    """A change that not all consumers have heard of: what it will be, when, and who stops when."""

    at: float
    reader: list[int]
    stops: dict[int, float]


def simulate(
    arrival: Floats, partition: Ints, partitions: int, policy: Policy, setting: Setting
) -> Outcome:
    """Let a policy size a group that processes given events.

    A consumer processes its events in the order of their arrival, one at a time, each in the same
    time. A decision is made at the beginning of every interval, unless a change is under way.
    Consumers that leave stop reading at once. The others go on until all of them have sent a
    heartbeat, and so heard of the change; then the rebalance takes its time, and events wait (seed
    003, Section 5.2).

    Parameters
    ----------
    arrival : (E,) float
        Time of each event in seconds, ascending.
    partition : (E,) int
        Its partition.
    partitions
        Number of partitions.
    policy
        Decides.
    setting
        How the group works.

    Raises
    ------
    AutoscalingError
        If the events last for more intervals than can be simulated.
    """
    return _Simulation(arrival, partition, partitions, policy, setting).run()


class _Simulation:
    """One run: queues, consumers, and the change under way."""

    def __init__(
        self, arrival: Floats, partition: Ints, partitions: int, policy: Policy, setting: Setting
    ) -> None:
        self.arrival, self.policy, self.setting = arrival, policy, setting
        self.events = [np.flatnonzero(partition == p) for p in range(partitions)]
        self.times = [arrival[e] for e in self.events]
        self.head = np.zeros(partitions, np.int64)
        # when each partition can be read again after its last move
        self.available = np.zeros(partitions)
        self.reader = [-1] * partitions
        self.consumers: dict[int, _Consumer] = {}
        self.started = 0
        self.rng = np.random.default_rng(setting.seed)
        self.latency = np.full(len(arrival), np.nan)
        self.processed_by = np.full(len(arrival), -1, np.int64)
        self.change: _Change | None = None
        self.seconds = 0.0
        self.ups = self.downs = self.rebalances = 0

    def run(self) -> Outcome:
        interval, most = self.setting.interval, self.setting.most_decisions
        last = float(self.arrival[-1]) if len(self.arrival) else 0.0
        if last / interval > most:
            raise AutoscalingError(
                f"simulation: {rounded(last)} s of events with a decision every {interval:g} s "
                f"found, at most {most:,} decisions expected; take a longer interval"
            )
        steps = int(last / interval) + 1 if len(self.arrival) else 0
        for step in range(steps):
            now = step * interval
            if self.change is None:
                self._decide(now, first=step == 0)
            self._advance_to(now + interval)
            self.seconds += len(self.consumers) * interval
        self._advance_to(np.inf)
        return Outcome(
            latency=self.latency,
            reader=self.processed_by,
            replica_minutes=self.seconds / 60,
            ups=self.ups,
            downs=self.downs,
            rebalances=self.rebalances,
        )

    def _decide(self, now: float, *, first: bool) -> None:
        s = self.setting
        numbers = list(self.consumers)
        place = {number: index for index, number in enumerate(numbers)}
        arrived = np.array([np.searchsorted(t, now, "right") for t in self.times])
        before = np.array([np.searchsorted(t, now - s.interval, "right") for t in self.times])
        group = Group(
            rate=(arrived - before) / s.interval,
            lag=np.maximum(arrived - self.head, 0).astype(np.float64),
            consumer=np.array([place.get(r, -1) for r in self.reader], np.int64),
            capacity=np.array([self.consumers[n].capacity for n in numbers]),
            new_capacity=s.capacities[self.started % len(s.capacities)],
            rebalance_seconds=s.stop_seconds,
            reaction_seconds=s.start_seconds + (0.0 if s.eager else s.heartbeat),
            blocking=s.blocking,
        )
        decision = self.policy.decide(group, now)
        if not decision:
            return
        leaving = [numbers[k] for k in decision.stop]
        stays = [self.consumers[n] for n in numbers if n not in leaving]
        for _ in range(decision.start):
            numbers.append(self._start(now + s.start_seconds))
        known = now + (s.start_seconds if decision.start else 0.0)
        hears = {c.number: self._heartbeat_after(c, known) for c in stays}
        at = max([known, *hears.values()])
        reader = [numbers[c] if c >= 0 else -1 for c in decision.consumer.tolist()]
        # a consumer that leaves stops reading
        self.reader = [-1 if r in leaving else r for r in self.reader]
        for number in leaving:
            del self.consumers[number]
        self.change = _Change(at, reader, hears if s.eager else {})
        if not first:
            self.ups += decision.start > 0
            self.downs += len(leaving) > 0
            self.rebalances += 1

    def _start(self, ready: float) -> int:
        capacities = self.setting.capacities
        number = self.started
        self.started += 1
        self.consumers[number] = _Consumer(
            number,
            capacities[number % len(capacities)],
            float(self.rng.uniform(0, self.setting.heartbeat)),
            ready,
        )
        return number

    def _heartbeat_after(self, consumer: _Consumer, time: float) -> float:
        period = self.setting.heartbeat
        if period == 0:
            return time
        return float(consumer.phase + np.ceil((time - consumer.phase) / period) * period)

    def _advance_to(self, end: float) -> None:
        """Process events that begin before a time; carry out the change if it falls due."""
        if self.change is not None and self.change.at <= end:
            self._process(self.change.at)
            change, self.change = self.change, None
            moved = [a != b for a, b in zip(self.reader, change.reader, strict=True)]
            stopped = np.ones(len(moved), np.bool_) if self.setting.blocking else np.array(moved)
            ready = change.at + self.setting.rebalance_seconds
            self.available[stopped] = np.maximum(self.available[stopped], ready)
            self.reader = change.reader
        self._process(end)

    def _process(self, end: float) -> None:
        stops = {} if self.change is None else self.change.stops
        for number, consumer in self.consumers.items():
            read = [p for p, r in enumerate(self.reader) if r == number]
            if read:
                self._process_of(consumer, read, min(end, stops.get(number, end)))

    def _process_of(self, consumer: _Consumer, read: list[int], end: float) -> None:
        """The events of a consumer that begin before a time."""
        service = 1.0 / consumer.capacity
        most = np.inf if np.isinf(end) else max(end - consumer.free_at, 0.0) / service + 1
        parts, ready, arrived, which = [], [], [], []
        for p in read:
            times, head = self.times[p], int(self.head[p])
            tail = int(np.searchsorted(times, end, "left"))
            tail = int(min(tail, head + most))
            if tail > head:
                times = times[head:tail]
                arrived.append(times)
                ready.append(np.maximum(times, self.available[p]))
                parts.append(self.events[p][head:tail])
                which.append(np.full(tail - head, p))
        if not parts:
            return
        arrivals, begin = np.concatenate(arrived), np.concatenate(ready)
        order = np.lexsort((arrivals, begin))
        begin, event, of = begin[order], np.concatenate(parts)[order], np.concatenate(which)[order]
        # each event begins when it is there and the one before has ended
        k = np.arange(len(begin))
        earliest = np.maximum(np.maximum.accumulate(begin - service * k), consumer.free_at)
        begin = earliest + service * k
        count = int(np.searchsorted(begin, end, "left"))
        if not count:
            return
        done = begin[:count] + service
        self.latency[event[:count]] = done - arrivals[order][:count]
        self.processed_by[event[:count]] = consumer.number
        self.head += np.bincount(of[:count], minlength=len(self.head))
        consumer.free_at = float(done[-1])


@dataclass(frozen=True)
class Foreseeing:
    """The oracle: knows what arrives in the next interval, and has the fewest consumers for it.

    Changes take it no time. It processes what arrives in an interval within `seconds`. This is no
    bound: one that lets events wait for longer, where the SLA allows it, may have fewer consumers.

    Parameters
    ----------
    coming : (K, P) float
        Events that arrive in each partition during each interval.
    seconds
        Time in which a consumer must have processed these and those that wait: the interval or,
        if all of them wait when it begins, the SLA.
    interval
        Seconds of an interval.
    """

    coming: Floats
    seconds: float = 1.0
    interval: float = 1.0

    def decide(self, group: Group, now: float) -> Decision:
        """Decide with knowledge of the next interval."""
        step = min(int(now / self.interval + 0.5), len(self.coming) - 1)
        events = self.coming[step] + group.lag
        most = group.new_capacity * self.seconds
        packing = Packing(
            size=np.minimum(events, most)[:, None],
            owner=group.consumer,
            capacity=np.array([most]),
            weight=np.zeros(len(events)),
        )
        packed = keep_names(packing, least_loaded(packing))
        used = len(np.unique(packed))
        if used > fewest_bins(packing):
            packed = exact(packing, RepairParameters(bin_price=1.0)).bin
        return become(group, packed, "the next interval needs it")


def coming(arrival: Floats, partition: Ints, partitions: int, interval: float) -> Floats:
    """(K, P) number of events that arrive in each partition after the beginning of each interval.

    Those that arrive just when one begins wait already, and do not count.
    """
    steps = int(arrival[-1] / interval) + 1 if len(arrival) else 0
    counts = np.zeros((steps, partitions))
    step = (arrival / interval).astype(np.int64)
    inside = arrival > step * interval
    np.add.at(counts, (step[inside], partition[inside]), 1.0)
    return counts
