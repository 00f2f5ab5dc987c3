"""MILP, Flux and PoTC over time on Real Job 1: Figures 6 and 7 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness.figures import Panel, chosen, draw, holds, stated
from benchmarks.harness.jobs import edits, wikipedia
from benchmarks.harness.planners import by_flux, by_milp, over_time, summary
from benchmarks.harness.stream_job import Conditions, PeriodMetrics, SimulatedJob, run_periods
from benchmarks.registry import Options, Row, benchmark
from benchmarks.subjects.potc import potc
from cluster_model.snapshot import Floats

_NAME = "albic-quality"
_MILP, _FLUX, _POTC, _BOUND = "milp", "flux", "potc", "bound of milp"
# Load of merging relative to processing, and its spread over key groups.
_MERGE, _MERGE_SPREAD = 0.15, 0.5
# PoTC splits keys, of which a key group has many; the spread of their loads, and the parts of each.
_KEYS, _KEY_SPREAD, _TUPLES = 50, 0.5, 4


class Setting(NamedTuple):
    """Nodes, key groups per operator, migrations per period, periods."""

    nodes: int
    key_groups: int
    migrations: int
    periods: int


SETTINGS = {"S": Setting(5, 20, 4, 4), "20x300": Setting(20, 100, 13, 60)}


@benchmark(_NAME, sizes=tuple(SETTINGS))
def albic_quality(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Load distance right after migrating, and migrations, as input rates fluctuate.

    Real Job 1: three operators, fully partitioned. ``--rounds`` is the number of periods.
    """
    names = chosen(options, (_MILP, _FLUX, _POTC))
    for size in sizes:
        s = SETTINGS[size]
        job = wikipedia(s.nodes, s.key_groups, seed=options.seed)
        conditions = edits(job, options.rounds or s.periods, seed=options.seed)
        lives: dict[str, list[PeriodMetrics]] = {}
        bounds: list[float] = []
        for name in names:
            options.log(f"{_NAME} {size}: {name}")
            if name == _POTC:
                lives[name] = list(_two_choices(job, conditions, s.nodes, options.seed))
            else:
                milp = name == _MILP
                planner = by_milp(s.migrations, bounds) if milp else by_flux(s.migrations)
                lives[name] = list(run_periods(job, conditions, s.nodes, planner))
            # The first plan repairs the initial allocation.
            for metric, value, unit in summary(lives[name][1:]):
                if "collocation" not in metric and "index" not in metric:
                    yield Row(_NAME, size, name, metric, value, unit)
        greatest = {n: max(p.distance for p in life[1:]) for n, life in lives.items()}
        metric = "load distance, greatest"
        if _MILP in greatest:
            yield Row(
                _NAME, size, _BOUND, "load distance, mean", float(np.mean(bounds[1:])), "points"
            )
            yield Row(_NAME, size, _BOUND, metric, max(bounds[1:]), "points")
            yield stated(_NAME, size, _MILP, metric, 1.0, "points")
            yield from holds(_NAME, size, "milp stays below 1", greatest[_MILP] < 1.0)
            # If more of the input is new than these migrations can even out, no planner can.
            reached = zip(lives[_MILP][1:], bounds[1:], strict=True)
            allowed = all(period.distance < 1.0 or bound >= 1.0 for period, bound in reached)
            yield from holds(_NAME, size, "milp stays below 1 wherever its bound does", allowed)
        if _FLUX in greatest:
            yield stated(_NAME, size, _FLUX, metric, 7.0, "points")
        if _MILP in greatest and _FLUX in greatest:
            claim = "flux is above milp in every period"
            pairs = zip(lives[_FLUX][1:], lives[_MILP][1:], strict=True)
            yield from holds(_NAME, size, claim, all(f.distance >= m.distance for f, m in pairs))
        panels = [
            Panel(f"{size}: quality", "period", "load distance", over_time(lives, "distance")),
            Panel(f"{size}: migrations", "period", "migrations", over_time(lives, "migrations")),
        ]
        draw(options, f"{_NAME}-{size}", panels)


def _two_choices(
    job: SimulatedJob, conditions: Conditions, nodes: int, seed: int
) -> Iterator[PeriodMetrics]:
    """The same job with two possible nodes per key, merged on a third.

    The amount to merge varies over time and between key groups, as Section 5.2.1 says; operators
    with input from outside keep no state.
    """
    rng = np.random.default_rng(seed)
    share = rng.lognormal(0.0, _KEY_SPREAD, (len(job.operator), _KEYS))
    share /= share.sum(1, keepdims=True)
    for popularity, volume in zip(conditions.popularity, conditions.volume, strict=True):
        came, flow = job.sent(popularity, float(volume))
        work: Floats = job.load(came, flow, np.arange(len(came)))
        merging = _MERGE * work * rng.lognormal(0.0, _MERGE_SPREAD, len(work)) * (job.enters == 0)
        keys, merged = (share * work[:, None]).ravel(), (share * merging[:, None]).ravel()
        loads = potc(keys, merged, nodes, tuples=_TUPLES, seed=seed)
        yield PeriodMetrics(float(np.abs(loads - loads.mean()).max()), 0.0, 100.0, 0, 0.0)
