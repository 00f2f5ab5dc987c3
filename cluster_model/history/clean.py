"""Judges each record of a history as the live model would, for all of them at once.

A record is judged by what arrived before it, as in :class:`cluster_model.live.ClusterModel`.
Arrival is the time that the topic has for a message, in intervals as long as a window: how many
messages were fetched together, or when, changes nothing.
Its outcome is the name of a :class:`cluster_model.windows.RecordOutcome` in lower case.
There is no ``surplus`` here, as a window takes any number of samples. Metadata is that of
the record's time, where the live model has only that of its arrival: rates of a partition
count if they come from the broker that led it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from cluster_model.history.errors import HistoryError
from cluster_model.history.metadata import NEVER_MS, MetadataLog
from cluster_model.history.schema import CLUSTER, QUARANTINE
from cluster_model.trust import TrustParameters
from metrics_reporter import BROKER_METRICS, BYTES_IN, BYTES_OUT, CPU, CPU_RATIO, SIZE

RATES = (BYTES_IN, BYTES_OUT)
# Records that count.
TAKEN = ("added", "split")
# Capacity of a broker that states none: cpu in percent.
_WHOLE_CPU = 100.0
# Order in which the live model takes records that arrive at once.
_BROKERS, _PARTITIONS, _TOPICS = 0, 1, 2
_ARRIVAL = ("batch", "source_partition", "source_offset")
_SAID = ("time_ms", "broker", "topic", "underscored")
_OUTCOME = "outcome"
# A topic's record has the best outcome of its shares.
_BEST_FIRST = ("split", "duplicate", "superseded")


class MetadataTables(NamedTuple):
    """The tables PLACEMENTS, BROKERS and TOPICS of any number of clusters.

    Each executor gets all of them, some 200 bytes for each placement that a partition
    ever had.
    """

    placements: DataFrame
    brokers: DataFrame
    topics: DataFrame

    @classmethod
    def of(cls, spark: SparkSession, logs: Iterable[MetadataLog]) -> MetadataTables:
        """The tables of these logs, one for each cluster.

        Raises
        ------
        HistoryError
            If there is no log, or an empty one, or two of one cluster.
        """
        logs = tuple(logs)
        names = [log.cluster for log in logs]
        if len(set(names)) < max(len(names), 1):
            raise HistoryError(
                f"metadata: logs of the clusters {names} found, one or more of different "
                "clusters expected"
            )
        tables = [(m.placements(spark), m.brokers(spark), m.topics(spark)) for m in logs]
        return cls(*(reduce(DataFrame.unionByName, same) for same in zip(*tables, strict=True)))


@dataclass(frozen=True)
class JudgedRecords:
    """Records with their outcomes.

    Parameters
    ----------
    rated
        A row for each record of a partition whose rates are at issue, and for each share of a
        topic's record. Rows with the outcome ``added`` or ``split`` hold only the rates that
        count, to be divided by ``shares``.
    settled
        The same for all other records of partitions and topics, none of whose rates count.
    brokers
        A row for each value (`metric`, `value`) of a record of a broker, or one for a record
        without any.
    problems
        Messages that are not records.
    arrivals
        The newest window when each batch arrived: a small table, with a row per interval of
        arrival unless the records name batches.
    further
        Metrics of partitions beyond rates and sizes; the values of the i-th are in the column
        :func:`further_column` of `rated` and `settled`.
    """

    rated: DataFrame
    settled: DataFrame
    brokers: DataFrame
    problems: DataFrame | None
    arrivals: DataFrame
    further: tuple[str, ...] = ()

    @property
    def partitions(self) -> DataFrame:
        """`rated` and `settled` together."""
        return self.rated.unionByName(self.settled)

    @property
    def outcomes(self) -> DataFrame:
        """All records, each once, as in the table QUARANTINE; `reason` is the outcome."""
        rows = self.partitions
        columns = {n: n for n in (*RATES, SIZE)} | _columns(self.further)
        values = F.array(*(_named(F.lit(n), F.col(c)) for n, c in columns.items()))
        own = _quarantined(rows.where(F.col("phase") == _PARTITIONS), values)
        shares = rows.where(F.col("phase") == _TOPICS).withColumn("partition", F.lit(-1))
        tables = [
            own,
            # The record's values, which were removed from the shares that do not count.
            _gathered(shares, values=F.array(*(_named(F.lit(n), F.max(n)) for n in RATES))),
            _gathered(self.brokers, values=F.collect_list(_named(F.col("metric"), F.col("value")))),
        ]
        if self.problems is not None:
            tables.append(self.problems)
        return reduce(DataFrame.unionByName, tables)

    @property
    def quarantine(self) -> DataFrame:
        """The records that do not count, each once, with the reason."""
        return self.outcomes.where(~F.col("reason").isin(*TAKEN))

    def persist(self, *, settled: bool = True) -> JudgedRecords:
        """The same, computed once and kept on the executors' disks; `settled` only on request."""
        kept = StorageLevel.DISK_ONLY
        # First, so that Spark finds it in the plans of the others.
        self.arrivals.persist(kept)
        if settled:
            self.settled.persist(kept)
        self.rated.persist(kept)
        self.brokers.persist(kept)
        return self

    def unpersist(self) -> None:
        """Release the tables that were kept."""
        for table in (self.arrivals, self.settled, self.rated, self.brokers):
            table.unpersist()


def in_batches(records: DataFrame, window_ms: int) -> DataFrame:
    """The records, with the number of its interval of arrival as `batch` where there is none."""
    interval = F.floor(F.col("arrived_ms") / window_ms).cast("long")
    return records.withColumn("batch", F.coalesce("batch", interval))


def further_column(i: int) -> str:
    """Name of the column with the values of the i-th further metric."""
    return f"further_{i}"


def _columns(further: Sequence[str]) -> dict[str, str]:
    """Further metric to its column; its name may be no name of a column."""
    return {name: further_column(i) for i, name in enumerate(further)}


def judge(
    records: DataFrame,
    metadata: MetadataTables,
    *,
    window_ms: int,
    windows: int,
    further: Sequence[str] = (),
) -> JudgedRecords:
    """Judge every record of a history.

    Parameters
    ----------
    records
        The table RECORDS, possibly with ``problem`` and ``value`` of other messages. Records
        without a `batch` arrived with all those of the same interval, as long as a window.
    metadata
        Metadata of the clusters.
    window_ms
        Length of a window.
    windows
        A record is late if its window is at least that many before the newest.
    further
        Metrics of partitions, by name, that are judged in addition to rates and sizes.

    Raises
    ------
    HistoryError
        For a number below 1.
    """
    for name, number in (("window_ms", window_ms), ("windows", windows)):
        if number < 1:
            raise HistoryError(f"history, {name}: {number} found, 1 or more expected")
    records = in_batches(records, window_ms)
    problems = None
    if "problem" in records.columns:
        problems = _problems(records.where(F.col("problem").isNotNull()))
        records = records.where(F.col("problem").isNull())
    about_topic = F.col("topic").isNotNull()
    keep = (CLUSTER, *_ARRIVAL, "arrived_ms", *_SAID, "partition")
    columns = _columns(further)
    limits = TrustParameters().limits
    limits |= dict.fromkeys(columns.values(), TrustParameters().max_value)
    # A topic's sum is not split, except for rates.
    own = F.coalesce("partition", F.lit(-1)) != -1
    named = (F.when(own, F.col("other")[name]).alias(c) for name, c in columns.items())
    about = records.where(about_topic).select(*keep, *map(_number, (*RATES, SIZE)), *named)
    sampled = (*RATES, *columns.values())
    for column in columns.values():
        about = about.withColumn(column, _number(column))
    partitions = _screened_partitions(about, metadata, limits, sampled)
    brokers = _screened_brokers(
        records.where(~about_topic).select(*keep, *map(_number, (*BROKER_METRICS, CPU_RATIO))),
        metadata,
        limits,
    )
    start = F.col("time_ms") - F.col("time_ms") % window_ms
    partitions, brokers = (t.withColumn("start_ms", start) for t in (partitions, brokers))
    # What a record's own time of arrival decides needs no other record.
    future = F.col("time_ms") > F.least("arrived_ms", F.lit(NEVER_MS - window_ms)) + window_ms
    partitions, brokers = (
        t.withColumn(_OUTCOME, F.coalesce(_OUTCOME, F.when(future, "future")))
        for t in (partitions, brokers)
    )
    arrivals = _arrivals(partitions, brokers)
    partitions, brokers = (
        t.join(F.broadcast(arrivals), [CLUSTER, "batch", "phase"], "left")
        .withColumn(
            _OUTCOME,
            F.coalesce(
                _OUTCOME,
                F.when(F.col("follower"), "follower"),
                F.when(
                    F.col("rated") & (F.col("start_ms") < F.col("newest_ms") - windows * window_ms),
                    "late",
                ),
                F.when(~F.col("rated"), "added"),
            ),
        )
        .drop("newest_ms", "rated", "follower")
        for t in (partitions, brokers)
    )
    open_ = F.col(_OUTCOME).isNull()
    return JudgedRecords(
        _judged_partitions(partitions.where(open_), sampled),
        # Values of those that are taken count for their size alone.
        partitions.where(~open_).withColumns(
            {name: F.when(~F.col(_OUTCOME).isin(*TAKEN), F.col(name)) for name in sampled}
        ),
        _judged_brokers(brokers),
        problems,
        arrivals,
        tuple(further),
    )


def _number(name: str) -> Column:
    return F.when(~F.isnan(name), F.col(name)).alias(name)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__or__, conditions, F.lit(False))


def _given(names: Iterable[str]) -> Column:
    return _any(F.col(name).isNotNull() for name in names)


def _wrong(names: Iterable[str], limits: Mapping[str, float]) -> Column:
    """Whether any of these columns has an invalid value; null is not invalid."""
    return _any(
        F.coalesce((F.col(name) < 0) | (F.col(name) > limits[name]), F.lit(False)) for name in names
    )


def _screen(known: Column, wrong: Column, given: Column) -> Column:
    """The outcomes that can be decided from metadata alone.

    Parameters
    ----------
    known
        Whether the metadata has the record's subject.
    wrong, given
        Whether any of the values in use is invalid, and whether there is any.
    """
    return (
        F.when(wrong | (F.col("time_ms") < 0), "invalid")
        .when(F.coalesce(F.col("ambiguous"), F.lit(False)), "ambiguous")
        .when(~F.coalesce(known, F.lit(False)) | ~given, "unknown")
    )


def _valid(table: str) -> Column:
    # The latest possible time belongs to the entry that is valid until then.
    at = F.least("time_ms", F.lit(NEVER_MS - 1))
    return (at >= F.col(f"{table}.valid_from_ms")) & (at < F.col(f"{table}.valid_to_ms"))


def _then(things: str) -> Column:
    """The element, of an array of elements with times, that was valid at the record's time."""
    at = F.least("time_ms", F.lit(NEVER_MS - 1))
    return F.filter(things, lambda x: (at >= x["valid_from_ms"]) & (at < x["valid_to_ms"]))


def _screened_partitions(
    records: DataFrame,
    metadata: MetadataTables,
    limits: Mapping[str, float],
    sampled: Sequence[str],
) -> DataFrame:
    """Records of partitions, and shares of those of topics, with the outcomes known so far.

    `sampled` are the columns of which samples are collected, the rates first.
    """
    of_topic = F.coalesce("partition", F.lit(-1)) == -1
    records = records.withColumn("phase", F.when(of_topic, _TOPICS).otherwise(_PARTITIONS))
    valid = F.struct("valid_from_ms", "valid_to_ms", "topic")
    written = metadata.topics.groupBy(
        F.col(CLUSTER).alias("w_cluster"), F.translate("topic", ".", "_").alias("written")
    ).agg(F.collect_list(valid).alias("names"))
    records = (
        records.join(
            F.broadcast(written),
            (F.col(CLUSTER) == F.col("w_cluster"))
            & (F.when(F.col("underscored"), F.col("topic")) == F.col("written")),
            "left",
        )
        .withColumn("found", F.when(F.col("underscored"), _then("names")))
        .withColumn("ambiguous", F.size("found") > 1)
        .withColumn(
            "of",
            F.when(F.size("found") == 1, F.get("found", 0)["topic"]).when(
                ~F.coalesce("underscored", F.lit(False)), F.col("topic")
            ),
        )
        .drop("w_cluster", "written", "names", "found")
    )
    there = metadata.placements.select(
        F.col(CLUSTER).alias("p_cluster"),
        F.col("topic").alias("p_topic"),
        F.col("partition").alias("p_partition"),
        "valid_from_ms",
        "valid_to_ms",
        "replicas",
        F.col("leader").alias("p_leader"),
    ).alias("p")
    led = (
        metadata.placements.where(F.col("leader") >= 0)
        .groupBy(
            F.col(CLUSTER).alias("l_cluster"), F.col("topic").alias("l_topic"), F.col("leader")
        )
        .agg(F.collect_list(F.struct("valid_from_ms", "valid_to_ms", "partition")).alias("led"))
    )
    joined = records.join(
        F.broadcast(there),
        (F.col("phase") == _PARTITIONS)
        & (F.col(CLUSTER) == F.col("p_cluster"))
        & (F.col("of") == F.col("p_topic"))
        & (F.col("partition") == F.col("p_partition"))
        & _valid("p"),
        "left",
    ).join(
        F.broadcast(led),
        (F.col("phase") == _TOPICS)
        & (F.col(CLUSTER) == F.col("l_cluster"))
        & (F.col("of") == F.col("l_topic"))
        & (F.col("broker") == F.col("leader")),
        "left",
    )
    own = F.col("phase") == _PARTITIONS
    shared = F.transform(_then("led"), lambda x: x["partition"])
    outcome = F.when(
        own,
        _screen(
            F.array_contains("replicas", F.col("broker")),
            _wrong((*sampled, SIZE), limits),
            _given((*sampled, SIZE)),
        ),
    ).otherwise(_screen(F.size("shared") > 0, _wrong(RATES, limits), _given(RATES)))
    # A follower's incoming bytes are not the producers' bytes to the partition.
    follows = own & ~F.coalesce(F.col("p_leader") == F.col("broker"), F.lit(False))
    of = F.when(own | F.col(_OUTCOME).isNotNull(), F.array("partition")).otherwise(F.col("shared"))
    return (
        joined.withColumn("shared", shared)
        .withColumn(_OUTCOME, outcome)
        .withColumn("of_partitions", of)
        .select(
            *(CLUSTER, *_ARRIVAL, "arrived_ms", "phase", "time_ms", "broker", "underscored"),
            F.coalesce("of", "topic").alias("topic"),
            *(*sampled, SIZE, _OUTCOME),
            F.size("of_partitions").alias("shares"),
            (_given(sampled) & ~follows).alias("rated"),
            (_given(sampled) & follows & F.col(SIZE).isNull()).alias("follower"),
            F.explode("of_partitions").alias("partition"),
        )
    )


def _screened_brokers(
    records: DataFrame, metadata: MetadataTables, limits: Mapping[str, float]
) -> DataFrame:
    """Each value of the records of brokers, with the outcomes known so far."""
    names = (*BROKER_METRICS, CPU_RATIO)
    there = metadata.brokers.select(
        F.col(CLUSTER).alias("b_cluster"),
        F.col("broker").alias("known"),
        "valid_from_ms",
        "valid_to_ms",
        F.coalesce(F.col("capacity")[CPU], F.lit(_WHOLE_CPU)).alias("whole"),
    ).alias("b")
    values = F.array(*(F.struct(F.lit(n).alias("metric"), F.col(n).alias("value")) for n in names))
    reported = F.filter("reported", lambda x: x["value"].isNotNull())
    ratio = F.get(F.filter("reported", lambda x: x["metric"] == CPU_RATIO), 0)["value"]
    cpu = F.struct(F.lit(CPU).alias("metric"), (F.col("whole") * ratio).alias("value"))
    # A record with the ratio but without cpu reports its cpu by the ratio.
    by_ratio = F.exists("reported", lambda x: x["metric"] == CPU_RATIO) & ~F.exists(
        "reported", lambda x: x["metric"] == CPU
    )
    measured = F.filter("reported", lambda x: x["metric"] != CPU_RATIO)
    samples = F.when(by_ratio, F.array_append(measured, cpu)).otherwise(measured)
    return (
        records.select("*", values.alias("reported"), _wrong(names, limits).alias("wrong"))
        .drop(*names)
        .withColumn("reported", reported)
        .withColumns({"phase": F.lit(_BROKERS), "ambiguous": F.lit(False)})
        .join(
            F.broadcast(there),
            (F.col(CLUSTER) == F.col("b_cluster"))
            & (F.col("broker") == F.col("known"))
            & _valid("b"),
            "left",
        )
        .withColumn(
            _OUTCOME, _screen(F.col("known").isNotNull(), F.col("wrong"), F.size("reported") > 0)
        )
        .withColumns({"rated": F.lit(True), "follower": F.lit(False)})
        .select(
            *(CLUSTER, *_ARRIVAL, "arrived_ms", "phase", *_SAID, "partition"),
            *("rated", "follower", _OUTCOME),
            F.inline_outer(F.when(F.col(_OUTCOME).isNull(), samples).otherwise(F.col("reported"))),
        )
    )


def _arrivals(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Per batch and phase the newest window so far, a running maximum over batches."""
    needed = (CLUSTER, "batch", "phase", "start_ms", "rated", _OUTCOME)
    rows = partitions.select(*needed).unionByName(brokers.select(*needed))
    counts = F.col(_OUTCOME).isNull() & F.col("rated")
    before = Window.partitionBy(CLUSTER, F.col("phase") == _BROKERS).orderBy("batch", "phase")
    return (
        rows.groupBy(CLUSTER, "batch", "phase")
        .agg(F.max(F.when(counts, F.col("start_ms"))).alias("newest_ms"))
        .withColumn("newest_ms", F.max("newest_ms").over(before))
    )


def _judged_partitions(rows: DataFrame, sampled: Sequence[str]) -> DataFrame:
    """Mark duplicate and superseded records; keep only values that count."""
    outcome = F.col(_OUTCOME)
    window = (CLUSTER, "topic", "partition", "start_ms")
    guess = F.col("phase") == _TOPICS
    along = Window.partitionBy(*window).orderBy("phase", "time_ms", *_ARRIVAL)
    earlier = along.rowsBetween(Window.unboundedPreceding, -1)
    together = along.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    here = F.struct("phase", "time_ms")
    rows = rows.repartition(*window)
    has = {name: F.col(name).isNotNull() for name in sampled}
    rows = rows.withColumns(
        {
            # Rows are sorted by these fields first, so an equal earlier row is the last one before.
            f"{name}_before": F.last(F.when(has[name], here), ignorenulls=True).over(earlier)
            for name in sampled
        }
        | {
            # Within a batch, records of partitions come before those of topics.
            f"{name}_measured": F.min(F.when(has[name] & ~guess, F.col("batch"))).over(together)
            for name in sampled
        }
    )

    rows = rows.withColumns(
        {
            f"{name}_became": F.when(
                has[name],
                F.when(guess & (F.col(f"{name}_measured") <= F.col("batch")), "superseded")
                .when(F.col(f"{name}_before") == here, "duplicate")
                .otherwise(F.when(guess, "split").otherwise("added")),
            )
            for name in sampled
        }
    )
    became = F.array(*(f"{name}_became" for name in sampled))
    best = (F.when(F.array_contains(became, kind), kind) for kind in ("added", *_BEST_FIRST))
    rows = rows.withColumn(_OUTCOME, F.coalesce(*best))
    # A measurement discards earlier estimates, which counted until then.
    counts = {
        name: F.col(f"{name}_became").isin(*TAKEN)
        & ~(guess & F.col(f"{name}_measured").isNotNull())
        for name in sampled
    }
    return rows.withColumns(
        {name: F.when(~outcome.isin(*TAKEN) | counts[name], F.col(name)) for name in sampled}
    ).drop(*(f"{name}_{helper}" for name in sampled for helper in ("before", "measured", "became")))


def _judged_brokers(rows: DataFrame) -> DataFrame:
    """Mark duplicates."""
    window = (CLUSTER, "broker", "metric", "start_ms")
    earlier = (
        Window.partitionBy(*window, "time_ms")
        .orderBy(*_ARRIVAL)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    open_ = F.col(_OUTCOME).isNull()
    again = F.count(F.when(open_, 1)).over(earlier) > 0
    return (
        rows.repartition(*window)
        .withColumn("again", again)
        .withColumn(
            _OUTCOME, F.coalesce(_OUTCOME, F.when(F.col("again"), "duplicate").otherwise("added"))
        )
        .drop("again")
    )


def _named(name: Column, value: Column) -> Column:
    return F.struct(name.alias("key"), value.alias("value"))


def _gathered(rows: DataFrame, values: Column) -> DataFrame:
    """Records that are spread over several rows, as in the table QUARANTINE.

    A record has the best outcome of its samples.
    """
    rank = F.array_position(F.array(*map(F.lit, ("added", *_BEST_FIRST))), F.col(_OUTCOME))
    same = [F.first(name).alias(name) for name in ("arrived_ms", *_SAID, "partition")]
    records = rows.groupBy(CLUSTER, *_ARRIVAL).agg(
        *same, F.min_by(_OUTCOME, rank).alias(_OUTCOME), values.alias("values")
    )
    return _quarantined(records, F.col("values"))


def _problems(rows: DataFrame) -> DataFrame:
    if "value" not in rows.columns:
        rows = rows.withColumn("value", F.lit(None))
    none = F.array().cast("array<struct<key:string,value:double>>")
    return _quarantined(rows.withColumn(_OUTCOME, F.col("problem")), none)


def _quarantined(rows: DataFrame, values: Column) -> DataFrame:
    """Rows as in the table QUARANTINE, with names and values of metrics."""
    reported = F.map_from_entries(F.filter(values, lambda x: x["value"].isNotNull()))
    found = {"metrics": reported, "reason": F.col(_OUTCOME)}
    if "value" not in rows.columns:
        found["value"] = F.lit(None)
    rows = rows.withColumns(found)
    return rows.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in QUARANTINE.fields))
