"""Solver time against load distance: Figures 2 to 4 of the ALBIC paper."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from balancer.allocation.flux import flux
from balancer.allocation.milp import plain
from balancer.allocation.parameters import AllocationParameters
from balancer.allocation.problem import Allocation
from balancer.allocation.solver import solve
from balancer.problem.deadline import Deadline
from benchmarks.harness.figures import Panel, chosen, draw, holds
from benchmarks.harness.processor import ProcessorAlarm, ProcessorDeadline, one_thread
from benchmarks.registry import Options, Row, benchmark
from benchmarks.subjects.distance_annealing import distance_annealing

_NAME = "albic-solver"
_OURS, _FLUX, _PLAIN, _ANNEALING = "counterpoise", "flux", "highs plain", "annealing"
_BOUND = "bound"
# Mean load of a node, and spread of the key groups.
_LOAD, _SPREAD = 50.0, 0.05
_CHANGED = 0.2
# Cost budget, with a key group's load as its cost, and loads uneven enough to make it binding.
_TIGHT, _TIGHT_VARIES = 0.05, 120.0
# Time is the limit, not effort.
_ENDLESS = 10**9

# However small, a distance is compared with those of others.
_EXACT = AllocationParameters(trivial_distance=0.0)


class Setting(NamedTuple):
    """Nodes, key groups, seeds, processor seconds per plan, and those of the curve."""

    nodes: int
    key_groups: int
    seeds: int = 10
    seconds: float = 2.0
    curve: tuple[float, ...] = (0.5, 1.0, 2.0)
    varies: tuple[float, ...] = (20.0, 60.0)
    migrations: tuple[int, ...] = (10, 20, 40)


class Run(NamedTuple):
    """Load distance, a bound on it (0 if none is known), and processor seconds."""

    distance: float
    bound: float
    seconds: float


_SETTINGS = {
    "S": Setting(6, 60, 2, 0.5, (0.2,), (20.0,), (6,)),
    "20x400": Setting(20, 400),
    "40x800": Setting(40, 800),
    "60x1200": Setting(60, 1200),
}
_MIGRATIONS = 20


def uneven(
    nodes: int, key_groups: int, *, varies: float, migrations: float, seed: int
) -> Allocation:
    """Key groups on nodes as in Section 5.1.

    Equally many on every node, with loads that differ by at most 5 percent; then the load of a
    fifth of the nodes is lowered or raised by half of `varies` percent of the mean load, each on a
    random half of its key groups, or on all of them if that half carries too little.
    """
    rng = np.random.default_rng(seed)
    node = np.arange(key_groups) % nodes
    load = _LOAD * nodes / key_groups * rng.uniform(1 - _SPREAD, 1 + _SPREAD, key_groups)
    changed = rng.permutation(nodes)[: max(2, round(_CHANGED * nodes))]
    for number, which in enumerate(changed.tolist()):
        own = rng.permutation(np.flatnonzero(node == which))
        some = own[: max(1, len(own) // 2)]
        by = _LOAD * varies / 200 * (1 if number % 2 else -1)
        if by + load[some].sum() < 0:
            some = own
        load[some] *= max(0.0, 1 + by / load[some].sum())
    return Allocation(
        load=load,
        cost=np.ones(key_groups),
        node=node,
        weight=np.ones(nodes),
        removed=np.zeros(nodes, np.bool_),
        budget=migrations,
    )


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def albic_solver(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Load distance over solver time, against Flux, plain HiGHS, annealing and the bound.

    All but Flux, which ends by itself, have the same processor time, on one thread. The bound is
    proven: no allocation within the budget is below it. ``--rounds`` is the number of seeds, and
    with ``--pictures`` the distance is also measured over time.
    """
    names = chosen(options, (_OURS, _FLUX, _PLAIN, _ANNEALING))
    with one_thread():
        yield from _sizes(sizes, names, options)


def _sizes(sizes: Sequence[str], names: Sequence[str], options: Options) -> Iterator[Row]:
    for size in sizes:
        setting = _SETTINGS[size]
        migrations = _MIGRATIONS if _MIGRATIONS in setting.migrations else setting.migrations[-1]
        seeds = range(options.seed, options.seed + (options.rounds or setting.seeds))
        for varies in setting.varies:
            case = f"varies {varies:g}, {migrations} migrations"
            options.log(f"{_NAME} {size}: {case}")
            problems = [
                uneven(*setting[:2], varies=varies, migrations=migrations, seed=s) for s in seeds
            ]
            yield from _compared(size, case, problems, names, setting.seconds, options)
        options.log(f"{_NAME} {size}: tight budget")
        problems = [_tight(setting, seed) for seed in seeds]
        yield from _compared(
            size,
            f"varies {_TIGHT_VARIES:g}, budget of 5% of the load",
            problems,
            names,
            setting.seconds,
            options,
        )
        if options.pictures is not None:
            yield from _curves(size, setting, names, options)


def _tight(setting: Setting, seed: int) -> Allocation:
    p = uneven(*setting[:2], varies=_TIGHT_VARIES, migrations=0, seed=seed)
    return replace(p, cost=p.load, budget=_TIGHT * float(p.load.sum()))


def _compared(
    size: str,
    case: str,
    problems: Sequence[Allocation],
    names: Sequence[str],
    seconds: float,
    options: Options,
) -> Iterator[Row]:
    """Means over seeds with their spread, the seeds above the peers, and the proven bound."""
    found = {name: [_distance(name, p, seconds, options) for p in problems] for name in names}
    bounds = [max(run.bound for run in runs) for runs in zip(*found.values(), strict=True)]
    distances = {name: [run.distance for run in runs] for name, runs in found.items()}
    mean = {name: float(np.mean(values)) for name, values in distances.items()}
    for name, value in mean.items():
        yield Row(_NAME, size, name, f"load distance, {case}", value, "points")
        spread = float(np.std(distances[name]))
        yield Row(_NAME, size, name, f"standard deviation of it, {case}", spread, "points")
        used = float(np.mean([run.seconds for run in found[name]]))
        yield Row(_NAME, size, name, f"processor seconds, {case}", used, "seconds")
    yield Row(_NAME, size, _BOUND, f"load distance, {case}", float(np.mean(bounds)), "points")
    if _OURS in found:
        gaps = [1 - b / d if d > b else 0.0 for d, b in zip(distances[_OURS], bounds, strict=True)]
        yield Row(_NAME, size, _OURS, f"proven gap, {case}", float(np.mean(gaps)), "ratio")
    if _OURS in found and _FLUX in found and mean[_FLUX] > 0:
        share = mean[_OURS] / mean[_FLUX]
        yield Row(_NAME, size, _OURS, f"share of Flux, {case}", share, "ratio")
        least = float(np.mean(bounds)) / mean[_FLUX]
        yield Row(_NAME, size, _BOUND, f"share of Flux, {case}", least, "ratio")
        never = all(a <= b + 1e-9 for a, b in zip(distances[_OURS], distances[_FLUX], strict=True))
        yield from holds(_NAME, size, f"not above Flux on any seed, {case}", never)
    peers = [name for name in (_PLAIN, _ANNEALING) if name in found]
    if _OURS in found and peers:
        best = [min(runs) for runs in zip(*(distances[name] for name in peers), strict=True)]
        excess = [a - b for a, b in zip(distances[_OURS], best, strict=True)]
        better = " and ".join(peers)
        above = float(sum(e > 1e-9 for e in excess))
        metric = f"seeds above the better of {better}, {case}"
        yield Row(_NAME, size, _OURS, metric, above, "seeds")
        metric = f"greatest excess over the better of {better}, {case}"
        yield Row(_NAME, size, _OURS, metric, max(0.0, *excess), "points")


def _distance(name: str, problem: Allocation, seconds: float, options: Options) -> Run:
    began = time.process_time()
    if name == _FLUX:
        return Run(problem.distance(flux(problem)), 0.0, time.process_time() - began)
    if name == _ANNEALING:
        found = distance_annealing(problem, seconds, options)
        return Run(problem.distance(found.node), 0.0, found.seconds)
    if name == _PLAIN:
        # HiGHS reads the clock, which runs ahead on a busy processor, but may be told to stop.
        solution = plain(problem, deadline=Deadline(stop=ProcessorAlarm(seconds)))
    else:
        limit = ProcessorDeadline.after(seconds)
        solution = solve(problem, rounds=_ENDLESS, deadline=limit, parameters=_EXACT)
    return Run(solution.distance, solution.bound, time.process_time() - began)


def _curves(size: str, setting: Setting, names: Sequence[str], options: Options) -> Iterator[Row]:
    """The curves in the figures: one seed, several values of seconds, varies and migrations."""
    panels = []
    for varies in setting.varies:
        lines = {}
        for migrations in setting.migrations:
            options.log(f"{_NAME} {size}: over time, varies {varies:g}, {migrations} migrations")
            p = uneven(*setting[:2], varies=varies, migrations=migrations, seed=options.seed)
            for name in names:
                ys = [_distance(name, p, seconds, options).distance for seconds in setting.curve]
                lines[f"{name}, {migrations}"] = (setting.curve, ys)
                for seconds, y in zip(setting.curve, ys, strict=True):
                    metric = (
                        f"load distance in {seconds:g} s, varies {varies:g}, "
                        f"{migrations} migrations"
                    )
                    yield Row(_NAME, size, name, metric, y, "points")
        panels.append(
            Panel(f"{size}, varies {varies:g}", "processor seconds", "load distance", lines)
        )
    draw(options, f"{_NAME}-{size}", panels)
