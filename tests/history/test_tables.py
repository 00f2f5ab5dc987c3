"""Tables for other tools hold what was computed, once, whatever is repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from balancer.backtest import Advice
from balancer.backtest.advice import Size, Tried
from balancer.backtest.growth import ResourceGrowth
from balancer.backtest.judge import WindowFigures
from balancer.backtest.replay import Event
from balancer.backtest.result import BacktestResult, DecidedRound, JudgedWindow
from balancer.backtest.tables import tables, write_advice
from cluster_model import synthetic_snapshot
from cluster_model.history.errors import HistoryError
from cluster_model.history.forecast import Forecast, ForecastError
from cluster_model.history.tables import (
    BROKER_LOADS,
    FORECAST_ERRORS,
    FORECASTS,
    REPLICA_LOADS,
    OutputFormat,
    TableWriter,
    write_forecast,
    write_snapshot,
)

AT = 1_700_006_400_000
KEY = {"cluster": "c", "at_ms": AT}
CLUSTER = synthetic_snapshot(brokers=3, partitions=4, racks=3, topics=2, replication_factor=2)


@pytest.mark.parametrize("form", ["delta", "parquet", "catalog"])
def test_a_snapshot_is_read_back(spark: SparkSession, tmp_path: Path, form: str) -> None:
    place, format = f"{tmp_path}/out", "parquet" if form == "parquet" else "delta"
    if form == "catalog":
        place = "loads_of_test"
        spark.sql(f"CREATE SCHEMA {place} LOCATION '{tmp_path}'")
    writer = TableWriter(spark, place, "parquet" if form == "parquet" else "delta")
    try:
        if form == "delta":
            write_snapshot(writer, CLUSTER, {**KEY, "statistic": "mean"}, AT, "mean")
        for snapshot in (replace(CLUSTER, leader_load=2 * CLUSTER.leader_load), CLUSTER):
            write_snapshot(writer, snapshot, KEY, AT, "p95")
        read = {
            table.name: spark.table(f"{place}.{table.name}")
            if form == "catalog"
            else spark.read.format(format).load(f"{place}/{table.name}")
            for table in (REPLICA_LOADS, BROKER_LOADS)
        }
        rows = {name: frame.where("statistic = 'p95'").collect() for name, frame in read.items()}
        kinds = {name: dict(frame.dtypes) for name, frame in read.items()}
        runs = read["broker_loads"].select("run").distinct().count()
    finally:
        if form == "catalog":
            spark.sql(f"DROP SCHEMA {place} CASCADE")
    s = CLUSTER
    assert runs == 1 + (form == "delta")
    assert kinds["replica_loads"] == {k.name: k.dataType.simpleString() for k in REPLICA_LOADS[2]}
    assert len(rows["replica_loads"]) == s.n_replicas * len(s.resources)
    loads = s.broker_load()
    for row in rows["broker_loads"]:
        b, r = s.broker_ids.tolist().index(int(row.broker)), s.resource(row.resource)
        assert row.load == pytest.approx(loads[b, r])
        assert row.share == pytest.approx(loads[b, r] / s.capacity[b, r])
        assert (row.rack, row.state) == (s.racks[s.broker_rack[b]], "alive")
        own = [
            x for x in rows["replica_loads"] if (x.broker, x.resource) == (row.broker, row.resource)
        ]
        assert sum(x.load for x in own) == pytest.approx(row.load)
    leaders = [x for x in rows["replica_loads"] if x.leader and x.resource == "disk"]
    assert len(leaders) == s.n_partitions
    assert {x.unit for x in leaders} == {"B"}
    assert {x.at.timestamp() for x in leaders} == {AT / 1000}


def test_a_forecast_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    values = np.array([[1.0, np.nan]])
    error = ForecastError("cpu", 24, 0.1, float("nan"), {"mean": 0.3}, {"mean": 0.4}, {})
    forecast = Forecast(("a",), np.array([3]), values, values, values, 2 * values, (error,))
    writer = TableWriter(spark, f"{tmp_path}/out")
    write_forecast(writer, forecast, ("cpu", "disk"), KEY, AT, 86_400_000)
    found = spark.read.format("delta").load(f"{tmp_path}/out/forecasts")
    comments = {k.name: k.metadata.get("comment") for k in found.schema}
    assert comments == {k.name: k.metadata["comment"] for k in FORECASTS.schema}
    of = {r.resource: (r.partition, r.leader_load, r.leader_high) for r in found.collect()}
    assert of == {"cpu": (3, 1.0, 2.0), "disk": (3, None, None)}
    errors = spark.read.format("delta").load(f"{tmp_path}/out/forecast_errors").collect()
    said = {(r.method, r.error_of_hours, r.error_of_peaks) for r in errors}
    assert said == {("chosen", 0.1, None), ("mean", 0.3, 0.4)}
    assert len(errors) == 2


def test_advice_and_its_backtest_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    figures = WindowFigures(1.0, 2, 1, 3, 90.0, 0.9, 2, "cpu", 1.5, 1, 5.0)
    result = BacktestResult(
        ("history", "calm"), AT, AT + 3_600_000, 3_600_000, 0.8, 1.0,
        tuple(JudgedWindow(name, AT, figures) for name in ("history", "calm")),
        (DecidedRound("calm", Event(AT, "started", "because", 2, 1e9)),),
    )  # fmt: skip
    growth = ResourceGrowth("disk", 10.0, 5.0, 0.1, 0.0, 0.2, 6.0, 7.0, 30.0, 20.0, None)
    tried = (Tried("calm", 1.0, 2.0, 1e9, None), Tried("history", 3.0, 0.0, 0.0, None))
    sizes = (Size("expected", 0.3, 3, None, "not found"),)
    advice = Advice(result, tried, "calm", AT, (growth,), sizes, ())
    writer = TableWriter(spark, f"{tmp_path}/out", "parquet")
    write_advice(writer, advice, KEY)
    read: dict[str, list[Any]] = {}
    for table in tables():
        frame = spark.read.parquet(f"{tmp_path}/out/{table.name}")
        assert set(frame.columns) == set(table.schema.names)
        read[table.name] = frame.collect()
    counts = {name: len(rows) for name, rows in read.items()}
    assert counts == {
        "backtest_totals": 2, "backtest_windows": 2, "backtest_moves": 0,
        "advice_configurations": 2, "advice_growth": 1, "advice_sizes": 1,
    }  # fmt: skip
    (row,) = read["advice_growth"]
    assert (row.unit, row.growth_per_day, row.runs_out, row.runs_out_latest) == (
        "B", 0.1, "2023-12-15", None
    )  # fmt: skip
    assert {r.configuration: r.recommended for r in read["advice_configurations"]} == {
        "calm": True, "history": False
    }  # fmt: skip
    assert {r.bytes_moved for r in read["backtest_totals"]} == {0.0, 1e9}
    assert {(r.copying, r.worst_resource) for r in read["backtest_windows"]} == {(5.0, "cpu")}


def test_mistakes_are_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"parquet in a catalog found, a directory \(with /\)"):
        TableWriter(spark, "lake.loads", "parquet")
    with pytest.raises(HistoryError, match=r"table nowhere, forecast_errors: .*nowhere"):
        TableWriter(spark, "nowhere").write(FORECAST_ERRORS, KEY, [])
    formats: tuple[OutputFormat, ...] = ("delta", "parquet")
    (tmp_path / "forecast_errors").write_text("a file")
    for format in formats:
        with pytest.raises(HistoryError, match=f"table {tmp_path}, forecast_errors: "):
            TableWriter(spark, str(tmp_path), format).write(FORECAST_ERRORS, KEY, [])
