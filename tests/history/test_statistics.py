"""Statistics of months of loads, compared with those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from cluster_model.history.statistics import DAY_MS, HOUR_MS, load_statistics, one_number

MONDAY = 1_700_438_400_000
SCHEMA = "start_ms long, topic string, partition long, leader array<double>, follower array<double>"
RESOURCES = ("cpu", "disk")


@pytest.fixture(scope="module")
def loads() -> dict[tuple[str, int], np.ndarray]:
    """Of each partition (hours, role, resource); one is known for a single hour."""
    rng = np.random.default_rng(1)
    lengths = {("a", 0): 400, ("a", 1): 30, ("b", 0): 1}
    return {key: rng.gamma(1.0, 5.0, (n, 2, 2)) for key, n in lengths.items()}


def test_statistics_are_those_of_numpy(
    spark: SparkSession, loads: dict[tuple[str, int], np.ndarray]
) -> None:
    rows = [
        (MONDAY + i * HOUR_MS, *key, *x.tolist())
        for key, of in loads.items()
        for i, x in enumerate(of)
    ]
    # Of this one, half of the loads of one kind are not known, and none of the other.
    half = [(MONDAY + i * HOUR_MS, "c", 0, [float(i) if i % 2 else None, None], [1.0, 2.0])
            for i in range(10)]  # fmt: skip
    table = spark.createDataFrame(rows[::-1] + half, SCHEMA).repartition(3)
    found = load_statistics(table.where("topic != 'c'"), RESOURCES).collect()
    assert len(found) == len(loads) * 4
    for row in found:
        series = loads[row.topic, row.partition]
        x = series[:, ("leader", "follower").index(row.role), RESOURCES.index(row.resource)]
        assert row.windows == len(x)
        np.testing.assert_allclose(row["mean"], x.mean())
        quantiles = [row.p50, row.p90, row.p95, row.p99, row.peak]
        np.testing.assert_allclose(quantiles, np.percentile(x, [50, 90, 95, 99, 100]))
        slope = np.polyfit(np.arange(len(x)) * HOUR_MS / DAY_MS, x, 1)[0] if len(x) > 1 else 0.0
        np.testing.assert_allclose(row.trend, slope, rtol=1e-6)
        for hour, mean in enumerate(row.profile):
            of_hour = x[hour::168]
            assert (mean is None) == (not len(of_hour))
            if len(of_hour):
                np.testing.assert_allclose(mean, of_hour.mean())

    known = {r.resource: r for r in load_statistics(table.where("topic = 'c'"), RESOURCES).collect()
             if r.role == "leader"}  # fmt: skip
    cpu, disk = known["cpu"], known["disk"]
    assert [cpu.windows, cpu["mean"], cpu.p50, cpu.peak] == [5, 5.0, 5.0, 9.0]
    assert disk.windows == 0
    assert [disk["mean"], disk.p95, disk.peak, disk.trend] == [None] * 4

    p95 = {(r.topic, r.partition): r for r in one_number(table, 2, "p95").collect()}
    for key, of in loads.items():
        got = [p95[key].leader, p95[key].follower]
        np.testing.assert_allclose(got, np.percentile(of, 95, axis=0))
    np.testing.assert_allclose(p95["c", 0].leader[0], np.percentile([1, 3, 5, 7, 9], 95))
    assert p95["c", 0].leader[1] is None
    peak = {(r.topic, r.partition): r.leader for r in one_number(table, 2, "peak").collect()}
    assert peak["c", 0] == [9.0, None]
