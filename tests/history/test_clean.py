"""Every outcome of a record, one by one; the comparison with the live model tests the rest."""

from __future__ import annotations

import numpy as np
import pytest
from frames import records_frame
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cluster_model import BrokerRecord, InputError, PartitionRecord, Snapshot, SnapshotDocument
from cluster_model.build import build_snapshot
from cluster_model.history.clean import judge
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.screening import MetadataTables
from metrics_reporter import Record

CHANGED = 1_700_000_001_500
T = 1_700_000_000_000


def snapshot(*partitions: tuple[str, int, tuple[int, ...]], cpu: float = 800.0) -> Snapshot:
    """Brokers 1 and 2, and partitions with their replicas, of which the first leads."""
    return build_snapshot(
        SnapshotDocument(
            resources=("cpu", "disk"),
            brokers=tuple(BrokerRecord(id=i, capacity={"cpu": cpu, "disk": 1e9}) for i in (1, 2)),
            partitions=tuple(
                PartitionRecord(topic=t, partition=n, replicas=r, leader=r[0])
                for t, n, r in partitions
            ),
        )
    )


@pytest.fixture
def log() -> MetadataLog:
    """Partition a-0 is led by 1, then by 2; c-0 comes later, and broker 1 grows."""
    log = MetadataLog(cluster="x")
    both = (("b.b", 0, (1,)), ("b_b", 0, (1,)), ("d.d", 0, (1, 2)))
    log.append(0, snapshot(("a", 0, (1, 2)), ("a", 1, (1,)), *both))
    later = (("a", 0, (2, 1)), ("a", 1, (1,)), *both, ("c", 0, (1,)))
    log.append(CHANGED, snapshot(*later, cpu=1000.0))
    return log


# Of each batch the time, and its records with what becomes of them.
BATCHES: list[tuple[int, list[tuple[Record, str]]]] = [
    (
        T + 1000,
        [
            (Record(T, 1, {"bytes_in": 8.0}, "a"), "split"),
            (Record(T, 1, {"bytes_in": 8.0}, "a"), "duplicate"),
            (Record(T, 1, {"bytes_in": 1.0, "bytes_out": 2.0}, "a", 0), "added"),
            (Record(T, 1, {"bytes_in": 9.0, "bytes_out": 9.0}, "a", 0), "duplicate"),
            # What a follower takes in is not what producers send; its size counts.
            (Record(T, 2, {"bytes_in": 9.0, "bytes_out": 9.0}, "a", 0), "follower"),
            (Record(T, 2, {"bytes_in": 9.0, "size": 9.0}, "a", 0), "added"),
            (Record(T, 2, {"bytes_in": -9.0, "size": 9.0}, "a", 0), "invalid"),
            (Record(T + 2001, 2, {"bytes_in": 9.0}, "a", 0), "future"),
            (Record(T, 1, {"bytes_in": 2e12, "size": 1.0}, "a", 1), "invalid"),
            (Record(T, 1, {"bytes_in": 1.0, "size": 2e16}, "a", 1), "invalid"),
            (Record(T, 1, {"bytes_in": 2e12}, "a"), "invalid"),
            (Record(T, 2, {"cpu": 2e7}), "invalid"),
            (Record(T, 2, {"cpu_ratio": 11.0}), "invalid"),
            (Record(T, 1, {"size": 5.0}, "a", 0), "added"),
            (Record(T, 1, {"cpu_ratio": 0.5}), "added"),
            (Record(T, 1, {"cpu": 3.0}), "duplicate"),
            (Record(T, 1, {"cpu": 3.0, "bytes_in": 4.0}), "added"),
            (Record(T, 3, {"cpu": 3.0}), "unknown"),
            (Record(T, 1, {"something": 3.0}), "unknown"),
            (Record(T, 2, {"bytes_in": 1.0}, "a", 1), "unknown"),
            (Record(T, 1, {"bytes_in": 1.0}, "z", 0), "unknown"),
            (Record(T, 1, {"bytes_in": 1.0}, "d_d", 0), "unknown"),
            (Record(T, 1, {"bytes_in": 1.0}, "d_d", 0, True), "added"),
            (Record(T, 1, {"bytes_in": 1.0}, "b_b", 0, True), "ambiguous"),
            (Record(T, 1, {"bytes_in": -1.0}, "b_b", 0, True), "invalid"),
            (Record(T, 1, {"bytes_in": np.inf}, "z", 0), "invalid"),
            (Record(-1, 1, {"cpu": 3.0}), "invalid"),
            (Record(T + 2000, 1, {"cpu": 3.0}), "added"),
            (Record(T + 2001, 1, {"cpu": 3.0}), "future"),
            (Record(2**63 - 1, 1, {"bytes_in": 1.0}, "a", 0), "future"),
        ],
    ),
    (
        T + 2000,
        [
            # A leader that led when the record was of, and one that did not.
            (Record(CHANGED - 1, 2, {"bytes_in": 8.0}, "a"), "unknown"),
            (Record(CHANGED, 2, {"bytes_in": 8.0}, "a"), "split"),
            (Record(CHANGED - 1, 2, {"bytes_in": 8.0}, "a", 0), "follower"),
            (Record(CHANGED, 1, {"bytes_in": 8.0}, "a", 0), "follower"),
            (Record(CHANGED - 1, 1, {"size": 8.0}, "c", 0), "unknown"),
            (Record(CHANGED, 1, {"size": 8.0}, "c", 0), "added"),
            (Record(CHANGED, 1, {"cpu_ratio": 0.5}), "added"),
            # What is told of partitions counts as said first: now both have measurements.
            (Record(T + 1, 1, {"bytes_in": 8.0}, "a"), "superseded"),
            (Record(T + 2, 1, {"bytes_in": 8.0}, "a", 1), "added"),
        ],
    ),
    (
        T + 3000,
        [
            (Record(T + 3, 1, {"bytes_in": 8.0}, "a"), "superseded"),
        ],
    ),
    (
        T + 4000,
        [
            (Record(T + 3000, 2, {"bytes_out": 8.0}, "a", 0), "added"),
            # Windows of brokers and of partitions are not late together.
            (Record(T, 2, {"cpu": 3.0}), "added"),
            (Record(T + 999, 1, {"bytes_in": 1.0}, "a", 1), "late"),
            (Record(T + 999, 1, {"bytes_in": 1.0}, "a"), "late"),
            (Record(T + 999, 1, {"size": 1.0}, "a", 1), "added"),
            (Record(T + 1000, 1, {"bytes_in": 1.0}, "a", 1), "added"),
        ],
    ),
]


def test_what_becomes_of_each_record(spark: SparkSession, log: MetadataLog) -> None:
    records = records_frame(
        spark,
        [
            ("x", i, [at] * len(reported), [record for record, _ in reported])
            for i, (at, reported) in enumerate(BATCHES)
        ],
    )
    broken = records.limit(1).selectExpr(
        "* except(source_partition, topic)",
        "7 as source_partition",
        "string(null) as topic",
        "'malformed' as problem",
        "binary('junk') as value",
    )
    records = records.withColumns(
        {"problem": F.lit(None).cast("string"), "value": F.lit(None).cast("binary")}
    ).unionByName(broken)
    metadata = MetadataTables.of(spark, [log])
    judged = judge(records, metadata, window_ms=1000, windows=2).persist()
    reported = {
        (r.batch, r.source_partition, r.source_offset): r for r in judged.outcomes.collect()
    }
    expected = {
        (i, 0, j): outcome
        for i, (_, records_) in enumerate(BATCHES)
        for j, (_, outcome) in enumerate(records_)
    }
    assert {key: r.reason for key, r in reported.items()} == expected | {(0, 7, 0): "malformed"}
    assert bytes(reported[0, 7, 0].value) == b"junk"
    assert reported[0, 0, 3].metrics == {"bytes_in": 9.0, "bytes_out": 9.0}
    assert reported[2, 0, 0].metrics == {"bytes_in": 8.0}
    assert (reported[2, 0, 0].topic, reported[2, 0, 0].partition, reported[2, 0, 0].broker) == (
        "a",
        -1,
        1,
    )

    # Of a follower's record that counts, only the size does.
    kept = judged.partitions.where("batch = 0 and outcome = 'added' and broker = 2").collect()
    assert [(r.bytes_in, r.size) for r in kept] == [(None, 9.0)]
    assert reported[0, 0, 4].metrics == {"bytes_in": 9.0, "bytes_out": 9.0}

    bad = {(r.batch, r.source_partition, r.source_offset) for r in judged.quarantine.collect()}
    good = {key for key, r in reported.items() if r.reason in ("added", "split")}
    assert bad == reported.keys() - good
    cpu = judged.brokers.where("metric = 'cpu' and outcome = 'added' and broker = 1")
    values = {r.time_ms: r.value for r in cpu.collect()}
    # Half of what the broker could do then.
    assert values == {T: 400.0, CHANGED: 500.0, T + 2000: 3.0}
    judged.unpersist()


def test_numbers_that_cannot_be(spark: SparkSession, log: MetadataLog) -> None:
    records, metadata = records_frame(spark, []), MetadataTables.of(spark, [log])
    with pytest.raises(InputError, match="window_ms: 0 found, 1 or more expected"):
        judge(records, metadata, window_ms=0, windows=1)
    with pytest.raises(InputError, match="windows: 0 found, 1 or more expected"):
        judge(records, metadata, window_ms=1, windows=0)
    with pytest.raises(InputError, match=r"logs of the clusters \['x', 'x'\] found"):
        MetadataTables.of(spark, [log, log])
    with pytest.raises(InputError, match=r"logs of the clusters \[\] found"):
        MetadataTables.of(spark, [])
