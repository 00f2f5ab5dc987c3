"""Forecasts loads from a weekly pattern and a trend, with the error in the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cluster_model.history.alignment import matrix
from cluster_model.history.errors import HistoryError
from cluster_model.history.statistics import (
    ENTITY,
    HOUR_MS,
    WEEK_HOURS,
    columns,
    flattened,
    ordered,
)
from cluster_model.snapshot import Floats, Ints

DAY_HOURS = 24
# Number of partitions whose series are computed at once.
_CHUNK = 256
# One in this many of the known hours, up to a week, is predicted from the earlier ones.
_HELD_OUT = 4


@dataclass(frozen=True)
class ForecastError:
    """The error that forecasts of a resource would have had.

    Parameters
    ----------
    resource
        Its name.
    hours
        Number of last hours predicted from those before; 0 if these are too few.
    wape
        Sum over partitions and hours of the absolute errors of leaders' loads, as a share of
        the loads; nan without hours, or without load.
    wape_of_mean
        The same for a forecast by the mean alone.
    """

    resource: str
    hours: int
    wape: float
    wape_of_mean: float


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected loads of n partitions and R resources.

    Parameters
    ----------
    topic, partition
        Names and numbers, n of each.
    leader, follower : (n, R) float
        The largest hourly mean expected; nan if nothing is known.
    errors
        For each resource.
    """

    topic: tuple[str, ...]
    partition: Ints
    leader: Floats
    follower: Floats
    errors: tuple[ForecastError, ...]


def forecast_loads(
    loads: DataFrame, resources: Sequence[str], range_ms: tuple[int, int], horizon_ms: int
) -> Forecast:
    """Predict loads after a range of time from those in it.

    A line and a seasonal pattern are fitted together to hourly means, by least squares. The
    pattern is the hour of the week if there are two weeks, and the hour of the day if
    there are two days; with less, the forecast is the mean. An hour of the pattern without
    any load of a partition is filled from its other hours.

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

    Raises
    ------
    HistoryError
        If there are no loads.
    """
    first, end = range_ms[0] // HOUR_MS, -(-range_ms[1] // HOUR_MS)
    ahead = np.arange(
        range_ms[1] // HOUR_MS, max(-(-(range_ms[1] + horizon_ms) // HOUR_MS), end + 1)
    )
    held_out = min((end - first) // _HELD_OUT, WEEK_HOURS)
    predictor = _Predictor(first, end, ahead, held_out, len(resources))
    hour = f.floor(f.col("start_ms") / f.lit(HOUR_MS)).alias("hour")
    hourly = (
        ordered(flattened(loads, len(resources)))
        .groupBy(*ENTITY, hour)
        .agg(*(f.avg(name).alias(name) for name in columns(len(resources))))
        .sortWithinPartitions(*ENTITY)
    )
    found = hourly.mapInArrow(
        predictor.batches,
        "topic string, partition long, ahead array<double>, wrong array<double>, "
        "wrong_mean array<double>, load array<double>",
    ).toArrow()
    if not found.num_rows:
        raise HistoryError(
            f"forecast: no loads between {range_ms[0]} and {range_ms[1]} (ms since 1970) found, "
            "some expected"
        )
    found = found.sort_by([(name, "ascending") for name in ENTITY])
    r = len(resources)
    expected = matrix(found, "ahead", 2 * r)
    wrong, wrong_mean, load = (
        matrix(found, name, 2 * r)[:, :r].sum(axis=0) for name in ("wrong", "wrong_mean", "load")
    )
    errors = tuple(
        ForecastError(
            name,
            held_out,
            float(wrong[i] / load[i]) if load[i] > 0 else float("nan"),
            float(wrong_mean[i] / load[i]) if load[i] > 0 else float("nan"),
        )
        for i, name in enumerate(resources)
    )
    partition = found["partition"].to_numpy()
    return Forecast(
        tuple(found["topic"].to_pylist()), partition, expected[:, :r], expected[:, r:], errors
    )


def predict(series: Floats, first: int, hours: Ints) -> Floats:
    """Predict hourly series by a seasonal pattern and a line.

    Parameters
    ----------
    series : (E, H, S) float
        S series of E entities over H hours; nan if unknown.
    first
        The first hour of the series, since 1970.
    hours : (K,) int
        Hours to predict.

    Returns
    -------
    (E, K, S) float
        At least 0; nan if nothing is known.
    """
    length = series.shape[1]
    cycle = next((c for c in (WEEK_HOURS, DAY_HOURS) if length >= 2 * c), 1)
    trended = length >= 2 * DAY_HOURS
    # Whole cycles, so that equal hours of the pattern are in one column.
    before = first % cycle
    after = -(before + length) % cycle
    padded = np.pad(series, ((0, 0), (before, after), (0, 0)), constant_values=np.nan)
    e, h, s = padded.shape
    x = padded.reshape(e, h // cycle, cycle, s)
    known = ~np.isnan(x)
    # Time in days from the start.
    t = ((np.arange(h) - before) / DAY_HOURS).reshape(h // cycle, cycle)[None, :, :, None]
    x, t = np.where(known, x, 0.0), np.where(known, t, 0.0)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_x, mean_t = x.sum(axis=1) / count, t.sum(axis=1) / count
        slope = np.zeros((e, s))
        if trended:
            # Within each hour of the pattern, which removes the pattern.
            dx = np.where(known, x - mean_x[:, None], 0.0)
            dt = np.where(known, t - mean_t[:, None], 0.0)
            spread = (dt * dt).sum(axis=(1, 2))
            slope = np.where(spread > 0, (dx * dt).sum(axis=(1, 2)) / spread, 0.0)
        level = mean_x - slope[:, None] * mean_t
        whole = np.nansum(level, axis=1) / (count > 0).sum(axis=1)
    level = np.where(count > 0, level, whole[:, None])
    when = ((hours - first) / DAY_HOURS)[None, :, None]
    expected: Floats = level[:, (hours - first + before) % cycle] + slope[:, None] * when
    return np.maximum(expected, 0.0)


@dataclass(frozen=True)
class _Predictor:
    """Turns hourly loads, sorted by partition, into forecasts."""

    first: int
    end: int
    ahead: Ints
    held_out: int
    resources: int

    def batches(self, hourly: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in _whole_entities(hourly):
            change = _changes(table)
            for at in range(0, len(change), _CHUNK):
                start = change[at]
                stop = change[at + _CHUNK] if at + _CHUNK < len(change) else table.num_rows
                yield self.predicted(table.slice(start, stop - start))

    def predicted(self, table: pa.Table) -> pa.RecordBatch:
        change = _changes(table)
        entity = np.cumsum(np.isin(np.arange(table.num_rows), change)) - 1
        names = columns(self.resources)
        series = np.full((len(change), self.end - self.first, len(names)), np.nan)
        values = np.column_stack([table[name].to_numpy() for name in names])
        series[entity, table["hour"].to_numpy() - self.first] = values
        early = series[:, : len(series[0]) - self.held_out]
        late = series[:, len(early[0]) :]
        reported = np.arange(self.end - self.held_out, self.end)
        wrong = np.abs(predict(early, self.first, reported) - late)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.nansum(early, axis=1) / (~np.isnan(early)).sum(axis=1)
        wrong_mean = np.abs(mean[:, None] - late)
        # Loads that cannot be predicted at all do not count.
        load = np.where(np.isnan(wrong), np.nan, late)
        columns_of = {
            "ahead": predict(series, self.first, self.ahead).max(axis=1),
            "wrong": np.nansum(wrong, axis=1),
            "wrong_mean": np.nansum(wrong_mean, axis=1),
            "load": np.nansum(load, axis=1),
        }
        keys = table.take(pa.array(change)).select([*ENTITY])
        arrays = [pa.array(list(value)) for value in columns_of.values()]
        return pa.RecordBatch.from_arrays(
            [*(c.combine_chunks() for c in keys.columns), *arrays], names=[*ENTITY, *columns_of]
        )


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
