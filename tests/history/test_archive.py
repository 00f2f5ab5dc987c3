"""The archive has each message once, whatever is repeated, compacted or left behind."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from pyarrow.parquet import ParquetFile
from pyspark.sql import DataFrame, SparkSession

from cluster_model.history.archive import (
    DAY_MS,
    archive_topic,
    compact,
    expire,
    read_archive,
    write_batch,
)
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


def offsets(found: DataFrame) -> list[tuple[str, int, int]]:
    """Cluster, batch and offset of every row, past Spark, which takes long for so little."""
    rows = []
    for file in found.inputFiles():
        at = Path(unquote(urlparse(file).path))
        (cluster,) = (p.removeprefix("cluster=") for p in at.parts if p.startswith("cluster="))
        kept = ParquetFile(at).read(["batch", "source_offset"])
        rows += [(unquote(cluster), r["batch"], r["source_offset"]) for r in kept.to_pylist()]
    return sorted(rows)


def directories(path: Path) -> list[str]:
    return sorted(
        str(p.relative_to(path / "records")) for p in path.glob("records/*/*/*") if p.is_dir()
    )


FIRST: list[Line] = [("a", 5, 1), ("a", DAY_MS + 1, 2), ("b=/ü", 7, 3), ("a", 9, 7)]
SECOND: list[Line] = [("a", 100, 4), ("a", 200, 5)]
THIRD: list[Line] = [("a", 300, 6), ("b=/ü", DAY_MS, 8)]
BATCHES = (FIRST, SECOND, THIRD)
ALL = sorted((c, batch, offset) for batch, lines in enumerate(BATCHES) for c, _, offset in lines)


def test_each_message_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    for batch, lines in enumerate(BATCHES):
        write_batch(decoded(spark, batch, lines, 2), path, batch)
    # Repeated, as after a crash, in other files.
    write_batch(decoded(spark, 2, THIRD), path, 2)
    found = read_archive(spark, path)
    assert found.columns == DECODED.names
    kept = found.orderBy("cluster", "batch", "source_offset").collect()
    assert [(r.cluster, r.batch, r.source_offset) for r in kept] == ALL
    assert offsets(found) == ALL
    (junk,) = (r for r in kept if r.source_offset == 7)
    assert (junk.problem, bytes(junk.value)) == ("malformed", b"junk")
    (good,) = (r for r in kept if r.source_offset == 6)
    reported = (good.time_ms, good.broker, good.topic, good.partition, good.bytes_in, good.other)
    assert reported == (T + 300, 0, "t", 0, 6.0, {"odd": 2.0})

    # One directory a day, then nothing is left to do.
    done = compact(spark, path)
    assert (done.days, done.files_after) == (1, 1)
    assert done.files_before >= 3
    assert directories(tmp_path) == [
        "cluster=a/day=2023-11-15/batches=0-2",
        "cluster=a/day=2023-11-16/batches=0",
        "cluster=b%3D%2Fü/day=2023-11-15/batches=0",
        "cluster=b%3D%2Fü/day=2023-11-16/batches=2",
    ]
    assert offsets(read_archive(spark, path)) == ALL
    assert compact(spark, path).days == 0

    # The stream repeats a batch that is compacted already; what covers it counts.
    write_batch(decoded(spark, 2, THIRD), path, 2)
    assert "cluster=a/day=2023-11-15/batches=2" in directories(tmp_path)
    assert offsets(read_archive(spark, path)) == ALL
    assert compact(spark, path, clusters=["a"]).days == 0
    assert len(directories(tmp_path)) == 4

    # A compaction that died before it was whole, and one that died before it cleaned up.
    day = tmp_path / "records/cluster=a/day=2023-11-15"
    (day / ".compacting").mkdir()
    (day / ".compacting" / "part-0.parquet").write_text("half")
    write_batch(decoded(spark, 3, [("a", 400, 9)]), path, 3)
    assert offsets(read_archive(spark, path)) == sorted([*ALL, ("a", 3, 9)])
    assert compact(spark, path).days == 1
    assert offsets(read_archive(spark, path)) == sorted([*ALL, ("a", 3, 9)])
    assert "cluster=a/day=2023-11-15/batches=0-3" in directories(tmp_path)

    # Only some of it is read.
    assert {o for _, _, o in offsets(read_archive(spark, path, clusters=["b=/ü"]))} == {3, 8}
    later = read_archive(spark, path, first_ms=T + 2 * DAY_MS, end_ms=T + 3 * DAY_MS)
    assert {o for _, _, o in offsets(later)} == {2, 8}

    # And only some of it is kept.
    (tmp_path / "records/cluster=a/.expired-2023-11-01").mkdir()
    gone = expire(spark, path, before_ms=T + DAY_MS, clusters=["a"])
    assert gone == ["cluster=a/day=2023-11-15"]
    assert {o for _, _, o in offsets(read_archive(spark, path))} == {2, 3, 8}
    assert not list(tmp_path.glob("records/*/.expired*"))
    assert expire(spark, path, before_ms=T + DAY_MS - 1, clusters=["a"]) == []


def test_many_files_of_one_batch_become_one(spark: SparkSession, tmp_path: Path) -> None:
    lines = [("a", ms, ms + 1) for ms in range(40)]
    write_batch(decoded(spark, 4, lines, 4), str(tmp_path), 4)
    found = offsets(read_archive(spark, tmp_path))
    assert tuple(compact(spark, tmp_path)) == (1, 4, 1)
    assert directories(tmp_path) == ["cluster=a/day=2023-11-15/batches=4-4"]
    assert offsets(read_archive(spark, tmp_path)) == found
    assert compact(spark, tmp_path).days == 0


def test_errors_are_sentences(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no directory 'records' found in it"):
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
