"""Sums up the traffic between partitions, which collocation needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cluster_model.history.alignment import partition_rows
from cluster_model.history.schema import CLUSTER
from cluster_model.history.screening import in_batches
from cluster_model.history.statistics import PERCENTILES, percentiles
from cluster_model.snapshot import Snapshot
from cluster_model.trust import TrustParameters
from metrics_reporter.metrics import BYTES_IN, BYTES_OUT, BYTES_TO

_ARRIVAL = (CLUSTER, "batch", "source_partition", "source_offset")
_PAIR = (CLUSTER, "topic", "partition", "to_topic", "to_partition")


def traffic_sums(records: DataFrame, judged: DataFrame, window_ms: int) -> DataFrame:
    """Samples of partitions' rates to others, summed over windows.

    They are in the records of the partition's leader, next to its own rates, named by
    :func:`metrics_reporter.metrics.bytes_to`, and count whenever those do.

    Parameters
    ----------
    records
        :data:`cluster_model.history.schema.RECORDS`.
    judged
        The same records, judged: :attr:`cluster_model.history.clean.JudgedRecords.rated`.
    window_ms
        Length of a window.

    Returns
    -------
    DataFrame
        cluster, topic, partition, to_topic, to_partition, start_ms, bytes_sum and
        bytes_count.
    """
    reported = in_batches(records.where("other is not null"), window_ms).select(
        *_ARRIVAL, f.explode("other").alias("metric", "rate")
    )
    name = f.substring("metric", len(BYTES_TO) + 1, 2**31 - 1)
    place = f.length(name) - f.length(f.substring_index(name, "/", -1))
    most = TrustParameters().max_rate
    valid = (f.col("rate") >= 0) & (f.col("rate") <= most)
    reported = reported.where(f.col("metric").startswith(BYTES_TO) & valid).select(
        *_ARRIVAL,
        "rate",
        f.substring(name, f.lit(1), place - 1).alias("to_topic"),
        f.substring_index(name, "/", -1).try_cast("long").alias("to_partition"),
    )
    rated = f.col(BYTES_IN).isNotNull() | f.col(BYTES_OUT).isNotNull()
    taken = judged.where((f.col("outcome") == "added") & rated).select(
        *_ARRIVAL, "topic", "partition", "time_ms", "start_ms"
    )
    keys = (*_PAIR, "start_ms")
    ordered = (
        reported.where("to_topic != '' and to_partition >= 0")
        .join(taken, [*_ARRIVAL])
        .repartition(*_PAIR)
        # Sums of floats depend on their order, so it is fixed.
        .sortWithinPartitions(*keys, "time_ms", *_ARRIVAL[1:])
    )
    return ordered.groupBy(*keys).agg(
        f.sum("rate").alias("bytes_sum"), f.count("*").alias("bytes_count")
    )


def traffic_rates(sums: DataFrame, statistic: str) -> DataFrame:
    """One rate for each pair, over the windows that have it.

    Parameters
    ----------
    sums
        As from :func:`traffic_sums`.
    statistic
        ``"peak"`` or a percentile of the windows' means; otherwise their mean.
    """
    mean = f.col("bytes_sum") / f.col("bytes_count")
    ordered = (
        sums.select(*_PAIR, "start_ms", mean.alias("mean"))
        .repartition(*_PAIR)
        .sortWithinPartitions(*_PAIR, "start_ms")
    )
    if statistic in PERCENTILES:
        found = percentiles(ordered, _PAIR, ["mean"], [PERCENTILES[statistic]])
        return found.select(*_PAIR, f.col("mean")[0].alias("rate"))
    of = f.max if statistic == "peak" else f.avg
    return ordered.groupBy(*_PAIR).agg(of("mean").alias("rate"))


def with_traffic(snapshot: Snapshot, rates: DataFrame) -> Snapshot:
    """The snapshot with these rates between its partitions; others are ignored."""
    table = rates.toArrow()
    if not table.num_rows:
        return snapshot
    source, target = (
        partition_rows(snapshot, table[topic].to_pylist(), table[partition].to_numpy())
        for topic, partition in (("topic", "partition"), ("to_topic", "to_partition"))
    )
    rate = table["rate"].to_numpy()
    known = np.flatnonzero((source >= 0) & (target >= 0) & (rate > 0))
    order = known[np.lexsort((target[known], source[known]))]
    return replace(
        snapshot, traffic_from=source[order], traffic_to=target[order], traffic_rate=rate[order]
    )
