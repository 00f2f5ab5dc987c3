"""Windows of any range of time, equal to the few that the live model keeps.

A window of partitions or brokers has the value and the kind of extrapolation that
:class:`cluster_model.windows.Windows` gives it, with the mean as its strategy. Data outside
of the range is ignored: as in the live model, the first and last window have one
neighbour each.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cluster_model.history.errors import HistoryError
from cluster_model.history.schema import (
    BROKER_WINDOWS,
    CLUSTER,
    FURTHER_WINDOWS,
    LED,
    SIZES,
    WINDOWS,
)
from cluster_model.windows import Extrapolation
from metrics_reporter import BYTES_IN, BYTES_OUT

_RATES = (BYTES_IN, BYTES_OUT)
_PARTITION = (CLUSTER, "topic", "partition")
_NO_VALID = Extrapolation.NO_VALID_EXTRAPOLATION.value
# Column with the samples of each broker.
_MEASURED = "measured"


def windows(
    partition_sums: DataFrame,
    *,
    window_ms: int,
    min_samples: int = 3,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """The table WINDOWS of a range of time.

    Parameters
    ----------
    partition_sums
        The table PARTITION_SUMS.
    window_ms
        Length of a window, that of the cells.
    min_samples
        Samples of a rate that make a window's value good without extrapolation.
    first_ms, end_ms
        The range: windows that start in it, the end excluded; all by default.

    Raises
    ------
    HistoryError
        For an empty range, or a number below 1.
    """
    rows = _in_range(partition_sums, window_ms, min_samples, first_ms, end_ms)
    found = _extrapolated(_over_brokers(rows), _PARTITION, _RATES, window_ms, min_samples)
    return found.select(*WINDOWS.names)


def attributed_windows(
    partition_sums: DataFrame,
    *,
    window_ms: int,
    min_samples: int = 3,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """The table WINDOWS, with what :func:`led` has of each window (`by_broker`, an array).

    Both are then computed at once. Parameters and errors are those of :func:`windows`.
    """
    rows = _in_range(partition_sums, window_ms, min_samples, first_ms, end_ms)
    found = _extrapolated(
        _over_brokers(rows, _MEASURED), _PARTITION, _RATES, window_ms, min_samples, _MEASURED
    )
    return found.withColumn("by_broker", _divided()).select(*WINDOWS.names, "by_broker")


def broker_windows(
    broker_sums: DataFrame,
    *,
    window_ms: int,
    min_samples: int = 3,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """The table BROKER_WINDOWS of a range of time.

    Parameters and errors are those of :func:`windows`, with the table BROKER_SUMS.
    """
    rows = _in_range(broker_sums, window_ms, min_samples, first_ms, end_ms)
    by = (CLUSTER, "broker", "metric")
    found = _extrapolated(rows, by, ("value",), window_ms, min_samples)
    return found.withColumnRenamed("value_kind", "kind").select(*BROKER_WINDOWS.names)


def further_windows(
    further_sums: DataFrame,
    *,
    window_ms: int,
    min_samples: int = 3,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """The table FURTHER_WINDOWS of a range of time.

    Parameters and errors are those of :func:`windows`, with the table FURTHER_SUMS.
    """
    rows = _in_range(further_sums, window_ms, min_samples, first_ms, end_ms)
    found = _extrapolated(rows, (*_PARTITION, "metric"), ("value",), window_ms, min_samples)
    return found.withColumnRenamed("value_kind", "kind").select(*FURTHER_WINDOWS.names)


def led(
    partition_sums: DataFrame,
    *,
    window_ms: int,
    min_samples: int = 3,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """The table LED: the brokers that the rates of :func:`windows` are attributed to.

    A rate is divided among the brokers that measured it, in proportion to their sums of
    samples; a window extrapolated from its neighbours is attributed to the brokers that
    measured those.

    Parameters and errors are those of :func:`windows`.
    """
    found = attributed_windows(
        partition_sums,
        window_ms=window_ms,
        min_samples=min_samples,
        first_ms=first_ms,
        end_ms=end_ms,
    )
    return led_of(found)


def led_of(attributed: DataFrame) -> DataFrame:
    """The table LED of what :func:`attributed_windows` returns."""
    return attributed.select(*_PARTITION, "start_ms", F.inline("by_broker")).select(*LED.names)


def _divided() -> Column:
    """The rates of a window by broker, from the samples of it and of its neighbours."""
    near = {name: F.col(f"{name}_kind") == Extrapolation.AVG_ADJACENT for name in _RATES}
    own = F.col("start_ms")
    samples = F.when(near[BYTES_IN] | near[BYTES_OUT], F.col(_MEASURED)).otherwise(
        F.filter(_MEASURED, lambda x: x["of_ms"] == own)
    )

    def rate(name: str, broker: Column) -> Column:
        parts = F.filter(
            samples,
            lambda x: (x["broker"] == broker) & ((x["of_ms"] == own) | near[name]),
        )
        # A broker's parts come from at most three windows, in the order of time.
        total = F.aggregate(
            parts, F.lit(0.0), lambda sum_, x: sum_ + F.coalesce(x[f"{name}_sum"], F.lit(0.0))
        )
        weight = F.col(f"{name}_weight")
        return F.when(weight > 0, total / weight).otherwise(0.0).alias(name)

    brokers = F.array_distinct(F.transform(samples, lambda x: x["broker"]))
    return F.transform(
        brokers, lambda b: F.struct(b.alias("broker"), *(rate(name, b) for name in _RATES))
    )


def newest_sizes(sizes: DataFrame, *, end_ms: int | None = None) -> DataFrame:
    """The newest size that each broker reported of each of its replicas, before a time.

    Returns
    -------
    DataFrame
        The table SIZES without `start_ms`.
    """
    if end_ms is not None:
        sizes = sizes.where(F.col("start_ms") < end_ms)
    found = sizes.groupBy(*_PARTITION, "broker").agg(
        F.max_by("size", "time_ms").alias("size"), F.max("time_ms").alias("time_ms")
    )
    return found.select(*(name for name in SIZES.names if name != "start_ms"))


def completeness(
    windows: DataFrame, placements: DataFrame, *, window_ms: int, end_ms: int | None = None
) -> DataFrame:
    """How many partitions have known rates in each window.

    Parameters
    ----------
    windows
        The table WINDOWS of a range.
    placements
        The table PLACEMENTS.
    window_ms
        Length of a window.
    end_ms
        End of the range; by default after the last window with any known rate.

    Returns
    -------
    DataFrame
        For each cluster and `start_ms`, from the first window with any known rate:
        the number of partitions when it started (`partitions`), the number with
        both rates in it (`known`), and their share (`ratio`, 1 without partitions).
    """
    span = _span(windows, window_ms, end_ms)
    each = span.select(
        CLUSTER,
        F.explode(
            F.sequence("first_ms", F.col("end_ms") - window_ms, F.lit(window_ms).cast("long"))
        ).alias("start_ms"),
    )
    there = (
        placements.groupBy(CLUSTER, "valid_from_ms", "valid_to_ms")
        .count()
        .withColumnRenamed(CLUSTER, "p_cluster")
    )
    present = (
        each.join(
            F.broadcast(there),
            (F.col(CLUSTER) == F.col("p_cluster"))
            & (F.col("start_ms") >= F.col("valid_from_ms"))
            & (F.col("start_ms") < F.col("valid_to_ms")),
            "left",
        )
        .groupBy(CLUSTER, "start_ms")
        .agg(F.coalesce(F.sum("count"), F.lit(0)).alias("partitions"))
    )
    known = windows.groupBy(CLUSTER, "start_ms").agg(
        F.count(F.when(_worst_kind() < _NO_VALID, 1)).alias("known")
    )
    count = F.coalesce("known", F.lit(0))
    return present.join(known, [CLUSTER, "start_ms"], "left").select(
        CLUSTER,
        "start_ms",
        "partitions",
        count.alias("known"),
        F.when(F.col("partitions") > 0, count / F.col("partitions")).otherwise(1.0).alias("ratio"),
    )


def valid_partitions(
    windows: DataFrame,
    *,
    window_ms: int,
    end_ms: int | None = None,
    max_extrapolations: int = 5,
) -> DataFrame:
    """Partitions with both rates in every window of a range, few enough of them extrapolated.

    Parameters
    ----------
    windows, window_ms, end_ms
        As in :func:`completeness`.
    max_extrapolations
        Windows of a partition that may be extrapolated.

    Returns
    -------
    DataFrame
        `cluster`, `topic` and `partition` of each such partition.
    """
    worst = _worst_kind()
    counted = windows.groupBy(*_PARTITION).agg(
        F.count(F.when(worst < _NO_VALID, 1)).alias("known"),
        F.count(F.when(worst > Extrapolation.NONE.value, 1)).alias("extrapolated"),
    )
    span = F.broadcast(_span(windows, window_ms, end_ms))
    length = (F.col("end_ms") - F.col("first_ms")) / window_ms
    return (
        counted.join(span, [CLUSTER])
        .where((F.col("known") >= length) & (F.col("extrapolated") <= max_extrapolations))
        .select(*_PARTITION)
    )


def _worst_kind() -> Column:
    return F.greatest(*(F.col(f"{name}_kind") for name in _RATES))


def _span(windows: DataFrame, window_ms: int, end_ms: int | None) -> DataFrame:
    """From the first window of each cluster to the end of the range."""
    last = F.max("start_ms") + window_ms
    if end_ms is not None:
        last = F.lit(-(-end_ms // window_ms) * window_ms)
    return windows.groupBy(CLUSTER).agg(
        F.min("start_ms").alias("first_ms"), last.cast("long").alias("end_ms")
    )


def _in_range(
    rows: DataFrame,
    window_ms: int,
    min_samples: int,
    first_ms: int | None,
    end_ms: int | None,
) -> DataFrame:
    for name, number in (("window_ms", window_ms), ("min_samples", min_samples)):
        if number < 1:
            raise HistoryError(f"windows, {name}: {number} found, 1 or more expected")
    if first_ms is not None and end_ms is not None and first_ms >= end_ms:
        raise HistoryError(
            f"windows: a range from {first_ms} to {end_ms} found, an end after the start expected"
        )
    if first_ms is not None:
        rows = rows.where(F.col("start_ms") >= first_ms)
    return rows if end_ms is None else rows.where(F.col("start_ms") < end_ms)


def _over_brokers(partition_sums: DataFrame, measured: str | None = None) -> DataFrame:
    """Samples of a window from all brokers, added in the order of the brokers.

    With the samples of each broker as an array, in a column `measured` if it is named.
    """
    one = Window.partitionBy(*_PARTITION, "start_ms").orderBy("broker")
    whole = one.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    names = [f"{name}_{what}" for name in _RATES for what in ("sum", "count")]
    found = {name: F.sum(name).over(whole) for name in names}
    if measured is not None:
        sums = (f"{name}_sum" for name in _RATES)
        each = F.struct(F.col("start_ms").alias("of_ms"), "broker", *sums)
        found[measured] = F.collect_list(each).over(whole)
    return (
        partition_sums.repartition(*_PARTITION)
        .select(
            *_PARTITION,
            "start_ms",
            *(column.alias(name) for name, column in found.items()),
            F.row_number().over(one).alias("row"),
        )
        .where(F.col("row") == 1)
        .drop("row")
    )


def _extrapolated(
    rows: DataFrame,
    by: Sequence[str],
    names: Sequence[str],
    window_ms: int,
    min_samples: int,
    measured: str | None = None,
) -> DataFrame:
    """Values, kinds and weights of windows, from the sums and counts of their samples.

    A window without samples is included if both its neighbours have enough. A column `measured`
    of arrays, if one is named, has those of the window and its neighbours together.
    """
    along = Window.partitionBy(*by).orderBy("start_ms")
    columns = [f"{name}_{what}" for name in names for what in ("sum", "count")]
    if measured is not None:
        columns.append(measured)
    sums = F.struct("start_ms", *columns)
    rows = rows.withColumns(
        {"own": sums, "before": F.lag(sums).over(along), "after": F.lead(sums).over(along)}
    )

    def only(window: str, shift: int) -> str:
        at = f"own.start_ms + {shift * window_ms}"
        return f"CASE WHEN {window}.start_ms = {at} THEN {window} END"

    # In SQL, because Spark is asked once for a text, and hundreds of times for such columns; step
    # by step, because it would repeat what a step states wherever the next one names it.
    here = (
        f"struct(own.start_ms AS start_ms, {only('before', -1)} AS before, own AS own, "
        f"{only('after', 1)} AS after)"
    )
    gap = (
        f"struct(own.start_ms + {window_ms} AS start_ms, own AS before, "
        f"CASE WHEN false THEN own END AS own, {only('after', 2)} AS after)"
    )
    both = f"array({here}, CASE WHEN ({only('after', 2)}) IS NOT NULL THEN {gap} END)"
    near = rows.select(*by, F.expr(f"inline(array_compact({both}))"))
    kinds = near.selectExpr("*", *(_kind(name, min_samples) for name in names)).where(
        " OR ".join(f"{name}_kind < {_NO_VALID}" for name in names)
    )
    totals = {"total": "sum", "weight": "count"}
    total = kinds.selectExpr(
        "*", *(f"{_total(n, of)} AS {n}_{what}" for n in names for what, of in totals.items())
    )
    found = [*by, "start_ms"]
    for name in names:
        mean = f"{name}_total / {name}_weight"
        found.append(f"CASE WHEN {name}_weight > 0 THEN {mean} ELSE 0D END AS {name}")
        found += [f"{name}_kind", f"{name}_weight"]
    if measured is not None:
        none = f"CAST(array() AS {rows.schema[measured].dataType.simpleString()})"
        arrays = (f"coalesce({w}.{measured}, {none})" for w in ("before", "own", "after"))
        found.append(f"concat({', '.join(arrays)}) AS {measured}")
    return total.selectExpr(*found)


def _of(window: str, name: str, what: str) -> str:
    """The sum or count of a rate's samples in a window, in SQL; 0 without one."""
    return f"coalesce({window}.{name}_{what}, {'0D' if what == 'sum' else '0'})"


def _kind(name: str, min_samples: int) -> str:
    """The kind of a rate's value in a window, in SQL."""
    count = _of("own", name, "count")
    beside = " AND ".join(f"{_of(w, name, 'count')} >= {min_samples}" for w in ("before", "after"))
    return (
        f"CAST(CASE WHEN {count} >= {min_samples} THEN {Extrapolation.NONE.value} "
        f"WHEN {count} >= {max(1, min_samples // 2)} THEN {Extrapolation.AVG_AVAILABLE.value} "
        f"WHEN {beside} THEN {Extrapolation.AVG_ADJACENT.value} "
        f"WHEN {count} > 0 THEN {Extrapolation.FORCED_INSUFFICIENT.value} ELSE {_NO_VALID} END "
        f"AS tinyint) AS {name}_kind"
    )


def _total(name: str, what: str) -> str:
    """The sum or count of the samples that a rate's value is made of, in SQL."""
    beside = f"{_of('before', name, what)} + {_of('after', name, what)}"
    adjacent = f"{name}_kind = {Extrapolation.AVG_ADJACENT.value}"
    return f"{_of('own', name, what)} + CASE WHEN {adjacent} THEN {beside} ELSE 0 END"
