"""Forecasts recover a known rhythm and trend, and state the errors that they made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cluster_model.history.errors import HistoryError
from cluster_model.history.forecast import forecast_loads, predict
from cluster_model.history.statistics import HOUR_MS

MONDAY = 1_700_438_400_000
FIRST = MONDAY // HOUR_MS
SCHEMA = "start_ms long, topic string, partition long, leader array<double>, follower array<double>"


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 24, 168]),
    st.integers(0, 500),
    st.floats(0, 0.5),
    st.floats(0, 0.3),
)
def test_a_pattern_with_a_line_is_continued_exactly(
    seed: int, cycle: int, begin: int, slope: float, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    pattern = rng.uniform(10, 20, (2, cycle, 3))
    hours = np.arange(begin, begin + 4 * max(cycle, 24))
    true = pattern[:, hours % cycle] + slope * (hours - begin)[None, :, None] / 24
    known, later = true[:, :-30].copy(), true[:, -30:]
    # Of each place in the pattern at least the first two are known.
    known[:, 2 * max(cycle, 24) :][rng.random(known[:, 2 * max(cycle, 24) :].shape) < missing] = (
        np.nan
    )
    np.testing.assert_allclose(predict(known, begin, hours[-30:]), later, rtol=1e-6)


def test_what_is_hardly_known_is_forecast_by_its_mean() -> None:
    series = np.full((2, 30, 1), np.nan)
    series[0, 3:5, 0] = 2.0, 4.0
    found = predict(series, FIRST, np.array([FIRST + 40]))
    assert found[0, 0, 0] == 3.0
    assert np.isnan(found[1, 0, 0])


def test_forecasts_are_never_below_zero() -> None:
    falling = np.linspace(100.0, 0.0, 96)[None, :, None]
    assert predict(falling, FIRST, np.array([FIRST + 500])).tolist() == [[[0.0]]]


def test_the_week_ahead_and_the_error_of_the_last_one(spark: SparkSession) -> None:
    hours = np.arange(4 * 168)
    weekly = np.random.default_rng(2).uniform(50, 100, 168)
    rhythm = weekly[hours % 168] + hours / 24
    halves = [
        (MONDAY + int(h) * HOUR_MS + half, "a", p, [float(x) * (p + 1) + d, 1.0], [0.0, 2.0])
        for h, x in zip(hours, rhythm, strict=True)
        for p in range(3)
        for half, d in ((0, -3.0), (HOUR_MS // 2, 3.0))
    ]
    loads = spark.createDataFrame(halves, SCHEMA)
    end = MONDAY + len(hours) * HOUR_MS
    found = forecast_loads(loads, ("cpu", "disk"), (MONDAY, end), 168 * HOUR_MS)
    assert found.topic == ("a", "a", "a")
    assert found.partition.tolist() == [0, 1, 2]
    ahead = weekly + (len(hours) + np.arange(168)) / 24
    np.testing.assert_allclose(found.leader[:, 0], ahead.max() * np.array([1, 2, 3]))
    np.testing.assert_allclose(found.leader[:, 1], 1.0)
    np.testing.assert_allclose(found.follower, [[0.0, 2.0]] * 3, atol=1e-9)
    cpu, disk = found.errors
    assert (cpu.hours, cpu.resource) == (168, "cpu")
    assert cpu.wape < 1e-9
    late, early = rhythm[-168:], rhythm[:-168]
    np.testing.assert_allclose(cpu.wape_of_mean, np.abs(early.mean() - late).sum() / late.sum())
    assert disk.wape < 1e-9

    with pytest.raises(HistoryError, match="no loads between"):
        forecast_loads(loads.limit(0), ("cpu", "disk"), (MONDAY, end), HOUR_MS)
