"""Forecasts rates some seconds ahead: their level and trend, smoothed (Holt's method).

A trend counts only as far as it stands out from the noise of the rates, and rates that exceed their
forecasts by much more than that are a step, which is believed at once.
"""

from __future__ import annotations

import numpy as np

from cluster_model.snapshot import Floats


class Forecast:
    """Level and trend of the rates of partitions.

    Parameters
    ----------
    level_seconds, trend_seconds
        Time over which level and trend are smoothed; 0 takes them as they are measured.
    noise_seconds
        Time over which the errors of the forecasts are averaged.
    significance
        Standard deviations below which a trend is taken for noise.
    step
        Standard deviations, less one each time, by which rates have exceeded forecasts when that is
        a step: the level is then what was measured, and the trend stays.

    Examples
    --------
    >>> forecast = Forecast(0, 0, noise_seconds=0, significance=0, step=6)
    >>> forecast.update(np.array([10.0]), now=0, ahead=5).tolist()
    [10.0]
    >>> forecast.update(np.array([12.0]), now=1, ahead=5).tolist()
    [22.0]
    """

    def __init__(
        self,
        level_seconds: float,
        trend_seconds: float,
        *,
        noise_seconds: float,
        significance: float,
        step: float,
    ) -> None:
        self._level_seconds, self._trend_seconds = level_seconds, trend_seconds
        self._noise_seconds, self._significance = noise_seconds, significance
        self._step = step
        self._level: Floats | None = None
        self._trend: Floats = np.zeros(0)
        # mean square of the errors of the forecasts
        self._noise: Floats = np.zeros(0)
        # by how many of its standard deviations, less one each time, rates have exceeded forecasts,
        # or been below them
        self._rise: Floats = np.zeros(0)
        self._fall: Floats = np.zeros(0)
        self._at = 0.0

    def forget(self) -> None:
        """Begin with the next rates, as they are of other partitions."""
        self._level = None

    def update(self, rate: Floats, now: float, ahead: float) -> Floats:
        """(P,) the rates `ahead` seconds from now, given those measured now."""
        if self._level is None or len(self._level) != len(rate):
            self._level, self._trend, self._at = rate, np.zeros(len(rate)), now
            # that of events which are independent of each other
            self._noise = rate
            self._rise, self._fall = np.zeros((2, len(rate) + 1))
            return rate
        passed = now - self._at
        trend = self._trend
        if passed > 0:
            before, self._at = self._level, now
            # what goes on for long is seen over some time
            smoothed = self._trend_seconds and max(self._trend_seconds, ahead / 2)
            a, b = _weight(passed, self._level_seconds), _weight(passed, smoothed)
            expected = before + self._trend * passed
            error = rate - expected
            # at least that of events which are independent of each other
            usual = np.sqrt(np.maximum(self._noise, np.maximum(before, 1.0)))
            # of each partition, and of all together, which tell sooner if they step together
            together = error.sum() / np.sqrt(max(float((usual**2).sum()), 1.0))
            sizes = np.append(error / usual, together)
            steps = np.zeros(len(sizes), np.bool_)
            for far, sign in ((self._rise, 1.0), (self._fall, -1.0)):
                np.maximum(far + sign * sizes - 1.0, 0.0, out=far)
                steps |= far > self._step
            self._rise[steps] = self._fall[steps] = 0.0
            steps = steps[:-1] | steps[-1]
            self._level = np.where(steps, rate, expected + a * error)
            slope = np.where(steps, self._trend, (self._level - before) / passed)
            self._trend = self._trend + b * (slope - self._trend)
            c = _weight(passed, self._noise_seconds)
            # a step is no noise
            self._noise = np.where(steps, self._noise, self._noise + c * (error**2 - self._noise))
            # the variance that the noise gives to the trend
            variance = self._noise * a**2 * b / (2 - b) / passed**2
            square = np.maximum(self._trend**2, 1e-300)
            trend = self._trend * np.maximum(1 - self._significance**2 * variance / square, 0)
        return np.maximum(self._level + trend * ahead, 0.0)


def _weight(passed: float, seconds: float) -> float:
    """Weight of a new value after some seconds."""
    return float(1.0 - np.exp(-passed / seconds)) if seconds > 0 else 1.0
