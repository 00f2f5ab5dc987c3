from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks import history as module
from benchmarks.harness.environments import PeerMissing
from benchmarks.registry import BenchmarkError, Options, all_benchmarks
from benchmarks.subjects import duckdb_history
from cluster_model.history import session

QUIET = Options(log=lambda sentence: None)
TINY: dict[str, Any] = {
    "brokers": 4, "partitions": 20, "racks": 2, "topics": 4, "replication_factor": 2
}  # fmt: skip


def test_it_is_listed() -> None:
    assert all_benchmarks()["history"].sizes == ("S", "M", "L")


def test_an_unknown_subject_is_one_sentence() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'x'; there are snapshot,"):
        list(module.history(["S"], Options(subjects=("x",), log=lambda s: None)))


def test_it_runs_in_the_session_that_a_user_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated: dict[str, str] = {}
    monkeypatch.setattr(
        session, "spark_session", lambda master, *, delta, config: stated.update(config)
    )
    module._session(tmp_path)
    assert set(stated) == {"spark.driver.memory", "spark.local.dir"}


@pytest.mark.soak
def test_records_on_disk_become_a_snapshot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_session", lambda scratch: spark)
    monkeypatch.setattr(module, "_CLUSTER", TINY)
    monkeypatch.setattr(module, "_VALUES", {"S": 3000.0})
    rows = {metric: value for metric, value, _ in module.measure("S", 1, tmp_path)}
    # A little of it is dirt.
    assert rows["values"] == pytest.approx(3000, rel=0.2)
    assert rows["values per second"] == pytest.approx(rows["values"] / rows["seconds"])
    assert rows["peak memory"] > 1e8
    assert rows["bytes on disk"] > 0


@pytest.mark.soak
def test_days_of_invented_loads_are_replayed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_session", lambda scratch: spark)
    monkeypatch.setattr(
        module, "_LIVES", {"S": (1, {"brokers": 6, "partitions": 30, "racks": 3, "topics": 3})}
    )
    monkeypatch.setattr(module, "_DAY_MS", 8 * module._HOUR_MS)
    picture = tmp_path / "lives.svg"
    rows = {metric: value for metric, value, _ in module.replay("S", 1, tmp_path, picture)}
    assert picture.read_text().startswith("<?xml")
    assert rows["windows judged"] == 3 * 8
    assert rows["plans, default"] > 0
    assert rows["goals violated, mean, default"] < rows["goals violated, mean, history"]


def test_the_exponent_is_that_of_the_time_in_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = {"S": (1e6, 2.0), "M": (1e7, 20.0)}
    monkeypatch.setattr(
        module,
        "_apart",
        lambda what, size, seed, peer: [
            ("values", reported[size][0], "values"),
            ("seconds", reported[size][1], "seconds"),
            ("processor seconds", 2 * reported[size][1], "seconds"),
        ],
    )
    options = Options(subjects=("snapshot",), log=lambda s: None)
    found = {(r.size, r.metric): r.value for r in module.history(["S", "M"], options)}
    assert found["M", "exponent of seconds"] == pytest.approx(1.0)
    assert found["M", "exponent of processor seconds"] == pytest.approx(1.0)
    assert ("S", "exponent of seconds") not in found


def test_what_duckdb_takes_are_rows_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        module,
        "_apart",
        lambda what, size, seed, peer: [
            ("values", 1e6, "values"),
            ("processor seconds / DuckDB's", 9.0, "ratio"),
            ("duckdb: processor seconds", 2.0, "seconds"),
        ],
    )
    options = Options(subjects=("duckdb",), peer_python=tmp_path, log=lambda s: None)
    found = {(r.subject, r.metric): r.value for r in module.history(["S"], options)}
    assert found == {
        ("snapshot", "values"): 1e6,
        ("snapshot", "processor seconds / DuckDB's"): 9.0,
        ("duckdb", "processor seconds"): 2.0,
    }


def test_without_duckdb_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(options: Options) -> Path:
        raise PeerMissing("duckdb could not be installed")

    monkeypatch.setattr(duckdb_history, "prepare", missing)
    monkeypatch.setattr(module, "_apart", lambda *args, **kwargs: [])
    assert not list(module.history(["S"], QUIET))
    with pytest.raises(PeerMissing):
        list(module.history(["S"], Options(subjects=("duckdb",), log=lambda s: None)))


@pytest.mark.peer
@pytest.mark.spark
def test_duckdb_gives_the_same_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLUSTER", TINY)
    monkeypatch.setattr(module, "_VALUES", {"S": 3000.0})
    python = duckdb_history.prepare(QUIET)
    rows = {metric: value for metric, value, _ in module.measure("S", 1, tmp_path, python)}
    assert rows["duckdb: largest difference"] < 1e-9
    assert rows["duckdb: processor seconds"] > 0


def test_work_is_that_of_all_processes_below() -> None:
    # in a process of its own: what else has ended below this one is no longer counted
    code = """
import subprocess, sys
from benchmarks.history import processor_seconds
before = processor_seconds()
work = "import time; all(time.process_time() < 0.3 for _ in iter(int, 1))"
subprocess.run([sys.executable, "-c", work], check=True)
print(processor_seconds() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=module._ROOT, check=True, capture_output=True, text=True
    )
    assert float(done.stdout) >= 0.25


def test_memory_is_that_of_all_processes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE_SECONDS", 0.01)
    deadline = time.monotonic() + 60
    with module.peak_memory() as memory:
        held = bytearray(200_000_000)
        held[::4096] = b"x" * len(held[::4096])
        while memory[0] <= 200_000_000 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert memory[0] > 200_000_000
