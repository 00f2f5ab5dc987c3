"""A prepared history: one table of Delta Lake, what is in it, and how it is read and replaced."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from cluster_model.history.days import day_name
from cluster_model.history.delta import delta_sentences, read_version, version_number
from cluster_model.history.errors import HistoryError
from cluster_model.history.schema import (
    ARRIVALS,
    BROKER_SUMS,
    CLUSTER,
    DAY,
    FURTHER_SUMS,
    PARTITION_SUMS,
    QUARANTINE,
    SIZES,
    TRAFFIC,
)
from cluster_model.history.session import is_remote
from cluster_model.history.store import Store
from metrics_reporter.quantities import plural

# Beginning of the names of directories with records that a run has judged.
JUDGED = "judged-"
TABLE, KIND, STATE = "history", "kind", "state"
# Kinds of rows, and their columns.
KINDS = {
    "cells": PARTITION_SUMS,
    "broker_cells": BROKER_SUMS,
    "sizes": SIZES,
    "traffic": TRAFFIC,
    "further": FURTHER_SUMS,
    "quarantine": QUARANTINE,
    "arrivals": ARRIVALS,
}
# The name of the numbers of runs among those of transactions of the table.
_APPLICATION = "counterpoise history prepare"
_JUDGED_NAME = re.compile(f"{JUDGED}[0-9a-f]{{32}}")


def _columns() -> dict[str, t.DataType]:
    """The columns of all kinds, by name; equal names are of equal types."""
    found: dict[str, t.DataType] = {KIND: t.StringType(), CLUSTER: t.StringType()}
    found[DAY] = t.StringType()
    for schema in KINDS.values():
        found |= {field.name: field.dataType for field in schema.fields}
    return found | {STATE: t.StringType()}


COLUMNS = _columns()


class PreparedHistory(NamedTuple):
    """The tables that :class:`cluster_model.history.history.History` reads.

    Parameters
    ----------
    partition_sums, broker_sums, sizes, traffic, quarantine, further
        The tables PARTITION_SUMS, BROKER_SUMS, SIZES, TRAFFIC, QUARANTINE and FURTHER_SUMS, with
        `day`, the UTC date of the window's start (of the record, in quarantine, or if that is too
        far from its arrival, of the arrival).
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


class Judgement(BaseModel):
    """What all that is in one prepared history is judged by.

    Parameters
    ----------
    window_ms, windows, further
        As for :func:`cluster_model.history.clean.judge`.
    version
        Number of the rules, which another version of this program may change.
    """

    model_config = ConfigDict(frozen=True)

    window_ms: int
    windows: int
    further: tuple[str, ...] = ()
    version: int = 1


class PreparedArchive(BaseModel):
    """An archive as it was when days of it were prepared.

    Parameters
    ----------
    identity, version
        Of its table.
    days
        Days of arrival of which it had messages of the cluster, by number since 1970.
    """

    model_config = ConfigDict(frozen=True)

    identity: str
    version: int
    days: frozenset[int] = frozenset()


class PreparedCluster(BaseModel):
    """What is prepared of a cluster; days are numbers since 1970.

    Parameters
    ----------
    archives
        The archives; none for records from elsewhere.
    days
        Days of arrival that are prepared, with a digest of the metadata that concerns them.
    expired
        Days of arrival that are prepared, and that an archive had and no longer has. They stay as
        they are.
    pending
        Days of arrival that have changed since, or are not prepared yet.
    counts
        Number of records with each outcome, by day.
    """

    model_config = ConfigDict(frozen=True)

    archives: tuple[PreparedArchive, ...] = ()
    days: dict[int, str] = {}
    expired: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    counts: dict[int, dict[str, int]] = {}


class State(BaseModel):
    """The row of a prepared history that states what is in it.

    Parameters
    ----------
    run
        Number of the run that wrote it, one more than that of the run before.
    identity
        Identity of that run.
    judgement
        What records were judged by.
    clusters
        What is prepared, by name of the cluster.
    """

    model_config = ConfigDict(frozen=True)

    run: int
    identity: str
    judgement: Judgement
    clusters: dict[str, PreparedCluster]


class Held(NamedTuple):
    """A prepared history as it was found: its version and its state."""

    version: int
    state: State


def read_prepared(spark: SparkSession, path: str | Path) -> PreparedHistory:
    """Read the tables written by :func:`cluster_model.history.prepare.prepare`.

    They stay those of this moment, whatever is prepared later.

    Raises
    ------
    HistoryError
        If nothing was prepared, or by another version of this program.
    """
    store = Store(spark, str(path))
    held = read_held(spark, store)
    if held is None:
        raise HistoryError(
            f"prepared history {path}: no table {TABLE!r} found in it, a directory that "
            "'counterpoise history prepare' has completed expected"
        )
    with delta_sentences(f"prepared history {path}"):
        table = read_version(spark, store.at(TABLE), held.version)
        of_kind = {
            kind: table.where(f.col(KIND) == kind).select(*schema.names, DAY)
            for kind, schema in KINDS.items()
        }
    return PreparedHistory(
        partition_sums=of_kind["cells"],
        broker_sums=of_kind["broker_cells"],
        sizes=of_kind["sizes"],
        traffic=of_kind["traffic"],
        quarantine=of_kind["quarantine"],
        further=of_kind["further"],
        window_ms=held.state.judgement.window_ms,
        windows=held.state.judgement.windows,
    )


def open_output(spark: SparkSession, path: str | Path) -> tuple[Store, Held | None, list[str]]:
    """A directory for a prepared history, what is there, and names of what runs left there.

    Those runs were killed, or cannot be completed once another one is.

    Raises
    ------
    HistoryError
        If the directory holds something else.
    """
    store = Store(spark, str(path))
    held = read_held(spark, store)
    if held is not None and is_remote(spark):
        # There all files below would be listed, and directories cannot be removed.
        return store, held, []
    names = store.names()
    unfinished = [name for name in names if _JUDGED_NAME.fullmatch(name)]
    others = [n for n in names if n not in {TABLE, *unfinished} and not n.startswith(".")]
    if held is None:
        # A first run that was killed leaves files of a table that has no version.
        others += [
            f"{TABLE}/{n}" for n in store.names(TABLE) if not n.startswith((f"{KIND}=", "_", "."))
        ]
    if others:
        raise HistoryError(
            f"prepared history {path}: {others[0]!r} found in the directory, an empty one or "
            "one with a prepared history expected"
        )
    return store, held, unfinished


def read_held(spark: SparkSession, store: Store) -> Held | None:
    """The newest version of a prepared history and its state; None if there is none."""
    with delta_sentences(f"prepared history {store.root}"):
        version = version_number(store, TABLE)
        if version is None:
            return None
        table = read_version(spark, store.at(TABLE), version)
        rows = table.where(f.col(KIND) == STATE).select(STATE).collect()
    if len(rows) != 1:
        raise HistoryError(
            f"prepared history {store.root}: {len(rows)} rows of kind {STATE!r} found in the "
            f"table {TABLE!r}, 1 expected"
        )
    try:
        return Held(version, State.model_validate_json(rows[0][0]))
    except ValidationError:
        raise HistoryError(
            f"prepared history {store.root}: one by another version of this program found, which "
            "this one cannot read; another directory expected"
        ) from None


def of_kind(kind: str, rows: DataFrame, day: Column) -> DataFrame:
    """Rows of a kind with all columns of the table."""
    given = {name: f.col(name) for name in rows.columns} | {KIND: f.lit(kind), DAY: day}
    return rows.select(*(given.get(n, f.lit(None)).cast(of).alias(n) for n, of in COLUMNS.items()))


def replace_rows(
    spark: SparkSession,
    store: Store,
    held: Held | None,
    tables: list[DataFrame],
    judgement: Judgement,
    clusters: Mapping[str, PreparedCluster],
    replaced: str | None,
) -> Held:
    """Write rows and the new state in one transaction, in place of others.

    Parameters
    ----------
    spark, store
        The session, and the directory of the prepared history.
    held
        What was found there, on which the rows are based.
    tables
        The rows, as from :func:`of_kind`.
    judgement, clusters
        The new state.
    replaced
        A condition in SQL: which rows are replaced, besides the state; None for all.

    Returns
    -------
    Held
        What is there now.

    Raises
    ------
    HistoryError
        If another run was completed meanwhile; then nothing of this one is kept.
    """
    state = State(
        run=1 if held is None else held.state.run + 1,
        identity=uuid.uuid4().hex,
        judgement=judgement,
        clusters=dict(sorted(clusters.items())),
    )
    row = spark.createDataFrame([(state.model_dump_json(),)], f"{STATE} string")
    tables = [*tables, of_kind(STATE, row, f.lit(None))]
    # One file for each kind and day, several for a large one.
    rows = reduce(DataFrame.unionByName, tables).hint("rebalance", KIND, CLUSTER, DAY)
    writer = rows.write.format("delta").mode("overwrite").partitionBy(KIND, CLUSTER, DAY)
    # Of two runs with the same number the table takes one.
    writer = writer.options(txnAppId=_APPLICATION, txnVersion=state.run)
    if replaced is None:
        writer = writer.option("overwriteSchema", "true")
    else:
        writer = writer.option("replaceWhere", f"{KIND} = '{STATE}' OR ({replaced})")
    try:
        with delta_sentences(f"prepared history {store.root}"):
            writer.save(store.at(TABLE))
    except HistoryError as error:
        if "CONCURRENT" in str(error).upper() or "DELTA_METADATA_CHANGED" in str(error):
            raise _other_run(store) from None
        raise
    now = read_held(spark, store)
    if now is None or now.state.identity != state.identity:
        raise _other_run(store)
    return now


def check_removal(
    store: Store, held: Held | None, clusters: Iterable[str], days: Iterable[int]
) -> None:
    """Refuse to remove what cannot be prepared again.

    Parameters
    ----------
    store, held
        The directory, and what is prepared there.
    clusters
        The clusters that there will be.
    days
        Days that are prepared, and of which no archive has messages.

    Raises
    ------
    HistoryError
        If there are such days, or other clusters.
    """
    others = sorted((set() if held is None else held.state.clusters.keys()) - {*clusters})
    gone = sorted(days)
    if not others and not gone:
        return
    found = [f"the cluster {others[0]!r}"] if others else []
    if gone:
        names = dict.fromkeys((day_name(gone[0]), day_name(gone[-1])))
        found.append(f"{plural(len(gone), 'day')} without messages ({' to '.join(names)})")
    raise HistoryError(
        f"prepared history {store.root}: {' and '.join(found)} found, which this run would remove "
        "for good; another directory or --replace (replace=True) expected"
    )


def _other_run(store: Store) -> HistoryError:
    return HistoryError(
        f"prepared history {store.root}: another run of 'counterpoise history prepare' finished "
        "meanwhile; nothing of this one was kept, run it again"
    )
