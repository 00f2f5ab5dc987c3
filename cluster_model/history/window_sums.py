"""Samples summed over windows: little enough to keep, and enough for any question later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cluster_model.history.clean import RATES, TAKEN
from cluster_model.history.schema import BROKER_CELLS, CELLS, CLUSTER, SIZES
from metrics_reporter import SIZE

_PARTITION = (CLUSTER, "topic", "partition")
# What tells samples of one window apart; the sums of floats are those of this order.
_ORDER = ("time_ms", "batch", "source_partition", "source_offset")


def cells(partitions: DataFrame) -> DataFrame:
    """The table CELLS of what was judged.

    Parameters
    ----------
    partitions
        :attr:`cluster_model.history.clean.Judged.partitions`.
    """
    guess = F.col("shares_of_topic")
    rows = partitions.where(F.col("outcome").isin(*TAKEN)).where(
        F.col(RATES[0]).isNotNull() | F.col(RATES[1]).isNotNull()
    )
    told: dict[str, Column] = {}
    for name in RATES:
        given = F.col(name).isNotNull()
        told[f"{name}_sum"] = F.sum(F.col(name) / F.col("shares"))
        told[f"{name}_count"] = F.count(name)
        told[f"{name}_guess"] = F.max(F.when(given, guess))
    summed = _summed(
        rows.withColumn("shares_of_topic", F.col("outcome") == "split"),
        (*_PARTITION, "start_ms", "broker"),
        told,
    )
    none: dict[str, bool | float | int | str] = {}
    for name in RATES:
        none |= {f"{name}_sum": 0.0, f"{name}_guess": False}
    return summed.fillna(none).select(*CELLS.names)


def sizes(partitions: DataFrame) -> DataFrame:
    """The table SIZES of what was judged: late and repeated records tell sizes too.

    Of sizes of equal times the one that arrived first stays.
    """
    told = partitions.where(F.col("phase") == 1).where(
        F.col(SIZE).isNotNull() & F.col("outcome").isin("added", "duplicate", "late")
    )
    # The newest, and among equals the first: the greatest of these.
    age = F.struct("time_ms", *(-F.col(name) for name in _ORDER[1:]))
    found = told.groupBy(*_PARTITION, "broker", "start_ms").agg(
        F.max("time_ms").alias("time_ms"), F.max_by(SIZE, age).alias(SIZE)
    )
    return found.select(*SIZES.names)


def broker_cells(brokers: DataFrame) -> DataFrame:
    """The table BROKER_CELLS of what was judged.

    Parameters
    ----------
    brokers
        :attr:`cluster_model.history.clean.Judged.brokers`.
    """
    rows = brokers.where(F.col("outcome") == "added")
    told = {"value_sum": F.sum("value"), "value_count": F.count("value")}
    by = (CLUSTER, "broker", "metric", "start_ms")
    return _summed(rows, by, told).select(*BROKER_CELLS.names)


def _summed(rows: DataFrame, by: Sequence[str], told: Mapping[str, Column]) -> DataFrame:
    """One row for each group, with sums of floats that are the same every time.

    An aggregation adds in the order in which rows come, and that of parts when memory is
    short; a window adds its sorted rows one after the other.
    """
    group = Window.partitionBy(*by).orderBy(*_ORDER)
    whole = group.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        rows.withColumns(
            {
                **{name: what.over(whole) for name, what in told.items()},
                "_row": F.row_number().over(group),
            }
        )
        .where(F.col("_row") == 1)
        .drop("_row")
    )
