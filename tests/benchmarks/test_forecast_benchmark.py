"""The benchmark of forecasts has a row for each family and figure, equal for equal seeds."""

from __future__ import annotations

import pytest

from benchmarks.forecast import FAMILIES, drawn, forecast
from benchmarks.registry import BenchmarkError, Options


def test_rows_tell_errors_and_their_spread() -> None:
    options = Options(subjects=("step",), log=lambda sentence: None)
    rows = list(forecast(["S"], options))
    found = {row.metric: row.value for row in rows if row.subject == "step"}
    for what in ("hours", "peaks"):
        least, most = (found[f"ratio of {what}, {end}"] for end in ("least", "largest"))
        assert 0 < least <= found[f"ratio of {what}"] <= most < 1.5
    assert [row.metric for row in rows if row.subject == "all"] == ["processor seconds per series"]


def test_series_depend_on_the_seed_alone() -> None:
    for family in FAMILIES:
        one, other, third = (drawn(family, 3, seed)[0] for seed in (1, 1, 2))
        assert one.tobytes() == other.tobytes() != third.tobytes()


def test_an_unknown_family_is_reported() -> None:
    with pytest.raises(BenchmarkError, match="no subject 'tides'; there are season"):
        list(forecast(["S"], Options(subjects=("tides",))))
