"""Series are forecast by the method that fits their kind: never much worse than a baseline."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.forecast import FAMILIES, compared, drawn, errors
from cluster_model.history.forecast import whole_halves
from cluster_model.history.smoothing import (
    BASELINES,
    CLASSES,
    METHODS,
    Backtested,
    Days,
    ForecastParameters,
)
from cluster_model.snapshot import Floats


def methods(
    series: Floats, ahead: int, parameters: ForecastParameters | None = None
) -> dict[str, Backtested]:
    days = Days(series, ahead, parameters or ForecastParameters())
    return {name: days.judged(found) for name, found in days.methods()}


@cache
def of_seeds() -> tuple[dict[str, dict[str, tuple[float, float]]], ...]:
    return tuple(errors(40, seed) for seed in range(4))


@pytest.mark.parametrize("target", [0, 1], ids=["hours", "peaks"])
def test_no_family_is_much_worse_than_its_best_baseline_and_most_are_better(target: int) -> None:
    ratios = {}
    for family in FAMILIES:
        _, best, own = compared(of_seeds(), family, target)
        ratios[family] = own / best
    assert len(ratios) == 10
    assert max(ratios.values()) <= 1.05, ratios
    assert sum(ratio < 1 for ratio in ratios.values()) >= 6, ratios


def test_there_is_a_forecast_by_every_method() -> None:
    past, _ = drawn("season", 3, 0)
    found = methods(past, 30)
    assert tuple(found) == METHODS
    for of in found.values():
        assert of.hours.shape == (3, 30, 1)
        assert np.isfinite(of.hours).all()
        assert (of.low <= of.peak).all()
        assert (of.peak <= of.high).all()


def test_a_pattern_of_the_week_is_continued() -> None:
    week = np.random.default_rng(3).uniform(10, 20, (2, 168, 3))
    series = np.tile(week, (1, 5, 1))
    for ahead in (24, 30, 168, 400):
        found = methods(series, ahead)["weekly, week"]
        expected = np.tile(week, (1, 3, 1))[:, :ahead]
        np.testing.assert_allclose(found.hours, expected, rtol=1e-9)
        np.testing.assert_allclose(found.peak, expected.max(axis=1), rtol=1e-9)


def test_a_line_is_continued_and_damped() -> None:
    line = np.arange(28 * 24)[None, :, None] / 24 + 100.0
    found = methods(line, 24 * 10, ForecastParameters(damping=1.0))["flat, trend"].hours[0, :, 0]
    middle = 128.0 + np.arange(10) + 0.5 - 1 / 48
    np.testing.assert_allclose(found[::24], middle, rtol=1e-3)
    damped = methods(line, 24 * 10)["flat, trend"].hours[0, :, 0]
    assert (damped[24::24] < found[24::24]).all()
    assert (np.diff(damped[::24]) > 0).all()


def test_a_step_two_days_ago_is_believed() -> None:
    past, after = drawn("step", 50, 7)
    days = Days(past, 24, ForecastParameters())
    assert (days.classes() == CLASSES.index("stepped")).mean() > 0.9
    own = np.abs(methods(past, 24)["daily, now"].hours - after).sum() / after.sum()
    mean = np.abs(methods(past, 24)["mean"].hours - after).sum() / after.sum()
    assert own < 0.15 < mean


def test_the_interval_holds_as_many_peaks_as_it_says() -> None:
    held = []
    for seed in range(3):
        past, after = zip(*(drawn(name, 40, seed) for name in FAMILIES), strict=True)
        came = np.concatenate(after).max(axis=1)
        found = methods(np.concatenate(past), 24)["daily, day"]
        held.append((found.low <= came) & (came <= found.high))
    assert 0.7 < np.mean(held) < 0.9


@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(1, 60), st.floats(0, 1))
def test_anything_known_gives_a_finite_forecast(
    seed: int, hours: int, ahead: int, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    series = rng.lognormal(0, 1, (3, hours, 2)) * rng.integers(0, 2, (3, 1, 2))
    series[rng.random(series.shape) < missing] = np.nan
    known = (~np.isnan(series)).any(axis=1)
    for name, of in methods(series, ahead).items():
        assert (np.isfinite(of.peak) == known).all(), name
        assert (of.peak[known] >= 0).all()
    days = Days(series, ahead, ForecastParameters())
    assert ((days.classes() == CLASSES.index("unknown")) == ~known).all()


def test_a_correction_knows_no_peak_that_was_still_to_come() -> None:
    series = np.ones((1, 240, 1))
    # the first of the two days ahead of the last origin, and the second ahead of that before
    series[0, 192:216] = 4.0
    found = methods(series, 48, ForecastParameters(origins=2))["flat, day"]
    assert found.wrong_peak[0, 0] == pytest.approx(2 * (4.0 - 1.0))


def test_baselines_are_what_they_are_called() -> None:
    series = np.random.default_rng(0).uniform(0, 9, (1, 240, 1))
    found = {name: of.hours[0, :, 0] for name, of in methods(series, 24).items()}
    past = series[0, :, 0]
    assert {*BASELINES} <= {*found}
    np.testing.assert_allclose(found["mean"], past.mean())
    np.testing.assert_allclose(found["yesterday"], past[-24:])
    np.testing.assert_allclose(found["last week"], past[-168:-144])
    np.testing.assert_allclose(found["yesterday's peak"], past[-24:].max())


@pytest.mark.parametrize("ahead", [1, 24, 30, 14 * 24])
def test_one_reading_makes_no_forecast_absurd(ahead: int) -> None:
    """At most ten times the largest hour, whatever a method makes of it."""
    parameters = ForecastParameters()
    series = np.ones((1, 28 * 24, 1))
    series[0, 400] = 1e18
    days = Days(series, ahead, parameters)
    for name, forecasts in days.methods():
        found = days.judged(forecasts)
        for value in (found.hours, found.peak, found.low, found.high):
            assert np.isfinite(value).all(), name
            assert (value <= parameters.most * 1e18).all(), name
        assert (found.low <= found.peak).all(), name
        assert (found.peak <= found.high).all(), name


def test_sums_of_large_loads_are_exact_in_any_order() -> None:
    """Of 10,000 partitions of 10 TB, over the hours of two weeks of tests."""
    values = np.random.default_rng(1).uniform(0.9, 1.1, 10_000) * 1e13 * 14 * 24
    high, low = (part.sum() for part in whole_halves(values))
    exact = sum(round(v * 1024) for v in values.tolist())
    assert abs(int(high) * 2**31 + int(low) - exact) <= len(values)
    assert low < 2**63 - 1
    shuffled = np.random.default_rng(2).permutation(values)
    assert [part.sum() for part in whole_halves(shuffled)] == [high, low]
