"""What Spark does in each step: shuffles, joins, windows, Python. The rest of a plan may change.

`plans.txt` has the outline of each, from the result down to what is read. If one differs, look
whether the new one is meant: another shuffle or join costs more than most changes of the code gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from test_history_windows import snapshot

from cluster_model.history import schema, windows
from cluster_model.history.clean import judge
from cluster_model.history.cpu import CpuClass, CpuModel, broker_traffic
from cluster_model.history.delta import configured
from cluster_model.history.loads import window_loads
from cluster_model.history.metadata import MetadataLog
from cluster_model.history.screening import MetadataTables
from cluster_model.history.statistics import load_statistics, one_number, ordered
from cluster_model.history.traffic import traffic_rates, traffic_sums
from cluster_model.history.window_sums import broker_sums, further_sums, partition_sums, sizes

GOLDEN = Path(__file__).with_name("plans.txt")
KEPT = re.compile(
    r"^[\s:+-]*(?:\*\(\d+\) )?"
    r"(Exchange|BroadcastExchange|Window|CartesianProduct|\w*(?:Join|Python|Arrow)\w*) ?(.*)"
)
# Windows and samples of every step.
SPAN = {"window_ms": 1000, "first_ms": 0, "end_ms": 9000}


def outline(table: DataFrame) -> list[str]:
    """Operators of the physical plan that move rows, hold many, or leave Java."""
    plan = table._jdf.queryExecution().executedPlan().toString()
    found = []
    for line in plan.splitlines():
        match = KEPT.match(line)
        if match is None:
            continue
        name, rest = match.groups()
        keys = re.sub(r"_w\d+|_groupingexpression", "expression", re.sub(r"#\d+L?", "", rest))
        shuffle = re.match(r"(?:hash|range)partitioning\((.*), \d+\)", keys)
        kind = re.search(r"\b(Inner|Left\w+|Right\w+|FullOuter|Cross)\b", keys)
        if name == "Exchange":
            found.append(f"shuffle by {shuffle[1]}" if shuffle else "shuffle into one")
        elif name == "BroadcastExchange":
            found.append("broadcast")
        elif "Join" in name:
            found.append(f"{name} {kind[1] if kind else ''}".rstrip())
        else:
            found.append(name)
    return found


def steps(spark: SparkSession) -> Iterator[tuple[str, DataFrame]]:
    """Each step on tables of its own, of which Spark knows no size, whatever others keep."""

    def table(kind: StructType) -> DataFrame:
        return spark.createDataFrame(spark.sparkContext.emptyRDD(), kind)

    metadata = MetadataTables(*map(table, (schema.PLACEMENTS, schema.BROKERS, schema.TOPICS)))
    records = table(schema.RECORDS)
    judged = judge(records, metadata, window_ms=1000, windows=5, further=["requests"])
    yield "judge: arrivals", judged.arrivals
    for name in ("rated", "settled", "brokers"):
        kept: Any = {name: table(getattr(judged, name).schema)}
        yield f"judge: {name}", getattr(judged, name)
        # The steps after it read a table.
        judged = replace(judged, **kept)
    yield "partition sums", partition_sums(judged.rated)
    yield "broker sums", broker_sums(judged.brokers)
    yield "further sums", further_sums(judged)
    yield "sizes", sizes(judged.partitions)
    yield "traffic sums", traffic_sums(records, judged.rated, 1000)
    yield "outcomes", judged.outcomes
    sums = table(schema.PARTITION_SUMS)
    yield "windows", windows.windows(sums, **SPAN)
    attributed = windows.attributed_windows(sums, **SPAN)
    yield "windows by broker, in order", ordered(attributed)
    led = windows.led_of(table(attributed.schema))
    placements = metadata.placements
    yield "traffic of brokers", broker_traffic(led, placements, 1000)
    of_brokers = table(schema.BROKER_SUMS)
    yield "windows of brokers", windows.broker_windows(of_brokers, **SPAN)
    reported = table(schema.SIZES)
    yield "newest sizes", windows.newest_sizes(reported)
    cpu = CpuModel((CpuClass((0, 1), 1.0, 1.0, 1.0),))
    cluster = MetadataLog.of(snapshot(1)).at(0)
    rates = table(schema.WINDOWS)
    loads = window_loads(rates, reported, placements, cpu, cluster, 1000)
    yield "loads", loads
    loads = table(loads.schema)
    yield "mean of loads", one_number(loads, 4, "mean")
    yield "p95 of loads", one_number(loads, 4, "p95")
    yield "statistics of loads", load_statistics(loads, cluster.resources)
    yield "p95 of traffic", traffic_rates(table(schema.TRAFFIC), "p95")


def test_the_outline_of_every_plan(spark: SparkSession) -> None:
    # As Spark has it by default: no part of a plan stands for an equal one.
    with configured(spark, {"spark.sql.adaptive.enabled": "true"}):
        found = "\n".join(
            "\n".join([name, *(f"    {line}" for line in outline(step))])
            for name, step in steps(spark)
        )
    assert f"{found}\n" == GOLDEN.read_text()
