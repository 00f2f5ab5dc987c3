"""ALBIC and COLA by collocatable share and by size: Figures 10 and 11 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.allocation.solver import GOOD
from balancer.allocation.units import Units
from balancer.collocation.albic import albic
from balancer.collocation.parameters import CollocationParameters
from benchmarks.harness.figures import Panel, chosen, draw, holds
from benchmarks.harness.graphs import KINDS, Graph
from benchmarks.harness.jobs import synthetic
from benchmarks.harness.planners import ROUNDS, Planner, at_the_end, by_albic, by_cola
from benchmarks.harness.stream_job import PeriodMetrics, SimulatedJob, Statistics
from benchmarks.registry import Options, Row, benchmark
from benchmarks.subjects.cola import cola
from benchmarks.subjects.local_greedy import local_greedy
from benchmarks.subjects.metis_walk import MetisWalk
from benchmarks.subjects.offline_metis import offline_metis
from cluster_model.snapshot import Floats, Ints

_NAME = "albic-collocation"
_ALBIC, _COLA = "albic", "cola"
# The paper's algorithm without ours beyond it, a greedy, an offline partition, and no migrations.
_SEED, _GREEDY, _METIS, _NOTHING = "albic of the paper", "greedy", "metis", "nothing"
# Towards that partition within the budget of every period.
_WALK = "metis walk"
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


class Graphs(NamedTuple):
    """Nodes, key groups, migrations a period, periods, and seeds."""

    nodes: int
    key_groups: int
    migrations: int
    periods: int
    seeds: int


_GRAPHS = {"graphs-S": Graphs(5, 60, 6, 4, 2), "graphs": Graphs(20, 400, 20, 20, 10)}


@benchmark(_NAME, sizes=(*_SETTINGS, *_GRAPHS))
def albic_collocation(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Load distance and collocation of ALBIC, COLA and others.

    The sizes by nodes and key groups are the figures: by the share that can be collocated, from the
    allocation that COLA finds when the job is submitted, as the paper proposes. The sizes `graphs`
    draw four kinds of graphs with several seeds, from the allocation of COLA and from a random
    one. Loads change a little every period. ``--rounds`` is the number of periods. Rows that end in
    ``by construction`` follow from how the start is drawn.
    """
    for size in sizes:
        yield from (_graphs if size in _GRAPHS else _figures)(size, options)


def _figures(size: str, options: Options) -> Iterator[Row]:
    names = chosen(options, (_ALBIC, _COLA, _SEED, _NOTHING))
    s, ends = _SETTINGS[size], dict[str, list[tuple[float, float, float]]]()
    for obtainable in s.obtainable:
        job = synthetic(*s[:3], obtainable=obtainable / 100, seed=options.seed)
        case = f"{obtainable}% obtainable"
        for name in names:
            options.log(f"{_NAME} {size}: {case}, {name}")
            planner = _planner(name, s.migrations)
            lived = list(_lived(job, s.nodes, planner, options.rounds or s.periods, options.seed))
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
                yield Row(_NAME, size, name, metric + _mark(name), value, unit)
        if {_ALBIC, _COLA} <= set(names):
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


def _mark(name: str) -> str:
    """Ends the metrics of a subject that does nothing: they are those of the start as drawn."""
    return ", by construction" if name == _NOTHING else ""


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


def _planner(name: str, migrations: int) -> Planner:
    planners: dict[str, Callable[[], Planner]] = {
        _ALBIC: lambda: by_albic(migrations),
        _SEED: lambda: by_albic(migrations, parameters=CollocationParameters(additions=False)),
        _COLA: by_cola,
        _NOTHING: lambda: lambda statistics: statistics.node,
    }
    return planners[name]()


def _graphs(size: str, options: Options) -> Iterator[Row]:
    """Rows of each kind of graph and start: means over seeds, with the standard deviation."""
    names = chosen(options, (_ALBIC, _SEED, _GREEDY, _WALK, _COLA, _METIS, _NOTHING))
    s = _GRAPHS[size]
    periods = options.rounds or s.periods
    for kind in KINDS:
        for start in ("random", _COLA):
            case, ends = f"{kind} from {start}", dict[str, list[float]]()
            for name in names:
                options.log(f"{_NAME} {size}: {case}, {name}, {s.seeds} seeds")
                runs = np.array(
                    [
                        _run(s, periods, kind, start, name, options.seed + seed)
                        for seed in range(s.seeds)
                    ]
                )
                ends[name] = runs[:, 0].tolist()
                mean, spread = runs.mean(0).tolist(), float(runs[:, 0].std())
                for metric, value, unit in (
                    (f"local traffic at the end, {case}", mean[0], "percent"),
                    (f"standard deviation of it, {case}", spread, "points"),
                    (
                        f"load distance of the last half, greatest, {case}",
                        runs[:, 1].max(),
                        "points",
                    ),
                    (f"migrations, {case}", mean[2], "migrations"),
                    (f"local traffic, mean of all periods, {case}", mean[3], "percent"),
                ):
                    yield Row(_NAME, size, name, metric + _mark(name), float(value), unit)
            for name in (_GREEDY, _WALK, _COLA):
                if {_ALBIC, name} <= set(names):
                    least = min(
                        a / max(b, _TINY) for a, b in zip(ends[_ALBIC], ends[name], strict=True)
                    )
                    metric = f"local traffic over that of {name}, least of all seeds, {case}"
                    yield Row(_NAME, size, _ALBIC, metric, least, "ratio")


def _run(
    s: Graphs, periods: int, kind: str, start: str, name: str, seed: int
) -> tuple[float, float, float, float]:
    """Local traffic at the end, greatest load distance of the last half, migrations, mean local."""
    rng = np.random.default_rng(seed)
    graph = KINDS[kind](s.key_groups, rng)
    load = graph.load * (60.0 * s.nodes / graph.load.sum())
    node = rng.integers(0, s.nodes, s.key_groups)
    if start == _COLA:
        node = cola(_units(s, graph, load, node).problem, *graph[1:4])
    planner, migrations = _subject(name, seed), 0
    far, local = list[float](), list[float]()
    for period in range(periods):
        load = load * rng.uniform(1 - _BY, 1 + _BY, s.nodes)[node]
        units = _units(s, graph, load, node)
        after = planner(units, period)
        migrations += int((after != node).sum())
        node = after
        far.append(units.problem.distance(node))
        local.append(100.0 * units.local(node))
    return local[-1], max(far[periods // 2 :]), float(migrations), float(np.mean(local))


def _units(s: Graphs, graph: Graph, load: Floats, node: Ints) -> Units:
    problem = Allocation(
        load=load,
        cost=np.ones(len(load)),
        node=node,
        weight=np.ones(s.nodes),
        removed=np.zeros(s.nodes, np.bool_),
        budget=s.migrations,
    )
    operator, source, target, rate, _ = graph
    return Units(problem=problem, operator=operator, source=source, target=target, rate=rate)


def _subject(name: str, seed: int) -> Callable[[Units, int], Ints]:
    """What puts the key groups on nodes, given them and the number of the period."""
    if name in (_ALBIC, _SEED):
        own = CollocationParameters(additions=name == _ALBIC)
        return lambda units, period: (
            albic(units, rounds=ROUNDS, seed=seed + period, parameters=own).solution.node
        )
    walk = MetisWalk(GOOD, seed)
    subjects: dict[str, Callable[[Units, int], Ints]] = {
        _GREEDY: lambda units, _: local_greedy(units, GOOD),
        _WALK: lambda units, _: walk(units),
        _COLA: lambda units, _: cola(
            units.problem, units.source, units.target, units.rate, enough=GOOD
        ),
        _METIS: lambda units, period: units.problem.node if period else offline_metis(units, seed),
        _NOTHING: lambda units, _: units.problem.node,
    }
    return subjects[name]
