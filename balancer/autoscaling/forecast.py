"""Forecasts rates some seconds ahead: their level and trend, smoothed (Holt's method)."""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Floats


class Forecast:
    """Level and trend of the rates of partitions.

    Parameters
    ----------
    level_seconds, trend_seconds
        Time over which level and trend are smoothed; 0 takes them as they are measured.

    Examples
    --------
    >>> forecast = Forecast(level_seconds=0, trend_seconds=0)
    >>> forecast.update(np.array([10.0]), now=0, ahead=5).tolist()
    [10.0]
    >>> forecast.update(np.array([12.0]), now=1, ahead=5).tolist()
    [22.0]
    """

    def __init__(self, level_seconds: float, trend_seconds: float) -> None:
        self._level_seconds, self._trend_seconds = level_seconds, trend_seconds
        self._level: Floats | None = None
        self._trend: Floats = np.zeros(0)
        self._at = 0.0

    def update(self, rate: Floats, now: float, ahead: float) -> Floats:
        """(P,) the rates `ahead` seconds from now, given those measured now."""
        if self._level is None or len(self._level) != len(rate):
            self._level, self._trend, self._at = rate, np.zeros(len(rate)), now
            return rate
        passed = now - self._at
        if passed > 0:
            before, self._at = self._level, now
            expected = before + self._trend * passed
            self._level = expected + _weight(passed, self._level_seconds) * (rate - expected)
            slope = (self._level - before) / passed
            self._trend = self._trend + _weight(passed, self._trend_seconds) * (slope - self._trend)
        return np.maximum(self._level + self._trend * ahead, 0.0)


def _weight(passed: float, seconds: float) -> float:
    """Weight of a new value after some seconds."""
    return float(1.0 - np.exp(-passed / seconds)) if seconds > 0 else 1.0
