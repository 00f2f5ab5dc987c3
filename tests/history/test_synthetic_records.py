"""Synthetic months: the requested rhythm, the same rows for any number of tasks, and added dirt."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cluster_model import synthetic_snapshot
from cluster_model.history.schema import RECORDS
from cluster_model.history.synthetic import (
    DAY_MS,
    HOUR_MS,
    NO_TOPIC,
    START_MS,
    SyntheticError,
    TrafficPattern,
    default_cpu_cost,
    phases,
    synthetic_records,
)

CLUSTER = synthetic_snapshot(brokers=4, partitions=40, topics=5, racks=2, replication_factor=2)


@given(st.floats(0, 10), st.floats(-0.5, 0.5))
def test_a_day_has_mean_one_and_its_peak_at_its_phase(sharpness: float, phase: float) -> None:
    times = START_MS + np.arange(0, DAY_MS, 60_000)
    factor = TrafficPattern(sharpness=sharpness).factor(times, phase, START_MS)
    assert factor.mean() == pytest.approx(1.0)
    assert factor.max() == pytest.approx(np.exp(sharpness) / np.i0(sharpness), rel=1e-3)
    if sharpness > 0.1:
        assert (times[factor.argmax()] - START_MS) / DAY_MS == pytest.approx(
            (0.5 + phase) % 1, abs=0.002
        ) or abs(phase) > 0.499


def test_weekends_growth_and_peaks_of_topics() -> None:
    traffic = TrafficPattern(sharpness=0.0, weekend=0.5, growth=0.1)
    noon = START_MS + DAY_MS // 2 + np.arange(7) * DAY_MS
    grown = 1 + 0.1 * (np.arange(7) + 0.5)
    np.testing.assert_allclose(
        traffic.factor(noon, 0.0, START_MS), grown * [1, 1, 1, 1, 1, 0.5, 0.5]
    )
    together = phases(CLUSTER, TrafficPattern(spread=0.0))
    apart = phases(CLUSTER, TrafficPattern(spread=1.0))
    assert not together.any()
    assert len(set(apart.tolist())) == len(CLUSTER.topics)


def test_equal_arguments_give_equal_rows_and_dirt_stands_beside_them(spark: SparkSession) -> None:
    cluster = dataclasses.replace(
        CLUSTER,
        traffic_from=np.array([0, 0, 3]),
        traffic_to=np.array([1, 2, 4]),
        traffic_rate=np.array([10.0, 20.0, 30.0]),
    )
    asked: dict[str, Any] = {
        "intervals": 12,
        "start_ms": START_MS + 7 * HOUR_MS,
        "traffic": TrafficPattern(sharpness=2.0, noise=0.1),
        "seed": 3,
    }
    clean = synthetic_records(spark, cluster, **asked, tasks=2)
    assert clean.columns == RECORDS.names
    key = ["time_ms", "broker", "topic", "partition"]
    dirt: dict[str, Any] = {"dirt": 0.1, "disorder": 0.2}
    one, other, alone = (
        d.toArrow().to_pandas().sort_values(["source_offset", "batch"]).reset_index(drop=True)
        for d in (
            synthetic_records(spark, cluster, **asked, **dirt, tasks=1),
            synthetic_records(spark, cluster, **asked, **dirt, tasks=5),
            clean,
        )
    )
    assert one.drop(columns="other").equals(other.drop(columns="other"))
    assert one["other"].tolist() == other["other"].tolist()
    # What is clean is all there; of it some come again, and some others could never be.
    assert len(alone) == 12 * (4 + 80) == len(alone.drop_duplicates(key))
    values = [*key, "bytes_in", "bytes_out", "size", "cpu"]
    kept = one.merge(alone[values], on=values)
    assert len(kept.drop_duplicates(values)) == len(alone)
    again = len(kept) - len(alone)
    extra = one[~one["time_ms"].isin(alone["time_ms"])]
    ahead, behind = (extra["time_ms"] > extra["arrived_ms"]), (extra["time_ms"] < START_MS)
    negative = (one[["bytes_in", "bytes_out", "size", "cpu"]] < 0).any(axis=1)
    elsewhere = (one["topic"] == NO_TOPIC) | (one["broker"] == 5)
    counts = [again, ahead.sum(), behind.sum(), negative.sum(), elsewhere.sum()]
    assert len(one) - len(alone) == sum(counts)
    assert all(0.05 < n / len(alone) < 0.15 for n in counts)
    own = one["time_ms"] // 60_000
    lag = (one["batch"] - own)[one["time_ms"].isin(alone["time_ms"])]
    assert set(lag) == {0, 1, 2, 3, 4}

    # Brokers report the sums of what they hold, and the cpu that this costs.
    at = alone[alone["time_ms"] == alone["time_ms"].max()]
    brokers = at[at["partition"] < 0].set_index("broker").sort_index()
    leaders = at[at["bytes_in"].notna() & (at["partition"] >= 0)]
    np.testing.assert_allclose(brokers["bytes_in"], leaders.groupby("broker")["bytes_in"].sum())
    assert brokers["replication_bytes_in"].sum() == pytest.approx(leaders["bytes_in"].sum())
    constant, *price = default_cpu_cost(cluster)
    assert constant == 0
    out = brokers["bytes_out"] + brokers["replication_bytes_out"]
    carried = np.column_stack([brokers["bytes_in"], out, brokers["replication_bytes_in"]])
    np.testing.assert_allclose(brokers["cpu"], carried @ price)
    reported = [dict(other) for other in at["other"] if len(other)]
    assert sorted(map(len, reported)) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"intervals": 0}, "intervals: 0 found, at least 1 expected"),
        ({"start_ms": 5}, "start_ms: 5 found, a multiple of 60000"),
        ({"dirt": 1.5}, "dirt: 1.5 found, a share of 0 to 1 expected"),
        ({"traffic": TrafficPattern(sharpness=-1)}, "sharpness: -1 found"),
    ],
)
def test_what_cannot_be_invented_is_reported(
    spark: SparkSession, arguments: dict[str, Any], found: str
) -> None:
    with pytest.raises(SyntheticError, match=found):
        synthetic_records(spark, CLUSTER, **{"intervals": 1, **arguments})
