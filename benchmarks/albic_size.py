"""ALBIC on a thousand nodes: time of its steps, of a plan, and memory; and of several periods."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.allocation.problem import Allocation
from balancer.allocation.units import Units, totals
from balancer.collocation.albic import Collocation, albic, groups, scores
from balancer.problem.deadline import Deadline
from benchmarks.harness.processes import run_apart
from benchmarks.registry import BenchmarkError, Options, Row, benchmark

_NAME = "albic-size"
_OPERATORS = 10
_GROUP_LOAD = 25.0
# Traffic to the favourite neighbour, relative to the others.
_FAVOURITE = 50.0
# ALBIC brings one pair together; a large cluster needs several.
_NODES_A_PAIR = 10
# A little less than requested, to leave time for the steps around the search.
_SECONDS = 40.0
# Points of collocation to gain, and the periods after which to give up.
_RISE, _PERIODS = 15.0, 20


class Setting(NamedTuple):
    """Nodes, key groups, and pairs that communicate."""

    nodes: int
    key_groups: int
    pairs: int


_SETTINGS = {
    "S": Setting(10, 200, 2_000),
    "100": Setting(100, 5_000, 50_000),
    "1000": Setting(1_000, 50_000, 500_000),
}


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def albic_size(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Seconds of scores, sets and partitions, seconds of a plan, and the memory it takes.

    Also periods and processor seconds until collocation has risen by 15 points.
    """
    for size in sizes:
        options.log(f"{_NAME} {size}: {_SETTINGS[size]}")
        with tempfile.TemporaryDirectory(prefix="albic-") as scratch:
            path = Path(scratch) / "rows.json"
            command: list[str | Path] = [
                sys.executable,
                "-m",
                __name__,
                size,
                str(options.seed),
                path,
            ]
            peak = run_apart(command, _NAME, cwd=Path(__file__).parents[1])
            try:
                rows = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                raise BenchmarkError(f"{_NAME} {size}: nothing measured: {error}") from None
        for metric, value, unit in rows:
            yield Row(_NAME, size, "albic", metric, value, unit)
        yield Row(_NAME, size, "albic", "peak memory", float(peak), "bytes")


def crowd(setting: Setting, seed: int) -> Units:
    """Key groups that each send most to one other, many of them already on its node."""
    rng = np.random.default_rng(seed)
    nodes, units, pairs = setting
    operator = np.arange(units) * _OPERATORS // units
    each = units // _OPERATORS
    first = np.arange(units - each)
    favourite = first + each
    others = pairs - len(first)
    source = rng.integers(units - each, size=others)
    # A random key group of the next operator.
    target = (operator[source] + 1) * each + rng.integers(each, size=others)
    node = rng.permutation(np.arange(units) % nodes)
    # A key group and the chain of its favourites are on one node, equally many on every node; the
    # others are anywhere.
    chain = np.arange(units) % each
    together = chain // nodes % 2 == 0
    node = np.where(together, chain % nodes, node)
    load = rng.lognormal(0.0, 0.5, units)
    problem = Allocation(
        load=load * (50.0 * nodes / load.sum()),
        cost=np.ones(units),
        node=node,
        weight=np.ones(nodes),
        removed=np.zeros(nodes, np.bool_),
        budget=units // 50,
    )
    return Units(
        problem=problem,
        operator=operator,
        source=np.concatenate([first, source]),
        target=np.concatenate([favourite, target]),
        rate=np.concatenate([np.full(len(first), _FAVOURITE), rng.random(others)]),
    )


def measured(setting: Setting, seed: int) -> Iterator[tuple[str, float, str]]:
    """Metric, value and unit of one run."""
    units = crowd(setting, seed)
    started = time.monotonic()
    candidate = scores(units)
    partitions = groups(units, candidate, _GROUP_LOAD, np.random.default_rng(seed))
    yield "scores, sets and partitions", time.monotonic() - started, "seconds"
    yield "partitions", float(partitions.max() + 1), "partitions"
    started = time.monotonic()
    found = _planned(setting, units, seed)
    yield "plan", time.monotonic() - started, "seconds"
    yield "load distance before", units.problem.distance(units.problem.node), "points"
    yield "load distance", found.solution.distance, "points"
    yield "bound", found.solution.bound, "points"
    yield "collocation before", 100.0 * units.local(units.problem.node), "percent"
    yield "collocation", 100.0 * units.local(found.solution.node), "percent"
    yield "rise of collocation, bound of a plan", greatest_rise(units), "points"
    yield "pairs brought together", float(len(found.pairs)), "pairs"
    yield "attempts", float(found.attempts), "attempts"
    yield "migrations", float(found.solution.migrations), "migrations"
    yield from _periods(setting, units, seed)


def greatest_rise(units: Units) -> float:
    """No plan within the budget of migrations raises collocation by more, in percentage points.

    What becomes local has an end that migrates: at most all remote traffic of that key group.
    """
    p = units.problem
    apart = p.node[units.source] != p.node[units.target]
    remote = totals(units.source[apart], units.rate[apart], len(p.load))
    remote += totals(units.target[apart], units.rate[apart], len(p.load))
    most = np.sort(remote)[::-1][: int(min(p.budget, len(remote)))].sum()
    return 100.0 * min(1.0 - units.local(p.node), float(most / units.rate.sum()))


def _planned(setting: Setting, units: Units, seed: int) -> Collocation:
    pairs = max(1, setting.nodes // _NODES_A_PAIR)
    return albic(units, pairs=pairs, deadline=Deadline.after(_SECONDS), seed=seed)


def _periods(setting: Setting, units: Units, seed: int) -> Iterator[tuple[str, float, str]]:
    """How long collocation takes to rise, with the budget of a plan in every period."""
    first, began, periods = units.local(units.problem.node), time.process_time(), 0
    far, rise = 0.0, 0.0
    while rise < _RISE and periods < _PERIODS:
        node = _planned(setting, units, seed + periods).solution.node
        units = replace(units, problem=replace(units.problem, node=node))
        far, periods = max(far, units.problem.distance(node)), periods + 1
        rise = 100.0 * (units.local(node) - first)
    yield "periods", float(periods), "periods"
    yield "processor seconds of the periods", time.process_time() - began, "seconds"
    yield "rise of collocation over the periods", rise, "points"
    yield "load distance of the periods, greatest", far, "points"


if __name__ == "__main__":
    size, seed, path = sys.argv[1:]
    Path(path).write_text(json.dumps(list(measured(_SETTINGS[size], int(seed)))))
