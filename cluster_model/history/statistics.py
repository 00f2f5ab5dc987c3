"""Months of loads in a few numbers: mean, percentiles, peak, trend and the week's profile."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_HOURS = 168
ROLES = ("leader", "follower")
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# The week begins on Monday, and 1970 on a Thursday.
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
        start_ms, topic, partition, leader and follower (array of R), of one cluster.
    resources
        Names of the R resources.
    profile
        Whether the profile is wanted.

    Returns
    -------
    DataFrame
        topic, partition, role (``leader`` or ``follower``), resource, windows (their
        number), mean, p50, p90, p95, p99 (interpolated linearly between windows), peak,
        trend (slope of the least-squares line, per day; 0 of a single window) and profile
        (array of 168: the mean in each hour of the week from Monday 00:00 UTC, null in
        hours without any window).
    """
    flat = ordered(flattened(loads, len(resources)))
    names = columns(len(resources))
    day = f.col("start_ms") / f.lit(DAY_MS)
    shares = list(PERCENTILES.values())
    whole = flat.groupBy(*ENTITY).agg(
        f.count("*").alias("windows"),
        *(
            f.struct(
                f.avg(name).alias("mean"),
                f.percentile(name, shares).alias("percentiles"),
                f.max(name).alias("peak"),
                f.coalesce(f.regr_slope(name, day), f.lit(0.0)).alias("trend"),
            ).alias(name)
            for name in names
        ),
    )
    if profile:
        hourly = flat.groupBy(*ENTITY, hour_of_week(f.col("start_ms")).alias("hour")).agg(
            *(f.avg(name).alias(name) for name in names)
        )
        weekly = hourly.groupBy(*ENTITY).agg(
            f.map_from_entries(f.collect_list(f.struct("hour", f.struct(*names)))).alias("hours")
        )
        # A look-up in a map takes as long as it has keys: once for all series, not for each.
        hours = f.transform(
            f.sequence(f.lit(0), f.lit(WEEK_HOURS - 1)), lambda hour: f.col("hours")[hour]
        )
        whole = whole.join(weekly.select(*ENTITY, hours.alias("hours")), [*ENTITY])
    rows = [
        _row(role, resource, i, profile) for role in ROLES for i, resource in enumerate(resources)
    ]
    return whole.select(*ENTITY, f.col("windows"), f.inline(f.array(*rows)))


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

    def of(name: str) -> Column:
        if statistic in PERCENTILES:
            return f.percentile(name, PERCENTILES[statistic])
        return f.max(name) if statistic == "peak" else f.avg(name)

    arrays = [f.array(*(of(f"{role}_{i}") for i in range(resources))).alias(role) for role in ROLES]
    return ordered(flattened(loads, resources)).groupBy(*ENTITY).agg(*arrays)


def flattened(loads: DataFrame, resources: int) -> DataFrame:
    """start_ms, topic, partition and each load as a column of its own, named by :func:`columns`."""
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
    """All rows of a partition together, and in the order of time.

    Sums of floats depend on their order; like this they are the same on any number of
    executors.
    """
    return rows.repartition(*ENTITY).sortWithinPartitions(*ENTITY, "start_ms")


def _row(role: str, resource: str, i: int, profile: bool) -> Column:
    name = f"{role}_{i}"
    of = f.col(name)
    fields = [
        f.lit(role).alias("role"),
        f.lit(resource).alias("resource"),
        of["mean"].alias("mean"),
        *(of["percentiles"][k].alias(p) for k, p in enumerate(PERCENTILES)),
        of["peak"].alias("peak"),
        of["trend"].alias("trend"),
    ]
    if profile:
        fields.append(f.transform("hours", lambda hour: hour[name]).alias("profile"))
    return f.struct(*fields)
