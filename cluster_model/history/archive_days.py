"""The days of an archive's table, and which of them changed since a version of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.history.archive import (
    MESSAGES,
    RECORDS,
    complete,
    has_table,
    held_days,
    missing_archive,
    plain_days,
    without_batches,
)
from cluster_model.history.days import day_name, day_of_name
from cluster_model.history.delta import (
    TableVersion,
    changed_partitions,
    current_version,
    delta_sentences,
    read_version,
)
from cluster_model.history.schema import CLUSTER, DAY
from cluster_model.history.store import Store


def archive_version(spark: SparkSession, path: str | Path) -> TableVersion | None:
    """The newest version of an archive's table; None if it has, or also has, plain Parquet.

    Raises
    ------
    HistoryError
        If there is no archive.
    """
    store = Store(spark, str(path))
    if not has_table(store):
        if store.exists(RECORDS):
            return None
        raise missing_archive(store)
    if any(plain_days(store)):
        return None
    with delta_sentences(f"archive {path}"):
        return current_version(spark, store, MESSAGES)


def archived_days(
    spark: SparkSession,
    path: str | Path,
    version: int,
    cluster: str,
    among: Iterable[int] | None = None,
) -> set[int]:
    """Days on which messages of a cluster arrived, by number, in a version of the table.

    Parameters
    ----------
    path, version, cluster
        The archive, the version, the name of the cluster.
    among
        The days that are looked for, without reading others; by default all.

    Raises
    ------
    HistoryError
        If all are looked for, and there is no such cluster.
    """
    store = Store(spark, str(path))
    with delta_sentences(f"archive {path}"):
        table = read_version(spark, store.at(MESSAGES), version).where(f.col(CLUSTER) == cluster)
        if among is not None:
            table = table.where(f.col(DAY).isin([day_name(day) for day in among]))
        found = {day_of_name(name) for (name,) in table.select(DAY).distinct().collect()}
        if among is None and not found:
            held_days(spark, store, [cluster])
    return found


def read_days(
    spark: SparkSession, path: str | Path, version: int, cluster: str, days: Iterable[int]
) -> DataFrame:
    """Messages of a cluster that arrived on these days, in a version of the archive's table.

    Returns
    -------
    DataFrame
        The table DECODED.
    """
    with delta_sentences(f"archive {path}"):
        table = read_version(spark, Store(spark, str(path)).at(MESSAGES), version)
        names = [day_name(day) for day in days]
        chosen = table.where((f.col(CLUSTER) == cluster) & f.col(DAY).isin(names))
        return without_batches(complete(chosen))


def changed_days(
    spark: SparkSession, path: str | Path, since: int, until: int, cluster: str
) -> set[int] | None:
    """Days of arrival whose messages changed after one version of the table, up to another one.

    Returns
    -------
    set of int, or None
        None if the table's log does not say.
    """
    at = Store(spark, str(path)).at(MESSAGES)
    with delta_sentences(f"archive {path}"):
        found = changed_partitions(spark, at, since, until, CLUSTER, DAY)
    return None if found is None else {day_of_name(str(d)) for c, d in found if c == cluster}
