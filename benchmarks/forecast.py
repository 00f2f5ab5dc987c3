"""Forecasts of ten families of series against the baselines: errors of hours and of peaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model.history.smoothing import (
    BASELINES,
    CLASSES,
    METHODS,
    Days,
    ForecastParameters,
    chosen_methods,
)
from cluster_model.snapshot import Floats

_NAME = "forecast"
# Series of each family, and seeds.
_SIZES = {"S": (20, 3), "M": (100, 5), "L": (400, 10)}
DAYS = 35
_DAY = 24
_HOURS = (DAYS + 1) * _DAY

Draw = Callable[[np.random.Generator, int], Floats]


def _noisy(rng: np.random.Generator, level: Floats, noise: float = 0.1) -> Floats:
    return level * np.exp(rng.normal(0, noise, level.shape))


def _rhythm(rng: np.random.Generator, count: int, sharpness: float = 1.0) -> Floats:
    hour = np.arange(_HOURS)[None] / _DAY
    day = np.exp(sharpness * np.cos(2 * np.pi * (hour - rng.random((count, 1)))))
    return day / np.i0(sharpness)


def _season(rng: np.random.Generator, count: int) -> Floats:
    return _noisy(rng, _rhythm(rng, count))


def _weekly(rng: np.random.Generator, count: int) -> Floats:
    weekend = (np.arange(_HOURS) // _DAY + rng.integers(0, 7, (count, 1))) % 7 >= 5
    return _noisy(
        rng, _rhythm(rng, count) * np.where(weekend, rng.uniform(0.2, 0.6, (count, 1)), 1)
    )


def _trend(rng: np.random.Generator, count: int) -> Floats:
    slope = rng.uniform(0.03, 0.1, (count, 1))
    return _noisy(rng, _rhythm(rng, count, 0.5) * (1 + slope * np.arange(_HOURS) / _DAY), 0.05)


def _step(rng: np.random.Generator, count: int) -> Floats:
    factor = rng.choice([0.3, 0.5, 2.0, 3.0], (count, 1))
    after = np.arange(_HOURS) >= _HOURS - 3 * _DAY
    return _noisy(rng, _rhythm(rng, count, 0.7) * np.where(after, factor, 1.0))


def _walk(rng: np.random.Generator, count: int) -> Floats:
    return np.exp(np.cumsum(rng.normal(0, 0.05, (count, _HOURS)), axis=1))


def _new(rng: np.random.Generator, count: int) -> Floats:
    series = _noisy(rng, _rhythm(rng, count, 0.8))
    age = rng.integers(2, 6, (count, 1))
    series[np.arange(_HOURS)[None] < _HOURS - (age + 1) * _DAY] = np.nan
    return series


def _dying(rng: np.random.Generator, count: int) -> Floats:
    began = _HOURS - rng.integers(5, 15, (count, 1)) * _DAY
    life = rng.uniform(2, 6, (count, 1)) * _DAY
    gone = np.maximum(np.arange(_HOURS) - began, 0)
    return _noisy(rng, _rhythm(rng, count, 0.5) * np.exp(-gone / life))


def _spiky(rng: np.random.Generator, count: int) -> Floats:
    spikes = np.where(rng.random((count, _HOURS)) < 0.03, rng.uniform(3, 8, (count, _HOURS)), 1.0)
    return _noisy(rng, _rhythm(rng, count, 0.5) * spikes)


def _intermittent(rng: np.random.Generator, count: int) -> Floats:
    on = rng.random((count, _HOURS)) < 0.3 * _rhythm(rng, count)
    return np.where(on, _noisy(rng, np.ones((count, _HOURS)), 0.3), 0.0)


def _level(rng: np.random.Generator, count: int) -> Floats:
    return _noisy(rng, np.ones((count, _HOURS)), 0.2)


FAMILIES: dict[str, Draw] = {
    "season": _season,
    "trend": _trend,
    "step": _step,
    "random walk": _walk,
    "new topic": _new,
    "dying topic": _dying,
    "weekly": _weekly,
    "spiky": _spiky,
    "intermittent": _intermittent,
    "level with noise": _level,
}


def drawn(name: str, count: int, seed: int) -> tuple[Floats, Floats]:
    """(N, H, 1) the past, and (N, 24, 1) the following day, of series of a family."""
    rng = np.random.default_rng([seed, *name.encode()])
    series = FAMILIES[name](rng, count)[:, :, None]
    return series[:, :-_DAY], series[:, -_DAY:]


def errors(count: int, seed: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Family -> baseline, or ``forecast`` -> errors of hours, and of peaks, as shares.

    All families are forecast together, as the topics of one cluster are.
    """
    past, after = zip(*(drawn(name, count, seed) for name in FAMILIES), strict=True)
    days = Days(np.concatenate(past), _DAY, ForecastParameters())
    came = np.concatenate(after)
    found = {name: days.judged(forecast) for name, forecast in days.methods()}
    kinds = days.classes()[:, 0]
    rows = np.arange(len(kinds))
    chosen = []
    for wrong in (
        {name: of.wrong[:, 0] for name, of in found.items()},
        {name: of.wrong_peak[:, 0] for name, of in found.items()},
    ):
        use = chosen_methods(
            {
                (kind, name): float(of[kinds == number].sum())
                for number, kind in enumerate(CLASSES)
                for name, of in wrong.items()
            }
        )
        chosen.append(np.array([METHODS.index(use[CLASSES[k]]) for k in kinds]))
    hours = {name: of.hours for name, of in found.items()}
    said = {name: (hours[name], hours[name].max(axis=1)) for name in BASELINES}
    said["forecast"] = (
        np.stack([*hours.values()])[chosen[0], rows],
        np.stack([of.peak for of in found.values()])[chosen[1], rows],
    )
    answer: dict[str, dict[str, tuple[float, float]]] = {}
    for i, family in enumerate(FAMILIES):
        of = slice(i * count, (i + 1) * count)
        top = came[of].max(axis=1)
        answer[family] = {
            name: (
                float(np.abs(h[of] - came[of]).sum() / came[of].sum()),
                float(np.abs(p[of] - top).sum() / top.sum()),
            )
            for name, (h, p) in said.items()
        }
    return answer


def compared(
    found: Sequence[dict[str, dict[str, tuple[float, float]]]], family: str, target: int
) -> tuple[str, float, float]:
    """The best baseline over all seeds, its error, and that of the forecast.

    Parameters
    ----------
    found
        Of each seed, what :func:`errors` returns.
    family
        Its name.
    target
        0 for hours, 1 for peaks.
    """

    def mean(name: str) -> float:
        return float(np.mean([of[family][name][target] for of in found]))

    best = min(BASELINES, key=mean)
    return best, mean(best), mean("forecast")


@benchmark(_NAME, sizes=tuple(_SIZES))
def forecast(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Forecasts of ten families of series by the day, against the best of four baselines.

    Five weeks of hours are known and the next day is predicted: its hours, and the largest of
    them. Errors are sums of absolute errors as a share of the loads, means of the seeds; the
    least and largest ratio of a seed show the spread.
    """
    for name in options.subjects:
        if name not in FAMILIES:
            raise BenchmarkError(f"no subject {name!r}; there are {', '.join(FAMILIES)}")
    for size in sizes:
        count, seeds = _SIZES[size]
        began = time.process_time()
        found = []
        for seed in range(options.seed, options.seed + seeds):
            options.log(f"{_NAME} {size}: seed {seed}")
            found.append(errors(count, seed))
        seconds = (time.process_time() - began) / (seeds * count * len(FAMILIES))
        for family in options.subjects or FAMILIES:
            for target, what in enumerate(("hours", "peaks")):
                best, least, own = compared(found, family, target)
                ratios = [of[family]["forecast"][target] / of[family][best][target] for of in found]
                for metric, value in (
                    (f"error of {what}", own),
                    (f"error of {what}, best baseline ({best})", least),
                    (f"ratio of {what}", own / least),
                    (f"ratio of {what}, least", min(ratios)),
                    (f"ratio of {what}, largest", max(ratios)),
                ):
                    yield Row(_NAME, size, family, metric, value, "ratio")
        yield Row(_NAME, size, "all", "processor seconds per series", seconds, "seconds")
