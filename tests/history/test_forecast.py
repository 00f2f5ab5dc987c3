"""Forecasts on Spark recover a known rhythm, in local time, and state the errors they made."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from cluster_model.history.errors import HistoryError
from cluster_model.history.forecast import Calendar, Forecast, forecast_loads
from cluster_model.history.smoothing import BASELINES, ForecastParameters
from cluster_model.history.statistics import HOUR_MS

MONDAY = 1_700_438_400_000
FIRST = MONDAY // HOUR_MS
SCHEMA = "start_ms long, topic string, partition long, leader array<double>, follower array<double>"


def same(one: Forecast, other: Forecast) -> None:
    assert one.topic == other.topic
    for name in ("partition", "leader", "follower", "leader_low", "leader_high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [repr(e) for e in one.errors] == [repr(e) for e in other.errors]


def test_the_week_ahead_and_the_error_of_the_last_one(spark: SparkSession) -> None:
    hours = np.arange(4 * 168)
    weekly = np.random.default_rng(2).uniform(50, 100, 168)
    rhythm = weekly[hours % 168]
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
    np.testing.assert_allclose(found.leader[:, 0], weekly.max() * np.array([1, 2, 3]))
    np.testing.assert_allclose(found.leader_low[:, 0], found.leader[:, 0])
    np.testing.assert_allclose(found.leader[:, 1], 1.0)
    np.testing.assert_allclose(found.follower, [[0.0, 2.0]] * 3, atol=1e-9)
    cpu, disk = found.errors
    assert (cpu.hours, cpu.resource) == (20 * 24, "cpu")
    assert cpu.wape < 1e-9
    assert cpu.methods == {"weekly": "last week"} or cpu.methods["weekly"].startswith("weekly")
    assert set(cpu.baselines) == set(cpu.baselines_of_peaks) == set(BASELINES)
    assert cpu.baselines["yesterday"] > 0.1
    assert cpu.baselines["last week"] < 1e-9
    assert disk.wape < 1e-9

    width = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        again = forecast_loads(loads, ("cpu", "disk"), (MONDAY, end), 168 * HOUR_MS)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(width))
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    same(found, again)

    with pytest.raises(HistoryError, match="no loads between"):
        forecast_loads(loads.limit(0), ("cpu", "disk"), (MONDAY, end), HOUR_MS)


def test_days_are_those_of_the_time_zone() -> None:
    """Clocks in Berlin go forward on 26 March 2023, and back on 29 October."""
    berlin = ForecastParameters(time_zone="Europe/Berlin")
    for sunday, offset in ((1_679_788_800_000, 1), (1_698_537_600_000, -1)):
        calendar = Calendar.of(berlin, (sunday - 24 * HOUR_MS, sunday + 24 * HOUR_MS))
        steps = np.diff(calendar.place)
        assert steps.sum() == 47 + offset
        # the hour from 02:00 is skipped in March, and is there twice in October
        assert steps[23 + 1] == 1 + offset
        assert not calendar.holiday.any()


def test_holidays_are_those_of_the_time_zone() -> None:
    christmas = ForecastParameters(time_zone="Asia/Tokyo", holidays=(date(2023, 12, 25),))
    first = 1_703_376_000_000  # 24 December, 00:00 UTC
    calendar = Calendar.of(christmas, (first, first + 72 * HOUR_MS))
    np.testing.assert_array_equal(np.flatnonzero(calendar.holiday), np.arange(15, 39))


def test_only_the_last_days_are_learned_from() -> None:
    calendar = Calendar.of(ForecastParameters(days=7), (MONDAY, MONDAY + 90 * 24 * HOUR_MS))
    assert calendar.end - calendar.first == 7 * 24


def test_an_unknown_time_zone_is_one_sentence() -> None:
    for zone in ("Mars/Olympus", "", "../etc/passwd"):
        parameters = replace(ForecastParameters(), time_zone=zone)
        with pytest.raises(HistoryError, match="a name such as UTC or Europe/Berlin expected"):
            Calendar.of(parameters, (MONDAY, MONDAY + HOUR_MS))


def test_absurd_times_are_one_sentence() -> None:
    end = 253_402_300_799_000
    with pytest.raises(HistoryError, match="a time in the years 1 to 9999 expected"):
        Calendar.of(ForecastParameters(time_zone="Asia/Tokyo"), (end - 7_200_000, end))
    nothing: Any = None
    with pytest.raises(HistoryError, match=r"horizon of 1e\+10 days found, at most 3650"):
        forecast_loads(nothing, ("cpu",), (0, 10**9), 10**10 * 86_400_000)
