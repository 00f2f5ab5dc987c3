"""Windows of a small history, all of whose numbers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from frames import records_frame
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cluster_model import BrokerRecord, InputError, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.build import build_snapshot
from cluster_model.history.clean import JudgedRecords, judge
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.screening import MetadataTables
from cluster_model.history.window_sums import broker_sums, partition_sums, sizes
from cluster_model.history.windows import (
    broker_windows,
    completeness,
    led,
    newest_sizes,
    valid_partitions,
    windows,
)
from cluster_model.windows import Extrapolation
from metrics_reporter import Record
from metrics_reporter.metrics import METRIC_IDS

CHANGED = 1500
GOOD, AVAILABLE, ADJACENT, _, NOTHING = (kind.value for kind in Extrapolation)
SPAN = {"window_ms": 1000, "min_samples": 2}


def snapshot(leader: int) -> Snapshot:
    """Partitions a-0 and b-1 are led by that broker, b-0 by broker 1."""
    return build_snapshot(
        SnapshotDocument(
            resources=("disk",),
            brokers=tuple(BrokerRecord(id=i, capacity={"disk": 1e9}) for i in (1, 2)),
            partitions=tuple(
                PartitionRecord(topic=t, partition=n, replicas=(1, 2), leader=of)
                for t, n, of in (("a", 0, leader), ("b", 0, 1), ("b", 1, leader))
            ),
        )
    )


def rates(at: int, broker: int, in_: float, out: float, size: float) -> Record:
    return Record(at, broker, {"bytes_in": in_, "bytes_out": out, "size": size}, "a", 0)


RECORDS = [
    # Window 1000: broker 1 leads, and then broker 2.
    rates(1000, 1, 10.0, 4.0, 500.0),
    rates(1200, 1, 20.0, 6.0, 520.0),
    rates(1600, 2, 60.0, 20.0, 540.0),
    rates(1800, 2, 30.0, 10.0, 550.0),
    # Window 3000, with nothing in between.
    rates(3000, 2, 50.0, 10.0, 600.0),
    rates(3500, 2, 70.0, 30.0, 640.0),
    # Of topic b only sums are told: of both partitions, and, since the change, of one each.
    Record(1100, 1, {"bytes_in": 100.0, "bytes_out": 10.0}, "b"),
    Record(1600, 1, {"bytes_in": 100.0, "bytes_out": 20.0}, "b"),
    Record(1600, 2, {"bytes_in": 40.0, "bytes_out": 7.0}, "b"),
    Record(1000, 1, {"cpu": 30.0}),
    Record(1500, 1, {"cpu": 50.0}),
    Record(2100, 1, {"cpu": 70.0}),
]


@pytest.fixture(scope="module")
def metadata(spark: SparkSession) -> MetadataTables:
    log = MetadataLog()
    log.append(0, snapshot(1))
    log.append(CHANGED, snapshot(2))
    return MetadataTables.of(spark, [log])


@pytest.fixture(scope="module")
def judged(spark: SparkSession, metadata: MetadataTables) -> Iterator[JudgedRecords]:
    arrived = [("default", 0, [4000] * len(RECORDS), RECORDS)]
    found = judge(records_frame(spark, arrived), metadata, window_ms=1000, windows=5).persist()
    yield found
    found.unpersist()


@pytest.fixture(scope="module")
def summed(judged: JudgedRecords) -> Iterator[DataFrame]:
    found = partition_sums(judged.rated).persist()
    yield found
    found.unpersist()


def rows(table: DataFrame, *names: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in table.select(*names).collect())


def test_partition_sums(summed: DataFrame) -> None:
    what = ("sum", "count", "guess")
    names = [f"{rate}_{w}" for rate in ("bytes_in", "bytes_out") for w in what]
    assert rows(summed, "topic", "partition", "start_ms", "broker", *names) == [
        ("a", 0, 1000, 1, 30.0, 2, False, 10.0, 2, False),
        ("a", 0, 1000, 2, 90.0, 2, False, 30.0, 2, False),
        ("a", 0, 3000, 2, 120.0, 2, False, 40.0, 2, False),
        ("b", 0, 1000, 1, 150.0, 2, True, 25.0, 2, True),
        ("b", 1, 1000, 1, 50.0, 1, True, 5.0, 1, True),
        ("b", 1, 1000, 2, 40.0, 1, True, 7.0, 1, True),
    ]


def test_windows(summed: DataFrame) -> None:
    found = windows(summed, **SPAN)
    columns = ("topic", "partition", "start_ms", "bytes_in", "bytes_out")
    assert rows(found, *columns, "bytes_in_kind", "bytes_out_kind") == [
        ("a", 0, 1000, 30.0, 10.0, GOOD, GOOD),
        # Four samples before and two after.
        ("a", 0, 2000, 40.0, pytest.approx(80 / 6), ADJACENT, ADJACENT),
        ("a", 0, 3000, 60.0, 20.0, GOOD, GOOD),
        ("b", 0, 1000, 75.0, 12.5, GOOD, GOOD),
        ("b", 1, 1000, 45.0, 6.0, GOOD, GOOD),
    ]
    # What is out of the range is not known, nor does it tell of what is in it.
    later = windows(summed, **SPAN, first_ms=1001, end_ms=4000)
    assert rows(later, *columns) == [("a", 0, 3000, 60.0, 20.0)]
    few = windows(summed, window_ms=1000, min_samples=4)
    assert rows(few.where("topic = 'a'"), "start_ms", "bytes_in_kind") == [
        (1000, GOOD),
        (3000, AVAILABLE),
    ]


def test_load_belongs_to_the_broker_that_led_then(summed: DataFrame) -> None:
    columns = ("topic", "partition", "start_ms", "broker", "bytes_in", "bytes_out")
    assert rows(led(summed, **SPAN), *columns) == [
        ("a", 0, 1000, 1, 7.5, 2.5),
        ("a", 0, 1000, 2, 22.5, 7.5),
        ("a", 0, 2000, 1, 5.0, pytest.approx(10 / 6)),
        ("a", 0, 2000, 2, 35.0, pytest.approx(70 / 6)),
        ("a", 0, 3000, 2, 60.0, 20.0),
        ("b", 0, 1000, 1, 75.0, 12.5),
        ("b", 1, 1000, 1, 25.0, 2.5),
        ("b", 1, 1000, 2, 20.0, 3.5),
    ]


def test_brokers_and_sizes(judged: JudgedRecords) -> None:
    found = broker_windows(broker_sums(judged.brokers), **SPAN)
    assert rows(found, "broker", "start_ms", "metric", "value", "kind") == [
        (1, 1000, "cpu", 40.0, GOOD),
        (1, 2000, "cpu", 70.0, AVAILABLE),
    ]
    reported = sizes(judged.partitions)
    assert rows(reported, "broker", "start_ms", "time_ms", "size") == [
        (1, 1000, 1200, 520.0),
        (2, 1000, 1800, 550.0),
        (2, 3000, 3500, 640.0),
    ]
    both = newest_sizes(reported).unionByName(newest_sizes(reported, end_ms=3000))
    assert rows(both, "broker", "size") == [(1, 520.0), (1, 520.0), (2, 550.0), (2, 640.0)]


def test_completeness(summed: DataFrame, metadata: MetadataTables) -> None:
    table = windows(summed, **SPAN)
    found = completeness(table, metadata.placements, window_ms=1000, end_ms=5000)
    assert rows(found, "start_ms", "partitions", "known", "ratio") == [
        (1000, 3, 3, 1.0),
        (2000, 3, 1, pytest.approx(1 / 3)),
        (3000, 3, 1, pytest.approx(1 / 3)),
        (4000, 3, 0, 0.0),
    ]
    of = ("topic", "partition")
    assert rows(valid_partitions(table, window_ms=1000), *of) == [("a", 0)]
    assert not rows(valid_partitions(table, window_ms=1000, end_ms=5000), *of)
    assert not rows(valid_partitions(table, window_ms=1000, max_extrapolations=0), *of)


def test_ranges_that_cannot_be(summed: DataFrame) -> None:
    with pytest.raises(InputError, match="from 2000 to 2000 found, an end after the start"):
        windows(summed, window_ms=1000, first_ms=2000, end_ms=2000)
    with pytest.raises(InputError, match="min_samples: 0 found, 1 or more expected"):
        led(summed, window_ms=1000, min_samples=0)


@pytest.mark.soak
def test_sums_are_the_same_however_the_rows_lie(
    spark: SparkSession, metadata: MetadataTables
) -> None:
    # Sums of these depend on the order in which they are added.
    reported = spark.range(600).select(
        F.lit("default").alias("cluster"),
        (F.col("id") % 7).alias("batch"),
        F.lit(10_000).cast("long").alias("arrived_ms"),
        (F.col("id") % 3).cast("int").alias("source_partition"),
        F.col("id").alias("source_offset"),
        (F.col("id") * 13 % 9000).alias("time_ms"),
        (F.col("id") % 2 + 1).alias("broker"),
        F.when(F.col("id") % 5 > 0, "a").alias("topic"),
        F.when(F.col("id") % 5 > 0, 0).otherwise(-1).cast("long").alias("partition"),
        F.lit(False).alias("underscored"),
        *(
            F.when(F.lit(name in ("bytes_in", "bytes_out", "cpu")), F.exp(F.col("id") % 41)).alias(
                name
            )
            for name in METRIC_IDS
        ),
    )
    seen = set()
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    for partitions in ("1", "5"):
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            mixed = reported.repartition(int(partitions)).orderBy(F.rand(int(partitions)))
            found = judge(mixed, metadata, window_ms=3000, windows=9)
            seen.add(tuple(rows(led(partition_sums(found.rated), window_ms=3000), "*")))
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", before)
    assert len(seen) == 1
