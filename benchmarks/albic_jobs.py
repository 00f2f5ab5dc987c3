"""Real Jobs 2 to 4 under ALBIC and COLA: Figures 12 to 14 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.harness.figures import Panel, chosen, draw, holds, stated
from benchmarks.harness.jobs import airline
from benchmarks.harness.planners import Planner, at_the_end, by_albic, by_cola, over_time, summary
from benchmarks.harness.stream_job import PeriodMetrics, fluctuating, run_periods
from benchmarks.registry import Options, Row, benchmark

_NAME = "albic-jobs"
_ALBIC, _PAIRS, _COLA = "albic", "albic 5 pairs", "cola"
# Spread of the reports of aeroplanes, routes and stations, and swing of the input over a day.
_SPREAD, _SWING = 0.1, 0.05


class Setting(NamedTuple):
    """Nodes, key groups per operator, migrations per period, periods of each job."""

    nodes: int
    key_groups: int
    migrations: int
    periods: tuple[int, int, int]


# Real Job 4 has several times as many pairs to bring together, one per period.
_SETTINGS = {
    "S": Setting(5, 10, 4, (4, 4, 4)),
    "20x100": Setting(20, 100, 10, (150, 150, 450)),
}


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def albic_jobs(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Collocation, load distance, load index and migrations of jobs that start scattered.

    ``albic`` brings one pair of key groups together in each period, as in the paper; another
    subject brings five together. ``--rounds`` is the number of periods.
    """
    names = chosen(options, (_ALBIC, _PAIRS, _COLA))
    for size in sizes:
        s, ends = _SETTINGS[size], dict[int, float]()
        for number in (2, 3, 4):
            job = airline(s.nodes, s.key_groups, job=number, seed=options.seed)
            conditions = fluctuating(
                job,
                options.rounds or s.periods[number - 2],
                spread=_SPREAD,
                swing=_SWING,
                bursts=False,
                seed=options.seed,
            )
            planners: Mapping[str, Planner] = {
                _ALBIC: by_albic(s.migrations),
                _PAIRS: by_albic(s.migrations, pairs=5),
                _COLA: by_cola(),
            }
            lives: dict[str, list[PeriodMetrics]] = {}
            for name in names:
                options.log(f"{_NAME} {size}: Real Job {number}, {name}")
                lives[name] = list(run_periods(job, conditions, s.nodes, planners[name]))
                for metric, value, unit in summary(lives[name]):
                    yield Row(_NAME, f"{size}, Real Job {number}", name, metric, value, unit)
            if _ALBIC in lives:
                ends[number] = at_the_end(lives[_ALBIC], "collocation")
            yield from _beside(f"{size}, Real Job {number}", number, lives, ends)
            panels = [
                Panel(f"Real Job {number}: {what}", "period", what, over_time(lives, field))
                for field, what in (
                    ("collocation", "collocation, %"),
                    ("distance", "load distance"),
                    ("load_index", "load index, %"),
                    ("migrations", "migrations"),
                )
            ]
            draw(options, f"{_NAME}-{size}-{number}", panels)


def _beside(
    size: str, number: int, lives: Mapping[str, Sequence[PeriodMetrics]], ends: Mapping[int, float]
) -> Iterator[Row]:
    """The paper's figures for the job."""
    local, index, moved = (
        "collocation at the end",
        "load index at the end, calibrated",
        "migrations a period",
    )
    if number == 2:
        if _ALBIC in lives:
            yield stated(_NAME, size, _ALBIC, local, 100.0, "percent")
            yield stated(_NAME, size, _ALBIC, index, 50.0, "percent")
            yield stated(_NAME, size, _ALBIC, moved, 10.0, "migrations")
        if _COLA in lives:
            yield stated(_NAME, size, _COLA, local, 100.0, "percent")
            yield stated(_NAME, size, _COLA, index, 75.0, "percent")
            yield stated(_NAME, size, _COLA, moved, 200.0, "migrations")
    if number == 3 and _ALBIC in lives:
        yield stated(_NAME, size, _ALBIC, local, 50.0, "percent")
        half = abs(ends[3] / max(ends[2], 1e-9) - 0.5) <= 0.1
        yield from holds(_NAME, size, "half the collocation of Real Job 2", half)
    if number == 4 and _COLA in lives:
        yield stated(_NAME, size, _COLA, local, 61.0, "percent")
    if _ALBIC in lives and _COLA in lives:
        ours, theirs = lives[_ALBIC], lives[_COLA]
        reached = at_the_end(ours, "collocation") >= at_the_end(theirs, "collocation") - 5
        yield from holds(_NAME, size, "albic reaches the collocation of cola", reached)
        # Until then, bringing pairs together may use all of maxLD.
        better = at_the_end(ours, "distance") < at_the_end(theirs, "distance")
        yield from holds(_NAME, size, "albic's load distance at the end is smaller", better)
