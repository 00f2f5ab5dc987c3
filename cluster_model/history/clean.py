"""Judges each record of a history as the live model would, for all of them at once.

A record is judged by what arrived before it, as in :class:`cluster_model.live.ClusterModel`.
Arrival is the time that the topic has for a message, in intervals as long as a window: how many
messages were fetched together, or when, changes nothing.
Its outcome is the name of a :class:`cluster_model.windows.RecordOutcome` in lower case.
There is no ``surplus`` here, as a window takes any number of samples. Metadata is that of
the record's time, where the live model has only that of its arrival: rates of a partition
count if they come from the broker that led it then.

A record of an earlier day than its arrival's, by more days than the windows that are kept span
(one at least), is late whatever arrived before it, and no size in it counts. So nothing depends
on records that arrived on another day farther away than :class:`cluster_model.history.days.Reach`,
and a history can be prepared day by day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from cluster_model.history.schema import CLUSTER
from cluster_model.history.screening import (
    ARRIVAL,
    BROKERS,
    OUTCOME,
    PARTITIONS,
    RATES,
    SAID,
    TOPICS,
    MetadataTables,
    ScreenedRecords,
    further_columns,
    named_value,
    newest_windows,
    quarantined,
    screen,
)
from metrics_reporter import SIZE

# Records that count.
TAKEN = ("added", "split")
# A topic's record has the best outcome of its shares.
_BEST_FIRST = ("split", "duplicate", "superseded")


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
        The newest window in each batch: a small table, with a row per interval of arrival
        unless the records name batches.
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
        columns = {n: n for n in (*RATES, SIZE)} | further_columns(self.further)
        values = F.array(*(named_value(F.lit(n), F.col(c)) for n, c in columns.items()))
        own = quarantined(rows.where(F.col("phase") == PARTITIONS), values)
        shares = rows.where(F.col("phase") == TOPICS).withColumn("partition", F.lit(-1))
        tables = [
            own,
            # The record's values, which were removed from the shares that do not count.
            _gathered(shares, values=F.array(*(named_value(F.lit(n), F.max(n)) for n in RATES))),
            _gathered(
                self.brokers, values=F.collect_list(named_value(F.col("metric"), F.col("value")))
            ),
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
    screened = screen(records, metadata, window_ms=window_ms, windows=windows, further=further)
    return decide(screened, newest_windows(screened), window_ms=window_ms, windows=windows)


def decide(
    screened: ScreenedRecords, arrivals: DataFrame, *, window_ms: int, windows: int
) -> JudgedRecords:
    """Judge what depends on other records; the last step of :func:`judge`.

    Parameters
    ----------
    screened
        The records, with all others of their windows.
    arrivals
        The newest window of each batch that may matter: :func:`newest_windows`.
    window_ms, windows
        As for :func:`judge`.
    """
    sampled = (*RATES, *further_columns(screened.further).values())
    before = Window.partitionBy(CLUSTER, F.col("phase") == BROKERS).orderBy("batch", "phase")
    newest = arrivals.withColumn("newest_ms", F.max("newest_ms").over(before))
    partitions, brokers = (
        t.join(F.broadcast(newest), [CLUSTER, "batch", "phase"], "left")
        .withColumn(
            OUTCOME,
            F.coalesce(
                OUTCOME,
                F.when(F.col("follower"), "follower"),
                F.when(
                    F.col("stale")
                    | (
                        F.col("rated")
                        & (F.col("start_ms") < F.col("newest_ms") - windows * window_ms)
                    ),
                    "late",
                ),
                F.when(~F.col("rated"), "added"),
            ),
        )
        .drop("newest_ms", "rated", "follower")
        for t in (screened.partitions, screened.brokers)
    )
    open_ = F.col(OUTCOME).isNull()
    return JudgedRecords(
        _judged_partitions(partitions.where(open_), sampled),
        # Values of those that are taken count for their size alone.
        partitions.where(~open_).withColumns(
            {name: F.when(~F.col(OUTCOME).isin(*TAKEN), F.col(name)) for name in sampled}
        ),
        _judged_brokers(brokers),
        screened.problems,
        arrivals,
        screened.further,
    )


def _judged_partitions(rows: DataFrame, sampled: Sequence[str]) -> DataFrame:
    """Mark duplicate and superseded records; keep only values that count."""
    outcome = F.col(OUTCOME)
    window = (CLUSTER, "topic", "partition", "start_ms")
    guess = F.col("phase") == TOPICS
    along = Window.partitionBy(*window).orderBy("phase", "time_ms", *ARRIVAL)
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
    rows = rows.withColumn(OUTCOME, F.coalesce(*best))
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
        .orderBy(*ARRIVAL)
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    open_ = F.col(OUTCOME).isNull()
    again = F.count(F.when(open_, 1)).over(earlier) > 0
    return (
        rows.repartition(*window)
        .withColumn("again", again)
        .withColumn(
            OUTCOME, F.coalesce(OUTCOME, F.when(F.col("again"), "duplicate").otherwise("added"))
        )
        .drop("again")
    )


def _gathered(rows: DataFrame, values: Column) -> DataFrame:
    """Records that are spread over several rows, as in the table QUARANTINE.

    A record has the best outcome of its samples.
    """
    rank = F.array_position(F.array(*map(F.lit, ("added", *_BEST_FIRST))), F.col(OUTCOME))
    same = [F.first(name).alias(name) for name in ("arrived_ms", *SAID, "partition")]
    records = rows.groupBy(CLUSTER, *ARRIVAL).agg(
        *same, F.min_by(OUTCOME, rank).alias(OUTCOME), values.alias("values")
    )
    return quarantined(records, F.col("values"))
