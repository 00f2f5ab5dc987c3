"""Records read from other formats are the same records."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cluster_model.history.errors import HistoryError
from cluster_model.history.read import read_json_lines, read_messages, read_topic
from cluster_model.history.schema import DECODED, MESSAGES
from metrics_reporter import Record, encode

GOOD: list[dict[str, Any]] = [
    {"time_ms": 5, "broker": 1, "metrics": {"cpu": 4.5, "odd": 1}},
    {"time_ms": 7, "broker": 1, "metrics": {"size": 3}, "topic": "a", "partition": 3},
    {"time_ms": 8, "broker": 2, "metrics": {"bytes_in": 3e9}, "topic": "a", "more": [1]},
    {"time_ms": 9, "broker": 2, "metrics": {"cpu": None}, "underscored": True, "topic": "a_b"},
    {"time_ms": 9, "broker": 0, "metrics": {}, "arrived_ms": 12, "batch": 4, "cluster": "k"},
]
BAD = [
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": NaN}}',
    '{"time_ms": "x", "broker": 1, "metrics": {"cpu": 3}}',
    '{"time_ms": 5.5, "broker": 1, "metrics": {"cpu": 3}}',
    '{"time_ms": 5, "broker": -1, "metrics": {"cpu": 3}}',
    '{"time_ms": 5, "metrics": {"cpu": 3}}',
    '{"time_ms": 5, "broker": 1}',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": "3"}}',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}, "partition": 2}',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}, "topic": ""}',
    "[1]",
    '"text"',
    "half a li",
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}} and more',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}}{"time_ms": 6}',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}}, {"time_ms": 6}',
    '{"time_ms": 5, "broker": 1, "metrics": {"cpu": 3}}]',
]


def test_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = [*map(json.dumps, GOOD), "", *BAD]
    (tmp_path / "some.jsonl").write_text("\n".join(lines) + "\n")
    found = read_json_lines(spark, [tmp_path / "some.jsonl"], cluster="c")
    assert found.columns == DECODED.names
    rows = found.where("problem is null").orderBy("time_ms", "broker").collect()
    reported = [
        (r.cluster, r.batch, r.arrived_ms, r.time_ms, r.broker, r.topic, r.partition) for r in rows
    ]
    assert reported == [
        ("c", None, 5, 5, 1, None, -1),
        ("c", None, 7, 7, 1, "a", 3),
        ("c", None, 8, 8, 2, "a", -1),
        ("k", 4, 12, 9, 0, None, -1),
        ("c", None, 9, 9, 2, "a_b", -1),
    ]
    assert [r.underscored for r in rows] == [False, False, False, False, True]
    assert [(r.cpu, r["size"], r.bytes_in) for r in rows] == [
        (4.5, None, None),
        (None, 3.0, None),
        (None, None, 3e9),
        (None, None, None),
        (None, None, None),
    ]
    assert [r.other for r in rows] == [{"odd": 1.0}, None, None, None, None]
    bad = found.where("problem is not null").collect()
    assert {(r.problem, bytes(r.value).decode()) for r in bad} == {("malformed", x) for x in BAD}
    assert len(bad) == len(BAD)


def test_messages_in_the_columns_of_sparks_kafka_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    record = encode(Record(70, 1, {"cpu": 4.5}))
    at = datetime(2023, 11, 14, 22, 13, 20, 5000, tzinfo=UTC)
    rows = [(record, at, 2, 30, "ignored"), (b"junk", at, 2, 31, "")]
    schema = "value binary, timestamp timestamp, partition int, offset long, topic string"
    spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / "kept"))
    first, second = (
        read_messages(spark, tmp_path / "kept", cluster="c").orderBy("source_offset").collect()
    )
    place = ("c", None, 1_700_000_000_005, 2, 30)
    assert tuple(first)[:5] == place
    assert (first.time_ms, first.cpu, first.problem) == (70, 4.5, None)
    assert (second.problem, bytes(second.value)) == ("malformed", b"junk")


def test_messages_in_our_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("k", 7, 8, 1, 2, encode(Record(70, 1, {"cpu": 4.5})))]
    spark.createDataFrame(rows, MESSAGES).write.parquet(str(tmp_path / "kept"))
    (row,) = read_messages(spark, str(tmp_path / "kept"), cluster="c").collect()
    assert tuple(row)[:6] == ("k", 7, 8, 1, 2, 70)


def test_samples_of_cruise_control(spark: SparkSession, tmp_path: Path) -> None:
    sample = struct.pack(">bi4dqi", 0, 3, 0.5, 2.0, 10.0, 20.0, 70, 7) + b"my.topic"
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    rows = [(sample, at, 2, 30), (sample[:-20], at, 2, 31), (b"\x09" + sample[1:], at, 2, 32)]
    schema = "value binary, timestamp timestamp, partition int, offset long"
    spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / "kept"))
    found = read_messages(spark, tmp_path / "kept", format="cruise-control-samples")
    good, *others = found.orderBy("source_offset").collect()
    assert (good.time_ms, good.broker, good.topic, good.partition) == (70, 3, "my.topic", 7)
    assert (good["size"], good.bytes_in, good.bytes_out) == (2.0 * 2**20, 10_240.0, 20_480.0)
    assert not good.underscored
    assert [r.problem for r in others] == ["malformed", "skipped"]


def test_errors_are_sentences(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"messages .*/no: no such file or directory"):
        read_messages(spark, tmp_path / "no")
    with pytest.raises(HistoryError, match=r"JSON lines .*/no: no such file or directory"):
        read_json_lines(spark, tmp_path / "no")
    with pytest.raises(HistoryError, match="no path found"):
        read_messages(spark, [])
    (tmp_path / "none").mkdir()
    with pytest.raises(HistoryError, match="no Parquet file found"):
        read_messages(spark, tmp_path / "none")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(HistoryError, match="is not a Parquet file"):
        read_messages(spark, tmp_path / "text.parquet")
    one = spark.range(1)
    one.write.parquet(str(tmp_path / "other"))
    with pytest.raises(HistoryError, match="no column 'value' found among id"):
        read_messages(spark, tmp_path / "other")
    one.select(f.lit("x").alias("value")).write.parquet(str(tmp_path / "kind"))
    with pytest.raises(HistoryError, match="column 'value': type string found, binary expected"):
        read_messages(spark, tmp_path / "kind")
    one.select(f.lit(b"x").alias("value")).write.parquet(str(tmp_path / "time"))
    with pytest.raises(HistoryError, match="no column 'timestamp' found"):
        read_messages(spark, tmp_path / "time")
    with pytest.raises(HistoryError, match="the session has no Kafka connector"):
        read_topic(spark, "localhost:1", "metrics")
