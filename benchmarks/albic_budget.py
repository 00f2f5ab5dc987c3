"""Effect of the migration budget on quality and latency: Figures 8 and 9 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.albic_quality import SETTINGS
from benchmarks.harness.figures import PAPER, Panel, chosen, draw, holds
from benchmarks.harness.jobs import edits, wikipedia
from benchmarks.harness.planners import by_milp, over_time, summary
from benchmarks.harness.stream_job import PeriodMetrics, run_periods
from benchmarks.registry import Options, Row, benchmark

_NAME = "albic-budget"
_UNRESTRICTED = "unlimited"
# Migrations per period, as shares of those of Figure 6: 10, 13, 20 at its size.
_SHARES = {"tight": 10 / 13, "same": 1.0, "wide": 20 / 13, _UNRESTRICTED: np.inf}
# Seconds that a migration pauses its key group (Section 5.2.2).
_PAUSE = 2.5


@benchmark(_NAME, sizes=tuple(SETTINGS))
def albic_budget(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Load distance and summed latency of migrations under several budgets.

    Real Job 1. ``--rounds`` is the number of periods.
    """
    names = chosen(options, tuple(_SHARES))
    for size in sizes:
        s = SETTINGS[size]
        job = wikipedia(s.nodes, s.key_groups, seed=options.seed)
        conditions = edits(job, options.rounds or s.periods, seed=options.seed)
        lives: dict[str, list[PeriodMetrics]] = {}
        for name in names:
            allowed = np.round(s.migrations * _SHARES[name])
            options.log(f"{_NAME} {size}: {allowed:g} migrations")
            lives[name] = list(run_periods(job, conditions, s.nodes, by_milp(float(allowed))))
            for metric, value, unit in summary(lives[name][1:]):
                if "collocation" not in metric and "index" not in metric:
                    yield Row(_NAME, size, name, metric, value, unit)
            moved = sum(p.migrations for p in lives[name])
            latency = sum(p.latency for p in lives[name])
            if moved:
                metric = "latency a migration, calibrated"
                yield Row(_NAME, size, name, metric, latency / moved, "seconds")
                yield Row(_NAME, size, PAPER, metric, _PAUSE, "seconds")
        if len(lives) == len(_SHARES):
            mean = [float(np.mean([p.distance for p in life[1:]])) for life in lives.values()]
            latency_of = [sum(p.latency for p in life) for life in lives.values()]
            yield from holds(_NAME, size, "unrestricted is the best", mean[-1] <= min(mean))
            claim = "unrestricted costs most latency"
            yield from holds(_NAME, size, claim, latency_of[-1] >= max(latency_of))
        panels = [
            Panel(f"{size}: quality", "period", "load distance", over_time(lives, "distance")),
            Panel(f"{size}: overhead", "period", "latency, s", over_time(lives, "latency")),
        ]
        draw(options, f"{_NAME}-{size}", panels)
