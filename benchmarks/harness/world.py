"""Simulates a cluster over time: changing load, its records, and the plans applied to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from balancer import Plan
from balancer.controller import MeasuredCluster
from cluster_model import Snapshot
from cluster_model.attribution import cpu_capacity
from cluster_model.live import ClusterModel
from cluster_model.snapshot import DEFAULT_RESOURCES, Floats, Ints
from metrics_reporter import BYTES_IN, BYTES_OUT, CPU, SIZE, RecordBatch
from metrics_reporter.metrics import REPLICATION_IN, REPLICATION_OUT

HOUR = 3600.0
DAY = 24 * HOUR
# A full hour, so that windows start with the simulation.
START = 1_699_999_200.0
INTERVAL = 60.0
FLUSH = "log_flush_time_ms_p999"
# Bytes/s that a broker spends on moves.
_COPY_RATE = 200e6
_METRICS = (BYTES_IN, BYTES_OUT, SIZE, CPU, FLUSH, REPLICATION_IN, REPLICATION_OUT)


@dataclass(frozen=True)
class Weather:
    """Changes of the load over a day.

    Parameters
    ----------
    rhythm
        Amplitude of the daily rhythm of rates, as a share of their mean.
    growth
        Growth of the fastest growing topics in a day, as a share; others grow less.
    noise
        Standard deviation of the logarithm of each measured rate.
    quantum
        Rates and sizes are reported in steps of this share of their mean; 0 for exact values.
    hot
        Factor on the rates of one topic from the tenth to the fourteenth hour.
    slow
        Factor on the flush time of one broker from the sixteenth to the nineteenth hour.
    """

    rhythm: float = 0.0
    growth: float = 0.0
    noise: float = 0.0
    quantum: float = 0.0
    hot: float = 1.0
    slow: float = 1.0


@dataclass(frozen=True)
class MovedReplica:
    """An executed action and the load of each resource that it moved."""

    time: float
    partition: tuple[str, int]
    load: Mapping[str, float]


@dataclass(frozen=True)
class SimulatedOutcome:
    """How an execution ended."""

    completed: int
    bytes_moved: float
    seconds: float
    state: Literal["done"] = "done"
    failed: int = 0
    cancelled: int = 0
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass
class World:
    """The true cluster, and the model that follows its records.

    Parameters
    ----------
    snapshot
        The cluster at the start, with mean loads of the default resources.
    weather, seed
        The changes of load, and the seed of random numbers.
    cost
        By broker id, the cpu it needs for work that takes 1 on the others: different hardware.
    """

    snapshot: Snapshot
    weather: Weather
    seed: int = 0
    cost: Mapping[int, float] = field(default_factory=dict)
    now: float = START
    moved: list[MovedReplica] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.snapshot
        self._rng = np.random.default_rng(self.seed)
        topics = len(s.topics)
        # Most topics peak at one time, the rest half a day later.
        phase = np.where(self._rng.random(topics) < 0.7, 0.0, 0.5) + self._rng.normal(
            0, 0.04, topics
        )
        self._phase = phase[s.partition_topic]
        grows = self._rng.power(0.5, topics) ** 4
        self._growth = (self.weather.growth * grows / max(grows.max(), 1e-9))[s.partition_topic]
        size = np.bincount(s.partition_topic, s.leader_load[:, 1], topics)
        # A significant topic, but not the largest.
        self._hot = int(np.argsort(size)[max(0, topics - 3)])
        self._slow = int(s.broker_ids[len(s.broker_ids) // 2])
        self.model = ClusterModel(s, windows=3, min_samples=2, clock=lambda: int(self.now * 1000))
        self.measured = MeasuredCluster(self.model, lambda: self.snapshot)

    def clock(self) -> float:
        """Seconds since 1970, in the world."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the time; brokers report."""
        end = self.now + seconds
        while self.now + INTERVAL <= end:
            self.now += INTERVAL
            self.model.add_batch(self.report())
        self.now = end

    def delete(self, topic: int) -> None:
        """Delete a topic (its index); the model has the new metadata at once."""
        keep = self.snapshot.partition_topic != topic
        self._phase, self._growth = self._phase[keep], self._growth[keep]
        self.snapshot = without_topic(self.snapshot, topic)
        self.model.update(self.snapshot)

    def execute(
        self, plan: Plan, *, progress: Callable[[Any], None] | None = None
    ) -> SimulatedOutcome:
        """Advance by the time that the plan takes, then apply its final placement."""
        spread = _COPY_RATE * self.snapshot.n_brokers / 2
        seconds = max(INTERVAL, plan.summary.cost / spread)
        self.advance(math.ceil(seconds / INTERVAL) * INTERVAL)
        self._remember(plan)
        final = plan.final_snapshot()
        s = self.snapshot
        # A plan has the controller's view of states, loads and capacities; the world keeps its own.
        self.snapshot = replace(
            final,
            capacity=s.capacity,
            broker_state=s.broker_state,
            leader_load=s.leader_load,
            follower_load=s.follower_load,
        )
        return SimulatedOutcome(len(plan), plan.summary.cost, seconds)

    def recover(self, *, progress: Callable[[Any], None] | None = None) -> None:
        """Nothing to recover: executions never die here."""

    def left(self) -> tuple[str, ...]:
        """No moves are left in progress here."""
        return ()

    def stop(self, *, rollback: bool = False) -> None:
        """Nothing to stop: executions here end at once."""

    def true(self) -> Snapshot:
        """The cluster with its true current loads, without averaging over windows.

        Cpu, also as a capacity, is in units of a broker of cost 1.
        """
        rate, size = self._factors()
        factor = np.stack([rate, rate, rate, size], axis=1)
        s = self.snapshot
        if self.cost:
            s = replace(s, capacity=cpu_capacity(s, self._costs()))
        if np.all(factor == 1):
            return s
        leader, follower = s.leader_load * factor, s.follower_load * factor
        return replace(s, leader_load=leader, follower_load=follower)

    def _costs(self) -> Floats:
        return np.array([self.cost.get(id_, 1.0) for id_ in self.snapshot.broker_ids.tolist()])

    def _factors(self) -> tuple[Floats, Floats]:
        """(P,) factors on rates, and on sizes, at this moment."""
        weather, elapsed = self.weather, self.now - START
        rate = 1 + weather.rhythm * np.sin(2 * np.pi * (elapsed / DAY - self._phase))
        if 10 * HOUR <= elapsed % DAY < 14 * HOUR:
            rate = np.where(self.snapshot.partition_topic == self._hot, rate * weather.hot, rate)
        grown = 1 + self._growth * elapsed / DAY
        return rate * grown, grown

    def report(self) -> RecordBatch:
        """Reports of all brokers for one interval, per replica and per broker."""
        s, weather = self.snapshot, self.weather
        true = self.true()
        partition, leads = s.replica_partition, s.replica_is_leader
        cpu, network_in, network_out, disk = (s.resource(r) for r in DEFAULT_RESOURCES)
        bytes_in = self._reported(true.leader_load[:, network_in])
        copies = true.leader_load[:, network_in] * (s.replication_factor - 1)
        bytes_out = self._reported(np.maximum(true.leader_load[:, network_out] - copies, 0.0))
        size = np.where(
            leads, true.leader_load[partition, disk], true.follower_load[partition, disk]
        )
        if weather.quantum:
            size = _stepped(size, weather.quantum * float(size.mean()))
        used = self._reported(true.broker_load()[:, cpu] * self._costs())
        slow = 16 * HOUR <= (self.now - START) % DAY < 19 * HOUR
        factor = np.where(slow & (s.broker_ids == self._slow), weather.slow, 1.0)
        flush = 400.0 * factor * np.exp(self._rng.normal(0, 0.1, s.n_brokers))
        n, b = s.n_replicas, s.n_brokers
        led = np.flatnonzero(leads)
        none = np.full(b, -1, np.int64)
        own = n + np.arange(b)
        at, followed = s.replica_broker, bytes_in[partition]
        totals = (
            used,
            flush,
            np.bincount(at[led], bytes_in[partition[led]], b),
            np.bincount(at[led], bytes_out[partition[led]], b),
            np.bincount(at[~leads], followed[~leads], b),
            np.bincount(at[led], (bytes_in * (s.replication_factor - 1))[partition[led]], b),
        )
        row = np.concatenate([led, led, np.arange(n), np.tile(own, len(totals))])
        # Columns of _METRICS: first those reported of replicas, then of brokers.
        metric = np.concatenate(
            [np.repeat([0, 1, 2], [len(led), len(led), n]), np.repeat([3, 4, 0, 1, 5, 6], b)]
        )
        value = np.concatenate([bytes_in[partition[led]], bytes_out[partition[led]], size, *totals])
        order = np.argsort(row, kind="stable")
        return RecordBatch(
            time_ms=np.full(n + b, int(self.now * 1000), np.int64),
            broker=np.concatenate([s.broker_ids[s.replica_broker], s.broker_ids]),
            topic=np.concatenate([s.partition_topic[partition], none]),
            partition=np.concatenate([s.partition_number[partition], none]),
            row=row[order],
            metric=metric[order],
            value=value[order],
            topics=s.topics,
            underscored=(False,) * len(s.topics),
            metrics=_METRICS,
        )

    def _reported(self, value: Floats) -> Floats:
        noise, quantum = self.weather.noise, self.weather.quantum
        if noise:
            value = value * np.exp(self._rng.normal(-(noise**2) / 2, noise, len(value)))
        return _stepped(value, quantum * float(value.mean())) if quantum else value

    def _remember(self, plan: Plan) -> None:
        s, true = self.snapshot, self.true()
        row: dict[tuple[str, int], int] = {}
        pairs: Ints = np.stack([s.partition_topic, s.partition_number], axis=1)
        for p, (topic, number) in enumerate(pairs.tolist()):
            row[s.topics[topic], number] = p
        for action in plan.actions:
            name = (action.topic, action.partition)
            lead, follow = true.leader_load[row[name]], true.follower_load[row[name]]
            carried = lead - follow if action.kind == "leadership" else follow
            if action.kind == "move" and action.leader:
                carried = lead
            load = dict(zip(s.resources, np.abs(carried).tolist(), strict=True))
            self.moved.append(MovedReplica(self.now, name, load))


def without_topic(snapshot: Snapshot, topic: int) -> Snapshot:
    """The cluster before (or after) one of its topics."""
    keep = snapshot.partition_topic != topic
    replicas = keep[snapshot.replica_partition]
    return replace(
        snapshot,
        topics=tuple(n for i, n in enumerate(snapshot.topics) if i != topic),
        partition_topic=snapshot.partition_topic[keep] - (snapshot.partition_topic[keep] > topic),
        partition_number=snapshot.partition_number[keep],
        leader_load=snapshot.leader_load[keep],
        follower_load=snapshot.follower_load[keep],
        replica_offset=np.concatenate([[0], np.cumsum(snapshot.replication_factor[keep])]),
        replica_broker=snapshot.replica_broker[replicas],
        leader=snapshot.leader[keep],
    )


def _stepped(value: Floats, step: float) -> Floats:
    stepped: Floats = np.round(value / step) * step if step > 0 else value
    return stepped


def thrash(moved: list[MovedReplica], window: float) -> dict[str, float]:
    """Share of the moved load that belongs to partitions moved again within a window.

    Parameters
    ----------
    moved
        The moves, in order of time.
    window
        Seconds. Steps of one execution count as one move.

    Returns
    -------
    dict
        Share by resource; 0 if nothing moved.
    """
    last: dict[tuple[str, int], float] = {}
    total: dict[str, float] = {}
    again: dict[str, float] = {}
    for move in moved:
        before = last.get(move.partition)
        for resource, load in move.load.items():
            total[resource] = total.get(resource, 0.0) + load
            if before is not None and before < move.time <= before + window:
                again[resource] = again.get(resource, 0.0) + load
        if before != move.time:
            last[move.partition] = move.time
    return {r: again.get(r, 0.0) / t if t else 0.0 for r, t in total.items()}
