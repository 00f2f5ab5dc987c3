"""Archives a metrics topic in Parquet, by cluster and day, each message exactly once.

Below the archive's directory::

    records/cluster=C/day=D/batches=7/...      messages of batch 7 of the stream
    records/cluster=C/day=D/batches=3-9/...    batches 3 to 9, after compaction
    checkpoints/cluster=C/TOPIC/...            Spark's progress in the topic

The day is the UTC day on which messages arrived, so a past day stays as it is,
except for delayed batches. A batch that is repeated after a crash has the same messages
and replaces its directories, each of which appears atomically. Directories whose batches
are covered by a directory of more batches no longer count, so a compaction is a single
rename. Both need a file system with atomic directory renames, such as local ones and HDFS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from math import ceil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.streaming.query import StreamingQuery

from cluster_model.history.decode import decode
from cluster_model.history.errors import HistoryError
from cluster_model.history.read import as_messages, kafka_sentences, topic_options
from cluster_model.history.schema import CLUSTER, DAY, DECODED, DEFAULT_CLUSTER
from cluster_model.history.store import Store
from metrics_reporter import Format
from metrics_reporter.foreign import TOPIC_FORMATS

RECORDS, CHECKPOINTS, BATCHES = "records", "checkpoints", "batches"
DAY_MS = 86_400_000

_COMPACTING, _EXPIRED = ".compacting", ".expired-"
# Age at which the leftovers of a writer are abandoned.
_LEFTOVER_MS = DAY_MS
# The remaining columns are in the names of the directories.
_STORED = t.StructType(
    [
        *(k for k in DECODED.fields if k.name != CLUSTER),
        *(t.StructField(name, t.StringType()) for name in (CLUSTER, DAY, BATCHES)),
    ]
)


class _Batches(NamedTuple):
    """A directory of batches: the first, the last, and its name."""

    first: int
    last: int
    name: str

    def covers(self, other: _Batches) -> bool:
        """Whether this includes all batches of the other."""
        within = self.first <= other.first and other.last <= self.last
        return within and self != other and "-" in self.name


class Compaction(NamedTuple):
    """The result of a compaction: days of clusters, and their files before and after it."""

    days: int
    files_before: int
    files_after: int


def archive_topic(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    path: str | Path,
    *,
    cluster: str = DEFAULT_CLUSTER,
    format: Format | None = None,
    client: Mapping[str, str] | None = None,
    every: float | None = 60.0,
    max_messages: int = 1_000_000,
    allow_gaps: bool = False,
) -> StreamingQuery:
    """Archive a metrics topic, starting where the last run ended.

    Every message is archived exactly once, despite crashes at any point. This includes
    messages that are not records, with their bytes and the reason in the column ``problem``.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    path
        The archive; created if missing.
    cluster
        Name of the cluster in the archive, which may hold several.
    format
        As in :func:`cluster_model.history.read.read_topic`.
    client
        Properties of Kafka's (Java) consumer.
    every
        Seconds between the starts of two batches; None to archive the current messages,
        and end.
    max_messages
        Messages per batch, which limits the executors' work at once.
    allow_gaps
        Continue if Kafka deleted messages that were not archived; otherwise it fails.

    Returns
    -------
    StreamingQuery
        Runs until it is stopped; ``awaitTermination()`` waits, and raises any failure.

    Raises
    ------
    HistoryError
        If the session has no Kafka connector, if the archive has another topic of the
        cluster, or if it has records of the cluster without Spark's progress.
    """
    store = Store(spark, str(path))
    checkpoint = _checkpoint(store, cluster, topic)
    options = topic_options(bootstrap, topic, client)
    options["maxOffsetsPerTrigger"] = str(max_messages)
    options["failOnDataLoss"] = str(not allow_gaps).lower()
    format = format or TOPIC_FORMATS.get(topic)

    def write(messages: DataFrame, batch: int) -> None:
        rows = as_messages(messages.withColumn("batch", f.lit(batch)), cluster, f"topic {topic}")
        write_batch(decode(rows, format), str(path), batch)

    with kafka_sentences(bootstrap, topic):
        stream = spark.readStream.format("kafka").options(**options).load()
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(1000 * every)} milliseconds")
        return writer.start()


def write_batch(rows: DataFrame, path: str, batch: int) -> None:
    """Write a batch to the archive, replacing any earlier attempt.

    Parameters
    ----------
    rows
        The table DECODED; the rows must be the same each time the batch is written.
    path
        The archive.
    batch
        Number of the batch; larger than those before it.
    """
    # A clock may give any date, and none may prevent a batch from being written.
    last = f.lit((date.max - date(1970, 1, 1)).days)
    days = f.least(f.greatest(f.floor(f.col("arrived_ms") / DAY_MS), f.lit(0)), last).cast("int")
    placed = rows.withColumn(DAY, f.date_add(f.lit("1970-01-01").cast("date"), days))
    placed.withColumn(BATCHES, f.lit(str(batch))).write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy(CLUSTER, DAY, BATCHES).parquet(f"{path}/{RECORDS}")


def read_archive(
    spark: SparkSession,
    path: str | Path,
    *,
    clusters: Sequence[str] | None = None,
    first_ms: int | None = None,
    end_ms: int | None = None,
) -> DataFrame:
    """Read the archive.

    Parameters
    ----------
    path
        The archive.
    clusters
        Names of clusters; all by default.
    first_ms, end_ms
        Times of the records, from and before, ms since 1970. Whole days are read, plus
        messages that arrived a day earlier or later, because the outcome of a record
        depends on earlier ones.

    Returns
    -------
    DataFrame
        The table DECODED.

    Raises
    ------
    HistoryError
        If there is no archive, no such cluster, or nothing in that time.
    """
    store = Store(spark, str(path))
    days = list(_days(store, clusters))
    low = "" if first_ms is None else _day(first_ms - DAY_MS)
    high = "9" * 10 if end_ms is None else _day(end_ms - 1 + DAY_MS)
    chosen = [day for day in days if low <= day.name <= high]
    if not chosen:
        have = sorted(day.name for day in days)
        held = f"it holds {have[0]} to {have[-1]}" if have else "it holds none"
        asked = f" from {low or 'the beginning'} to {'the end' if end_ms is None else high}"
        raise HistoryError(f"archive {path}: no records{asked} found; {held}")
    paths = [store.at(f"{day.path}/{b.name}") for day in chosen for b in day.kept]
    # How many messages a run of Spark took at once says nothing about when they arrived.
    found = _read(spark, store, paths).withColumn("batch", f.lit(None).cast("long"))
    return found.select(*DECODED.names)


def compact(
    spark: SparkSession,
    path: str | Path,
    *,
    clusters: Sequence[str] | None = None,
    file_bytes: int = 128 << 20,
) -> Compaction:
    """Merge the small files of each day into a few large ones.

    May run while the topic is being archived, and may crash at any time; only one may run at
    a time. A concurrent reader of the archive may fail on a missing file, and must retry.

    Parameters
    ----------
    path
        The archive.
    clusters
        Names of clusters; all by default.
    file_bytes
        Approximate size of a file.

    Raises
    ------
    HistoryError
        If there is no archive, or no such cluster.
    """
    store = Store(spark, str(path))
    done, before, after = 0, 0, 0
    for day in list(_days(store, clusters)):
        for batches in day.covered:
            store.delete(f"{day.path}/{batches.name}")
        sizes = [store.size(f"{day.path}/{b.name}") for b in day.kept]
        files, size = sum(n for n, _ in sizes), sum(n for _, n in sizes)
        requested = max(1, ceil(size / file_bytes))
        one = len(day.kept) == 1
        if one and ("-" in day.kept[0].name or files <= requested):
            continue
        _merge_batches(spark, store, day, requested)
        done, before = done + 1, before + files
        after += requested
    _remove_leftovers(store)
    return Compaction(done, before, after)


def expire(
    spark: SparkSession,
    path: str | Path,
    *,
    before_ms: int,
    clusters: Sequence[str] | None = None,
) -> list[str]:
    """Remove old days.

    Parameters
    ----------
    path
        The archive.
    before_ms
        Days that ended before this time, ms since 1970, are removed.
    clusters
        Names of clusters; all by default.

    Returns
    -------
    list of str
        The days removed, as ``cluster=C/day=D``.

    Raises
    ------
    HistoryError
        If there is no archive, or no such cluster.
    """
    store = Store(spark, str(path))
    gone = []
    days = list(_days(store, clusters))
    for parent in {day.parent for day in days}:
        for name in store.names(parent):
            # Left by a run that crashed while removing it.
            if name.startswith(_EXPIRED):
                store.delete(f"{parent}/{name}")
    for day in days:
        if day.name < _day(before_ms):
            # An atomic rename, so that no reader sees half of a day.
            hidden = f"{day.parent}/{_EXPIRED}{day.name}"
            store.rename(day.path, hidden)
            store.delete(hidden)
            gone.append(day.path.removeprefix(f"{RECORDS}/"))
    return gone


class _Day(NamedTuple):
    """A day of a cluster: its directory, its date, and its batches, current and covered."""

    parent: str
    name: str
    kept: list[_Batches]
    covered: list[_Batches]

    @property
    def path(self) -> str:
        """Path within the archive."""
        return f"{self.parent}/{DAY}={self.name}"


def _days(store: Store, clusters: Sequence[str] | None) -> Iterator[_Day]:
    if not store.exists(RECORDS):
        raise HistoryError(f"archive {store.root}: no directory {RECORDS!r} found in it")
    held = {
        unquote(name): f"{RECORDS}/{CLUSTER}={name}" for name in _values(store, RECORDS, CLUSTER)
    }
    unknown = sorted(set(clusters or ()) - held.keys())
    if unknown:
        raise HistoryError(
            f"archive {store.root}: no cluster {unknown[0]!r} found; it has {', '.join(held)}"
        )
    for cluster in clusters or held:
        for name in _values(store, held[cluster], DAY):
            found = []
            for batches in _values(store, f"{held[cluster]}/{DAY}={name}", BATCHES):
                first, _, last = batches.partition("-")
                if not (first.isdecimal() and (last or first).isdecimal()):
                    continue
                found.append(_Batches(int(first), int(last or first), f"{BATCHES}={batches}"))
            covered = [b for b in found if any(other.covers(b) for other in found)]
            kept = sorted(set(found) - set(covered))
            if kept:
                yield _Day(held[cluster], name, kept, covered)


def _values(store: Store, path: str, key: str) -> list[str]:
    """The values of a partition key, from the names of directories."""
    start = f"{key}="
    return [name.removeprefix(start) for name in store.names(path) if name.startswith(start)]


def _read(spark: SparkSession, store: Store, paths: Sequence[str]) -> DataFrame:
    # With our own schema, files written before a metric existed read as null for it.
    return spark.read.schema(_STORED).option("basePath", store.at(RECORDS)).parquet(*paths)


def _merge_batches(spark: SparkSession, store: Store, day: _Day, files: int) -> None:
    """Merge all batches of a day into one directory, and remove the others."""
    hidden = f"{day.path}/{_COMPACTING}"
    store.delete(hidden)
    rows = _read(spark, store, [store.at(f"{day.path}/{b.name}") for b in day.kept])
    # Sorted rows are similar to their neighbours, which compress better.
    order = ("topic", "partition", "broker", "time_ms")
    rows.drop(CLUSTER, DAY, BATCHES).repartitionByRange(files, *order).sortWithinPartitions(
        *order
    ).write.parquet(store.at(hidden))
    first, last = min(b.first for b in day.kept), max(b.last for b in day.kept)
    if not store.rename(hidden, f"{day.path}/{BATCHES}={first}-{last}"):
        raise HistoryError(
            f"archive {store.root}: {day.path} was compacted by another process at the same time"
        )
    for batches in day.kept:
        store.delete(f"{day.path}/{batches.name}")


def _remove_leftovers(store: Store) -> None:
    """Remove the leftovers of crashed writers, which are never read."""
    for name in store.names(RECORDS):
        path = f"{RECORDS}/{name}"
        old = time.time_ns() // 1_000_000 - _LEFTOVER_MS
        if name.startswith(".spark-staging-") and store.changed_ms(path) < old:
            store.delete(path)


def _checkpoint(store: Store, cluster: str, topic: str) -> str:
    """Directory of Spark's progress; checked against the contents of the archive."""
    name = quote(cluster, safe="")
    parent = f"{CHECKPOINTS}/{CLUSTER}={name}"
    topics = store.names(parent)
    others = [other for other in topics if other != topic]
    if others:
        raise HistoryError(
            f"archive {store.root}: topic {others[0]!r} found archived for cluster {cluster!r}; "
            f"another archive, or another name for the cluster, expected for {topic!r}"
        )
    kept = {unquote(value) for value in _values(store, RECORDS, CLUSTER)}
    if cluster in kept and not topics:
        raise HistoryError(
            f"archive {store.root}: records of cluster {cluster!r} found, but not how far they "
            f"reach ({parent}); to read the topic again, another name or archive expected"
        )
    return store.at(f"{parent}/{topic}")


def _day(ms: int) -> str:
    """The day of a time (UTC)."""
    return (date(1970, 1, 1) + timedelta(days=ms // DAY_MS)).isoformat()
