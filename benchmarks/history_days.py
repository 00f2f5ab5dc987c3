"""What a day costs that is added to a prepared week, and to a prepared year.

Part of the benchmark `history`, which runs it in a process of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from cluster_model import Snapshot, synthetic_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The cluster, time between reports and days of the long history, by size.
CLUSTERS: dict[str, tuple[dict[str, Any], int, int]] = {
    "S": ({"brokers": 6, "partitions": 60, "racks": 3}, 1_800_000, 60),
    "M": ({"brokers": 6, "partitions": 60, "racks": 3}, 1_800_000, 365),
    "L": ({"brokers": 100, "partitions": 1_000, "racks": 5}, 10_800_000, 365),
}
# Days of the short history, and days that are added to each, of which the first warms up.
_WEEK, _ADDED = 7, 4
_DAY_MS = 86_400_000


def add_days(
    size: str,
    seed: int,
    scratch: Path,
    spark: SparkSession,
    processor_seconds: Callable[[], float],
) -> list[tuple[str, float, str]]:
    """Prepare a week and a long time up to the same day, and add the next days to both."""
    from cluster_model.history.metadata import MetadataLog
    from cluster_model.history.prepare import PrepareParameters, prepare_archives

    shape, interval_ms, days = CLUSTERS[size]
    cluster = synthetic_snapshot(**shape, seed=seed)
    log = MetadataLog.of(cluster)
    firsts = {"week": days - _WEEK, "year" if days == 365 else f"{days} days": 0}
    spent: dict[str, list[float]] = {name: [] for name in firsts}
    records = 0

    def archive(name: str, first: int, end: int, batch: int) -> None:
        _write(spark, cluster, scratch / f"archive {name}", interval_ms, (first, end), batch, seed)

    def prepare(name: str) -> int:
        done = prepare_archives(
            spark,
            [scratch / f"archive {name}"],
            log,
            scratch / f"prepared {name}",
            parameters=PrepareParameters(days_at_once=days),
        )
        return sum(done.counts.values())

    rows = []
    whole = []
    for name, first in firsts.items():
        archive(name, first, days, 0)
        before = processor_seconds()
        prepare(name)
        whole.append(processor_seconds() - before)
        rows.append((f"processor seconds, {name}", whole[-1], "seconds"))
    exponent = math.log(whole[1] / whole[0]) / math.log(days / _WEEK)
    rows.append(("exponent of processor seconds in the days", exponent, "ratio"))
    for added in range(_ADDED):
        # In turns, so that neither is always measured by a warmer process.
        for name in sorted(firsts, reverse=bool(added % 2)):
            archive(name, days + added, days + added + 1, 1 + added)
            before = processor_seconds()
            records = prepare(name)
            if added:
                spent[name].append(processor_seconds() - before)
    week, year = (median(spent[name]) for name in firsts)
    for name in firsts:
        added_to = f"processor seconds, day added to a {name}"
        rows.append((added_to, median(spent[name]), "seconds"))
    return [
        *rows,
        ("records judged for a day", float(records), "records"),
        ("day added to the longer / to the week", year / week, "ratio"),
    ]


def _write(
    spark: SparkSession,
    cluster: Snapshot,
    path: Path,
    interval_ms: int,
    days: tuple[int, int],
    batch: int,
    seed: int,
) -> None:
    """Archive the records of a range of days."""
    from pyspark.sql import functions as f

    from cluster_model.history.archive import write_batch
    from cluster_model.history.days import day_number, day_text
    from cluster_model.history.schema import DAY
    from cluster_model.history.synthetic import START_MS, synthetic_records

    first, end = days
    records = synthetic_records(
        spark,
        cluster,
        intervals=(end - first) * _DAY_MS // interval_ms,
        interval_ms=interval_ms,
        start_ms=START_MS + first * _DAY_MS,
        dirt=0.01,
        disorder=0.01,
        seed=seed,
    )
    whole = {"problem": f.lit(None).cast("string"), "value": f.lit(None).cast("binary")}
    # A file for each day.
    day = day_text(day_number("arrived_ms"))
    rows = records.withColumns(whole).withColumn(DAY, day).hint("rebalance", DAY)
    write_batch(rows, str(path), batch)
