"""Judges what needs no other record: values, metadata of the record's time, times ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cluster_model.history.days import DAY_MS, Reach, day_number
from cluster_model.history.errors import HistoryError
from cluster_model.history.metadata import NEVER_MS, MetadataLog
from cluster_model.history.schema import CLUSTER, QUARANTINE
from cluster_model.trust import TrustParameters
from metrics_reporter import BROKER_METRICS, BYTES_IN, BYTES_OUT, CPU, CPU_RATIO, SIZE

RATES = (BYTES_IN, BYTES_OUT)
# Columns of a message's arrival, and of what a record is about.
ARRIVAL = ("batch", "source_partition", "source_offset")
SAID = ("time_ms", "broker", "topic", "underscored")
OUTCOME = "outcome"
# Order in which the live model takes records that arrive at once.
BROKERS, PARTITIONS, TOPICS = 0, 1, 2
# The time of the metadata that a record is compared with, and whether it is from too long ago.
_DATED = ("at_ms", "stale")
# Capacity of a broker that states none: cpu in percent.
_WHOLE_CPU = 100.0


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

    def between(self, first_ms: int, end_ms: int) -> MetadataTables:
        """The rows that are valid at some time of a range."""
        valid = (F.col("valid_from_ms") < end_ms) & (F.col("valid_to_ms") > first_ms)
        return MetadataTables(*(table.where(valid) for table in self))


class ScreenedRecords(NamedTuple):
    """Records with the outcomes that need no other record.

    Parameters
    ----------
    partitions, brokers
        Records of partitions and shares of topics' records, and values of brokers.
    problems
        Messages that are not records.
    further
        As in :class:`JudgedRecords`.
    """

    partitions: DataFrame
    brokers: DataFrame
    problems: DataFrame | None
    further: tuple[str, ...]

    def where(self, condition: Column) -> ScreenedRecords:
        """Those for which a condition on their columns holds."""
        problems = None if self.problems is None else self.problems.where(condition)
        kept = (self.partitions.where(condition), self.brokers.where(condition))
        return ScreenedRecords(*kept, problems, self.further)


def in_batches(records: DataFrame, window_ms: int) -> DataFrame:
    """The records, with the number of its interval of arrival as `batch` where there is none."""
    interval = F.floor(F.col("arrived_ms") / window_ms).cast("long")
    return records.withColumn("batch", F.coalesce("batch", interval))


def further_column(i: int) -> str:
    """Name of the column with the values of the i-th further metric."""
    return f"further_{i}"


def further_columns(further: Sequence[str]) -> dict[str, str]:
    """Further metric to its column; its name may be no name of a column."""
    return {name: further_column(i) for i, name in enumerate(further)}


def screen(
    records: DataFrame,
    metadata: MetadataTables,
    *,
    window_ms: int,
    windows: int,
    further: Sequence[str] = (),
) -> ScreenedRecords:
    """Judge what needs no other record; the first step of :func:`judge`, with its parameters.

    Raises
    ------
    HistoryError
        For a number below 1.
    """
    for name, number in (("window_ms", window_ms), ("windows", windows)):
        if number < 1:
            raise HistoryError(f"history, {name}: {number} found, 1 or more expected")
    reach = Reach.of(window_ms, windows)
    first, last = (day_number("arrived_ms") + n for n in (-reach.before, reach.after))
    near = F.greatest(F.least("time_ms", (last + 1) * DAY_MS - 1), first * DAY_MS)
    # Metadata is compared at a time within reach, so that no other matters for a day of arrival.
    dated = {"at_ms": near, "stale": day_number("time_ms") < first}
    records = in_batches(records, window_ms).withColumns(dated)
    problems = None
    if "problem" in records.columns:
        problems = _problems(records.where(F.col("problem").isNotNull()))
        records = records.where(F.col("problem").isNull())
    about_topic = F.col("topic").isNotNull()
    keep = (CLUSTER, *ARRIVAL, "arrived_ms", *_DATED, *SAID, "partition")
    columns = further_columns(further)
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
        t.withColumn(OUTCOME, F.coalesce(OUTCOME, F.when(future, "future")))
        for t in (partitions, brokers)
    )
    return ScreenedRecords(partitions, brokers, problems, tuple(further))


def newest_windows(screened: ScreenedRecords) -> DataFrame:
    """Per batch and phase its newest window with rates; null if nothing in it has valid ones."""
    needed = (CLUSTER, "batch", "phase", "start_ms", "rated", "stale", OUTCOME)
    tables = (screened.partitions, screened.brokers)
    rows = reduce(DataFrame.unionByName, (t.select(*needed) for t in tables))
    counts = F.col(OUTCOME).isNull() & F.col("rated") & ~F.col("stale")
    return rows.groupBy(CLUSTER, "batch", "phase").agg(
        F.max(F.when(counts, F.col("start_ms"))).alias("newest_ms")
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
    at = F.col("at_ms")
    return (at >= F.col(f"{table}.valid_from_ms")) & (at < F.col(f"{table}.valid_to_ms"))


def _then(things: str) -> Column:
    """The element, of an array of elements with times, that was valid at the record's time."""
    at = F.col("at_ms")
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
    records = records.withColumn("phase", F.when(of_topic, TOPICS).otherwise(PARTITIONS))
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
        (F.col("phase") == PARTITIONS)
        & (F.col(CLUSTER) == F.col("p_cluster"))
        & (F.col("of") == F.col("p_topic"))
        & (F.col("partition") == F.col("p_partition"))
        & _valid("p"),
        "left",
    ).join(
        F.broadcast(led),
        (F.col("phase") == TOPICS)
        & (F.col(CLUSTER) == F.col("l_cluster"))
        & (F.col("of") == F.col("l_topic"))
        & (F.col("broker") == F.col("leader")),
        "left",
    )
    own = F.col("phase") == PARTITIONS
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
    of = F.when(own | F.col(OUTCOME).isNotNull(), F.array("partition")).otherwise(F.col("shared"))
    return (
        joined.withColumn("shared", shared)
        .withColumn(OUTCOME, outcome)
        .withColumn("of_partitions", of)
        .select(
            *(CLUSTER, *ARRIVAL, "arrived_ms", "stale"),
            *("phase", "time_ms", "broker", "underscored"),
            F.coalesce("of", "topic").alias("topic"),
            *(*sampled, SIZE, OUTCOME),
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
        .withColumns({"phase": F.lit(BROKERS), "ambiguous": F.lit(False)})
        .join(
            F.broadcast(there),
            (F.col(CLUSTER) == F.col("b_cluster"))
            & (F.col("broker") == F.col("known"))
            & _valid("b"),
            "left",
        )
        .withColumn(
            OUTCOME, _screen(F.col("known").isNotNull(), F.col("wrong"), F.size("reported") > 0)
        )
        .withColumns({"rated": F.lit(True), "follower": F.lit(False)})
        .select(
            *(CLUSTER, *ARRIVAL, "arrived_ms", "stale", "phase", *SAID, "partition"),
            *("rated", "follower", OUTCOME),
            F.inline_outer(F.when(F.col(OUTCOME).isNull(), samples).otherwise(F.col("reported"))),
        )
    )


def named_value(name: Column, value: Column) -> Column:
    return F.struct(name.alias("key"), value.alias("value"))


def _problems(rows: DataFrame) -> DataFrame:
    if "value" not in rows.columns:
        rows = rows.withColumn("value", F.lit(None))
    none = F.array().cast("array<struct<key:string,value:double>>")
    return quarantined(rows.withColumn(OUTCOME, F.col("problem")), none)


def quarantined(rows: DataFrame, values: Column) -> DataFrame:
    """Rows as in the table QUARANTINE, with names and values of metrics."""
    reported = F.map_from_entries(F.filter(values, lambda x: x["value"].isNotNull()))
    found = {"metrics": reported, "reason": F.col(OUTCOME)}
    if "value" not in rows.columns:
        found["value"] = F.lit(None)
    rows = rows.withColumns(found)
    return rows.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in QUARANTINE.fields))
