"""The archive has each message once, whatever is repeated, compacted, interrupted or removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from cluster_model.history.archive import (
    archive_topic,
    compact,
    expire,
    export,
    read_archive,
    write_batch,
)
from cluster_model.history.days import DAY_MS
from cluster_model.history.decode import decode
from cluster_model.history.errors import HistoryError
from cluster_model.history.schema import DECODED, MESSAGES
from metrics_reporter import Record, encode

# 2023-11-15, at the start of the day.
T = 1_700_006_400_000
Line = tuple[str, int, int]


def decoded(spark: SparkSession, batch: int, lines: list[Line], files: int = 1) -> DataFrame:
    """A batch of (cluster, ms after T that it arrived, offset)."""
    rows = [
        (cluster, batch, T + ms, 0, offset, message(T + ms, offset))
        for cluster, ms, offset in lines
    ]
    return decode(spark.createDataFrame(rows, MESSAGES).repartition(files))


def message(ms: int, offset: int) -> bytes:
    if offset % 7 == 0:
        return b"junk"
    return encode(Record(ms, offset % 3, {"bytes_in": 1.0 * offset, "odd": 2.0}, "t", offset % 2))


def offsets(found: DataFrame) -> list[tuple[str, int]]:
    """Cluster and offset of every row."""
    table = found.select("cluster", "source_offset").toArrow()
    return sorted(
        zip(table["cluster"].to_pylist(), table["source_offset"].to_pylist(), strict=True)
    )


FIRST: list[Line] = [("a", 5, 1), ("a", DAY_MS + 1, 2), ("b='/ü", 7, 3), ("a", 9, 7)]
SECOND: list[Line] = [("a", 100, 4), ("a", 200, 5)]
THIRD: list[Line] = [("a", 300, 6), ("b='/ü", DAY_MS, 8)]
BATCHES = (FIRST, SECOND, THIRD)
ALL = sorted((c, offset) for lines in BATCHES for c, _, offset in lines)


def test_each_message_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "archive")
    for batch, lines in enumerate(BATCHES):
        write_batch(decoded(spark, batch, lines, 2), path, batch)
    # Repeated, as after a crash, in other files.
    write_batch(decoded(spark, 2, THIRD), path, 2)
    found = read_archive(spark, path)
    assert found.columns == DECODED.names
    kept = {r.source_offset: r for r in found.collect()}
    assert offsets(found) == ALL
    assert (kept[7].problem, bytes(kept[7].value)) == ("malformed", b"junk")
    good = kept[6]
    reported = (good.time_ms, good.broker, good.topic, good.partition, good.bytes_in, good.other)
    assert reported == (T + 300, 0, "t", 0, 6.0, {"odd": 2.0})

    # Each day becomes one file, then nothing is left to do; who reads goes on.
    done = compact(spark, path, clusters=["a"])
    assert (done.days, done.files_after) == (1, 1)
    assert done.files_before >= 3
    # Deletion of old files, in which Spark lists directories, is tested once.
    monkeypatch.setattr("cluster_model.history.archive.vacuum", lambda *_: None)
    assert compact(spark, path, clusters=["a", "b='/ü"]).days == 0
    assert offsets(found) == ALL
    write_batch(decoded(spark, 1, SECOND), path, 1)
    assert offsets(read_archive(spark, path)) == ALL

    # Only some of it is read.
    assert offsets(read_archive(spark, path, clusters=["b='/ü"])) == [("b='/ü", 3), ("b='/ü", 8)]
    later = read_archive(spark, path, first_ms=T + 2 * DAY_MS, end_ms=T + 3 * DAY_MS)
    assert {o for _, o in offsets(later)} == {2, 8}

    # A copy in plain Parquet is read like the archive.
    assert export(spark, path, tmp_path / "copy", clusters=["a"]) == 2
    assert offsets(read_archive(spark, tmp_path / "copy")) == [p for p in ALL if p[0] == "a"]
    with pytest.raises(HistoryError, match="copy: something found there"):
        export(spark, path, tmp_path / "copy")

    # And only some of it is kept.
    assert expire(spark, path, before_ms=T + DAY_MS, clusters=["a"]) == ["cluster=a/day=2023-11-15"]
    assert {o for _, o in offsets(read_archive(spark, path))} == {2, 3, 8}
    assert expire(spark, path, before_ms=T + DAY_MS - 1, clusters=["a"]) == []


@pytest.mark.usefixtures("files_stay")
def test_an_archive_of_an_earlier_version(spark: SparkSession, tmp_path: Path) -> None:
    """Directories of plain Parquet, some left by a compaction that died, or by a repeated batch."""
    lines = [[("a", 10 * batch + i, 10 * batch + i) for i in range(4)] for batch in range(4)]

    def store(first: int, last: int, rows: DataFrame) -> None:
        name = str(first) if first == last else f"{first}-{last}"
        place = f"{tmp_path}/records/cluster=a/day=2023-11-15/batches={name}"
        rows.drop("cluster").write.parquet(place)

    for batch in range(3):
        store(batch, batch, decoded(spark, batch, lines[batch]))
    everything = [("a", offset) for of in lines[:3] for _, _, offset in of]
    assert offsets(read_archive(spark, tmp_path)) == everything
    # The rename was a copy, of which 5 rows of 12 were done when it was interrupted.
    five = read_archive(spark, tmp_path).withColumn("batch", f.floor(f.col("source_offset") / 10))
    store(0, 2, five.orderBy("source_offset").limit(5))
    assert compact(spark, tmp_path).days == 0
    assert offsets(read_archive(spark, tmp_path)) == everything
    # Or it was complete, and died while it removed the others.
    shutil.rmtree(tmp_path / "records/cluster=a/day=2023-11-15/batches=0-2")
    store(0, 2, five.where("source_offset < 100"))
    shutil.rmtree(tmp_path / "records/cluster=a/day=2023-11-15/batches=1")
    assert offsets(read_archive(spark, tmp_path)) == everything

    # The stream goes on in the table, with a batch that was written but not known to be done.
    for batch in (2, 3):
        write_batch(decoded(spark, batch, lines[batch]), str(tmp_path), batch)
    everything += [("a", offset) for _, _, offset in lines[3]]
    assert offsets(read_archive(spark, tmp_path)) == everything
    assert expire(spark, tmp_path, before_ms=T + DAY_MS) == ["cluster=a/day=2023-11-15"]
    assert not list(tmp_path.glob("records/*/*"))
    with pytest.raises(HistoryError, match="no records from the beginning to the end found"):
        read_archive(spark, tmp_path)


def test_metrics_come_and_go_with_versions(spark: SparkSession, tmp_path: Path) -> None:
    rows = decoded(spark, 0, SECOND)
    write_batch(rows.drop("bytes_out"), str(tmp_path), 0)
    assert [r.bytes_out for r in read_archive(spark, tmp_path).collect()] == [None, None]
    write_batch(rows.withColumn("bytes_out", f.lit(9.0)), str(tmp_path), 1)
    found = read_archive(spark, tmp_path).collect()
    assert sorted(str(r.bytes_out) for r in found) == ["9.0", "9.0", "None", "None"]


def test_errors_are_sentences(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no directory 'messages' found in it"):
        read_archive(spark, tmp_path)
    write_batch(decoded(spark, 0, FIRST[:1]), str(tmp_path), 0)
    with pytest.raises(HistoryError, match="no cluster 'x' found; it has a"):
        read_archive(spark, tmp_path, clusters=["x"])
    with pytest.raises(
        HistoryError,
        match="no records from 2023-11-29 to the end found; it holds 2023-11-15 to 2023-11-15",
    ):
        read_archive(spark, tmp_path, first_ms=T + 15 * DAY_MS)
    with pytest.raises(HistoryError, match="records of cluster 'a' found, but not how far"):
        archive_topic(spark, "localhost:1", "metrics", tmp_path, cluster="a")
    (tmp_path / "checkpoints/cluster=a/other").mkdir(parents=True)
    with pytest.raises(HistoryError, match="topic 'other' found archived for cluster 'a'"):
        archive_topic(spark, "localhost:1", "metrics", tmp_path, cluster="a")
    with pytest.raises(HistoryError, match="no Kafka connector"):
        archive_topic(spark, "localhost:1", "metrics", tmp_path, cluster="b")
