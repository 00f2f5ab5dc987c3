"""ALBIC and COLA by collocatable share and by size: Figures 10 and 11 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.harness.figures import Panel, chosen, draw, holds
from benchmarks.harness.jobs import synthetic
from benchmarks.harness.planners import at_the_end, by_albic, by_cola
from benchmarks.harness.stream_job import PeriodMetrics, SimulatedJob, Statistics
from benchmarks.registry import Options, Row, benchmark
from cluster_model.snapshot import Floats, Ints

_NAME = "albic-collocation"
_ALBIC, _COLA = "albic", "cola"
# Section 5.1: differences between key groups; Section 5.3: changes in a period.
_SPREAD, _CHANGED, _BY = 0.05, 0.2, 0.02
_TINY = 1e-9


class Setting(NamedTuple):
    """Nodes, key groups, operators; percent that can be collocated; migrations, periods."""

    nodes: int
    key_groups: int
    operators: int
    obtainable: tuple[int, ...]
    migrations: int = 20
    periods: int = 40


_SETTINGS = {
    "S": Setting(5, 50, 5, (0, 100), 6, 3),
    "20x400": Setting(20, 400, 10, (50,)),
    "40x800": Setting(40, 800, 20, (0, 25, 50, 75, 100)),
    "60x1200": Setting(60, 1200, 30, (50,)),
}


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def albic_collocation(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Load distance and collocation of ALBIC and COLA, by the share that can be collocated.

    Both start with the allocation that COLA finds when the job is submitted, as the paper proposes;
    loads change a little every period. ``--rounds`` is the number of periods.
    """
    names = chosen(options, (_ALBIC, _COLA))
    for size in sizes:
        s, ends = _SETTINGS[size], dict[str, list[tuple[float, float, float]]]()
        for obtainable in s.obtainable:
            job = synthetic(*s[:3], obtainable=obtainable / 100, seed=options.seed)
            case = f"{obtainable}% obtainable"
            for name in names:
                options.log(f"{_NAME} {size}: {case}, {name}")
                planner = by_cola() if name == _COLA else by_albic(s.migrations)
                lived = list(
                    _lived(job, s.nodes, planner, options.rounds or s.periods, options.seed)
                )
                life = [period for period, _ in lived]
                distance = float(np.mean([p.distance for p in life]))
                local = at_the_end(life, "collocation")
                pairs = float(np.mean([one_to_one for _, one_to_one in lived[-5:]]))
                ends.setdefault(name, []).append((distance, local, pairs))
                migrations = float(np.mean([p.migrations for p in life]))
                for metric, value, unit in (
                    (f"load distance, {case}", distance, "points"),
                    (f"collocation, {case}", local, "percent"),
                    (f"collocation of one-to-one, {case}", pairs, "percent"),
                    (f"migrations a period, {case}", migrations, "migrations"),
                ):
                    yield Row(_NAME, size, name, metric, value, unit)
            if len(names) == 2:
                ours, theirs = ends[_ALBIC][-1], ends[_COLA][-1]
                for claim, holding in (
                    ("load distance is no greater", ours[0] <= theirs[0]),
                    ("collocation is no less", ours[1] >= theirs[1] - _TINY),
                    ("collocation of one-to-one is no less", ours[2] >= theirs[2] - _TINY),
                ):
                    yield from holds(_NAME, size, f"albic's {claim}, {case}", holding)
        panels = [
            Panel(
                f"{size}: {what}",
                "percent that can be collocated",
                what,
                {n: (s.obtainable, [e[i] for e in ends[n]]) for n in ends},
            )
            for i, what in enumerate(("load distance", "collocation", "collocation of one-to-one"))
        ]
        draw(options, f"{_NAME}-{size}", panels)


def _lived(
    job: SimulatedJob, nodes: int, planner: Callable[[Statistics], Ints], periods: int, seed: int
) -> Iterator[tuple[PeriodMetrics, float]]:
    """In each period, change the load of a fifth of the nodes by up to 2 percent, and plan.

    Yields each period with the percentage of all data that is one-to-one and stays on its node.
    """
    rng = np.random.default_rng(seed)
    units = len(job.operator)
    _, flow = job.sent(np.ones(units), 1.0)
    neighbours = np.bincount(job.source, minlength=units)
    one_to_one = np.where(neighbours[job.source] == 1, flow, 0.0) / flow.sum()
    load: Floats = rng.uniform(1 - _SPREAD, 1 + _SPREAD, units)
    load *= 50.0 * nodes / load.sum()
    node = by_cola()(Statistics(job, nodes, load, flow, np.arange(units) % nodes))
    for _ in range(periods):
        changed = rng.choice(nodes, max(1, round(_CHANGED * nodes)), replace=False)
        factor = np.ones(nodes)
        factor[changed] = rng.uniform(1 - _BY, 1 + _BY, len(changed))
        load = load * factor[node]
        before = Statistics(job, nodes, load, flow, node)
        after = planner(before)
        local = after[job.source] == after[job.target]
        period = PeriodMetrics(
            distance=before.allocation(0).distance(after),
            collocation=100.0 * before.units(0).local(after),
            load_index=100.0,
            migrations=int((after != node).sum()),
            latency=float(job.state[after != node].sum()),
        )
        yield period, 100.0 * float(one_to_one[local].sum())
        node = after
