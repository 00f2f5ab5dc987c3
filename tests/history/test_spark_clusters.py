"""The history on a standalone cluster of two workers, and through a server of Spark Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

from balancer.cli.app import app
from cluster_model import load_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.history.archive import write_batch
from cluster_model.history.session import DELTA
from cluster_model.history.synthetic import synthetic_records

HOME = Path(pyspark.__file__).parent
IVY = Path(__file__).parents[2] / "cluster_model" / "history" / "ivysettings.xml"
HOUR_MS = 3_600_000
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def process(log: Path, ready: str, *words: str) -> Iterator[str]:
    """A process of Spark; yields what the pattern finds in its output once it is there."""
    own = {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    own["SPARK_DAEMON_JAVA_OPTS"] = _SMALL
    # Executors have our packages only by what is sent to them.
    rest = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    with log.open("w") as out:
        started = subprocess.Popen(
            [str(HOME / "bin" / words[0]), *words[1:]],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=rest | own,
            cwd=log.parent,
        )
    try:
        deadline = time.monotonic() + 120
        while (found := re.search(ready, log.read_text())) is None:
            assert started.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield found[1]
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers."""
    at = tmp_path_factory.mktemp("standalone")
    here, web = ("--host", "127.0.0.1"), ("--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    own = ("spark-class", f"{deploy}.master.Master", *here, "--port", "0", *web)
    with process(at / "master.log", r"Starting Spark master at (spark://\S+)", *own) as address:
        words = ["spark-class", f"{deploy}.worker.Worker", address, *here, *web]
        words += ["--cores", "1", "--memory", "1g", "--work-dir", str(at / "work")]
        joined = r"(Successfully registered with master)"
        with process(at / "one.log", joined, *words), process(at / "two.log", joined, *words):
            yield address


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an archive of half a day, and the cluster that it is of."""
    at = tmp_path_factory.mktemp("recorded")
    cluster = synthetic_snapshot(brokers=3, partitions=12, racks=3, utilization=0.3)
    save_snapshot(cluster, at / "cluster.json")
    records = synthetic_records(
        spark, cluster, intervals=13, interval_ms=HOUR_MS, cluster="default"
    )
    whole = {"problem": f.lit(None).cast("string"), "value": f.lit(None).cast("binary")}
    write_batch(records.withColumns(whole), str(at / "archive"), 0)
    for words in (prepare(at, "prepared"), snapshot(at, "prepared", str(at / "local.npz"))):
        done = CliRunner().invoke(app, ["history", *words])
        assert done.exit_code == 0, done.output
    return at


def prepare(at: Path, to: str) -> list[str]:
    words = [
        "prepare",
        str(at / "archive"),
        "--metadata",
        str(at / "cluster.json"),
        "-o",
        str(at / to),
    ]
    return [*words, "--window", "3600", "--json"]


def snapshot(at: Path, prepared: str, to: str) -> list[str]:
    words = ["snapshot", str(at / prepared), "--metadata", str(at / "cluster.json"), "-o", to]
    return [*words, "--statistic", "p95"]


def runs(at: Path) -> list[str]:
    """Names of the complete runs of `prepare`."""
    return [run.parent.name for run in (at / "there").glob("run-*/settings")]


def counterpoise(at: Path, *words: str, code: int = 0) -> str:
    """Run a command of the history in a process of its own; returns all that it prints."""
    script = "from balancer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "history", *words],
        cwd=at,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.spark
def test_a_standalone_cluster_and_spark_connect_give_the_same(recorded: Path, master: str) -> None:
    """What the one prepared, the other replaces; then a snapshot is that of a local session."""
    there = ("--master", master, "--conf", "spark.executor.memory=640m")
    counted = counterpoise(recorded, *prepare(recorded, "there"), *there)
    assert [*json.loads(counted)["outcomes"]] == ["added"]
    (before,) = runs(recorded)
    delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": _SMALL,
        "spark.executor.memory": "640m",
        "spark.jars.ivySettings": str(IVY),
        "spark.sql.catalog.spark_catalog": delta,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += ["--master", master, "--packages", f"io.delta:delta-spark_2.13:{DELTA}"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    ready = r"Spark Connect server started at: \S*:(\d+)\s"
    log = recorded / "connect.log"
    with process(log, ready, "spark-submit", *words, "spark-internal") as port:
        remote = ("--master", f"sc://127.0.0.1:{port}")
        assert counterpoise(recorded, *prepare(recorded, "there"), *remote) == counted
        (now,) = runs(recorded)
        assert now != before
        counterpoise(recorded, *snapshot(recorded, "there", "remote.npz"), *remote)
        assert load_snapshot(recorded / "remote.npz") == load_snapshot(recorded / "local.npz")
        missing = counterpoise(recorded, *snapshot(recorded, "none", "x.npz"), *remote, code=2)
        assert "no 'settings' found in it" in missing
        refused = counterpoise(
            recorded, "archive", "a", "--bootstrap-server", "b:1", "--metrics-topic", "m", *remote,
            code=2,
        )  # fmt: skip
        assert "a driver of its own" in refused


def test_a_server_that_is_not_there_is_one_sentence(recorded: Path) -> None:
    said = counterpoise(
        recorded, *snapshot(recorded, "prepared", "x.npz"), "--master", "sc://127.0.0.1:9", code=2
    )
    assert len(said.splitlines()) == 1
    assert "no server at sc://127.0.0.1:9" in said
