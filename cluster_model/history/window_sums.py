"""Sums samples over windows: small enough to keep, and sufficient for any later query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cluster_model.history.clean import TAKEN, JudgedRecords
from cluster_model.history.schema import BROKER_SUMS, CLUSTER, FURTHER_SUMS, PARTITION_SUMS, SIZES
from cluster_model.history.screening import RATES, further_column
from metrics_reporter import SIZE

_PARTITION = (CLUSTER, "topic", "partition")
# Distinguishes samples of one window; sums of floats are taken in this order.
_ORDER = ("time_ms", "batch", "source_partition", "source_offset")


def partition_sums(rated: DataFrame) -> DataFrame:
    """The table PARTITION_SUMS of judged records.

    Parameters
    ----------
    rated
        :attr:`cluster_model.history.clean.JudgedRecords.rated`.
    """
    guess = F.col("shares_of_topic")
    rows = rated.where(F.col("outcome").isin(*TAKEN)).where(
        F.col(RATES[0]).isNotNull() | F.col(RATES[1]).isNotNull()
    )
    reported: dict[str, Column] = {}
    for name in RATES:
        given = F.col(name).isNotNull()
        reported[f"{name}_sum"] = F.sum(F.col(name) / F.col("shares"))
        reported[f"{name}_count"] = F.count(name)
        reported[f"{name}_guess"] = F.max(F.when(given, guess))
    summed = _summed(
        rows.withColumn("shares_of_topic", F.col("outcome") == "split"),
        (*_PARTITION, "start_ms", "broker"),
        reported,
    )
    none: dict[str, bool | float | int | str] = {}
    for name in RATES:
        none |= {f"{name}_sum": 0.0, f"{name}_guess": False}
    return summed.fillna(none).select(*PARTITION_SUMS.names)


def sizes(partitions: DataFrame) -> DataFrame:
    """The table SIZES of judged records; sizes in late and repeated records count too.

    They do not count from earlier days than rates may be from, whatever else is late.

    Among sizes with equal times the first to arrive stays.
    """
    reported = partitions.where((F.col("phase") == 1) & ~F.col("stale")).where(
        F.col(SIZE).isNotNull() & F.col("outcome").isin("added", "duplicate", "late")
    )
    # The newest, and among equals the first: the maximum of these.
    age = F.struct("time_ms", *(-F.col(name) for name in _ORDER[1:]))
    found = reported.groupBy(*_PARTITION, "broker", "start_ms").agg(
        F.max("time_ms").alias("time_ms"), F.max_by(SIZE, age).alias(SIZE)
    )
    return found.select(*SIZES.names)


def broker_sums(brokers: DataFrame) -> DataFrame:
    """The table BROKER_SUMS of judged records.

    Parameters
    ----------
    brokers
        :attr:`cluster_model.history.clean.JudgedRecords.brokers`.
    """
    rows = brokers.where(F.col("outcome") == "added")
    reported = {"value_sum": F.sum("value"), "value_count": F.count("value")}
    by = (CLUSTER, "broker", "metric", "start_ms")
    return _summed(rows, by, reported).select(*BROKER_SUMS.names)


def further_sums(judged: JudgedRecords) -> DataFrame:
    """The table FURTHER_SUMS of judged records."""
    metrics = F.array(
        *(
            F.struct(F.lit(name).alias("metric"), F.col(further_column(i)).alias("value"))
            for i, name in enumerate(judged.further)
        )
    )
    if not judged.further:
        metrics = F.array().cast("array<struct<metric:string,value:double>>")
    rows = (
        judged.rated.where(F.col("outcome").isin(*TAKEN))
        .withColumn("each", F.explode(F.filter(metrics, lambda x: x["value"].isNotNull())))
        .select("*", "each.metric", "each.value")
    )
    reported = {"value_sum": F.sum("value"), "value_count": F.count("value")}
    return _summed(rows, (*_PARTITION, "metric", "start_ms"), reported).select(*FURTHER_SUMS.names)


def _summed(rows: DataFrame, by: Sequence[str], reported: Mapping[str, Column]) -> DataFrame:
    """One row for each group, with reproducible sums of floats.

    An aggregation adds rows in any order, and partial sums when memory is short; a window
    adds its sorted rows one after the other.
    """
    group = Window.partitionBy(*by).orderBy(*_ORDER)
    whole = group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        rows.withColumns(
            {
                **{name: what.over(whole) for name, what in reported.items()},
                "_row": F.row_number().over(group),
            }
        )
        .where(F.col("_row") == 1)
        .drop("_row")
    )
