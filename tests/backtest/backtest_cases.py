"""Handwritten histories without records: loads that go up and down on a small cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from balancer.backtest.replay import Window
from balancer.backtest.timeline import Timeline, names_of
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.history.metadata import MetadataLog
from cluster_model.snapshot import Floats

HOUR_MS = 3_600_000
HOUR = 3600.0


@dataclass
class Log:
    """Metadata that say what the cluster was from some times on."""

    changes: dict[int, Snapshot]

    @property
    def times_ms(self) -> tuple[int, ...]:
        return tuple(sorted(self.changes))

    def at(self, ms: int) -> Snapshot:
        known = [t for t in self.times_ms if t <= ms]
        return self.changes[known[-1] if known else self.times_ms[0]]

    def states(self, first_ms: int, end_ms: int) -> Iterator[tuple[int, Snapshot]]:
        for at in (first_ms, *(t for t in self.times_ms if first_ms < t <= end_ms)):
            yield at, self.at(at)

    def placements(self, spark: SparkSession) -> DataFrame:
        log = MetadataLog()
        for at in self.times_ms:
            log.append(at, self.changes[at])
        return log.placements(spark)


def skewed(**options: Any) -> Snapshot:
    """A small cluster that is badly balanced."""
    requested = {"brokers": 6, "partitions": 60, "racks": 3, "utilization": 0.4, "skew": 2.0}
    return synthetic_snapshot(**{**requested, **options})


def timeline_of(*states: tuple[int, Snapshot], hours: int = 100, slots: int = 1) -> Timeline:
    return Timeline.of(Log(dict(states)), 0, hours * HOUR_MS, slots=slots)


def rhythm(snapshot: Snapshot, hour: int, amplitude: float = 0.6) -> tuple[Floats, Floats]:
    """(P, R) loads of leaders and followers in an hour; each topic has its own peak."""
    phase = np.random.default_rng(7).random(len(snapshot.topics))[snapshot.partition_topic]
    rate = 1 + amplitude * np.sin(2 * np.pi * (hour / 24 - phase))
    factor = np.stack([rate, rate, rate, np.ones_like(rate)], axis=1)
    return snapshot.leader_load * factor, snapshot.follower_load * factor


def windows(
    snapshot: Snapshot, hours: int, *, amplitude: float = 0.6, missing: tuple[int, ...] = ()
) -> Iterator[Window]:
    for hour in range(hours):
        if hour not in missing:
            leader, follower = rhythm(snapshot, hour, amplitude)
            yield Window(hour * HOUR_MS, np.arange(snapshot.n_partitions), leader, follower)


@dataclass
class Handmade:
    """A history for :func:`balancer.backtest.backtest`."""

    spark: SparkSession
    snapshot: Snapshot
    metadata: Log
    hours: int
    tasks: int = 3
    window_ms: int = HOUR_MS
    missing: tuple[int, ...] = ()
    # Rows of partitions of which nothing is known.
    unknown: tuple[int, ...] = ()
    amplitude: float = 0.6
    asked: list[tuple[int, int]] = field(default_factory=list)

    def loads(self, first_ms: int, end_ms: int) -> DataFrame:
        self.asked.append((first_ms, end_ms))
        known = np.setdiff1d(np.arange(self.snapshot.n_partitions), self.unknown)
        names = names_of(self.snapshot)
        topics, numbers = zip(*(names[row] for row in known), strict=True)
        tables = [
            pa.table(
                {
                    "start_ms": np.full(len(topics), w.start_ms),
                    "topic": list(topics),
                    "partition": list(numbers),
                    "leader": list(w.leader[known]),
                    "follower": list(w.follower[known]),
                }
            )
            for w in windows(
                self.snapshot, self.hours, amplitude=self.amplitude, missing=self.missing
            )
            if first_ms <= w.start_ms < end_ms
        ]
        if not tables:
            return self.spark.createDataFrame(
                [], "start_ms long, topic string, partition long, leader array<double>, "
                "follower array<double>"
            )  # fmt: skip
        # In an order, and in so many parts, that nothing may depend on.
        return self.spark.createDataFrame(pa.concat_tables(tables)).repartition(self.tasks)
