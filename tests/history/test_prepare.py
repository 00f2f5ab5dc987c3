"""Tables are prepared once, and read many times."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from functools import reduce
from pathlib import Path

import pytest
from command_line import invoke
from frames import records_frame
from pyspark.sql import DataFrame, SparkSession
from test_history_windows import RECORDS, snapshot

from cluster_model import InputError, save_snapshot
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepare import prepare
from cluster_model.history.prepared import read_prepared
from cluster_model.history.schema import MESSAGES
from cluster_model.history.screening import MetadataTables

NIGHT = 1_700_006_400_000


def test_what_is_prepared_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    lines = [{**r._asdict(), "time_ms": NIGHT - 2000 + r.time_ms, "cluster": "7"} for r in RECORDS]
    lines += [lines[2], {**lines[2], "cluster": "another"}]
    (tmp_path / "records.json").write_text("\n".join(map(json.dumps, [*lines, {"what": 1}])))
    save_snapshot(snapshot(2), tmp_path / "cluster.json")
    words = [
        *("history", "prepare", str(tmp_path / "records.json"), "--format", "json"),
        *("--metadata", str(tmp_path / "cluster.json"), "--cluster", "7"),
        *("--output", str(tmp_path / "out"), "--window", "1"),
    ]
    result = invoke(words)
    assert result.exit_code == 0, result.output
    found = read_prepared(spark, tmp_path / "out")
    assert (found.window_ms, found.windows) == (1000, 5)
    cells = found.partition_sums.collect()
    assert {(r.cluster, r.day) for r in cells} == {("7", "2023-11-14"), ("7", "2023-11-15")}
    # By the only placement there is, two of the nine samples are a follower's.
    assert sum(r.bytes_in_count for r in cells) == 7
    others = (found.broker_sums, found.sizes, found.traffic)
    kinds = reduce(
        DataFrame.unionByName, (of.selectExpr(f"{i} AS kind") for i, of in enumerate(others))
    )
    assert Counter(r.kind for r in kinds.collect()) == {0: 2, 1: 3}
    reasons = [r.reason for r in found.quarantine.collect()]
    # A line that is no record names no cluster: it is of the one that was asked for.
    assert sorted(reasons) == ["duplicate", "malformed"]
    assert [int(n) for n in re.findall(r"(?:added|split|duplicate)\D+(\d+)", result.stdout)] == [
        9,
        3,
        1,
    ]


def test_directories_that_hold_something_else(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table 'history' found in it"):
        read_prepared(spark, tmp_path)
    metadata = MetadataTables.of(spark, [MetadataLog.of(snapshot(1))])
    for name in ("letters", "judged-photos", "history/letters"):
        (tmp_path / name).mkdir(parents=True)
        with pytest.raises(InputError, match=f"'{name}' found in the directory"):
            prepare(records_frame(spark, []), metadata, tmp_path)
        shutil.rmtree(tmp_path / name.split("/")[0])
    save_snapshot(snapshot(1), tmp_path / "d.json")
    places = [str(tmp_path / name) for name in ("a", "b", "c", "d.json")]
    words = ["history", "prepare", *places[:2], "-o", places[2], "--metadata", places[3]]
    result = invoke(words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"archive {places[0]}: no directory 'messages' found in it" in result.stderr


@pytest.mark.soak
def test_a_run_replaces_another_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    metadata = MetadataTables.of(spark, [MetadataLog.of(snapshot(1), cluster="c")])
    one, other = (
        records_frame(spark, [("c", 0, [NIGHT] * n, [RECORDS[0]._replace(time_ms=NIGHT)] * n)])
        for n in (2, 3)
    )
    # Of a first run that was killed before its transaction.
    (tmp_path / "history" / "_delta_log").mkdir(parents=True)
    (tmp_path / "history" / "kind=cells").mkdir()
    prepare(one, metadata, tmp_path, window_ms=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["history"]
    before = read_prepared(spark, tmp_path).quarantine
    prepare(other, metadata, tmp_path, window_ms=2000)
    found = read_prepared(spark, tmp_path)
    assert (found.window_ms, found.quarantine.count()) == (2000, 2)
    # A reader of the first still has it.
    assert before.count() == 1


def test_files_that_are_not_whole_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    rows = [("default", None, NIGHT, 0, i, b"x" * 100) for i in range(9)]
    spark.createDataFrame(rows, MESSAGES).repartition(3).write.parquet(str(kept))
    last = sorted(kept.glob("*.parquet"))[-1]
    last.write_bytes(last.read_bytes()[:-20])
    for path in kept.glob(".*.crc"):
        path.unlink()
    save_snapshot(snapshot(1), tmp_path / "cluster.json")
    where = ["--metadata", str(tmp_path / "cluster.json")]
    words = ["prepare", str(kept), "--format", "messages", *where, "-o", str(tmp_path / "out")]
    done = invoke(["history", *words])
    assert done.exit_code == 2, done.output
    line = done.stderr
    assert line.count("\n") == 1, line
    assert f"{last.name} is not a Parquet file" in line
    assert not list((tmp_path / "out").glob("*"))
    words = ["snapshot", str(tmp_path / "out"), *where, "-o", str(tmp_path / "x.npz")]
    done = invoke(["history", *words])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
