"""Sessions have our code on their executors, and report in one sentence what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cluster_model.history import session
from cluster_model.history.errors import HistoryError, MissingSparkError
from cluster_model.history.session import (
    PACKAGES,
    configured_master,
    require_java,
    ship_code,
    spark_session,
)

ROOT = Path(__file__).parents[2]


def python(script: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script elsewhere, with our code to be found by the driver alone."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_there_is_one_session_and_its_code_is_sent_once(spark: SparkSession) -> None:
    assert spark_session("local[2]") is spark
    # Its JVM is ours alone, and told to compile less.
    assert "Tier4" in str(spark.sparkContext.getConf().get("spark.driver.defaultJavaOptions"))
    before = sys.path.copy()
    ship_code(spark)
    assert sys.path == before
    sent = [name for name in spark.sparkContext.listFiles if "counterpoise-" in name]
    assert len(sent) == 1
    with zipfile.ZipFile(session._archive()) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert "goals/py.typed" in names or any(n.startswith("goals/") for n in names)
    assert "cluster_model/history/ivysettings.xml" in names
    assert not any("__pycache__" in name for name in names)


@pytest.mark.parametrize("own", [None, "false"])
def test_kept_tables_have_the_parts_that_their_bytes_need(
    spark: SparkSession, own: str | None
) -> None:
    """200, as Spark has it, only where a user's own setting says so."""
    name = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
    as_users = {
        "spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "200", name: own
    }  # fmt: skip
    before = {each: spark.conf.get(each, None) for each in as_users}

    def stated(values: dict[str, str | None]) -> None:
        for each, value in values.items():
            spark.conf.unset(each)
            if value is not None:
                spark.conf.set(each, value)

    try:
        stated(as_users)
        spark_session("local[2]")
        kept = spark.range(1000).repartition("id").persist()
        kept.count()
        assert spark.conf.get(name) == (own or "true")
        assert (kept.rdd.getNumPartitions() == 200) is (own is not None)
        kept.unpersist()
    finally:
        stated(before)


@pytest.mark.soak
@pytest.mark.spark
def test_executors_of_their_own_get_the_code(tmp_path: Path) -> None:
    # An executor that is another process, started elsewhere.
    script = """
from cluster_model.history.decode import decode
from cluster_model.history.schema import MESSAGES
from cluster_model.history.session import spark_session
from metrics_reporter import Record, encode

spark = spark_session("local-cluster[1,1,512]", config={
    "spark.ui.enabled": "false", "spark.executor.memory": "512m",
})
value = encode(Record(70, 1, {"cpu": 4.5}))
rows = spark.createDataFrame([("c", 0, 80, 0, i, value) for i in range(4)], MESSAGES)
print([r.cpu for r in decode(rows.repartition(4)).collect()])

def told(batches):
    import pyarrow
    import balancer, goals
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"where": [balancer.__file__, goals.__file__]})

where = spark.range(2).repartition(2).mapInArrow(told, "where string").distinct().collect()
print(all("counterpoise-" in r["where"] for r in where))
"""
    done = python(script, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["[4.5, 4.5, 4.5, 4.5]", "True"]


def test_the_master_of_sparks_own_configuration_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A driver of executors elsewhere must not listen on this machine's own address alone."""
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert configured_master() == "local[*]"
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert configured_master() == "local[*]"
    defaults.write_text("# spark.master local\nspark.masters no\n spark.master\tspark://a:7077\n")
    assert configured_master() == "spark://a:7077"
    defaults.write_text("spark.master=yarn\n")
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    monkeypatch.setenv("SPARK_CONF_DIR", str(defaults.parent))
    assert configured_master() == "yarn"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master k8s://b pyspark-shell")
    assert configured_master() == "k8s://b"


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingSparkError, match="no java found on the PATH, Java 17 or newer"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingSparkError, match="no java found on JAVA_HOME"):
        require_java()


def test_a_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingSparkError, match=r"Java 11 found at .*, 17 or newer expected"):
        require_java()


def test_no_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark')")
    script = """
import sys
sys.path.insert(0, "")
from cluster_model import InputError
try:
    import cluster_model.history.session
except InputError as error:
    print(error)
"""
    done = python(script, tmp_path)
    assert done.stdout.strip() == "pyspark is not installed: pip install 'counterpoise[spark]'"


def test_nothing_else_needs_pyspark(tmp_path: Path) -> None:
    script = """
import sys
import balancer, balancer.cli, cluster_model, goals, metrics_reporter
print([name for name in sys.modules if name.split(".")[0] in ("pyspark", "pyarrow", "pandas")])
"""
    assert python(script, tmp_path).stdout.strip() == "[]"


@pytest.mark.spark
def test_a_connector_that_cannot_be_had(tmp_path: Path) -> None:
    nowhere = (tmp_path / "empty").as_uri()
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="x"/><resolvers>'
        f'<ibiblio name="x" m2compatible="true" root="{nowhere}"/></resolvers></ivysettings>'
    )
    script = f"""
from cluster_model import InputError
from cluster_model.history.session import spark_session
try:
    spark_session("local[1]", kafka=True, delta=True, config={{
        "spark.jars.ivySettings": {str(settings)!r}, "spark.jars.ivy": {str(tmp_path / "ivy")!r},
    }})
except InputError as error:
    print(error)
"""
    done = python(script, tmp_path)
    assert done.stdout.startswith("Spark could not fetch org.apache.spark:spark-sql-kafka")
    assert " and io.delta:delta-spark_2.13:4.0.0 from Maven Central" in done.stdout
    assert done.stderr == ""


@pytest.mark.spark
def test_a_master_that_is_none(tmp_path: Path) -> None:
    script = """
from cluster_model import InputError
from cluster_model.history.session import spark_session
try:
    spark_session("nonsense")
except InputError as error:
    print(error)
"""
    done = python(script, tmp_path)
    assert done.stdout.startswith("Spark did not start: ")
    assert "Master must" in done.stdout
    assert done.stderr == ""


def test_history_errors_are_input_errors() -> None:
    from cluster_model import InputError

    assert issubclass(HistoryError, InputError)
    assert issubclass(MissingSparkError, ImportError)
