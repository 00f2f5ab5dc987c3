"""Tables are prepared once, and read many times."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from frames import records_frame
from pyspark.sql import SparkSession
from test_history_windows import RECORDS, snapshot
from typer.testing import CliRunner

from balancer.cli.app import app
from cluster_model import InputError, save_snapshot
from cluster_model.history.clean import MetadataTables
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.prepare import prepare, read_prepared

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
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = read_prepared(spark, tmp_path / "out")
    assert (found.window_ms, found.windows) == (1000, 5)
    days = {(r.cluster, r.day) for r in found.partition_sums.select("cluster", "day").collect()}
    assert days == {("7", "2023-11-14"), ("7", "2023-11-15")}
    # By the only placement there is, two of the nine samples are a follower's.
    assert found.partition_sums.agg({"bytes_in_count": "sum"}).collect()[0][0] == 7
    assert found.broker_sums.count() == 2
    assert found.sizes.count() == 3
    assert found.traffic.count() == 0
    reasons = [r.reason for r in found.quarantine.collect()]
    # A line that is no record names no cluster: it is of the one that was asked for.
    assert sorted(reasons) == ["duplicate", "malformed"]
    assert [int(n) for n in re.findall(r"(?:added|split|duplicate)\D+(\d+)", result.stdout)] == [
        9,
        3,
        1,
    ]


def test_directories_that_hold_something_else(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no 'settings' found in it"):
        read_prepared(spark, tmp_path)
    (tmp_path / "letters").mkdir()
    metadata = MetadataTables.of(spark, [MetadataLog.of(snapshot(1))])
    with pytest.raises(InputError, match="'letters' found in the directory"):
        prepare(records_frame(spark, []), metadata, tmp_path)
    words = ["history", "prepare", "a", "b", "-o", "c", "--metadata", "d"]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, "2 archives found, one expected" in result.stderr) == (2, True)
