"""Archives a metrics topic in a table of Delta Lake, each message exactly once.

Below the archive's directory::

    messages/                              the table, partitioned by cluster and day
    checkpoints/cluster=C/TOPIC/...        Spark's progress in the topic
    records/cluster=C/day=D/batches=N/...  plain Parquet: exports, and archives of earlier versions

The day is the UTC day on which messages arrived. A batch becomes visible as a whole, and one
that is repeated after a crash has no effect. Compaction and removal are transactions of the
table too, so that none of them depends on renames, and readers see the state before or after.
Plain Parquet goes on to be read next to the table, and is never rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.streaming.query import StreamingQuery

from cluster_model.history.days import DAY_MS, day_name, day_number, day_text
from cluster_model.history.decode import decode
from cluster_model.history.delta import (
    MAINTENANCE,
    configured,
    delta_sentences,
    sql_name,
    vacuum,
)
from cluster_model.history.errors import HistoryError
from cluster_model.history.read import as_messages, kafka_sentences, topic_options
from cluster_model.history.schema import CLUSTER, DAY, DECODED, DEFAULT_CLUSTER
from cluster_model.history.store import Store
from metrics_reporter import Format
from metrics_reporter.foreign import TOPIC_FORMATS

MESSAGES, RECORDS, CHECKPOINTS, BATCHES = "messages", "records", "checkpoints", "batches"

_IDENTITY = (CLUSTER, "batch", "source_partition", "source_offset")
# In plain Parquet the remaining columns are in the names of the directories.
_STORED = t.StructType(
    [
        *(k for k in DECODED.fields if k.name != CLUSTER),
        *(t.StructField(name, t.StringType()) for name in (CLUSTER, DAY, BATCHES)),
    ]
)


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
        If the session has no Kafka connector or no Delta Lake, if the archive has another topic
        of the cluster, or if it has records of the cluster without Spark's progress.
    """
    checkpoint = _checkpoint(spark, Store(spark, str(path)), cluster, topic)
    options = topic_options(bootstrap, topic, client)
    options["maxOffsetsPerTrigger"] = str(max_messages)
    options["failOnDataLoss"] = str(not allow_gaps).lower()
    format = format or TOPIC_FORMATS.get(topic)

    def write(messages: DataFrame, batch: int) -> None:
        rows = as_messages(messages.withColumn("batch", f.lit(batch)), cluster, f"topic {topic}")
        write_batch(decode(rows, format), str(path), batch, writer=_stream(spark, checkpoint))

    with kafka_sentences(bootstrap, topic):
        stream = spark.readStream.format("kafka").options(**options).load()
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(1000 * every)} milliseconds")
        return writer.start()


def write_batch(rows: DataFrame, path: str, batch: int, *, writer: str = "batches") -> None:
    """Write a batch to the archive, in one transaction.

    Parameters
    ----------
    rows
        The table DECODED.
    path
        The archive.
    batch
        Number of the batch. One that is not larger than the writer's last has no effect: it was
        written before.
    writer
        Who numbers the batches.
    """
    with _sentences(path):
        _with_day(rows).write.format("delta").mode("append").options(
            mergeSchema="true", txnAppId=writer, txnVersion=batch
        ).partitionBy(CLUSTER, DAY).save(f"{path}/{MESSAGES}")


def _with_day(rows: DataFrame) -> DataFrame:
    # A clock may give any date, and none may prevent a batch from being written.
    return rows.withColumn(DAY, day_text(day_number("arrived_ms")))


def replace_range(
    rows: DataFrame, path: str | Path, cluster: str, source: int, first_ms: int, end_ms: int
) -> None:
    """Write rows of a range of arrival, in place of those of the same source, in one transaction.

    Parameters
    ----------
    rows
        The table DECODED.
    path
        The archive; created if missing.
    cluster, source
        The cluster of all rows, and their ``source_partition``, which names the source.
    first_ms, end_ms
        The range, ms since 1970, its end excluded.
    """
    replaced = (
        f"{among([cluster])} AND source_partition = {source} AND {DAY} >= '{_day(first_ms)}' "
        f"AND {DAY} <= '{_day(end_ms - 1)}' AND arrived_ms >= {first_ms} AND arrived_ms < {end_ms}"
    )
    with _sentences(path):
        _with_day(rows).write.format("delta").mode("overwrite").option(
            "replaceWhere", replaced
        ).partitionBy(CLUSTER, DAY).save(f"{path}/{MESSAGES}")


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
    low = "" if first_ms is None else _day(first_ms - DAY_MS)
    high = "9" * 10 if end_ms is None else _day(end_ms - 1 + DAY_MS)
    store = Store(spark, str(path))
    with _sentences(path):
        held = held_days(spark, store, clusters)
        chosen = [day for day in held if low <= day[1] <= high]
        if not chosen:
            have = sorted(day for _, day in held)
            holds = f"it holds {have[0]} to {have[-1]}" if have else "it holds none"
            asked = f" from {low or 'the beginning'} to {'the end' if end_ms is None else high}"
            raise HistoryError(f"archive {path}: no records{asked} found; {holds}")
        found = _rows(spark, store, chosen)
    return without_batches(found)


def compact(
    spark: SparkSession,
    path: str | Path,
    *,
    clusters: Sequence[str] | None = None,
    file_bytes: int = 128 << 20,
) -> Compaction:
    """Merge the small files of each day into a few large ones.

    May run while the topic is being archived or read, and may crash at any time. The small files
    stay for a week, for those who are reading them. Plain Parquet is left as it is.

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
        If there is no archive, or no such cluster, or if another compaction was faster.
    """
    store = Store(spark, str(path))
    sizes = dict.fromkeys(("minFileSize", "maxFileSize"), str(file_bytes))
    with (
        _sentences(path),
        configured(
            spark,
            MAINTENANCE | {f"spark.databricks.delta.optimize.{k}": v for k, v in sizes.items()},
        ),
    ):
        held_days(spark, store, clusters)
        if not has_table(store):
            return Compaction(0, 0, 0)
        of = f" WHERE {among(clusters)}" if clusters else ""
        done = spark.sql(f"OPTIMIZE {_table(store)}{of}").collect()[0]["metrics"]
        vacuum(spark, store, MESSAGES)
    merged = done["numFilesRemoved"] > 0
    return Compaction(
        done["partitionsOptimized"] if merged else 0, done["numFilesRemoved"], done["numFilesAdded"]
    )


def expire(
    spark: SparkSession,
    path: str | Path,
    *,
    before_ms: int,
    clusters: Sequence[str] | None = None,
) -> list[str]:
    """Remove old days. Their space is free a week later, by then at the next removal.

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
    first = _day(before_ms)
    with _sentences(path):
        gone = [(c, day) for c, day in held_days(spark, store, clusters) if day < first]
        for day in plain_days(store):
            if (day.cluster, day.name) in gone:
                store.delete(day.path)
        if has_table(store):
            of = f" AND {among(clusters)}" if clusters else ""
            spark.sql(f"DELETE FROM {_table(store)} WHERE {DAY} < '{first}'{of}")
            vacuum(spark, store, MESSAGES)
    return [f"{CLUSTER}={quote(c)}/{DAY}={day}" for c, day in gone]


def export(
    spark: SparkSession, path: str | Path, to: str | Path, *, clusters: Sequence[str] | None = None
) -> int:
    """Copy an archive to plain Parquet, by cluster and day, for any other tool.

    The copy can be read as an archive too. It has no transactions: nobody should read it until
    this has returned.

    Parameters
    ----------
    path
        The archive.
    to
        A directory that does not exist.
    clusters
        Names of clusters; all by default.

    Returns
    -------
    int
        The number of days of clusters.

    Raises
    ------
    HistoryError
        If there is no archive, no such cluster, or already something in that place.
    """
    store = Store(spark, str(path))
    with _sentences(path):
        held = held_days(spark, store, clusters)
        if Store(spark, str(to)).exists():
            raise HistoryError(f"export to {to}: something found there, nothing expected")
        if held:
            # Sorted rows are similar to their neighbours, which compress better.
            order = (CLUSTER, DAY, "topic", "partition", "broker", "time_ms")
            rows = _rows(spark, store, held).withColumn(BATCHES, f.lit("0"))
            rows.hint("rebalance", CLUSTER, DAY).sortWithinPartitions(*order).write.partitionBy(
                CLUSTER, DAY, BATCHES
            ).parquet(f"{to}/{RECORDS}")
    return len(held)


class _Batches(NamedTuple):
    """A directory of batches of plain Parquet: the first, the last, and its name."""

    first: int
    last: int
    name: str

    def covers(self, other: _Batches) -> bool:
        """Whether this includes all batches of the other."""
        within = self.first <= other.first and other.last <= self.last
        return within and self != other and "-" in self.name


class _Day(NamedTuple):
    """A day of a cluster in plain Parquet: its directory, and those of its batches."""

    cluster: str
    name: str
    path: str
    batches: list[_Batches]

    @property
    def overlaps(self) -> bool:
        """Whether rows may be there twice: a compaction of an earlier version was interrupted."""
        return any(b.covers(other) for b in self.batches for other in self.batches)


def plain_days(store: Store) -> Iterator[_Day]:
    """The days in plain Parquet."""
    for name in _values(store, RECORDS, CLUSTER):
        parent = f"{RECORDS}/{CLUSTER}={name}"
        for day in _values(store, parent, DAY):
            path, found = f"{parent}/{DAY}={day}", []
            for batches in _values(store, path, BATCHES):
                first, _, last = batches.partition("-")
                if first.isdecimal() and (last or first).isdecimal():
                    name_ = f"{BATCHES}={batches}"
                    found.append(_Batches(int(first), int(last or first), name_))
            if found:
                yield _Day(unquote(name), day, path, found)


def _values(store: Store, path: str, key: str) -> list[str]:
    """The values of a partition key, from the names of directories."""
    start = f"{key}="
    return [name.removeprefix(start) for name in store.names(path) if name.startswith(start)]


def has_table(store: Store) -> bool:
    """Whether an archive has a table of Delta Lake."""
    return store.exists(f"{MESSAGES}/_delta_log")


def missing_archive(store: Store) -> HistoryError:
    """The error of a directory that is no archive."""
    return HistoryError(f"archive {store.root}: no directory {MESSAGES!r} found in it")


def _table(store: Store) -> str:
    """The table's name in SQL."""
    return sql_name(store, MESSAGES)


def among(clusters: Sequence[str]) -> str:
    """A condition in SQL: rows of these clusters."""
    escaped = (c.replace("\\", "\\\\").replace("'", "\\'") for c in clusters)
    listed = ", ".join(f"'{c}'" for c in escaped)
    return f"{CLUSTER} IN ({listed})"


def held_days(
    spark: SparkSession, store: Store, clusters: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    """Clusters and days of an archive, of these clusters or of all, in order.

    Raises
    ------
    HistoryError
        If there is no archive, or no such cluster.
    """
    if not (has_table(store) or store.exists(RECORDS)):
        raise missing_archive(store)
    held = {(day.cluster, day.name) for day in plain_days(store)}
    if has_table(store):
        table = spark.read.format("delta").load(store.at(MESSAGES))
        held |= {(c, day) for c, day in table.select(CLUSTER, DAY).distinct().collect()}
    names = sorted({cluster for cluster, _ in held})
    unknown = sorted(set(clusters or ()) - set(names))
    if unknown:
        raise HistoryError(
            f"archive {store.root}: no cluster {unknown[0]!r} found; it has "
            f"{', '.join(names) or 'none'}"
        )
    return sorted(day for day in held if day[0] in (clusters or names))


def _rows(spark: SparkSession, store: Store, days: Sequence[tuple[str, str]]) -> DataFrame:
    """The columns of DECODED, and `day`, of these days of clusters."""
    columns = (*DECODED.names, DAY)
    clusters, names = sorted({c for c, _ in days}), sorted({day for _, day in days})
    chosen = f.col(CLUSTER).isin(clusters) & f.col(DAY).between(names[0], names[-1])
    plain = [day for day in plain_days(store) if (day.cluster, day.name) in set(days)]
    table = None
    if has_table(store):
        table = spark.read.format("delta").load(store.at(MESSAGES)).where(chosen)
        table = complete(table).select(*columns)
        if not plain:
            return table
    found = None
    for overlaps in (False, True):
        paths = [
            store.at(f"{day.path}/{b.name}")
            for day in plain
            if day.overlaps == overlaps
            for b in day.batches
        ]
        if not paths:
            continue
        # With our own schema, files written before a metric existed read as null for it.
        read = spark.read.schema(_STORED).option("basePath", store.at(RECORDS)).parquet(*paths)
        read = read.select(*columns)
        # Where a rename is a copy, an interrupted compaction has some of the rows twice.
        read = read.dropDuplicates([*_IDENTITY]) if overlaps else read
        found = read if found is None else found.unionByName(read)
    if found is None:
        raise missing_archive(store)
    if table is None:
        return found
    # The table has what the stream wrote since: a batch that was repeated there counts there.
    since = table.groupBy(CLUSTER).agg(f.min("batch").alias("first_batch"))
    earlier = found.join(f.broadcast(since), [CLUSTER], "left").where(
        f.col("first_batch").isNull() | (f.col("batch") < f.col("first_batch"))
    )
    return table.unionByName(earlier.select(*columns))


def without_batches(rows: DataFrame) -> DataFrame:
    """The table DECODED; how many messages Spark took at once does not show when they arrived."""
    return rows.withColumn("batch", f.lit(None).cast("long")).select(*DECODED.names)


def complete(table: DataFrame) -> DataFrame:
    """With columns of metrics that did not exist when the table was last written."""
    missing = (k for k in DECODED.fields if k.name not in table.columns)
    return table.select("*", *(f.lit(None).cast(k.dataType).alias(k.name) for k in missing))


def _checkpoint(spark: SparkSession, store: Store, cluster: str, topic: str) -> str:
    """Directory of Spark's progress; checked against the contents of the archive."""
    parent = f"{CHECKPOINTS}/{CLUSTER}={quote(cluster, safe='')}"
    topics = store.names(parent)
    others = [other for other in topics if other != topic]
    if others:
        raise HistoryError(
            f"archive {store.root}: topic {others[0]!r} found archived for cluster {cluster!r}; "
            f"another archive, or another name for the cluster, expected for {topic!r}"
        )
    if not topics and (has_table(store) or store.exists(RECORDS)):
        with _sentences(store.root):
            kept = {held for held, _ in held_days(spark, store)}
        if cluster in kept:
            raise HistoryError(
                f"archive {store.root}: records of cluster {cluster!r} found, but not how far they "
                f"reach ({parent}); to read the topic again, another name or archive expected"
            )
    return store.at(f"{parent}/{topic}")


def _stream(spark: SparkSession, checkpoint: str) -> str:
    """The identity of a stream, which is that of its checkpoint."""
    written = spark.read.text(f"{checkpoint}/metadata").collect()
    return str(json.loads(written[0][0])["id"])


def _sentences(path: str | Path) -> AbstractContextManager[None]:
    return delta_sentences(f"archive {path}")


def _day(ms: int) -> str:
    return day_name(ms // DAY_MS)
