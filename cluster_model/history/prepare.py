"""Judges records, sums them over windows and stores the result, about a thousandth of the size."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from cluster_model.history.clean import MetadataTables, judge
from cluster_model.history.errors import HistoryError
from cluster_model.history.read import sentences
from cluster_model.history.schema import (
    BROKER_SUMS,
    CLUSTER,
    DAY,
    FURTHER_SUMS,
    PARTITION_SUMS,
    QUARANTINE,
    SIZES,
    TRAFFIC,
)
from cluster_model.history.store import Store
from cluster_model.history.traffic import traffic_sums
from cluster_model.history.window_sums import broker_sums, further_sums, partition_sums, sizes

DAY_MS = 86_400_000
# Days are dates from 1970 to the year 9999; a time beyond counts as the nearest.
_LAST_DAY = 2_932_896
_SETTINGS = "settings"
# A run writes below a directory of its own, named by this, its start in ms and a random number.
_RUN = "run-"
_TABLES = {
    "cells": PARTITION_SUMS,
    "broker_cells": BROKER_SUMS,
    "sizes": SIZES,
    "traffic": TRAFFIC,
    "quarantine": QUARANTINE,
    "further": FURTHER_SUMS,
}
# Tables that histories prepared by earlier versions lack.
_LATER = {"further"}


class PreparedHistory(NamedTuple):
    """The tables that :class:`cluster_model.history.history.History` reads.

    Parameters
    ----------
    partition_sums, broker_sums, sizes, traffic, quarantine, further
        The tables PARTITION_SUMS, BROKER_SUMS, SIZES, TRAFFIC, QUARANTINE and FURTHER_SUMS, with
        `day`, the UTC date of the window's start (of the arrival, in quarantine).
    window_ms
        Length of a window.
    windows
        A record is late if its window is at least this many before the newest.
    """

    partition_sums: DataFrame
    broker_sums: DataFrame
    sizes: DataFrame
    traffic: DataFrame
    quarantine: DataFrame
    further: DataFrame
    window_ms: int
    windows: int


def prepare(
    records: DataFrame,
    metadata: MetadataTables,
    path: str | Path,
    *,
    window_ms: int = 300_000,
    windows: int = 5,
    further: Sequence[str] = (),
) -> dict[str, dict[str, int]]:
    """Judge records, sum them over windows, and store the result as Parquet.

    Replaces what was prepared there before, which is read until all is written. Of two runs at
    once the one that started last counts, as a whole.

    Parameters
    ----------
    records, metadata, window_ms, windows, further
        As in :func:`cluster_model.history.clean.judge`.
    path
        Directory to write, on any file system that Spark knows.

    Returns
    -------
    dict
        The number of records with each outcome, by cluster.

    Raises
    ------
    HistoryError
        For a number below 1, or a directory that holds something else.
    """
    spark = records.sparkSession
    store = Store(spark, str(path))
    held = {name for name in store.names() if not name.startswith((".", _RUN))}
    if strangers := sorted(held - {*_TABLES, _SETTINGS}):
        raise HistoryError(
            f"prepared history {path}: {strangers[0]!r} found in the directory, an empty one or "
            "one with a prepared history expected"
        )
    judged = judge(
        records, metadata, window_ms=window_ms, windows=windows, further=further
    ).persist()
    now = time.time_ns() // 1_000_000
    run = f"{_RUN}{now:015}-{uuid.uuid4().hex}"
    tables = {
        "cells": partition_sums(judged.rated),
        "broker_cells": broker_sums(judged.brokers),
        "sizes": sizes(judged.partitions),
        "traffic": traffic_sums(records, judged.rated, window_ms),
        "further": further_sums(judged),
    }
    started = F.col("start_ms")
    try:
        with sentences(f"prepared history {path}"):
            for name, table in tables.items():
                _write(table, store.at(f"{run}/{name}"), started)
            _write(judged.quarantine, store.at(f"{run}/quarantine"), F.col("arrived_ms"))
            counted = judged.outcomes.groupBy(CLUSTER, "reason").count().collect()
            settings = spark.createDataFrame([(window_ms, windows)], "window_ms long, windows long")
            settings.coalesce(1).write.json(store.at(f"{run}/{_SETTINGS}"))
    except HistoryError:
        store.delete(run)
        raise
    finally:
        judged.unpersist()
    _remove_replaced(store, now)
    counts: dict[str, dict[str, int]] = {}
    for cluster, outcome, count in sorted(counted):
        counts.setdefault(cluster, {})[outcome] = count
    return counts


def read_prepared(spark: SparkSession, path: str | Path) -> PreparedHistory:
    """Read the tables written by :func:`prepare`.

    Raises
    ------
    HistoryError
        If nothing was prepared, or not completely.
    """
    store = Store(spark, str(path))
    runs = _complete_runs(store)
    if not runs:
        raise HistoryError(
            f"prepared history {path}: no {_SETTINGS!r} found in it, a directory that "
            "'counterpoise history prepare' has completed expected"
        )
    own = Store(spark, store.at(runs[-1]))
    with sentences(f"prepared history {path}"):
        ((window_ms, windows),) = spark.read.json(
            own.at(_SETTINGS), "window_ms long, windows long"
        ).collect()
    tables: dict[str, DataFrame] = {}
    for name, schema in _TABLES.items():
        # Otherwise the types of columns from directory names would be guessed.
        whole = t.StructType([*schema.fields, t.StructField(DAY, t.StringType())])
        if not own.exists(name):
            if name not in _LATER:
                raise HistoryError(
                    f"prepared history {path}: no table {name!r} found, as "
                    "'counterpoise history prepare' has written it expected"
                )
            tables[name] = spark.createDataFrame([], whole)
        else:
            found = spark.read.schema(whole).parquet(own.at(name))
            tables[name] = found.select(*schema.names, DAY)
    return PreparedHistory(
        partition_sums=tables["cells"],
        broker_sums=tables["broker_cells"],
        sizes=tables["sizes"],
        traffic=tables["traffic"],
        quarantine=tables["quarantine"],
        further=tables["further"],
        window_ms=window_ms,
        windows=windows,
    )


def _complete_runs(store: Store) -> list[str]:
    """Directories of complete runs, the newest last; that of earlier versions is the first."""
    names = ["", *(name for name in store.names() if name.startswith(_RUN))]
    return [name for name in names if store.exists(f"{name}/{_SETTINGS}/_SUCCESS".lstrip("/"))]


def _remove_replaced(store: Store, now_ms: int) -> None:
    """Remove runs that a newer one replaced, and those that died at least a day ago."""
    newest = _complete_runs(store)[-1]
    for name in store.names():
        old = (
            name.startswith(_RUN)
            and name != newest
            and (
                store.exists(f"{name}/{_SETTINGS}/_SUCCESS")
                or int(name.removeprefix(_RUN).partition("-")[0]) < now_ms - DAY_MS
            )
        )
        if name in (*_TABLES, _SETTINGS) or old:
            store.delete(name)


def _write(table: DataFrame, path: str, at_ms: Column) -> None:
    days = F.greatest(F.lit(0), F.least(F.floor(at_ms / DAY_MS), F.lit(_LAST_DAY))).cast("int")
    day = F.date_add(F.lit("1970-01-01").cast("date"), days).cast("string")
    # One file for each day, several for a large one.
    placed = table.withColumn(DAY, day).hint("rebalance", CLUSTER, DAY)
    placed.write.mode("overwrite").partitionBy(CLUSTER, DAY).parquet(path)
