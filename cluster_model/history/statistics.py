"""Summarises months of loads: mean, percentiles, peak, trend and the weekly profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cluster_model.snapshot import Floats

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_HOURS = 168
ROLES = ("leader", "follower")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# The week starts on Monday; 1970 started on a Thursday.
_MONDAY_HOURS = 72
ENTITY = ("topic", "partition")


def hour_of_week(start_ms: Column) -> Column:
    """0 to 167, from Monday 00:00 UTC."""
    hour = f.floor(start_ms / f.lit(HOUR_MS)) + f.lit(_MONDAY_HOURS)
    return f.pmod(hour, f.lit(WEEK_HOURS)).cast("int")


def load_statistics(
    loads: DataFrame, resources: Sequence[str], *, profile: bool = True
) -> DataFrame:
    """Statistics of each partition and resource over all of its windows.

    Parameters
    ----------
    loads
        start_ms, topic, partition, leader and follower (array of R), of one cluster; null
        if unknown.
    resources
        Names of the R resources.
    profile
        Whether to compute the profile.

    Returns
    -------
    DataFrame
        topic, partition, role (``leader`` or ``follower``), resource, windows (number of
        those in which the load is known), mean, p50, p90, p95, p99 (interpolated linearly
        between windows), peak, trend (slope of the least-squares line, per day; 0 for a single
        window) and profile (array of 168: the mean in each hour of the week from Monday 00:00
        UTC, null for hours without any window). All of them are null without any window.
    """
    flat = ordered(flattened(loads, len(resources)))
    names = columns(len(resources))
    day = f.col("start_ms") / f.lit(DAY_MS)
    whole = flat.groupBy(*ENTITY).agg(
        *(
            f.struct(
                f.count(name).alias("windows"),
                f.avg(name).alias("mean"),
                f.max(name).alias("peak"),
                f.when(f.count(name) > 0, f.coalesce(f.regr_slope(name, day), f.lit(0.0))).alias(
                    "trend"
                ),
            ).alias(name)
            for name in names
        ),
    )
    shares = list(PERCENTILES.values())
    whole = whole.join(percentiles(flat, ENTITY, names, shares, suffix="_percentiles"), [*ENTITY])
    if profile:
        hourly = flat.groupBy(*ENTITY, hour_of_week(f.col("start_ms")).alias("hour")).agg(
            *(f.avg(name).alias(name) for name in names)
        )
        weekly = hourly.groupBy(*ENTITY).agg(
            f.map_from_entries(f.collect_list(f.struct("hour", f.struct(*names)))).alias("hours")
        )
        # A map look-up takes time in proportion to its keys, so it is done once for all series.
        hours = f.transform(
            f.sequence(f.lit(0), f.lit(WEEK_HOURS - 1)), lambda hour: f.col("hours")[hour]
        )
        whole = whole.join(weekly.select(*ENTITY, hours.alias("hours")), [*ENTITY])
    rows = [
        _row(role, resource, i, profile) for role in ROLES for i, resource in enumerate(resources)
    ]
    return whole.select(*ENTITY, f.inline(f.array(*rows)))


def one_number(loads: DataFrame, resources: int, statistic: str) -> DataFrame:
    """One statistic of each partition's loads, as arrays.

    Parameters
    ----------
    loads
        As in :func:`load_statistics`.
    resources
        R.
    statistic
        ``"mean"``, ``"peak"`` or one of :data:`PERCENTILES`.

    Returns
    -------
    DataFrame
        topic, partition, leader and follower (array of R).
    """

    flat, names = ordered(flattened(loads, resources)), columns(resources)
    if statistic in PERCENTILES:
        found = percentiles(flat, ENTITY, names, [PERCENTILES[statistic]])
        one = {name: f.col(name)[0] for name in names}
    else:
        of = f.max if statistic == "peak" else f.avg
        found = flat.groupBy(*ENTITY).agg(*(of(name).alias(name) for name in names))
        one = {name: f.col(name) for name in names}
    arrays = [
        f.array(*(one[f"{role}_{i}"] for i in range(resources))).alias(role) for role in ROLES
    ]
    return found.select(*ENTITY, *arrays)


def percentiles(
    rows: DataFrame,
    by: Sequence[str],
    names: Sequence[str],
    shares: Sequence[float],
    *,
    suffix: str = "",
) -> DataFrame:
    """Percentiles of columns in each group, interpolated linearly.

    Spark's own function holds all values of many groups on its heap at once; this one
    handles one group at a time.

    Parameters
    ----------
    rows
        Any table.
    by, names
        Columns of the group, and columns to aggregate (double); null is ignored.
    shares
        As fractions: 0.95 is the 95th percentile.
    suffix
        Added to the names of the columns.

    Returns
    -------
    DataFrame
        The columns of the group, and for each of the others an array like `shares`, of
        nulls if nothing is known.
    """
    of, percents = rows.select(*by, *names), 100 * np.array(shares)
    ends = pa.array([0, len(shares)], pa.int32())

    def found(group: pa.Table) -> pa.Table:
        values = {
            name + suffix: pa.ListArray.from_arrays(
                ends, pa.array(_percentiles(group[name].to_numpy(), percents), from_pandas=True)
            )
            for name in names
        }
        return pa.table({key: group[key].combine_chunks()[:1] for key in by} | values)

    keys = [f"{field.name} {field.dataType.simpleString()}" for field in of.schema][: len(by)]
    schema = ", ".join([*keys, *(f"{name}{suffix} array<double>" for name in names)])
    return of.groupBy(*by).applyInArrow(found, schema)


def flattened(loads: DataFrame, resources: int) -> DataFrame:
    """start_ms, topic, partition and a column for each load, named by :func:`columns`."""
    loaded = [
        f.col(role)[i].alias(name)
        for name, (role, i) in zip(
            columns(resources), ((r, i) for r in ROLES for i in range(resources)), strict=True
        )
    ]
    return loads.select("start_ms", *ENTITY, *loaded)


def columns(resources: int) -> list[str]:
    """Names of the columns of leaders' and of followers' loads."""
    return [f"{role}_{i}" for role in ROLES for i in range(resources)]


def ordered(rows: DataFrame) -> DataFrame:
    """Bring all rows of a partition together, in the order of time.

    Sums of floats depend on their order; this makes them the same on any number of
    executors.
    """
    return rows.repartition(*ENTITY).sortWithinPartitions(*ENTITY, "start_ms")


def _percentiles(values: Floats, percents: Floats) -> Floats:
    """Percentiles of the known values; nan if there are none."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(percents), np.nan)
    found: Floats = np.percentile(known, percents)
    return found


def _row(role: str, resource: str, i: int, profile: bool) -> Column:
    name = f"{role}_{i}"
    of = f.col(name)
    fields = [
        f.lit(role).alias("role"),
        f.lit(resource).alias("resource"),
        of["windows"].alias("windows"),
        of["mean"].alias("mean"),
        *(f.col(f"{name}_percentiles")[k].alias(p) for k, p in enumerate(PERCENTILES)),
        of["peak"].alias("peak"),
        of["trend"].alias("trend"),
    ]
    if profile:
        fields.append(f.transform("hours", lambda hour: hour[name]).alias("profile"))
    return f.struct(*fields)
