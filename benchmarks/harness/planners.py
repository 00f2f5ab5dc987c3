"""Planners that allocate the key groups of a simulated stream job, and their summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np

from balancer.allocation.flux import flux
from balancer.allocation.solver import solve
from balancer.collocation.albic import albic
from balancer.collocation.parameters import CollocationParameters
from benchmarks.harness.processor import ProcessorDeadline
from benchmarks.harness.stream_job import PeriodMetrics, Statistics
from benchmarks.subjects.cola import cola
from cluster_model.snapshot import Ints

Planner = Callable[[Statistics], Ints]
# Reduced effort per plan, and processor seconds, since a simulation makes many; albic-solver uses
# the full effort.
ROUNDS, _SECONDS = 1_500, 2.0
# Number of last periods whose mean describes the end.
_LAST = 5


def by_milp(migrations: float, bounds: list[float] | None = None) -> Planner:
    """The MILP alone; the bound of every plan is added to `bounds`."""

    def plan(statistics: Statistics) -> Ints:
        found = solve(
            statistics.allocation(migrations),
            rounds=ROUNDS,
            deadline=ProcessorDeadline.after(_SECONDS),
        )
        if bounds is not None:
            bounds.append(found.bound)
        return found.node

    return plan


def by_flux(migrations: float) -> Planner:
    """Flux."""
    return lambda s: flux(s.allocation(migrations))


def by_albic(
    migrations: float, *, pairs: int = 1, parameters: CollocationParameters | None = None
) -> Planner:
    """ALBIC, by default with its defaults; every period has its own seed."""
    seeds = count()
    return lambda s: (
        albic(
            s.units(migrations),
            pairs=pairs,
            rounds=ROUNDS,
            deadline=ProcessorDeadline.after(_SECONDS),
            seed=next(seeds),
            parameters=parameters,
        ).solution.node
    )


def by_cola() -> Planner:
    """COLA, from scratch every time, with the balance that ALBIC must keep."""
    return lambda s: cola(s.allocation(np.inf), s.job.source, s.job.target, s.rate)


def summary(periods: Sequence[PeriodMetrics]) -> Iterator[tuple[str, float, str]]:
    """Metric, value and unit of a simulated run."""
    distance = np.array([p.distance for p in periods])
    last = periods[-_LAST:]
    yield "load distance, mean", float(distance.mean()), "points"
    yield "load distance, greatest", float(distance.max()), "points"
    yield "load distance at the end", at_the_end(last, "distance"), "points"
    yield "collocation at the end", at_the_end(last, "collocation"), "percent"
    yield "load index at the end, calibrated", at_the_end(last, "load_index"), "percent"
    yield "migrations a period", float(np.mean([p.migrations for p in periods])), "migrations"
    yield "latency a period, calibrated", float(np.mean([p.latency for p in periods])), "seconds"


def at_the_end(periods: Sequence[PeriodMetrics], field: str) -> float:
    """Mean of a field over the last periods."""
    return float(np.mean([getattr(p, field) for p in periods[-_LAST:]]))


def over_time(
    lives: Mapping[str, Sequence[PeriodMetrics]], field: str
) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    """Lines of a field, for a picture."""
    return {
        name: (range(len(periods)), [float(getattr(p, field)) for p in periods])
        for name, periods in lives.items()
    }
