"""Any table of Spark is read as records, by a description of its columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from cluster_model import save_snapshot, synthetic_snapshot
from cluster_model.history.columns import (
    ColumnMapping,
    TableFormat,
    load_columns,
    read_columns,
    read_table,
)
from cluster_model.history.errors import HistoryError
from cluster_model.history.schema import DECODED

T = 1_700_000_000_000
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def mapping(**fields: Any) -> ColumnMapping:
    base = {"time": {"column": "ts", "unit": "ms"}, "broker": "broker", "metrics": {"cpu": "cpu"}}
    return ColumnMapping.model_validate(base | fields)


def records(found: DataFrame) -> list[Row]:
    assert found.schema.names == DECODED.names
    return found.where("problem is null").orderBy("time_ms", "broker", "partition").collect()


def test_a_column_for_each_metric(spark: SparkSession) -> None:
    schema = "at timestamp, host string, t string, p int, in_kib double, out decimal(9,1), q long"
    rows = [
        (AT, "kafka-3.example", "orders", 7, 2.0, Decimal("5.5"), 4),
        (AT, "kafka-4.example", "orders", None, 3.0, None, None),
        (AT, "kafka-5.example", None, None, None, None, 9),
        (AT, "kafka-6.example", "orders", 1, None, None, None),
    ]
    found = read_columns(
        spark.createDataFrame(rows, schema),
        mapping(
            time="at",
            broker={"column": "host", "pattern": r"kafka-(\d+)\..*"},
            topic="t",
            partition="p",
            metrics={
                "bytes_in": {"source": "in_kib", "unit": "KiB/min"},
                "bytes_out": "out",
                "queries": {"source": "q", "factor": 0.5},
            },
        ),
        cluster="c",
    )
    said = [
        (r.cluster, r.time_ms, r.arrived_ms, r.broker, r.topic, r.partition, r.bytes_in,
         r.bytes_out, r.other)
        for r in records(found)
    ]  # fmt: skip
    assert said == [
        ("c", T, T, 3, "orders", 7, 2 * 1024 / 60, 5.5, {"queries": 2.0}),
        ("c", T, T, 4, "orders", -1, 3 * 1024 / 60, None, None),
        ("c", T, T, 5, None, -1, None, None, {"queries": 4.5}),
    ]


def test_a_row_for_each_value_with_counters(spark: SparkSession) -> None:
    def row(second: float, value: float | None, name: str = "BytesIn", broker: str = "a") -> Any:
        return (T / 1000 + second, broker, "c1", name, value)

    rows = [
        row(0, 1000.0),
        row(60, 7000.0),
        row(120, 7000.0),
        # restarted: what came in between is unknown
        row(180, 300.0),
        row(240, 900.0),
        row(250, None),
        row(300, 1500.0),
        # a gap that is too long
        row(4000, 9000.0),
        row(0, 55.0, broker="b"),
        row(10, 50.0, "CpuLoad"),
        row(10, 5.0, "Other"),
        row(10, 5.0, "CpuLoad", "nobody"),
    ]
    table = spark.createDataFrame(rows, "ts double, who string, k string, m string, v double")
    found = read_columns(
        table.repartition(3),
        mapping(
            time={"column": "ts", "unit": "s"},
            broker={"column": "who", "ids": {"a": 1, "b": 2}},
            cluster="k",
            names="m",
            values="v",
            metrics={
                "bytes_in": {"source": "BytesIn", "unit": "kB", "cumulative": True},
                "cpu": "CpuLoad",
            },
            max_gap="1h",
        ),
    )
    said = [((r.time_ms - T) / 1000, r.cluster, r.bytes_in, r.cpu) for r in records(found)]
    assert said == [
        (10, "c1", None, 50.0),
        (60, "c1", 100_000.0, None),
        (120, "c1", 0.0, None),
        (240, "c1", 10_000.0, None),
        (300, "c1", 10_000.0, None),
    ]
    (bad,) = found.where("problem is not null").collect()
    assert json.loads(bytes(bad.value))["who"] == "nobody"


def test_rows_that_are_no_records_are_malformed(spark: SparkSession) -> None:
    nan, much = float("nan"), float("-inf")
    good = (float(T), 1.0, "a", 2.0, 5.0)
    bad: list[tuple[Any, ...]] = [
        (None, *good[1:]), (1e300, *good[1:]),
        *((good[0], broker, *good[2:]) for broker in (None, -1.0, 1.5, 1e30)),
        (*good[:2], "", *good[3:]), (*good[:2], None, *good[3:]),
        *((*good[:3], partition, 5.0) for partition in (-2.0, 2.5)),
        (*good[:4], nan), (*good[:4], much),
    ]  # fmt: skip
    table = spark.createDataFrame(
        [good, *bad, (*good[:4], None)],
        "ts double, broker double, topic string, partition double, cpu double",
    )
    found = read_columns(table, mapping(topic="topic", partition="partition")).collect()
    # The last says nothing.
    assert [r.problem for r in found] == [None, *["malformed"] * len(bad)]


def test_units_of_time(spark: SparkSession) -> None:
    values = {
        "s": T / 1000 + 0.005, "ms": T + 5, "us": T * 1000 + 5999, "ns": T * 10**6 + 5999999
    }  # fmt: skip
    found = []
    for unit, value in values.items():
        table = spark.createDataFrame(
            [(Decimal(str(value)), 1, 5.0)], "ts decimal(38,6), broker int, cpu double"
        )
        found.append(read_columns(table, mapping(time={"column": "ts", "unit": unit})))
    times = [r.time_ms for r in records(reduce(DataFrame.unionByName, found))]
    assert times == [T + 5] * 4


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"time": None}, "time: None found"),
        ({"time": {"column": "ts", "unit": "min"}}, "time.unit: 'min' found, 's', 'ms', 'us'"),
        ({"time": {"column": "ts", "units": "s"}}, "did you mean 'unit'"),
        ({"metrics": {}}, "metrics: {} found"),
        ({"metrics": {"bytes_in": {"unit": "KB/s"}}}, "'KB/s' found, one of .*'kB/s'"),
        ({"metrics": {"bytes_in": {"unit": "kB"}}}, "bytes_in: unit 'kB' found, one of B/s"),
        ({"metrics": {"size": {"unit": "B/s"}}}, "size: unit 'B/s' found, one of B, "),
        ({"metrics": {"cpu": {"unit": "cores"}}}, "cpu: unit 'cores' found, a factor expected"),
        ({"metrics": {"size": {"unit": "B", "factor": 2.0}}}, "either a unit or a factor"),
        ({"metrics": {"size": {"factor": 0.0}}}, "metrics.size.factor: 0.0 found, greater than 0"),
        ({"names": "name"}, "names and values together"),
        ({"partition": "p"}, "partition together with topic"),
        ({"broker": {"column": "b", "pattern": "kafka"}}, "with one group expected"),
        ({"broker": {"column": "b", "pattern": "("}}, "a regular expression expected"),
        ({"max_gap": "soon"}, "max_gap: 'soon' found"),
        ({"broker": {"column": "b", "ids": {"a": -1}}}, "broker.ids.a: -1 found"),
    ],
)
def test_mistakes_in_the_file_are_one_sentence(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    base: dict[str, Any] = {"time": "ts", "broker": "broker", "metrics": {"cpu": "cpu"}}
    path = tmp_path / "columns.yaml"
    path.write_text(json.dumps(base | fields))
    with pytest.raises(HistoryError, match=problem) as error:
        load_columns(path)
    assert str(error.value).startswith(f"columns file {path}: ")
    assert "\n" not in str(error.value)


def test_a_file_without_a_column_for_time(tmp_path: Path) -> None:
    path = tmp_path / "columns.yaml"
    path.write_text("broker: b\nmetrics: {cpu: c}\n")
    with pytest.raises(HistoryError, match="time: none found, a column expected"):
        load_columns(path)
    path.write_text("options: {password: [secret]}\ntime: a\nbroker: b\nmetrics: {cpu: c}\n")
    with pytest.raises(HistoryError) as error:
        load_columns(path)
    assert "secret" not in str(error.value)
    path.write_text("options: {password: secret}\ntime: a\nbroker: b\nmetrics: {a: c}\nnames: x\n")
    with pytest.raises(HistoryError, match="names and values together") as error:
        load_columns(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"time": "tss"}, "time: column 'tss' not found, one of ts, .* did you mean 'ts'"),
        ({"time": "ts"}, "column 'ts' of type bigint found, timestamps, or a unit"),
        ({"time": {"column": "topic", "unit": "ms"}}, "'topic' of type string found, numbers"),
        ({"broker": "topic"}, "broker: column 'topic' of type string found, numbers expected"),
        ({"topic": "broker"}, "topic: column 'broker' of type int found, text expected"),
        ({"metrics": {"size": "topic"}}, "size: column 'topic' of type string found, numbers"),
        ({"metrics": {"size": {}}}, "size: column 'size' not found"),
        ({"cluster": "nowhere"}, "cluster: column 'nowhere' not found"),
        ({"names": "topic", "values": "flag"}, "values: column 'flag' of type boolean found"),
    ],
)
def test_mistakes_about_the_table_are_one_sentence(
    spark: SparkSession, fields: dict[str, Any], problem: str
) -> None:
    table = spark.createDataFrame(
        [], "ts long, broker int, topic string, cpu double, flag boolean, size_kb long"
    )
    with pytest.raises(HistoryError, match=problem):
        read_columns(table, mapping(**fields), "table t")


COLUMNS = {
    "time": {"column": "ts", "unit": "ms"},
    "broker": "broker",
    "topic": "topic",
    "partition": "number",
    "metrics": {"bytes_in": "bytes_in", "bytes_out": "bytes_out", "size": "size", "cpu": "cpu"},
}


@pytest.fixture(scope="module")
def reports(spark: SparkSession) -> DataFrame:
    """Two windows of three brokers and two partitions, as a table of our own."""
    rows: list[tuple[Any, ...]] = []
    for n in range(8):
        at = 1_700_000_100_000 // 300_000 * 300_000 + 60_000 * n
        rows += [(at, b, None, None, None, None, None, 10.0 * b) for b in range(1, 4)]
        rows += [(at, p + 1, "topic-0", p, 100.0 + n, 10.0, 1e6, None) for p in range(2)]
    schema = (
        "ts long, broker int, topic string, number int, bytes_in double, bytes_out double, "
        "size double, cpu double"
    )
    return spark.createDataFrame(rows, schema).coalesce(1)


def test_every_format_has_the_same_records(
    spark: SparkSession, reports: DataFrame, tmp_path: Path
) -> None:
    base = str(tmp_path)
    database = f"jdbc:derby:memory:{tmp_path.name};create=true"
    reports.write.parquet(f"{base}/parquet")
    reports.write.csv(f"{base}/csv", header=True)
    reports.write.format("delta").save(f"{base}/delta")
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", f"{base}/derby.log")
    reports.write.jdbc(database, "reports")
    reports.createOrReplaceTempView("reports")
    options = {"options": {"dbtable": "reports", "fetchsize": 100}}
    given: list[tuple[str, TableFormat | None, dict[str, Any]]] = [
        (f"{base}/parquet", "parquet", {}),
        (f"{base}/csv", "csv", {}),
        (f"{base}/delta", None, {}),
        ("reports", None, {}),
        ("SELECT * FROM reports WHERE broker < 9", None, {}),
        (database, None, options),
    ]
    expected = read_columns(reports, ColumnMapping.model_validate(COLUMNS))
    rows = {r[5:-3] for r in expected.drop("other").collect()}
    assert len(rows) == 40
    found = [
        read_table(
            spark, [path], ColumnMapping.model_validate(COLUMNS | more), format=format, cluster=path
        )
        for path, format, more in given
    ]
    by_path: dict[str, set[Any]] = {}
    for r in reduce(DataFrame.unionByName, found).drop("other").collect():
        by_path.setdefault(r.cluster, set()).add(r[5:-3])
    assert by_path == {path: rows for path, *_ in given}


def run(*words: str | Path, code: int = 0) -> str:
    done = invoke(["history", "prepare", *words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_the_command_reads_a_table_of_text(
    spark: SparkSession, reports: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(records: DataFrame, *_: Any, **__: Any) -> dict[str, dict[str, int]]:
        """Counts the records that the command would prepare."""
        outcome = f.coalesce("problem", f.lit("added"))
        rows = records.groupBy("cluster", outcome).count().collect()
        return {name: {o: n for c, o, n in rows if c == name} for name, *_ in rows}

    monkeypatch.setattr("cluster_model.history.prepare.prepare", counted)
    (tmp_path / "columns.json").write_text(json.dumps(COLUMNS))
    lines = ["ts,broker,topic,number,bytes_in,bytes_out,size,cpu"]
    lines += [",".join("" if x is None else str(x) for x in row) for row in reports.collect()]
    lines += ["soon,1,topic-0,0,1,1,1,", f"{T},1,topic-0,0,much,1,1,"]
    (tmp_path / "reports.csv").write_text("\n".join(lines))
    cluster = synthetic_snapshot(brokers=3, partitions=2, racks=3, topics=1, replication_factor=1)
    save_snapshot(cluster, tmp_path / "cluster.json")
    where = ("--metadata", tmp_path / "cluster.json", "-o", tmp_path / "prepared")
    columns = ("--map", tmp_path / "columns.json")
    said = json.loads(run(tmp_path / "reports.csv", *columns, *where, "--json"))
    assert said["records"] == 42
    assert said["outcomes"] == {"added": 40, "malformed": 2}


def test_mistakes_on_the_command_line(
    spark: SparkSession, reports: DataFrame, tmp_path: Path
) -> None:
    (tmp_path / "columns.json").write_text(json.dumps(COLUMNS))
    save_snapshot(synthetic_snapshot(brokers=3, partitions=2, racks=3), tmp_path / "cluster.json")
    where = ("--metadata", tmp_path / "cluster.json", "-o", tmp_path / "prepared")
    columns = ("--map", tmp_path / "columns.json")
    reports.createOrReplaceTempView("reports")

    def mistake(*words: str | Path) -> str:
        (line,) = run(*words, *where, code=2).splitlines()
        return line

    assert "--format csv found, together with --map" in mistake("a.csv", "--format", "csv")
    assert "found with --format json, one of" in mistake("a", "--format", "json", *columns)
    assert "2 of table found, one expected" in mistake("a", "b", *columns)
    assert "table nowhere: " in mistake("nowhere", *columns)
    assert "query SELECT nonsense: " in mistake("SELECT nonsense", *columns)
    assert "no.csv: no such file or directory" in mistake(tmp_path / "no.csv", *columns)
    assert "delta" in mistake(tmp_path / "no", *columns)
    assert "jdbc:nothing:" in mistake("jdbc:nothing:x;password=secret", *columns)
    assert "secret" not in mistake("jdbc:nothing:x;password=secret", *columns)
    assert "iceberg" in mistake(tmp_path / "no", "--format", "iceberg", *columns)
    (tmp_path / "columns.json").write_text(json.dumps(COLUMNS | {"time": {"column": "when"}}))
    assert "table reports, time: column 'when' not found" in mistake("reports", *columns)
