"""How a cluster's load grows, and when it runs out of which resource."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from balancer.backtest.errors import BacktestError
from balancer.backtest.parameters import AdviceParameters
from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from balancer.backtest.timeline import MetadataHistory

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_WEEK = 7


@dataclass(frozen=True)
class ResourceGrowth:
    """Growth of the whole cluster's load in a resource, and when it is used up.

    Parameters
    ----------
    resource
        Its name.
    capacity
        Of all living brokers.
    load
        Of the busiest hour of a usual week, now.
    growth, growth_low, growth_high
        Of that load in a day, and its interval.
    load_ahead, load_ahead_high
        That load after the time asked for, and the upper end of its interval.
    days, days_low, days_high
        Days until that load exceeds the limit if it is spread evenly, and their interval; None if
        not within the horizon.
    """

    resource: str
    capacity: float
    load: float
    growth: float
    growth_low: float
    growth_high: float
    load_ahead: float
    load_ahead_high: float
    days: float | None
    days_low: float | None
    days_high: float | None


def daily_peaks(
    loads: DataFrame,
    metadata: MetadataHistory,
    resources: int,
    window_ms: int,
    parameters: AdviceParameters | None = None,
) -> tuple[Ints, Floats]:
    """The busiest hour of each whole day (UTC), of the whole cluster as it was then.

    A load that is unknown is taken as the mean of those that are known in its window; of a window
    in which too few are known, nothing is. A partition counts while it exists, with the replicas
    that it has at the time: a topic that replaces another one is no growth.

    Parameters
    ----------
    loads
        start_ms, topic, partition, leader and follower (array of R); null if unknown.
    metadata
        Which partitions there were, and how many replicas each had.
    resources
        R, the number of resources.
    window_ms
        Length of a window; if it is longer than an hour, it takes the place of hours.
    parameters
        How much has to be known.

    Returns
    -------
    tuple
        (D,) days since 1970, ascending, and (D, R) the largest hourly sum in each resource; NaN
        where too little is known of the day.
    """
    from pyspark.sql import functions as f

    p = parameters or AdviceParameters()
    placed = metadata.placements(loads.sparkSession).select(
        "topic", "partition", "valid_from_ms", "valid_to_ms", f.size("replicas").alias("replicas")
    )
    start, sums, known = _windows(loads, placed, resources)
    # of which loads were expected, the driver knows as much as it logged
    valid = placed.select("valid_from_ms", "valid_to_ms").toArrow()
    begun, over = (np.sort(column.to_numpy()) for column in valid.columns)
    expected = np.searchsorted(begun, start, "right") - np.searchsorted(over, start, "right")
    share = known / np.maximum(expected, 1)[:, None]
    enough = share >= p.known_share
    load = np.divide(sums, share, out=np.full(sums.shape, np.nan), where=enough)
    slot = max(HOUR_MS, window_ms)
    hours, load = _by(start // slot, load, np.nanmean)
    days = hours * slot // DAY_MS
    whole = p.whole_day * HOUR_MS // slot
    _, present = _by(days, ~np.isnan(load), np.sum)
    found, peaks = _by(days, load, np.nanmax)
    peaks = np.where(present >= whole, peaks, np.nan)
    some = ~np.isnan(peaks).all(axis=1)
    return found[some], peaks[some]


def _windows(loads: DataFrame, placed: DataFrame, resources: int) -> tuple[Ints, Floats, Floats]:
    """(W,) starts of windows, (W, R) sums of known loads, (W, R) partitions with a known load."""
    from pyspark.sql import functions as f

    followers = f.col("replicas") - 1
    each = [
        f.col("leader")[i] + f.when(followers > 0, followers * f.col("follower")[i]).otherwise(0.0)
        for i in range(resources)
    ]
    there = (f.col("start_ms") >= f.col("valid_from_ms")) & (
        f.col("start_ms") < f.col("valid_to_ms")
    )
    table = (
        loads.join(f.broadcast(placed), ["topic", "partition"])
        .where(there)
        .groupBy("start_ms")
        .agg(
            # whole numbers add up to the same in any order
            *(
                f.sum(f.round(of * 1000).cast("decimal(38,0)")).cast("double").alias(f"load_{i}")
                for i, of in enumerate(each)
            ),
            *(f.count(of).alias(f"known_{i}") for i, of in enumerate(each)),
        )
        .orderBy("start_ms")
        .toArrow()
    )
    sums, known = (
        np.column_stack([table[f"{name}_{i}"].to_numpy() for i in range(resources)])
        for name in ("load", "known")
    )
    return table["start_ms"].to_numpy(), sums / 1000, known.astype(np.float64)


def _by(group: Ints, values: Any, of: Callable[..., Any]) -> tuple[Ints, Any]:
    """(G,) the groups of ascending rows, and (G, R) what becomes of the rows of each."""
    groups, first = np.unique(group, return_index=True)
    parts = np.split(values, first[1:]) if len(values) else []
    with warnings.catch_warnings():
        # the mean of nothing is not known
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [of(part, axis=0) for part in parts]
    return groups, np.array(found).reshape(len(found), values.shape[1])


def growth_of(
    days: Ints,
    peaks: Floats,
    resources: Sequence[str],
    capacity: Floats,
    *,
    limit: float = 0.8,
    parameters: AdviceParameters | None = None,
) -> tuple[ResourceGrowth, ...]:
    """Growth in each resource, except those of which too few days are known.

    The growth is the median of the slopes between any two of the busy days: from two weeks on,
    those of the weekdays that are nearly as busy as the busiest. Intervals come from histories
    drawn at random around that line, whose errors are as large, and last as long, as those of the
    days were: they hold while the line holds, and know nothing of a change to come.

    Parameters
    ----------
    days, peaks
        What :func:`daily_peaks` returns, NaN where it is not known.
    resources
        Names of the R resources.
    capacity : (R,) float
        Of the whole cluster.
    limit
        Share of the capacity that may be used.
    parameters
        How to measure.

    Raises
    ------
    BacktestError
        For too few days.
    """
    p = parameters or AdviceParameters()
    kept = days > (days[-1] if len(days) else 0) - p.days
    days, peaks = days[kept], peaks[kept]
    there = ~np.isnan(peaks)
    if (most := max(there.sum(axis=0), default=0)) < p.fewest_days:
        raise BacktestError(f"growth: {most} whole days found, at least {p.fewest_days} expected")
    tail = (1 - p.interval) / 2
    found = []
    for i, name in enumerate(resources):
        if there[:, i].sum() < p.fewest_days:
            continue
        room = limit * capacity[i]
        t, y = _busy(days[there[:, i]], peaks[there[:, i], i], p.busy, int(days[-1]))
        slope, level = _line(t, y[None])
        line = np.maximum(level + slope * t, 1e-9 * max(float(y.max()), 1e-300))
        slopes, levels = _line(t, line * np.exp(_noise(np.log(np.maximum(y / line, 1e-9)), p)))
        pairs = zip(slopes, levels, strict=True)
        drawn_days = np.sort([_days(room - b, a) for a, b in pairs])
        low, high = (float(drawn_days[round(q * (p.resamples - 1))]) for q in (tail, 1 - tail))
        growth_low, growth_high = np.quantile(slopes, (tail, 1 - tail))
        later = levels + slopes * p.ahead
        found.append(
            ResourceGrowth(
                resource=name,
                capacity=float(capacity[i]),
                load=float(level[0]),
                growth=float(slope[0]),
                growth_low=float(growth_low),
                growth_high=float(growth_high),
                load_ahead=max(0.0, float(level[0] + slope[0] * p.ahead)),
                load_ahead_high=max(0.0, float(np.quantile(later, 1 - tail))),
                days=_within_horizon(_days(room - level[0], slope[0]), p),
                days_low=_within_horizon(low, p),
                days_high=_within_horizon(high, p),
            )
        )
    return tuple(found)


def capacity_of(snapshot: Snapshot) -> Floats:
    """(R,) float: capacities of all living brokers."""
    living = snapshot.broker_state != BrokerState.DEAD
    total: Floats = snapshot.capacity[living].sum(axis=0)
    return total


def _noise(error: Floats, parameters: AdviceParameters) -> Floats:
    """(N, D) random errors as large as these (D,), that last from day to day as these do."""
    n = len(error)
    error = error - error.mean()
    variance = float((error * error).sum()) / max(n - 2, 1)
    if variance <= 0:
        return np.zeros((parameters.resamples, n))
    kept = float((error[1:] * error[:-1]).sum() / (error * error).sum())
    # what is measured in few days is too little
    kept = min(max(kept + (1 + 3 * kept) / n, 0.0), parameters.longest_memory)
    rng = np.random.default_rng(parameters.seed)
    drawn = rng.normal(0.0, math.sqrt(variance), (parameters.resamples, n))
    for day in range(1, n):
        drawn[:, day] = kept * drawn[:, day - 1] + math.sqrt(1 - kept * kept) * drawn[:, day]
    return drawn


def _busy(days: Ints, peaks: Floats, share: float, now: int) -> tuple[Floats, Floats]:
    """The days of the busy weekdays, counted from now, and their peaks."""
    t = (days - now).astype(np.float64)
    i, j = np.triu_indices(len(t), 1)
    weeks = (t[j] - t[i]) % _WEEK == 0
    if t[-1] - t[0] < 2 * _WEEK - 1 or not weeks.any():
        return t, peaks
    slope = np.median((peaks[j] - peaks[i])[weeks] / (t[j] - t[i])[weeks])
    level = peaks - slope * t
    there = np.unique(days % _WEEK)
    usual = np.array([np.median(level[days % _WEEK == k]) for k in there])
    busy = np.isin(np.arange(_WEEK), there[usual >= share * usual.max()])
    chosen = busy[days % _WEEK]
    return t[chosen], peaks[chosen]


def _line(t: Floats, peaks: Floats) -> tuple[Floats, Floats]:
    """(N,) slopes of N histories (N, D), as medians of pairs, and levels at time 0."""
    i, j = np.triu_indices(len(t), 1)
    slope = np.median((peaks[:, j] - peaks[:, i]) / (t[j] - t[i]), axis=1)
    return slope, np.median(peaks - slope[:, None] * t, axis=1)


def _days(room: float, slope: float) -> float:
    """Days until no room is left at a daily growth."""
    if room <= 0:
        return 0.0
    return room / slope if slope > 0 else math.inf


def _within_horizon(days: float, parameters: AdviceParameters) -> float | None:
    return days if days <= parameters.horizon else None
