"""Forecasts many hourly series at once: weighted patterns of days and weeks, levels and trends.

Every method is a few matrix products over days, so that all origins of a backtest cost about as
much as one forecast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import numpy as np

from cluster_model.snapshot import Bools, Floats, Ints

DAY_HOURS = 24
_WEEK = 7
SHAPES = ("flat", "daily", "weekly")
LEVELS = ("now", "day", "week", "trend")
BASELINES = ("mean", "yesterday", "last week", "yesterday's peak")
METHODS = (*BASELINES, *(f"{shape}, {level}" for shape in SHAPES for level in LEVELS))
# Of methods with equal errors, those that learn most come first.
_PREFERRED = ("daily, day", *(name for name in METHODS if name != "daily, day"))
# What a series is like, by which methods are chosen.
CLASSES = (
    "unknown", "new", "idle", "stepped", "dying", "weekly", "daily", "drifting", "steady",
)  # fmt: skip


@dataclass(frozen=True)
class ForecastParameters:
    """How loads are forecast.

    Parameters
    ----------
    time_zone
        Name of the time zone whose days and weeks loads follow, such as ``Europe/Berlin``.
    holidays
        Days, in that zone, that are not learned from and not judged.
    days
        The last days that are learned from.
    origins
        The last days that are predicted from those before, to choose the method.
    now_half_life, day_half_life, week_half_life
        Hours after which a load counts half in the three kinds of level.
    pattern_half_life
        Days after which a day counts half in the pattern.
    trend_half_life
        Days after which a day counts half in the trend.
    damping
        Share of a day's growth that is expected of the next day.
    interval
        Share of past peaks that the interval of a forecast would have held.
    corrections
        Number of past peaks from which on they count more in the correction of forecasts of
        peaks than none does.
    new_days
        A series known for fewer days is new.
    step_days
        The last days in which a change of the level makes a series stepped.
    stepped
        How many times larger than any change between earlier days that change is.
    idle
        Share of the mean below which an hour is idle; most hours of an idle series are.
    weekly
        A series is weekly if days a week apart differ by less than this share of what days one
        after the other do.
    rhythmic
        Share of the variance that the hours of the day must explain in a daily series.
    drifting
        A series drifts if its days differ by more than this many times their usual change.
    dying
        A series is dying if its last day is below this share of the usual one,
    lowest
        and below this share of the lowest before.
    most
        How many times the largest known hour a forecast may be, and how many times a forecast its
        correction: no reading may make it absurd.
    """

    time_zone: str = "UTC"
    holidays: tuple[date, ...] = ()
    days: int = 56
    origins: int = 14
    now_half_life: float = 4.0
    day_half_life: float = 24.0
    week_half_life: float = 96.0
    pattern_half_life: float = 10.0
    trend_half_life: float = 5.0
    damping: float = 0.95
    interval: float = 0.8
    corrections: float = 1.0
    new_days: int = 7
    step_days: int = 3
    stepped: float = 2.0
    idle: float = 0.2
    weekly: float = 0.5
    rhythmic: float = 0.4
    drifting: float = 6.0
    dying: float = 0.5
    lowest: float = 0.95
    most: float = 10.0


class Backtested(NamedTuple):
    """Forecasts of one method, and its errors in the past.

    Parameters
    ----------
    hours : (E, A, S) float
        The hours ahead.
    peak, low, high : (E, S) float
        The largest hour expected, and its interval.
    wrong, wrong_peak : (E, S) float
        Sums over the past origins of absolute errors of hours, and of the largest hours.
    load, load_peak : (E, S) float
        Sums of what was predicted.
    """

    hours: Floats
    peak: Floats
    low: Floats
    high: Floats
    wrong: Floats
    wrong_peak: Floats
    load: Floats
    load_peak: Floats


class Days:
    """Hourly series cut into days that end with the last hour, and what is computed of them.

    Parameters
    ----------
    series : (E, H, S) float
        S series of E entities over H hours; nan if unknown.
    ahead
        Hours to forecast.
    parameters
        How.
    """

    def __init__(self, series: Floats, ahead: int, parameters: ForecastParameters) -> None:
        self._parameters, self.ahead = parameters, ahead
        e, h, s = series.shape
        days = max(1, min(-(-h // DAY_HOURS), parameters.days))
        kept = series[:, -days * DAY_HOURS :]
        before = days * DAY_HOURS - kept.shape[1]
        kept = np.pad(kept, ((0, 0), (before, 0), (0, 0)), constant_values=np.nan)
        # days first: matrix products run along them
        self.x: Floats = kept.reshape(e, days, DAY_HOURS, s).transpose(1, 0, 2, 3)
        self._known: Floats = (~np.isnan(self.x)).astype(np.float64)
        self._values: Floats = np.nan_to_num(self.x)
        self.length = -(-ahead // DAY_HOURS)
        past = days - self.length
        # as many past origins as have whole horizons after them, then the present
        first = max(1, past - parameters.origins + 1)
        self.origins: Ints = np.array([*range(first, past + 1), days])

    def methods(self) -> Iterator[tuple[str, Floats]]:
        """Name -> (O, E, A, S) forecasts of each origin by each method, in order of METHODS."""
        yield from self._baselines()
        daily = self._pattern(1)
        weekly = self._pattern(_WEEK)
        weekly = np.where(np.isnan(weekly), daily, weekly)
        flat = np.where(np.isnan(daily), np.nan, 1.0)
        for name, pattern in zip(SHAPES, (flat, daily, weekly), strict=True):
            pattern = _filled(pattern)
            yield from self._levelled(name, pattern)

    def _steps(self, pattern: Floats, level: Floats) -> Floats:
        """(O, E, A, S) pattern times level (O, E, S), or level of each day (O, L, E, S)."""
        phases = pattern.shape[1]
        parts = [
            pattern[:, k % phases] * (level if level.ndim == 3 else level[:, k])[:, :, None]
            for k in range(self.length)
        ]
        return np.concatenate(parts, axis=2)[:, :, : self.ahead]

    def _decay(self, half_life: float, cycle: int = 1, phase: int = 0) -> Floats:
        """(O, D) weights of the days before each origin, of one phase of the cycle."""
        days = np.arange(len(self.x))
        back = self.origins[:, None] - 1 - days
        fits = (back >= 0) & ((back + 1 + phase) % cycle == 0)
        return np.where(fits, 0.5 ** (np.maximum(back, 0) / half_life), 0.0)

    def _pattern(self, cycle: int) -> Floats:
        """(O, C, E, 24, S) weighted means of each hour of the cycle; nan if unknown."""
        half_life = self._parameters.pattern_half_life * (1 if cycle == 1 else 2)
        parts = []
        for phase in range(cycle):
            weights = self._decay(half_life, cycle, phase)
            total = np.tensordot(weights, self._values, 1)
            count = np.tensordot(weights, self._known, 1)
            parts.append(np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0))
        return np.stack(parts, axis=1)

    def _levelled(self, name: str, pattern: Floats) -> Iterator[tuple[str, Floats]]:
        p = self._parameters
        phases = pattern.shape[1]
        lives = (p.now_half_life, p.day_half_life, p.week_half_life)
        for level, half_life in zip(LEVELS, lives, strict=False):
            hours = 0.5 ** (np.arange(DAY_HOURS - 1, -1, -1) / half_life)[:, None]
            total = np.zeros((len(self.origins), *self.x.shape[1::2]))
            expected = np.zeros_like(total)
            for phase in range(phases):
                weights = self._decay(half_life / DAY_HOURS, phases, phase)
                total = total + np.tensordot(weights, (self._values * hours).sum(axis=2), 1)
                count = np.tensordot(weights, self._known * hours, 1)
                expected = expected + (count * pattern[:, phase]).sum(axis=2)
            yield f"{name}, {level}", self._steps(pattern, _divided(total, expected))
        yield f"{name}, {LEVELS[-1]}", self._steps(pattern, self._trend(pattern))

    def _trend(self, pattern: Floats) -> Floats:
        """(O, L, E, S) the level of each day ahead, along a damped line."""
        p = self._parameters
        phases = pattern.shape[1]
        value = self._values.sum(axis=2)
        sums = np.zeros((5, len(self.origins), *value.shape[1:]))
        for i, origin in enumerate(self.origins):
            days = np.arange(max(0, origin - round(6 * p.trend_half_life)), origin)
            phase = (days - origin) % phases
            expected = (self._known[days] * pattern[i, phase]).sum(axis=2)
            level = _divided(value[days], expected)
            there = ~np.isnan(level)
            # the middle of each day, from the origin
            t = (days - origin + 0.5)[:, None, None]
            w = 0.5 ** (-t / p.trend_half_life) * there
            level = np.where(there, level, 0.0)
            for j, of in enumerate((w, w * t, w * t * t, w * level, w * t * level)):
                sums[j, i] = of.sum(axis=0)
        n, st, stt, sy, sty = sums
        spread = n * stt - st * st
        sloped = spread > 1e-9 * np.maximum(n * stt, 1e-300)
        slope = np.where(sloped, (n * sty - st * sy) / np.where(sloped, spread, 1.0), 0.0)
        start = _divided(sy, n) - slope * np.where(n > 0, st / np.where(n > 0, n, 1.0), 0.0)
        grown = 0.5 + np.cumsum([0.0, *(p.damping**k for k in range(1, self.length))])
        ahead: Floats = start[:, None] + slope[:, None] * grown[:, None, None]
        return np.maximum(ahead, 0.0)

    def _baselines(self) -> Iterator[tuple[str, Floats]]:
        ones = self._decay(np.inf)
        count = np.tensordot(ones, self._known, 1).sum(axis=2)
        mean = _divided(np.tensordot(ones, self._values, 1).sum(axis=2), count)
        constant = np.ones((1, 1, 1, DAY_HOURS, 1))
        yield "mean", self._steps(constant, mean)
        yesterday = self.x[self.origins - 1][:, None]
        yield "yesterday", self._steps(yesterday, np.ones_like(mean))
        lagged = self.origins[:, None] - _WEEK + np.arange(_WEEK)
        week = np.where(
            (lagged >= 0)[..., None, None, None], self.x[np.maximum(lagged, 0)], yesterday
        )
        yield (
            "last week",
            self._steps(np.where(np.isnan(week), yesterday, week), np.ones_like(mean)),
        )
        peak = np.fmax.reduce(yesterday[:, 0], axis=2)
        yield "yesterday's peak", self._steps(constant, peak)

    def judged(self, forecasts: Floats) -> Backtested:
        """Compare the forecasts of past origins with what came; correct the present one by that."""
        mean = _divided(self._values.sum(axis=(0, 2)), self._known.sum(axis=(0, 2)))
        top = self._parameters.most * np.fmax.reduce(np.fmax.reduce(self.x, axis=2), axis=0)
        # nan where nothing is known
        f = np.minimum(_known_or(forecasts, mean), top[:, None])
        past = len(self.origins) - 1
        shape = (past, *f.shape[1:])
        came = np.full(shape, np.nan)
        for i, origin in enumerate(self.origins[:-1]):
            days = self.x[origin : origin + self.length]
            joined = np.concatenate([*days], axis=1)
            came[i] = joined[:, : self.ahead]
        # a series is judged from when something of it was known
        begun = np.cumsum(self._known.any(axis=2), axis=0) > 0
        came[~begun[self.origins[:-1] - 1][:, :, None].repeat(self.ahead, axis=2)] = np.nan
        counted = ~np.isnan(came)
        wrong = np.where(counted, np.abs(f[:-1] - came), 0.0).sum(axis=(0, 2))
        load = np.where(counted, came, 0.0).sum(axis=(0, 2))
        peak = np.fmax.reduce(came, axis=2) if past else np.empty((0, *f[0, :, 0].shape))
        # a day of which most is unknown has no peak
        peak[counted.sum(axis=2) * 2 < self.ahead] = np.nan
        said = f.max(axis=2)
        ratio = np.divide(peak, said[:-1], out=np.full_like(peak, np.nan), where=said[:-1] > 0)
        # of horizons that had ended before the origin
        ended = [*np.maximum(np.arange(past) - self.length + 1, 0), past]
        corrected = np.stack([said[i] * self._correction(ratio[:n]) for i, n in enumerate(ended)])
        corrected = np.minimum(corrected, top)
        wrong_peak = np.nansum(np.abs(corrected[:-1] - peak), axis=0)
        share = np.divide(
            peak, corrected[:-1], out=np.full_like(peak, np.nan), where=corrected[:-1] > 0
        )
        tail = (1 - self._parameters.interval) / 2
        low, high = (
            np.nan_to_num(_quantile(share, q, unseen=2), nan=1.0) for q in (tail, 1 - tail)
        )
        return Backtested(
            hours=f[-1],
            peak=corrected[-1],
            low=corrected[-1] * np.minimum(low, 1.0),
            high=np.minimum(corrected[-1] * np.maximum(high, 1.0), np.maximum(top, corrected[-1])),
            wrong=wrong,
            wrong_peak=wrong_peak,
            load=load,
            load_peak=np.nansum(peak, axis=0),
        )

    def _correction(self, ratio: Floats) -> Floats:
        """(E, S) the usual ratio of peaks to their forecasts, nearer to 1 if few are known."""
        count = (~np.isnan(ratio)).sum(axis=0)
        most = self._parameters.most
        usual = np.clip(np.nan_to_num(_median(ratio), nan=1.0), 1 / most, most)
        found: Floats = usual ** (count / (count + self._parameters.corrections))
        return found

    def classes(self) -> Ints:
        """(E, S) place in CLASSES: what each series is like."""
        p = self._parameters
        x = self.x[-min(len(self.x), 4 * _WEEK) :]
        known = ~np.isnan(x)
        hours = known.sum(axis=(0, 2))
        total = np.where(known, x, 0.0).sum(axis=(0, 2))
        mean = _divided(total, hours)
        level = _divided(np.where(known, x, 0.0).sum(axis=2), known.sum(axis=2))
        spread = np.where(known, (x - mean[:, None]) ** 2, 0.0).sum(axis=(0, 2))
        hour = _divided(np.where(known, x, 0.0).sum(axis=0), known.sum(axis=0))
        of_hours = (
            np.where(known.any(axis=0), (hour - mean[:, None]) ** 2, 0.0) * known.sum(0)
        ).sum(1)
        idle = _divided((known & (x < p.idle * mean[:, None])).sum(axis=(0, 2)), hours)
        there = ~np.isnan(level)
        days = there.sum(axis=0)
        change = np.abs(level[1:] - level[:-1])
        found = np.full(mean.shape, CLASSES.index("steady"))

        def put(name: str, where: Bools) -> None:
            found[where] = CLASSES.index(name)

        with np.errstate(invalid="ignore"):
            usual = _median(change)
            wide = np.fmax.reduce(level, axis=0) - np.fmin.reduce(level, axis=0)
            put("drifting", wide > p.drifting * usual)
            put("daily", of_hours > p.rhythmic * spread)
            if len(level) > 2 * _WEEK:
                week = np.abs(level[_WEEK:] - level[:-_WEEK])
                usually = _divided(np.nansum(change, axis=0), (~np.isnan(change)).sum(axis=0))
                put("weekly", _median(week) < p.weekly * usually)
            if len(level) > 1:
                least = np.fmin.reduce(level[:-1], axis=0)
                put(
                    "dying", (level[-1] < p.lowest * least) & (level[-1] < p.dying * _median(level))
                )
            recent = change[-p.step_days :]
            earlier = change[: -p.step_days]
            if len(earlier) > 1:
                most = np.fmax.reduce(earlier, axis=0)
                put("stepped", np.fmax.reduce(recent, axis=0) > p.stepped * most)
            put("idle", idle > 0.5)
            put("new", days < p.new_days)
            put("unknown", hours == 0)
        return found


def _divided(total: Floats, count: Floats | Ints) -> Floats:
    """total / count; nan where there is nothing."""
    found: Floats = np.divide(
        total, count, out=np.full(np.shape(total), np.nan), where=np.asarray(count) > 0
    )
    return found


def _filled(pattern: Floats) -> Floats:
    """A pattern (O, C, E, 24, S) with the mean of the others in hours that are unknown."""
    known = ~np.isnan(pattern)
    total = np.where(known, pattern, 0.0).sum(axis=(1, 3), keepdims=True)
    count = known.sum(axis=(1, 3), keepdims=True)
    return np.where(known, pattern, np.nan_to_num(_divided(total, count)))


def _median(values: Floats) -> Floats:
    return _quantile(values, 0.5)


def _quantile(values: Floats, share: float, unseen: int = 0) -> Floats:
    """Quantile along the first axis of what is known; nan if nothing is.

    With `unseen` 2, that of which the share of values that are still to come is expected.
    """
    if not len(values):
        return np.full(values.shape[1:], np.nan)
    ordered = np.sort(values, axis=0)
    last = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0)
    place = np.clip((last + unseen) * share - unseen / 2, 0, last)
    low = np.floor(place).astype(np.int64)
    at = [np.take_along_axis(ordered, k[None], 0)[0] for k in (low, np.ceil(place).astype(int))]
    found: Floats = at[0] + (place - low) * (at[1] - at[0])
    return found


def _known_or(forecasts: Floats, otherwise: Floats) -> Floats:
    """Forecasts (O, E, A, S), with a value (E, S) where there is none."""
    return np.where(np.isnan(forecasts), otherwise[:, None], forecasts)


def chosen_methods(errors: Mapping[tuple[str, str], float]) -> dict[str, str]:
    """Class -> its best method, of the sums of errors by class and method."""
    best: dict[str, str] = {}
    for kind in dict.fromkeys(kind for kind, _ in errors):
        of = {name: errors[kind, name] for name in _PREFERRED}
        best[kind] = min(of, key=of.__getitem__)
    return best
