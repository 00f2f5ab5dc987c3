"""Learns the cpu cost of a byte from a cluster's history, for each class of brokers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from cluster_model.attribution import (
    FOLLOWER_IN_WEIGHT,
    LEADER_IN_WEIGHT,
    LEADER_OUT_WEIGHT,
    mean_by_group,
)
from cluster_model.history.schema import CLUSTER
from cluster_model.snapshot import Floats, Ints, Snapshot
from cluster_model.windows import Extrapolation
from metrics_reporter.metrics import CPU

_PARTITION = (CLUSTER, "topic", "partition")
_VALID = ("valid_from_ms", "valid_to_ms")
TRAFFIC = ("leader_in", "leader_out", "follower_in")
_USUAL = np.array([LEADER_IN_WEIGHT, LEADER_OUT_WEIGHT, FOLLOWER_IN_WEIGHT])
# One in this many windows is held out, to measure the error on data not learnt from.
_HELD_OUT = 5
# Weight of the default coefficients relative to the measurements: they decide only what
# the measurements leave open.
_PRIOR = 1e-6
_PRODUCTS = tuple((i, j) for i in range(3) for j in range(i, 3))


@dataclass(frozen=True)
class CpuClass:
    """Brokers with equal capacities, and their cpu cost per byte/s.

    Parameters
    ----------
    brokers
        Their ids.
    leader_in, leader_out, follower_in
        Cpu for each byte/s that a leader takes in, that it sends out (replication
        included), and that a follower takes in; at least 0.
    windows, held_out
        Number of brokers' windows learnt from, and how many of these were first held out
        to measure the error of the rest.
    r2, rmse
        Share of the variance of cpu explained, and error in the unit of cpu, over all
        windows; nan if there are none.
    held_out_r2, held_out_rmse
        The same over the windows held out, with coefficients learnt from the others.
    """

    brokers: tuple[int, ...]
    leader_in: float
    leader_out: float
    follower_in: float
    windows: int = 0
    held_out: int = 0
    r2: float = math.nan
    rmse: float = math.nan
    held_out_r2: float = math.nan
    held_out_rmse: float = math.nan

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """The three coefficients, in the order of :data:`TRAFFIC`."""
        return self.leader_in, self.leader_out, self.follower_in


@dataclass(frozen=True)
class CpuModel:
    """Cpu cost of a byte on every broker.

    Parameters
    ----------
    classes
        By capacities, largest cpu first.
    """

    classes: tuple[CpuClass, ...]

    @property
    def most(self) -> CpuClass:
        """The class of most brokers."""
        return max(self.classes, key=lambda c: len(c.brokers))

    def coefficients(self, broker_ids: Ints) -> Floats:
        """(n, 3) float: coefficients of brokers by id; for unknown ones those of most brokers."""
        of = {id_: c.coefficients for c in self.classes for id_ in c.brokers}
        found = [of.get(id_, self.most.coefficients) for id_ in broker_ids.tolist()]
        return np.array(found, np.float64).reshape(-1, 3)

    def attribute(
        self, snapshot: Snapshot, bytes_in: Floats, network_out: Floats
    ) -> tuple[Floats, Floats]:
        """Cpu of each partition's leader and of a follower, at the current placement.

        Parameters
        ----------
        snapshot
            Placement: P partitions; its loads are not read.
        bytes_in, network_out : (P,) float
            Rates of the leader, replication included.

        Returns
        -------
        leader, follower : (P,) float
            Without a leader or followers, the price on the brokers of the others.
        """
        paid = self.coefficients(snapshot.broker_ids)[snapshot.replica_broker]
        partition, leads = snapshot.replica_partition, snapshot.replica_is_leader
        everyone = np.ones(len(leads), np.bool_)

        def price(i: int, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
            of = mean_by_group(partition, paid[:, i], chosen, snapshot.n_partitions)
            anyone = mean_by_group(partition, paid[:, i], everyone, snapshot.n_partitions)
            return np.where(np.isnan(of), anyone, of)

        leader = price(0, leads) * bytes_in + price(1, leads) * network_out
        return leader, price(2, ~leads) * bytes_in


def broker_classes(snapshot: Snapshot) -> tuple[tuple[int, ...], ...]:
    """Ids of brokers with equal capacities, largest first, compared by the first resource first."""
    _, of = np.unique(-snapshot.capacity, axis=0, return_inverse=True)
    ids, of = snapshot.broker_ids, of.reshape(-1)
    return tuple(tuple(ids[of == k].tolist()) for k in range(int(of.max()) + 1))


def broker_traffic(led: DataFrame, placements: DataFrame, window_ms: int) -> DataFrame:
    """Traffic of each broker in each window, as the leaders of the time measured it.

    Parameters
    ----------
    led
        :data:`cluster_model.history.schema.LED`.
    placements
        :data:`cluster_model.history.schema.PLACEMENTS`; the followers of a window are those
        at its end.
    window_ms
        Length of a window.

    Returns
    -------
    DataFrame
        cluster, broker, start_ms, leader_in, leader_out, follower_in (bytes/s).
    """
    placed = with_placement(led, placements.select(*_PARTITION, *_VALID, "replicas"), window_ms)
    follows = f.array_except("replicas", f.array("broker"))
    out = f.col("bytes_out") + f.col("bytes_in") * f.size(follows)
    zero = f.lit(0.0)
    lead = _share(f.col("broker"), f.col("bytes_in"), out, zero)
    follow = f.transform(follows, lambda b: _share(b, zero, zero, f.col("bytes_in")))
    reported = placed.select(
        CLUSTER,
        "start_ms",
        "topic",
        "partition",
        f.col("broker").alias("leader"),
        f.inline(f.concat(f.array(lead), follow)),
    )
    keys = (CLUSTER, "broker", "start_ms")
    # Sums of floats depend on their order, so it is fixed.
    ordered = reported.repartition(*keys).sortWithinPartitions(
        *keys, "topic", "partition", "leader"
    )
    return ordered.groupBy(*keys).agg(*(f.sum(name).alias(name) for name in TRAFFIC))


def with_placement(rows: DataFrame, placements: DataFrame, window_ms: int) -> DataFrame:
    """Rows of partitions' windows, joined with the placement at the end of the window.

    Parameters
    ----------
    rows
        cluster, topic, partition, start_ms, and more.
    placements
        cluster, topic, partition, valid_from_ms, valid_to_ms, and more.
    window_ms
        Length of a window.
    """
    reported = [name for name in placements.columns if name not in (*_PARTITION, *_VALID)]
    end = f.col("start_ms") + (window_ms - 1)
    joined = rows.alias("r").join(
        placements.alias("p"),
        reduce(Column.__and__, (f.col(f"r.{name}") == f.col(f"p.{name}") for name in _PARTITION))
        & (f.col("p.valid_from_ms") <= end)
        & (f.col("p.valid_to_ms") > end),
    )
    return joined.select("r.*", *(f.col(f"p.{name}") for name in reported))


def fit_cpu(
    traffic: DataFrame,
    broker_windows: DataFrame,
    classes: tuple[tuple[int, ...], ...],
    window_ms: int,
) -> CpuModel:
    """Learn the cost of a byte, by least squares with coefficients of at least 0.

    There is no constant: all of a broker's cpu is charged to its traffic, as a snapshot has
    no place for a remainder. If the measurements cannot separate the coefficients (because
    two kinds of traffic always occur together, for example), those closest to the default
    weights are chosen.

    Parameters
    ----------
    traffic
        As from :func:`broker_traffic`, of one cluster.
    broker_windows
        :data:`cluster_model.history.schema.BROKER_WINDOWS`; only measured windows of cpu
        are used, not extrapolated ones.
    classes
        Ids of brokers with the same costs.
    window_ms
        Length of a window.
    """
    class_of = [(id_, k) for k, ids in enumerate(classes) for id_ in ids]
    numbers = traffic.sparkSession.createDataFrame(class_of, "broker long, class int")
    keys = (CLUSTER, "broker", "start_ms")
    cpu = broker_windows.where(
        (f.col("metric") == CPU) & (f.col("kind") <= int(Extrapolation.AVG_AVAILABLE))
    ).select(*keys, f.col("value").alias("y"))
    held = f.pmod(f.floor(f.col("start_ms") / f.lit(window_ms)), f.lit(_HELD_OUT)) == 0
    rows = (
        traffic.join(cpu, [*keys])
        .join(f.broadcast(numbers), ["broker"])
        .select("class", held.alias("held"), "start_ms", "broker", "y", *TRAFFIC)
    )
    sums = dict(_sums())
    per_window = (
        rows.repartition("start_ms")
        .sortWithinPartitions("start_ms", "broker")
        .groupBy("class", "held", "start_ms")
        .agg(*(f.sum(column).alias(name) for name, column in sums.items()))
    )
    # Collected together, because the windows are many and the classes are few.
    found = (
        per_window.repartition("class", "held")
        .sortWithinPartitions("class", "held", "start_ms")
        .groupBy("class", "held")
        .agg(*(f.sum(name).alias(name) for name in sums))
        .collect()
    )
    moments = [[_Moments.zero(), _Moments.zero()] for _ in classes]
    for row in found:
        moments[row["class"]][int(row["held"])] = _Moments.of(row)
    together = _Moments.zero()
    for learnt, held_out in moments:
        together += learnt + held_out
    usual = together.usual(np.zeros(3))
    return CpuModel(
        tuple(
            _learn(ids, pair[0], pair[1], usual) for ids, pair in zip(classes, moments, strict=True)
        )
    )


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over n rows: of y, y², x, x·y and x·x'."""

    n: int
    y: float
    yy: float
    x: Floats
    xy: Floats
    xx: Floats

    @classmethod
    def zero(cls) -> _Moments:
        return cls(0, 0.0, 0.0, np.zeros(3), np.zeros(3), np.zeros((3, 3)))

    @classmethod
    def of(cls, row: Row) -> _Moments:
        xx = np.zeros((3, 3))
        for i, j in _PRODUCTS:
            xx[i, j] = xx[j, i] = row[f"xx{i}{j}"]
        x, xy = (np.array([row[f"{name}{i}"] for i in range(3)]) for name in ("x", "xy"))
        return cls(int(row["n"]), row["y_"], row["yy"], x, xy, xx)

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(
            self.n + other.n, self.y + other.y, self.yy + other.yy, self.x + other.x,
            self.xy + other.xy, self.xx + other.xx,
        )  # fmt: skip

    def usual(self, otherwise: Floats) -> Floats:
        """Coefficients in proportion to the default weights, with the right total."""
        weighs = float(_USUAL @ self.x)
        return _USUAL * (self.y / weighs) if weighs > 0 else otherwise

    def solve(self, usual: Floats) -> Floats:
        """Coefficients of at least 0 with the least squared error."""
        scale = np.sqrt(np.diag(self.xx))
        seen = scale > 0
        unit = np.where(seen, scale, 1.0)
        # In units in which each x has length 1; kinds of traffic never seen cost the default.
        a = self.xx / np.outer(unit, unit) + np.diag(np.where(seen, _PRIOR, 1.0))
        b = self.xy / unit + np.where(seen, _PRIOR, 1.0) * usual * unit
        best, least = np.zeros(3), 0.0
        for size in range(1, 4):
            for some in combinations(range(3), size):
                c = np.zeros(3)
                c[list(some)] = np.linalg.solve(a[np.ix_(some, some)], b[list(some)])
                objective = float(c @ a @ c / 2 - b @ c)
                if (c >= 0).all() and objective < least:
                    best, least = c, objective
        solved: Floats = best / unit
        return solved

    def error(self, c: Floats) -> tuple[float, float]:
        """R² and RMSE of coefficients on these rows; nan if undefined."""
        if not self.n:
            return math.nan, math.nan
        squares = max(self.yy - 2 * float(c @ self.xy) + float(c @ self.xx @ c), 0.0)
        spread = self.yy - self.y**2 / self.n
        # A sum of squares has limited precision.
        r2 = 1 - squares / spread if spread > 1e-12 * self.yy else math.nan
        return r2, math.sqrt(squares / self.n)


def _learn(ids: tuple[int, ...], learnt: _Moments, held_out: _Moments, usual: Floats) -> CpuClass:
    every = learnt + held_out
    coefficients = every.solve(every.usual(usual))
    leader_in, leader_out, follower_in = coefficients.tolist()
    r2, rmse = every.error(coefficients)
    held_out_r2, held_out_rmse = held_out.error(learnt.solve(learnt.usual(usual)))
    return CpuClass(
        brokers=ids,
        leader_in=leader_in,
        leader_out=leader_out,
        follower_in=follower_in,
        windows=every.n,
        held_out=held_out.n,
        r2=r2,
        rmse=rmse,
        held_out_r2=held_out_r2,
        held_out_rmse=held_out_rmse,
    )


def _sums() -> Iterator[tuple[str, Column]]:
    x, y = [f.col(name) for name in TRAFFIC], f.col("y")
    yield "n", f.lit(1)
    yield "y_", y
    yield "yy", y * y
    for i in range(3):
        yield f"x{i}", x[i]
        yield f"xy{i}", x[i] * y
    for i, j in _PRODUCTS:
        yield f"xx{i}{j}", x[i] * x[j]


def _share(broker: Column, leader_in: Column, leader_out: Column, follower_in: Column) -> Column:
    shares = zip(TRAFFIC, (leader_in, leader_out, follower_in), strict=True)
    return f.struct(broker.alias("broker"), *(value.alias(name) for name, value in shares))
