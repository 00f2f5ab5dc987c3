"""Spark decodes messages like the reporter's own decoder."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from cluster_model.history.decode import decode
from cluster_model.history.schema import DECODED, MESSAGES
from metrics_reporter import MalformedRecordError, Record, decode_any, encode
from metrics_reporter.metrics import METRIC_IDS

T = 1_700_000_000_000
CRUISE_CONTROL = struct.pack(">bbbqi", 0, 0, 5, T, 3) + struct.pack(">d", 0.25)
OF_A_TOPIC = struct.pack(">bbbqii", 1, 0, 2, T, 3, 3) + b"a_b" + struct.pack(">d", 9.0)
AUTOMQ = struct.pack(">BBqii", 1, 0, T, 2, 1) + b"r" + struct.pack(">ibd", 1, 3, 7.5)
UNKNOWN_METRIC = struct.pack(">bbbqi", 0, 0, 120, T, 3) + struct.pack(">d", 1.0)
VALUES: list[bytes | None] = [
    encode(Record(T, 1, {"cpu": 40.0, "odd name": 2.5, "another": 0.0})),
    encode(Record(T, 2, {"bytes_in": 4.0, "size": 1e15}, "höhe.x", 7)),
    b"junk",
    None,
    encode(Record(T, 2, {"bytes_out": 4.0}, "t")),
    encode(Record(T, 2, {}, "t", 0)),
    CRUISE_CONTROL,
    OF_A_TOPIC,
    AUTOMQ,
    UNKNOWN_METRIC,
    b"",
    encode(Record(-5, 0, {"size": 0.0}, "t", 0))[:-1],
]


def record_of(row: Row) -> Record:
    metrics = {name: row[name] for name in METRIC_IDS if row[name] is not None}
    metrics.update(row.other or {})
    return Record(row.time_ms, row.broker, metrics, row.topic, row.partition, row.underscored)


def expected(value: bytes | None) -> tuple[str | None, Record | None]:
    try:
        record = decode_any(value or b"")
    except MalformedRecordError:
        return "malformed", None
    return (None, record) if record is not None else ("skipped", None)


def messages(values: list[bytes | None]) -> list[tuple[Any, ...]]:
    return [("c", 5 + i // 3, T + i, i % 2, i, value) for i, value in enumerate(values)]


def test_every_message_is_a_record_or_a_problem(spark: SparkSession) -> None:
    found = decode(spark.createDataFrame(messages(VALUES), MESSAGES).repartition(3))
    assert found.schema == DECODED
    rows = found.orderBy("source_offset").collect()
    assert len(rows) == len(VALUES)
    for i, (row, value) in enumerate(zip(rows, VALUES, strict=True)):
        place = (row.cluster, row.batch, row.arrived_ms, row.source_partition, row.source_offset)
        assert place == ("c", 5 + i // 3, T + i, i % 2, i)
        problem, record = expected(value)
        assert row.problem == problem
        if record is None:
            assert row.value == (None if value is None else value)
            assert row.time_ms is None
        else:
            assert record_of(row) == record
            assert row.value is None


@pytest.mark.parametrize("value", [CRUISE_CONTROL, AUTOMQ])
def test_a_format_that_is_reported_is_the_only_one_looked_for(
    spark: SparkSession, value: bytes
) -> None:
    rows = spark.createDataFrame(messages([value]), MESSAGES)
    (row,) = decode(rows, "counterpoise").collect()
    assert (row.problem, row.value) == ("malformed", value)
