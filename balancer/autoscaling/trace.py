"""Reads a trace of arrivals, and draws the events that it stands for."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.group import MOST
from balancer.autoscaling.simulation import Setting
from cluster_model.snapshot import Floats, Ints
from metrics_reporter.documents import shown
from metrics_reporter.quantities import plural, rounded

# Of a file, which is read as a whole: a device would never end.
_MOST_BYTES = 1 << 28


class Events(NamedTuple):
    """Events in the order of their arrival.

    Parameters
    ----------
    arrival : (E,) float
        Seconds since the start.
    partition : (E,) int
        Where each arrives.
    partitions
        Number of partitions.
    """

    arrival: Floats
    partition: Ints
    partitions: int


def load_trace(
    path: Path, partitions: int, seed: int = 0, most_events: int = Setting.most_events
) -> Events:
    """Events at random times, as many as a trace says.

    Parameters
    ----------
    path
        CSV file: a time in seconds, ascending, and the events/s from then on, of all partitions or
        of each in a column of its own. A first line of names, none of them a number, is left out;
        the last line ends the trace.
    partitions
        Among how many partitions a single column is divided, evenly.
    seed
        Seed of the times.
    most_events
        Most events that the trace may stand for.

    Raises
    ------
    AutoscalingError
        Naming the line and what is expected.
    """
    where = f"trace {path}"
    time, rate = _rows(path, where)
    if rate.shape[1] == 1:
        if partitions < 1:
            raise AutoscalingError(f"partitions: {partitions} found, at least 1 expected")
        rate = np.repeat(rate / partitions, partitions, axis=1)
    expected = float((rate[:-1] * np.diff(time)[:, None]).sum())
    if expected > most_events:
        raise AutoscalingError(
            f"{where}: {rounded(expected)} events found, at most {most_events:,} expected"
        )
    events = draw(time, rate, seed)
    if not len(events.arrival):
        raise AutoscalingError(f"{where}: no event found, at least 1 expected")
    return events


def draw(time: Floats, rate: Floats, seed: int = 0) -> Events:
    """Events at random times, as many as rates say.

    Parameters
    ----------
    time : (N,) float
        Seconds, ascending.
    rate : (N, P) float
        Events/s that arrive in each partition from each time on; the last time is the end.
    seed
        Seed of the times.
    """
    # whole events, none lost to rounding over time
    seconds = np.diff(time)
    sums = np.vstack([np.zeros(rate.shape[1]), np.cumsum(rate[:-1] * seconds[:, None], axis=0)])
    count = np.diff(np.floor(sums + 0.5), axis=0).astype(np.int64)
    rng = np.random.default_rng(seed)
    row, column = np.indices(count.shape)
    rows = np.repeat(row.ravel(), count.ravel())
    arrival = time[rows] - time[0] + rng.random(len(rows)) * seconds[rows]
    order = np.argsort(arrival, kind="stable")
    partition = np.repeat(column.ravel(), count.ravel())
    return Events(arrival[order], partition[order].astype(np.int64), rate.shape[1])


def _rows(path: Path, where: str) -> tuple[Floats, Floats]:
    """Times (N,) and rates (N, columns) of a file."""
    try:
        # a device has no size
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise AutoscalingError(f"{where}: more than {_MOST_BYTES:,} bytes found")
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = [(n, row) for n, row in enumerate(csv.reader(text), 1) if row]
    except OSError as error:
        raise AutoscalingError(f"{where}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise AutoscalingError(f"{where}: {error}, text with commas expected") from None
    if lines and all(_number(cell) is None for cell in lines[0][1]):
        lines = lines[1:]
    if len(lines) < 2:
        found_lines = plural(len(lines), "line")
        raise AutoscalingError(f"{where}: {found_lines} of numbers found, at least 2 expected")
    values: list[list[float]] = []
    for n, row in lines:
        found = _numbers(row)
        if found is None or len(found) < 2 or min(found[1:]) < 0:
            raise AutoscalingError(
                f"{where}, line {n}: {shown(','.join(row))} found, a time and events/s from 0 "
                f"to {MOST:g} expected"
            )
        if values and (len(found) != len(values[0]) or found[0] <= values[-1][0]):
            raise AutoscalingError(
                f"{where}, line {n}: {shown(','.join(row))} found, {len(values[0])} columns and a "
                f"time after {values[-1][0]:g} expected"
            )
        values.append(found)
    table = np.array(values)
    return table[:, 0], table[:, 1:]


def _numbers(row: list[str]) -> list[float] | None:
    found = [x for cell in row if (x := _number(cell)) is not None and abs(x) <= MOST]
    return found if len(found) == len(row) else None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
