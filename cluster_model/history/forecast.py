"""Forecasts loads of all partitions on Spark, by the method that was best in the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cluster_model.history.alignment import matrix
from cluster_model.history.errors import HistoryError
from cluster_model.history.smoothing import (
    BASELINES,
    CLASSES,
    DAY_HOURS,
    METHODS,
    Days,
    ForecastParameters,
    chosen_methods,
)
from cluster_model.history.statistics import ENTITY, HOUR_MS, columns, flattened, ordered
from cluster_model.snapshot import Bools, Floats, Ints

# Number of partitions whose series are computed at once, for a day ahead.
_CHUNK = 32
# Longest horizon, as long as advice looks ahead: each of its hours takes memory.
_LONGEST_DAYS = 3650
# Sums of errors are whole numbers of this part of a unit: the same in any order.
_QUANTUM = 1024
# Quanta in the larger of two parts of a sum, and the largest sum of one load that counts.
_HALF, _LARGEST_SUM = 2**31, 2.0**62
_SUMS = ("wrong", "load", "wrong_peak", "load_peak")
_FORECASTS = ("peak", "low", "high")


@dataclass(frozen=True)
class ForecastError:
    """The error that forecasts of a resource would have had.

    All are sums of absolute errors of leaders' loads as a share of the loads; nan without any.

    Parameters
    ----------
    resource
        Its name.
    hours
        Number of last hours predicted from those before; 0 if these are too few.
    wape, wape_of_peaks
        Of each hour, and of the largest hour of each horizon, by the methods chosen.
    baselines, baselines_of_peaks
        The same by each baseline.
    methods
        Class of series (see :data:`cluster_model.history.smoothing.CLASSES`) to the method
        that was best for its peaks; only classes that occur.
    """

    resource: str
    hours: int
    wape: float
    wape_of_peaks: float
    baselines: Mapping[str, float]
    baselines_of_peaks: Mapping[str, float]
    methods: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected loads of n partitions and R resources.

    Parameters
    ----------
    topic, partition
        Names and numbers, n of each.
    leader, follower : (n, R) float
        The largest hourly mean expected; nan if nothing is known.
    leader_low, leader_high : (n, R) float
        The interval of `leader`.
    errors
        For each resource.
    """

    topic: tuple[str, ...]
    partition: Ints
    leader: Floats
    follower: Floats
    leader_low: Floats
    leader_high: Floats
    errors: tuple[ForecastError, ...]


def forecast_loads(
    loads: DataFrame,
    resources: Sequence[str],
    range_ms: tuple[int, int],
    horizon_ms: int,
    parameters: ForecastParameters | None = None,
) -> Forecast:
    """Predict the largest hourly means after a range of time from those in it.

    Each series is predicted by all of :data:`cluster_model.history.smoothing.METHODS`, also from
    earlier days; for each resource and class of series the method counts whose errors were
    smallest then. Only the last days (``parameters.days``) are read.

    Parameters
    ----------
    loads
        start_ms, topic, partition, leader and follower (array of R), of one cluster; null
        if unknown.
    resources
        Names of the R resources.
    range_ms
        Start and end of the loads.
    horizon_ms
        Length of the forecast after the end; at least the next hour.
    parameters
        How to forecast.

    Raises
    ------
    HistoryError
        If there are no loads, for an unknown time zone, or a horizon of more than ten years.
    """
    parameters = parameters or ForecastParameters()
    if horizon_ms > _LONGEST_DAYS * DAY_HOURS * HOUR_MS:
        raise HistoryError(
            f"forecast: a horizon of {horizon_ms / (DAY_HOURS * HOUR_MS):,.6g} days found, at most "
            f"{_LONGEST_DAYS} expected"
        )
    calendar = Calendar.of(parameters, range_ms)
    ahead = max(1, -(-horizon_ms // HOUR_MS))
    predictor = _Predictor(calendar, ahead, len(resources), parameters)
    hour = f.floor(f.col("start_ms") / f.lit(HOUR_MS)).alias("hour")
    recent = loads.where(f.col("start_ms") >= calendar.first * HOUR_MS)
    hourly = (
        ordered(flattened(recent, len(resources)))
        .groupBy(*ENTITY, hour)
        .agg(*(f.avg(name).alias(name) for name in columns(len(resources))))
        .sortWithinPartitions(*ENTITY)
    )
    arrays = ", ".join(f"{name} array<double>" for name in (*_SUMS, *_FORECASTS))
    found = hourly.mapInArrow(
        predictor.batches, f"topic string, partition long, class array<long>, {arrays}"
    ).persist(StorageLevel.DISK_ONLY)
    try:
        sums = _errors(found, len(resources))
        if not sums:
            raise HistoryError(
                f"forecast: no loads between {range_ms[0]} and {range_ms[1]} (ms since 1970) "
                "found, some expected"
            )
        use = [_chosen(sums, i, peaks=True) for i in range(len(resources))]
        fields = ", ".join(f"{name} array<double>" for name in _FORECASTS)
        table = found.mapInArrow(
            _Choice(tuple(use)).batches, f"topic string, partition long, {fields}"
        ).toArrow()
    finally:
        found.unpersist()
    table = table.sort_by([(name, "ascending") for name in ENTITY])
    r = len(resources)
    peak, low, high = (matrix(table, name, 2 * r) for name in _FORECASTS)
    return Forecast(
        topic=tuple(table["topic"].to_pylist()),
        partition=table["partition"].to_numpy(),
        leader=peak[:, :r],
        follower=peak[:, r:],
        leader_low=low[:, :r],
        leader_high=high[:, :r],
        errors=tuple(
            _error(name, sums, i, predictor.judged_hours, use[i])
            for i, name in enumerate(resources)
        ),
    )


@dataclass(frozen=True, eq=False)
class Calendar:
    """Hours of local time: days begin at local midnight all year, and holidays are known.

    Parameters
    ----------
    first, end
        The hours learned from, since 1970 (UTC).
    place : (end - first,) int
        Place of each hour among those of local time; the hour that a clock repeats has one place.
    holiday : (end - first,) bool
        Hours that do not count.
    """

    first: int
    end: int
    place: Ints
    holiday: Bools

    @classmethod
    def of(cls, parameters: ForecastParameters, range_ms: tuple[int, int]) -> Calendar:
        """The last days of a range.

        Raises
        ------
        HistoryError
            For an unknown time zone.
        """
        try:
            zone = ZoneInfo(parameters.time_zone)
        except (KeyError, ValueError, OSError):
            raise HistoryError(
                f"forecast: the time zone {parameters.time_zone!r} found, a name such as UTC or "
                "Europe/Berlin expected"
            ) from None
        end = -(-range_ms[1] // HOUR_MS)
        first = max(range_ms[0] // HOUR_MS, end - parameters.days * DAY_HOURS)
        try:
            utc = [datetime.fromtimestamp(h * 3600, UTC) for h in range(first, end)]
            local = [at.astimezone(zone) for at in utc]
        except (OverflowError, ValueError):
            raise HistoryError(
                f"forecast: loads until {range_ms[1]} (ms since 1970) found, a time in the years 1 "
                "to 9999 expected"
            ) from None
        holidays = set(parameters.holidays)
        shift = [(t.utcoffset() or t - t).total_seconds() // 3600 for t in local]
        place = np.arange(first, end) + np.array(shift, np.int64)
        return cls(
            first, end, place - place[0], np.array([t.date() in holidays for t in local], np.bool_)
        )


@dataclass(frozen=True)
class _Predictor:
    """Turns hourly loads, sorted by partition, into forecasts by all methods."""

    calendar: Calendar
    ahead: int
    resources: int
    parameters: ForecastParameters

    @property
    def judged_hours(self) -> int:
        """Number of the last hours that are predicted from earlier ones."""
        empty = np.zeros((0, int(self.calendar.place[-1]) + 1, 1))
        days = Days(empty, self.ahead, self.parameters)
        return (len(days.x) - int(days.origins[0])) * DAY_HOURS if len(days.origins) > 1 else 0

    def batches(self, hourly: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunk = max(1, _CHUNK * DAY_HOURS // max(self.ahead, DAY_HOURS))
        for table in _whole_entities(hourly):
            change = _changes(table)
            for at in range(0, len(change), chunk):
                start = change[at]
                stop = change[at + chunk] if at + chunk < len(change) else table.num_rows
                yield self.predicted(table.slice(start, stop - start))

    def predicted(self, table: pa.Table) -> pa.RecordBatch:
        change, calendar = _changes(table), self.calendar
        entity = np.cumsum(np.isin(np.arange(table.num_rows), change)) - 1
        names = columns(self.resources)
        values = np.column_stack([table[name].to_numpy() for name in names])
        hour = table["hour"].to_numpy() - calendar.first
        values[calendar.holiday[hour]] = np.nan
        series = np.full((len(change), int(calendar.place[-1]) + 1, len(names)), np.nan)
        series[entity, calendar.place[hour]] = values
        days = Days(series, self.ahead, self.parameters)
        judged = [days.judged(forecasts) for _, forecasts in days.methods()]
        found = {
            name: np.stack([getattr(of, name) for of in judged], axis=1).reshape(len(change), -1)
            for name in (*_SUMS, *_FORECASTS)
        }
        keys = table.take(pa.array(change)).select([*ENTITY])
        arrays = [pa.array([*days.classes()]), *(_arrays(value) for value in found.values())]
        return pa.RecordBatch.from_arrays(
            [*(c.combine_chunks() for c in keys.columns), *arrays],
            names=[*ENTITY, "class", *found],
        )


# Resource, class and method, as numbers -> sums of errors and loads, as _SUMS.
_Errors = dict[tuple[int, int, int], tuple[float, ...]]


def _errors(found: DataFrame, resources: int) -> _Errors:
    """Sums over all leaders."""

    def summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            n = batch.num_rows
            kind = _numbers(batch, "class").reshape(n, -1)[:, :resources].astype(np.int64)
            shape = (n, len(METHODS), 2 * resources)
            sums = [_numbers(batch, name).reshape(shape)[:, :, :resources] for name in _SUMS]
            halves = np.concatenate(whole_halves(np.stack(sums)))
            totals = np.zeros((len(halves), resources, len(CLASSES), len(METHODS)), np.int64)
            for i in range(resources):
                for k in np.unique(kind[:, i]):
                    totals[:, i, k] = halves[..., i][:, kind[:, i] == k].sum(axis=1)
            there = np.zeros((resources, len(CLASSES)), np.bool_)
            there[np.arange(resources), kind] = True
            place = np.nonzero(np.repeat(there[:, :, None], len(METHODS), axis=2))
            yield pa.RecordBatch.from_arrays(
                [*map(pa.array, place), *(pa.array(total[place]) for total in totals)],
                names=[*keys, *halves_of],
            )

    keys = ("resource", "class", "method")
    halves_of = [f"{name}_{half}" for half in ("high", "low") for name in _SUMS]
    fields = ", ".join(f"{name} long" for name in (*keys, *halves_of))
    rows = found.mapInArrow(summed, fields).groupBy(*keys)
    total = rows.agg(*(f.sum(f.col(name).cast("decimal(38,0)")).alias(name) for name in halves_of))
    n = len(_SUMS)
    return {
        (row[0], row[1], row[2]): tuple(
            float(int(high) * _HALF + int(low)) / _QUANTUM
            for high, low in zip(row[3 : 3 + n], row[3 + n :], strict=True)
        )
        for row in total.collect()
    }


def whole_halves(values: Floats) -> tuple[Ints, Ints]:
    """Values of at least 0 in quanta, as multiples of 2^31 and the rest.

    Sums of a million of each fit into 64 bits, and whole numbers add up to the same in any order.

    Examples
    --------
    >>> high, low = whole_halves(np.array([0.5, 1e15, 1e300]))
    >>> [(int(a) * 2**31 + int(b)) / 1024 for a, b in zip(high, low)]
    [0.5, 1000000000000000.0, 4.611686018427388e+18]
    """
    quanta = np.minimum(values, _LARGEST_SUM) * _QUANTUM
    high = np.floor(quanta / _HALF)
    return high.astype(np.int64), np.rint(quanta - high * _HALF).astype(np.int64)


def _chosen(sums: _Errors, resource: int, *, peaks: bool) -> dict[str, str]:
    """Class -> method, for a resource."""
    at = 2 if peaks else 0
    return chosen_methods(
        {
            (CLASSES[kind], METHODS[method]): of[at]
            for (i, kind, method), of in sums.items()
            if i == resource
        }
    )


def _error(
    name: str, sums: _Errors, resource: int, hours: int, use: Mapping[str, str]
) -> ForecastError:
    by_hour = _chosen(sums, resource, peaks=False)

    def wape(methods: Mapping[str, str], at: int) -> float:
        keys = [(resource, CLASSES.index(k), METHODS.index(m)) for k, m in methods.items()]
        wrong, load = (sum(sums[key][i] for key in keys) for i in (at, at + 1))
        return wrong / load if load > 0 else float("nan")

    return ForecastError(
        resource=name,
        hours=hours,
        wape=wape(by_hour, 0),
        wape_of_peaks=wape(use, 2),
        baselines={of: wape(dict.fromkeys(use, of), 0) for of in BASELINES},
        baselines_of_peaks={of: wape(dict.fromkeys(use, of), 2) for of in BASELINES},
        methods={kind: use[kind] for kind in sorted(use, key=CLASSES.index)},
    )


@dataclass(frozen=True)
class _Choice:
    """Keeps the forecasts by the method of the class of each series."""

    use: tuple[Mapping[str, str], ...]

    def batches(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resources = len(self.use)
        table = np.full((resources, len(CLASSES)), METHODS.index("daily, day"))
        for i, use in enumerate(self.use):
            for name, best in use.items():
                table[i, CLASSES.index(name)] = METHODS.index(best)
        for batch in found:
            n, series = batch.num_rows, np.arange(2 * resources)
            kind = _numbers(batch, "class").reshape(n, -1).astype(np.int64)
            method = table[series % resources, kind]
            arrays = [
                _arrays(
                    np.take_along_axis(
                        _numbers(batch, name).reshape(n, len(METHODS), -1), method[:, None], 1
                    )[:, 0]
                )
                for name in _FORECASTS
            ]
            yield pa.RecordBatch.from_arrays(
                [*(batch.column(name) for name in ENTITY), *arrays], names=[*ENTITY, *_FORECASTS]
            )


def _numbers(batch: pa.RecordBatch, name: str) -> Floats:
    flat: Floats = batch.column(name).flatten().to_numpy(zero_copy_only=False)
    return flat


def _arrays(values: Floats) -> pa.ListArray:
    """A column of arrays, of a matrix."""
    ends = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel()))


def _whole_entities(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows, split where one partition ends and the next begins."""
    rest: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if rest is not None:
            table = pa.concat_tables([rest, table]).combine_chunks()
        if not table.num_rows:
            continue
        last = int(_changes(table)[-1])
        if last:
            yield table.slice(0, last)
        rest = table.slice(last)
    if rest is not None and rest.num_rows:
        yield rest


def _changes(table: pa.Table) -> Ints:
    """Rows at which a new partition begins, 0 first."""
    new = np.zeros(table.num_rows, np.bool_)
    new[0] = True
    for name in ENTITY:
        code = table[name].combine_chunks().dictionary_encode().indices.to_numpy()
        new[1:] |= code[1:] != code[:-1]
    return np.flatnonzero(new)
