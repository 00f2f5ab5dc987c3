"""Turns windows of rates and sizes into loads of leaders and followers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from cluster_model.history.cpu import CpuModel, with_placement
from cluster_model.history.schema import CLUSTER
from cluster_model.snapshot import DEFAULT_RESOURCES, Snapshot
from cluster_model.windows import Extrapolation
from metrics_reporter import BYTES_IN, BYTES_OUT

_PARTITION = (CLUSTER, "topic", "partition")
_VALID = ("valid_from_ms", "valid_to_ms")
_NO_VALID = int(Extrapolation.NO_VALID_EXTRAPOLATION)


def window_loads(
    windows: DataFrame,
    sizes: DataFrame,
    placements: DataFrame,
    cpu: CpuModel,
    metadata: Snapshot,
    window_ms: int,
    further: DataFrame | None = None,
    shares: Mapping[str, float] | None = None,
) -> DataFrame:
    """The loads of one cluster in each window in which a rate is known; unknown loads are null.

    With r replicas at the end of the window: the leader's ``network_in`` is bytes_in, its
    ``network_out`` bytes_out + bytes_in·(r − 1); a follower's ``network_in`` is bytes_in, its
    ``network_out`` 0. ``cpu`` is the cost of that traffic on the brokers that held the
    replicas then. ``disk`` is the newest size reported until the end of the window, or else
    the first one; for followers, their mean. A further resource is what the leader reported, and
    a follower has its share of that; other resources are those of the metadata.

    Parameters
    ----------
    windows, sizes, placements
        The tables of these names of :mod:`cluster_model.history.schema`.
    cpu
        Cost of a byte.
    metadata
        Names of the R resources, and loads in those that are not measured.
    window_ms
        Length of a window.
    further
        The table FURTHER_WINDOWS of the same range; None if nothing further is measured.
    shares
        Further resource to a follower's load as a share of the leader's.

    Returns
    -------
    DataFrame
        start_ms, topic, partition, leader and follower (array of R).
    """
    placed = with_placement(_with_sizes(windows, sizes), _priced(placements, cpu), window_ms)
    bytes_in, bytes_out = (
        f.when(f.col(f"{name}_kind") < _NO_VALID, f.col(name)) for name in (BYTES_IN, BYTES_OUT)
    )
    # A follower sends nothing to clients, whatever its incoming bytes.
    zero = f.lit(0.0)
    out = bytes_out + bytes_in * (f.size("replicas") - 1)
    rows = (
        placed.withColumn("leader_size", _leader_size())
        .withColumn("follower_size", _follower_size())
        .withColumn("network_out", out)
    )
    loads = {
        "leader": {
            "cpu": f.col("leader_in_cost") * bytes_in
            + f.col("leader_out_cost") * f.col("network_out"),
            "network_in": bytes_in,
            "network_out": f.col("network_out"),
            "disk": f.col("leader_size"),
        },
        "follower": {
            "cpu": f.col("follower_in_cost") * bytes_in,
            "network_in": bytes_in,
            "network_out": zero,
            "disk": f.col("follower_size"),
        },
    }
    shares = dict(shares or {})
    if further is not None:
        reported = further.groupBy(*_PARTITION[1:], "start_ms").agg(
            f.map_from_entries(f.collect_list(f.struct("metric", "value"))).alias("further")
        )
        rows = rows.join(reported, [*_PARTITION[1:], "start_ms"], "left")
        for name, share in shares.items():
            loads["leader"][name] = f.col("further")[name]
            loads["follower"][name] = f.lit(share) * f.col("further")[name]
    known = (*DEFAULT_RESOURCES, *shares)
    others = [name for name in metadata.resources if name not in known]
    if others:
        table = f.broadcast(_other_loads(rows, metadata, others))
        rows = rows.join(table, [*_PARTITION[1:]], "left")
        for role, of in loads.items():
            for i, name in enumerate(others):
                of[name] = f.col(f"other_{role}")[i]
    arrays = [
        f.array(*(of[name] for name in metadata.resources)).alias(role)
        for role, of in loads.items()
    ]
    return rows.select("start_ms", "topic", "partition", *arrays)


def _with_sizes(windows: DataFrame, sizes: DataFrame) -> DataFrame:
    """Windows with a map of the newest sizes reported of the partition, by broker."""
    reported = sizes.groupBy(*_PARTITION, "start_ms").agg(
        f.map_from_entries(f.collect_list(f.struct("broker", "size"))).alias("reported")
    )
    along = Window.partitionBy(*_PARTITION).orderBy("start_ms")
    until = along.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Not from the current row on, where Spark would read all following rows again for each row.
    ever = along.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    newest = f.coalesce(
        f.last("reported", ignorenulls=True).over(until),
        f.first("reported", ignorenulls=True).over(ever),
    )
    return windows.join(reported, [*_PARTITION, "start_ms"], "left").withColumn("sizes", newest)


def _leader_size() -> Column:
    """Size of the leader's replica; else the mean of the known ones; null if there are none."""
    known = f.filter(
        f.transform("replicas", lambda b: f.col("sizes")[b]), lambda size: size.isNotNull()
    )
    own = f.col("sizes")[f.col("leader")]
    return f.coalesce(own, _mean(known))


def _follower_size() -> Column:
    """Mean over followers, where an unknown size counts as the leader's."""
    leads = f.col("leader")
    follows = f.filter("replicas", lambda b: b != leads)
    size = f.col("leader_size")
    return f.coalesce(
        _mean(f.transform(follows, lambda b: f.coalesce(f.col("sizes")[b], size))), size
    )


def _priced(placements: DataFrame, cpu: CpuModel) -> DataFrame:
    """Placements with the leader's cost of a byte in and out, and a follower's of one in."""
    kept = placements.select(*_PARTITION, *_VALID, "replicas", "leader")
    follows = f.filter("replicas", lambda b: b != f.col("leader"))
    # Without a leader or followers, a future one has the price of the others.
    leads = f.when(f.col("leader") >= 0, f.array("leader")).otherwise(f.col("replicas"))
    follow = f.when(f.size(follows) > 0, follows).otherwise(f.col("replicas"))
    return kept.select(
        *kept.columns,
        _price(cpu, 0, leads).alias("leader_in_cost"),
        _price(cpu, 1, leads).alias("leader_out_cost"),
        _price(cpu, 2, follow).alias("follower_in_cost"),
    )


def _price(cpu: CpuModel, i: int, brokers: Column) -> Column:
    otherwise = f.lit(cpu.most.coefficients[i])
    ids = [id_ for c in cpu.classes if c is not cpu.most for id_ in c.brokers]
    if not ids:
        return otherwise
    price = cpu.coefficients(np.array(ids, np.int64))[:, i]
    of = f.map_from_arrays(f.lit(np.array(ids, np.int64)), f.lit(price))
    return _mean(f.transform(brokers, lambda b: f.coalesce(of[b], otherwise)))


def _mean(values: Column) -> Column:
    """Mean of an array; null for an empty one."""
    total = f.aggregate(values, f.lit(0.0), lambda sum_, value: sum_ + value)
    return f.when(f.size(values) > 0, total / f.size(values))


def _other_loads(rows: DataFrame, metadata: Snapshot, others: list[str]) -> DataFrame:
    """Loads that are not measured, for each partition of the metadata."""
    column = [metadata.resource(name) for name in others]
    reported = [
        (metadata.topics[topic], number, leader, follower)
        for topic, number, leader, follower in zip(
            metadata.partition_topic.tolist(),
            metadata.partition_number.tolist(),
            metadata.leader_load[:, column].tolist(),
            metadata.follower_load[:, column].tolist(),
            strict=True,
        )
    ]
    return rows.sparkSession.createDataFrame(
        reported,
        "topic string, partition long, other_leader array<double>, other_follower array<double>",
    )
