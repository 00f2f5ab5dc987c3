"""The commands that maintain an archive."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import invoke
from pyspark.sql import SparkSession
from typer.testing import Result

from balancer.cli.history import archive_until_stopped
from balancer.cli.history_backtest import known_range
from balancer.cli.terminal import CommandError
from balancer.composition.client import client_properties, java_properties
from cluster_model.history.archive import read_archive, write_batch
from cluster_model.history.decode import decode
from cluster_model.history.schema import MESSAGES
from metrics_reporter import Record, encode

DAY_MS = 86_400_000
T = 1_700_006_400_000


def run(*words: str | Path, code: int = 0) -> Result:
    result = invoke(["history", *words])
    assert result.exit_code == code, result.output
    return result


def mistake(*words: str | Path) -> str:
    """The one line that a mistake is told in."""
    (line,) = run(*words, code=2).stderr.splitlines()
    return line


@pytest.mark.parametrize("command", ["archive", "compact", "expire", "export"])
def test_help_teaches_with_examples(command: str) -> None:
    assert f"Example: counterpoise history {command}" in run(command, "--help").stdout


@pytest.mark.usefixtures("files_stay")
def test_an_archive_is_compacted_and_expires(spark: SparkSession, tmp_path: Path) -> None:
    for batch in range(2):
        value = encode(Record(T, 1, {"cpu": 4.5}))
        rows = [("c", batch, T + batch * 1000, 0, batch, value)]
        write_batch(decode(spark.createDataFrame(rows, MESSAGES)), str(tmp_path), batch)
    # By a path that begins at the directory in which the session was started.
    relative = os.path.relpath(tmp_path)
    assert run("compact", relative).stdout == "1 day compacted, 2 files into 1\n"
    assert run("compact", tmp_path, "--cluster", "c").stdout.startswith("0 days compacted")
    assert len(read_archive(spark, tmp_path).inputFiles()) == 1
    copy = tmp_path / "copy"
    assert run("export", tmp_path, "-o", copy).stdout.startswith("1 day exported to")
    assert "something found there" in mistake("export", tmp_path, "-o", copy)
    assert run("expire", tmp_path, "--keep-days", "9" * 15).stdout == "0 days removed\n"
    assert run("expire", relative, "--keep-days", "30").stdout == (
        "cluster=c/day=2023-11-15\n1 day removed\n"
    )


def test_mistakes_are_reported_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    assert "no directory 'messages' found in it" in mistake("compact", tmp_path)
    assert "no directory 'messages' found" in mistake("expire", tmp_path / "no", "--keep-days", "1")
    assert "--conf: 'x' found, NAME=VALUE" in mistake("compact", tmp_path, "--conf", "x")
    assert "--file-size: 'x' found" in mistake("compact", tmp_path, "--file-size", "x")
    unknown = mistake("compact", "s3a://bucket/archive")
    assert "s3a://bucket/archive: Class org.apache.hadoop.fs.s3a.S3AFileSystem not" in unknown
    assert "spark.jars.packages=org.apache.hadoop:hadoop-aws" in unknown
    assert "No FileSystem for scheme" in mistake("compact", "no://bucket/archive")
    topic = ("--bootstrap-server", "localhost:1", "--metrics-topic", "t")
    assert "no Kafka connector" in mistake("archive", tmp_path, *topic)
    assert "together with --metadata" in mistake("archive", tmp_path, *topic, "--capacity", "x")
    nobody = ("--master", "sc://127.0.0.1:9")
    assert "a driver of its own" in mistake("archive", tmp_path, *topic, *nobody)
    assert "no server at sc://127.0.0.1:9" in mistake("compact", tmp_path, *nobody)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_archive_that_goes_on_ends_when_asked(number: signal.Signals) -> None:
    class Query:
        """Has archived two batches of 30 messages, and goes on."""

        recentProgress = tuple(SimpleNamespace(batchId=i, numInputRows=30) for i in range(2))
        stopped = False

        def awaitTermination(self, seconds: int) -> bool:
            os.kill(os.getpid(), number)
            return False

        def stop(self) -> None:
            self.stopped = True

    query: Any = Query()
    before = signal.getsignal(number)
    assert archive_until_stopped(query, lambda: None, 60.0) == 60
    assert query.stopped
    assert signal.getsignal(number) == before


def test_properties_for_java_are_those_of_the_file(tmp_path: Path) -> None:
    login = 'org.apache.kafka.X required username="me" password="pw";'
    file = tmp_path / "client.properties"
    file.write_text(f"# mine\nsecurity.protocol=SASL_SSL\nsasl.jaas.config={login}\n")
    assert java_properties(file) == {"security.protocol": "SASL_SSL", "sasl.jaas.config": login}
    assert client_properties(file)["sasl.password"] == "pw"


def test_a_range_beyond_the_history_is_cut_to_it() -> None:
    history: Any = SimpleNamespace(range=lambda: (T, T + DAY_MS), window_ms=300_000)
    whole = (T, T + DAY_MS)
    assert known_range(history, None, None) == whole
    assert known_range(history, 0, None) == whole
    # Each window is a step of the replay: it would not end before the year 9999.
    assert known_range(history, None, 253_402_300_799_000) == (T, T + DAY_MS + 300_000)
    assert known_range(history, T + 5, T + 10) == (T + 5, T + 10)
    for first, end in ((0, T), (253_402_300_800_000, None), (T + 10, T + 5)):
        with pytest.raises(
            CommandError, match=r"a part of 2023-11-15T00:00 to .* \(UTC\) expected"
        ):
            known_range(history, first, end)
