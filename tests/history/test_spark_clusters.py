"""The history on a standalone cluster of two workers, and through a server of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import invoke
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from standalone import SMALL_JVM, Standalone, spark_process, standalone

from cluster_model import load_snapshot, save_snapshot, synthetic_snapshot
from cluster_model.history.archive import write_batch
from cluster_model.history.session import DELTA
from cluster_model.history.synthetic import synthetic_records

IVY = Path(__file__).parents[2] / "cluster_model" / "history" / "ivysettings.xml"
HOUR_MS = 3_600_000
DEFAULTS = Path(__file__).parent / "spark" / "spark-defaults.conf"
# What other tests do without (spark/spark-defaults.conf) is here as Spark has it by default.
USUAL = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.lightweightPlanChangeValidation": "true",
    "spark.sql.shuffle.partitions": "200",
}


def test_what_other_tests_set_is_here_as_users_have_it() -> None:
    lines = [line.split() for line in DEFAULTS.read_text().splitlines() if line[:1] not in "#"]
    of_queries = {name for name, *_ in lines if name.startswith("spark.sql.")}
    assert of_queries - {"spark.sql.ui.explainMode"} == set(USUAL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


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
    local = str(at / "local.npz"), str(at / "local.json")
    steps = (
        prepare(at, "prepared"),
        snapshot(at, "prepared", local[0]),
        backtest(at, "prepared", local[1]),
    )
    for words in steps:
        done = invoke(["history", *words])
        assert done.exit_code == 0, done.output
    return at


def prepare(at: Path, to: str, *, windows: int = 5) -> list[str]:
    words = [
        "prepare",
        str(at / "archive"),
        "--metadata",
        str(at / "cluster.json"),
        "-o",
        str(at / to),
    ]
    return [*words, "--window", "3600", "--windows", str(windows), "--json"]


def snapshot(at: Path, prepared: str, to: str) -> list[str]:
    words = ["snapshot", str(at / prepared), "--metadata", str(at / "cluster.json"), "-o", to]
    return [*words, "--statistic", "p95"]


def backtest(at: Path, prepared: str, to: str) -> list[str]:
    words = ["backtest", str(at / prepared), "--metadata", str(at / "cluster.json"), "-o", to]
    return [*words, "--goals", "default"]


def counterpoise(at: Path, *words: str) -> str:
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
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.spark
def test_a_standalone_cluster_and_spark_connect_give_the_same(
    recorded: Path, cluster: Standalone
) -> None:
    """What one prepared, despite an executor that was killed, the other replaces.

    A snapshot and a backtest are as in a local session.
    """
    there = ["--master", cluster.address, "--conf", "spark.executor.memory=640m"]
    there += [word for name, value in USUAL.items() for word in ("--conf", f"{name}={value}")]
    with cluster.executor_killed_when(lambda: any(recorded.glob("there/judged-*/*/_SUCCESS"))):
        words = prepare(recorded, "there", windows=6)
        counted = json.loads(counterpoise(recorded, *words, *there))
    assert [*counted["outcomes"]] == ["added"]
    delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.executor.memory": "640m",
        "spark.jars.ivySettings": str(IVY),
        "spark.sql.catalog.spark_catalog": delta,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        **USUAL,
    }
    words = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += ["--master", cluster.address, "--packages", f"io.delta:delta-spark_2.13:{DELTA}"]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    ready = r"Spark Connect server started at: \S*:(\d+)\s"
    log = recorded / "connect.log"
    with spark_process(log, ready, "spark-submit", *words, "spark-internal") as port:
        remote = ("--master", f"sc://127.0.0.1:{port}")
        replaced = json.loads(counterpoise(recorded, *prepare(recorded, "there"), *remote))
        assert replaced == counted
        counterpoise(recorded, *snapshot(recorded, "there", "remote.npz"), *remote)
        assert load_snapshot(recorded / "remote.npz") == load_snapshot(recorded / "local.npz")
        counterpoise(recorded, *backtest(recorded, "there", "remote.json"), *remote)
        assert (recorded / "remote.json").read_text() == (recorded / "local.json").read_text()
