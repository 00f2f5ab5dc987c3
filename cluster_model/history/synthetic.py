"""Generates months of records that a cluster's brokers would report, on Spark executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from cluster_model.attribution import FOLLOWER_IN_WEIGHT, LEADER_IN_WEIGHT, LEADER_OUT_WEIGHT
from cluster_model.errors import InputError
from cluster_model.history.schema import CLUSTER, DEFAULT_CLUSTER, RECORDS
from cluster_model.snapshot import DEFAULT_RESOURCES, Bools, BrokerState, Floats, Ints, Snapshot
from metrics_reporter.metrics import (
    BYTES_IN,
    BYTES_OUT,
    CPU,
    REPLICATION_IN,
    REPLICATION_OUT,
    SIZE,
    bytes_to,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# A Monday, 00:00 UTC.
START_MS = 1_700_438_400_000
# The topic of a record that cannot belong to the cluster.
NO_TOPIC = "no-such-topic"
_VALUES = (BYTES_IN, BYTES_OUT, SIZE, CPU, REPLICATION_IN, REPLICATION_OUT)
# Rows passed to Spark at once.
_CHUNK = 1 << 15
# Largest delay of a disordered record, in batches.
_DELAY = 2


class SyntheticError(InputError):
    """Arguments from which no records can be generated."""


@dataclass(frozen=True, eq=False)
class TrafficPattern:
    """The variation of a cluster's rates over time.

    At time t a partition's rate is that of the snapshot times ``day · week · growth ·
    noise``, of which the first has mean 1 over a day.

    Parameters
    ----------
    sharpness
        Sharpness of the daily peak: the rate is proportional to ``exp(sharpness · cos(2π (t -
        peak)))`` with t in days; 0 is flat, 1 has its peak at 2.1 times the mean, 4 at
        4.8 times.
    spread
        Spread of the topics' peaks, in days: 0 for all at noon, 1 for any time.
    weekend
        Rates on Saturday and Sunday, as a share of those on other days.
    growth
        Daily growth of all rates and sizes, as a share of the initial ones.
    noise
        Standard deviation of the logarithm of each report's random factor.
    """

    sharpness: float = 1.0
    spread: float = 1.0
    weekend: float = 1.0
    growth: float = 0.0
    noise: float = 0.0

    def factor(self, time_ms: npt.ArrayLike, phase: npt.ArrayLike, since_ms: int) -> Floats:
        """Factor on the rates, without noise.

        Parameters
        ----------
        time_ms
            ms since 1970 (UTC).
        phase
            Time of the peak, in days from noon.
        since_ms
            Start of the growth.
        """
        time_ms, phase = np.asarray(time_ms, np.int64), np.asarray(phase, np.float64)
        angle = 2 * np.pi * (time_ms / DAY_MS - 0.5 - phase)
        day = np.exp(self.sharpness * np.cos(angle)) / np.i0(self.sharpness)
        # Day 0 of 1970 was a Thursday.
        weekend = (time_ms // DAY_MS + 3) % 7 >= 5
        factor: Floats = day * np.where(weekend, self.weekend, 1.0)
        return factor * self.grown(time_ms, since_ms)

    def grown(self, time_ms: npt.ArrayLike, since_ms: int) -> Floats:
        """Factor of growth alone."""
        days = (np.asarray(time_ms, np.int64) - since_ms) / DAY_MS
        return np.maximum(1 + self.growth * days, 0.0)


def synthetic_records(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    intervals: int,
    interval_ms: int = 60_000,
    start_ms: int = START_MS,
    since_ms: int = START_MS,
    traffic: TrafficPattern | None = None,
    cpu_cost: tuple[float, float, float, float] | None = None,
    dirt: float = 0.0,
    disorder: float = 0.0,
    cluster: str = DEFAULT_CLUSTER,
    seed: int = 0,
    tasks: int | None = None,
) -> DataFrame:
    """Generate the reports of a cluster's brokers, interval after interval.

    At each multiple of the interval each living broker reports its cpu and network
    rates, the rates and size of each partition it leads (with ``bytes_to/...`` if the snapshot
    has traffic), and the size of each one it follows. Equal arguments give equal rows,
    whatever the number of tasks. Two calls with snapshots of different placements and
    adjoining times make the history of a cluster that changed.

    Parameters
    ----------
    spark
        Makes the rows on its executors.
    snapshot
        Placement and mean loads, with the default resources.
    intervals, interval_ms, start_ms
        Number of reports, time between them, and start, a multiple of the interval.
    since_ms
        Start of the growth.
    traffic
        Variation of the rates.
    cpu_cost
        Cpu of a broker: a constant, and the cost of each byte/s that a leader
        takes in and sends out (replication counted) and a follower takes in. By
        default proportional to the weights of
        :func:`cluster_model.attribution.attribute_cpu`, with the snapshot's total.
    dirt
        Share of records added in each of these ways: a second time, from a clock a day ahead,
        from one a month behind, with a negative value, and of an unknown topic. The valid
        records stay.
    disorder
        Share of records that arrive up to two batches late.
    cluster
        Name of the cluster.
    seed
        Seed of peaks, noise and dirt.
    tasks
        Number of Spark tasks; by default the number of the session's cores.

    Returns
    -------
    DataFrame
        Of schema :data:`cluster_model.history.schema.RECORDS`; a batch is what arrives in
        one interval, numbered by the time since 1970.

    Raises
    ------
    SyntheticError
        For an invalid argument: its name, the value found and what was expected.
    """
    traffic = traffic or TrafficPattern()
    for name, value, ok, expected in (
        ("intervals", intervals, intervals >= 1, "at least 1"),
        ("interval_ms", interval_ms, interval_ms >= 1, "at least 1"),
        ("start_ms", start_ms, start_ms >= 0 and start_ms % interval_ms == 0,
         f"a multiple of {interval_ms} (the interval)"),
        ("sharpness", traffic.sharpness, 0 <= traffic.sharpness <= 100, "a number of 0 to 100"),
        ("dirt", dirt, 0 <= dirt <= 1, "a share of 0 to 1"),
        ("disorder", disorder, 0 <= disorder <= 1, "a share of 0 to 1"),
    ):  # fmt: skip
        if not ok:
            raise SyntheticError(f"synthetic records, {name}: {value} found, {expected} expected")
    script = _script(
        snapshot, traffic, cpu_cost, (start_ms, interval_ms, since_ms), dirt, disorder, seed
    )
    tasks = min(tasks or spark.sparkContext.defaultParallelism, intervals)
    first = start_ms // interval_ms
    made = spark.range(first, first + intervals, 1, tasks).mapInArrow(
        script.batches, _schema(bool(script.traffic_rows))
    )
    return made.select(*(_column(name, made, cluster) for name in RECORDS.fieldNames()))


def phases(snapshot: Snapshot, traffic: TrafficPattern, seed: int = 0) -> Floats:
    """(P,) float: time of the daily peak of each partition, in days from noon."""
    # By name, so that adding or removing a topic leaves the others' peaks unchanged.
    drawn = [
        np.random.default_rng([seed, *name.encode()]).uniform(-0.5, 0.5) for name in snapshot.topics
    ]
    return traffic.spread * np.array(drawn)[snapshot.partition_topic]


def default_cpu_cost(snapshot: Snapshot) -> tuple[float, float, float, float]:
    """Costs of bytes by the default weights, with the snapshot's total cpu."""
    bytes_in, _, network_out, _ = _measured(snapshot)
    leads = snapshot.leader >= 0
    follows = snapshot.replication_factor - leads
    weighs = (
        LEADER_IN_WEIGHT * (bytes_in * leads).sum()
        + LEADER_OUT_WEIGHT * (network_out * leads).sum()
        + FOLLOWER_IN_WEIGHT * (bytes_in * follows).sum()
    )
    total = snapshot.broker_load()[:, snapshot.resource(CPU)].sum()
    price = float(total / weighs) if weighs > 0 else 0.0
    return (0.0, price * LEADER_IN_WEIGHT, price * LEADER_OUT_WEIGHT, price * FOLLOWER_IN_WEIGHT)


@dataclass(frozen=True, eq=False)
class _Script:
    """The data that a task needs to make the rows of any interval.

    Rows of an interval are those of living brokers, then of leaders, then of followers.
    """

    brokers: Ints
    living: Ints
    topics: tuple[str, ...]
    topic: Ints
    number: Ints
    replica_partition: Ints
    replica_broker: Ints
    leads: Bools
    bytes_in: Floats
    bytes_out: Floats
    network_out: Floats
    size: Floats
    phase: Floats
    cost: tuple[float, float, float, float]
    traffic_rows: tuple[str, ...]
    traffic_offset: Ints
    traffic_rate: Floats
    traffic: TrafficPattern
    times: tuple[int, int, int]
    dirt: float
    disorder: float
    seed: int

    def batches(self, ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for i in batch.column(0).to_pylist():
                yield from self.interval(i)

    def interval(self, i: int) -> Iterator[pa.RecordBatch]:
        """The rows of one interval."""
        _, interval_ms, since_ms = self.times
        time_ms, rng = i * interval_ms, np.random.default_rng([self.seed, i])
        factor = self.traffic.factor(time_ms, self.phase, since_ms)
        if self.traffic.noise:
            factor = factor * np.exp(rng.normal(0, self.traffic.noise, len(factor)))
        values = self.values(factor, float(self.traffic.grown(time_ms, since_ms)))
        n = len(values[0])
        batch = np.full(n, i, np.int64)
        late = rng.random(n) < self.disorder
        batch[late] += rng.integers(1, _DELAY + 1, int(late.sum()))
        row, batch, times = np.arange(n), batch, np.full(n, time_ms, np.int64)
        kind = np.zeros(n, np.int64)
        if self.dirt:
            copies = [np.flatnonzero(rng.random(n) < self.dirt) for _ in range(_KINDS_OF_DIRT)]
            row = np.concatenate([row, *copies])
            kind = np.repeat(np.arange(_KINDS_OF_DIRT + 1), [n, *map(len, copies)])
            # A copy must arrive after the original, or it would count as the original.
            batch = batch[row] + np.where(kind == _AGAIN, _DELAY, 0)
            times = time_ms + np.select(
                [kind == _AHEAD, kind == _BEHIND], [DAY_MS, -30 * DAY_MS], 0
            )
        for at in range(0, len(row), _CHUNK):
            part = slice(at, at + _CHUNK)
            yield self.rows(row[part], batch[part], times[part], kind[part], values, factor, i, at)

    def values(self, factor: Floats, grown: float) -> tuple[Floats, ...]:
        """Values of all rows for each name in _VALUES, nan for none."""
        bytes_in, bytes_out = self.bytes_in * factor, self.bytes_out * factor
        network_out = self.network_out * factor
        p, broker, b = self.replica_partition, self.replica_broker, len(self.brokers)
        leads, follows = self.leads, ~self.leads
        lead_in = np.bincount(broker[leads], bytes_in[p[leads]], b)
        lead_out = np.bincount(broker[leads], bytes_out[p[leads]], b)
        sent = np.bincount(broker[leads], network_out[p[leads]], b)
        follow_in = np.bincount(broker[follows], bytes_in[p[follows]], b)
        constant, *price = self.cost
        cpu = constant + price[0] * lead_in + price[1] * sent + price[2] * follow_in
        size = self.size * grown
        none_of_brokers = np.full(len(self.living), np.nan)
        none_of_leaders = np.full(int(leads.sum()), np.nan)
        none_of_followers = np.full(int(follows.sum()), np.nan)
        of_brokers = (lead_in, lead_out, None, cpu, follow_in, sent - lead_out)
        of_leaders = (bytes_in[p[leads]], bytes_out[p[leads]], size[leads], None, None, None)
        of_followers = (None, None, size[follows], None, None, None)
        return tuple(
            np.concatenate(
                [
                    none_of_brokers if x is None else x[self.living],
                    none_of_leaders if y is None else y,
                    none_of_followers if z is None else z,
                ]
            )
            for x, y, z in zip(of_brokers, of_leaders, of_followers, strict=True)
        )

    def rows(
        self,
        row: Ints,
        batch: Ints,
        times: Ints,
        kind: Ints,
        values: tuple[Floats, ...],
        factor: Floats,
        interval: int,
        first: int,
    ) -> pa.RecordBatch:
        _, interval_ms, _ = self.times
        n_living = len(self.living)
        order = np.concatenate([np.flatnonzero(self.leads), np.flatnonzero(~self.leads)])
        whole = row < n_living
        replica = order[np.where(whole, 0, row - n_living)] if len(order) else row * 0
        partition = self.replica_partition[replica] if len(order) else replica
        topic = np.where(whole, -1, self.topic[partition] if len(order) else -1)
        topic[(kind == _ELSEWHERE) & ~whole] = len(self.topics)
        broker = np.where(
            whole,
            self.living[np.where(whole, row, 0)],
            self.replica_broker[replica] if len(order) else 0,
        )
        ids = self.brokers[broker]
        # A broker's record has no topic to falsify, so it gets an unknown broker.
        ids = np.where((kind == _ELSEWHERE) & whole, self.brokers.max() + 1, ids)
        names = pa.array([*self.topics, NO_TOPIC])
        columns: dict[str, Any] = {
            "batch": batch,
            "arrived_ms": (batch + 1) * interval_ms,
            "source_offset": (interval << 32) + first + np.arange(len(row)),
            "time_ms": times,
            "broker": ids,
            "topic": names.take(pa.array(topic, mask=topic < 0)),
            "partition": np.where(whole, -1, self.number[partition] if len(order) else -1),
        }
        for name, value in zip(_VALUES, values, strict=True):
            reported = np.where(kind == _NEGATIVE, -value[row] - 1, value[row])
            columns[name] = pa.array(reported, mask=np.isnan(reported))
        if self.traffic_rows:
            columns["other"] = self.others(partition, whole | ~self.leads[replica], factor)
        return pa.RecordBatch.from_pydict(columns)

    def others(self, partition: Ints, none: Bools, factor: Floats) -> pa.MapArray:
        """The rates from the partitions to others, by metric name."""
        count = np.where(none, 0, np.diff(self.traffic_offset)[partition])
        end = np.cumsum(count)
        of = np.repeat(np.arange(len(partition)), count)
        edge = self.traffic_offset[partition[of]] + np.arange(len(of)) - (end - count)[of]
        keys = pa.array(self.traffic_rows).take(pa.array(edge))
        rate = self.traffic_rate[edge] * factor[partition[of]]
        return pa.MapArray.from_arrays(
            pa.array(np.concatenate([[0], end]), pa.int32()), keys, pa.array(rate)
        )


_AGAIN, _AHEAD, _BEHIND, _NEGATIVE, _ELSEWHERE = range(1, 6)
_KINDS_OF_DIRT = 5


def _script(
    snapshot: Snapshot,
    traffic: TrafficPattern,
    cpu_cost: tuple[float, float, float, float] | None,
    times: tuple[int, int, int],
    dirt: float,
    disorder: float,
    seed: int,
) -> _Script:
    bytes_in, bytes_out, network_out, size = _measured(snapshot)
    living = snapshot.broker_state != BrokerState.DEAD
    reported = living[snapshot.replica_broker]
    order = np.argsort(snapshot.traffic_from, kind="stable")
    target = snapshot.traffic_to[order]
    return _Script(
        brokers=snapshot.broker_ids,
        living=np.flatnonzero(living),
        topics=snapshot.topics,
        topic=snapshot.partition_topic,
        number=snapshot.partition_number,
        replica_partition=snapshot.replica_partition[reported],
        replica_broker=snapshot.replica_broker[reported],
        leads=snapshot.replica_is_leader[reported],
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        network_out=network_out,
        size=size[reported],
        phase=phases(snapshot, traffic, seed),
        cost=default_cpu_cost(snapshot) if cpu_cost is None else cpu_cost,
        traffic_rows=tuple(
            bytes_to(snapshot.topics[t], n)
            for t, n in zip(
                snapshot.partition_topic[target].tolist(),
                snapshot.partition_number[target].tolist(),
                strict=True,
            )
        ),
        traffic_offset=np.searchsorted(
            snapshot.traffic_from[order], np.arange(snapshot.n_partitions + 1)
        ),
        traffic_rate=snapshot.traffic_rate[order],
        traffic=traffic,
        times=times,
        dirt=dirt,
        disorder=disorder,
        seed=seed,
    )


def _measured(snapshot: Snapshot) -> tuple[Floats, Floats, Floats, Floats]:
    """(P,), (P,), (P,), (N,) float: bytes in, clients' and all bytes out; size of replicas."""
    _, network_in, network_out, disk = (snapshot.resource(r) for r in DEFAULT_RESOURCES)
    load = snapshot.leader_load
    bytes_in = load[:, network_in]
    replicated = bytes_in * (snapshot.replication_factor - 1)
    bytes_out = np.maximum(load[:, network_out] - replicated, 0.0)
    partition = snapshot.replica_partition
    size = np.where(
        snapshot.replica_is_leader, load[partition, disk], snapshot.follower_load[partition, disk]
    )
    return bytes_in, bytes_out, bytes_out + replicated, size


def _schema(traffic: bool) -> StructType:
    reported = ("batch", "arrived_ms", "source_offset", "time_ms", "broker", "topic", "partition")
    names = (*reported, *_VALUES, *(("other",) if traffic else ()))
    return StructType([RECORDS[name] for name in names])


def _column(name: str, made: DataFrame, cluster: str) -> Column:
    if name in made.columns:
        return f.col(name)
    known = {CLUSTER: f.lit(cluster), "source_partition": f.lit(0), "underscored": f.lit(False)}
    return known.get(name, f.lit(None)).cast(RECORDS[name].dataType).alias(name)
