"""Scale-in during balancing against scale-in before it: Figure 5 of the ALBIC paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from balancer.allocation.drain import drain
from balancer.allocation.problem import Allocation
from balancer.allocation.solver import GOOD, solve
from balancer.problem.deadline import Deadline
from benchmarks.albic_solver import uneven
from benchmarks.harness.figures import Panel, chosen, draw, holds
from benchmarks.registry import Options, Row, benchmark
from cluster_model.snapshot import Ints

_NAME = "albic-scale-in"
_SUBJECTS = ("integrated", "not integrated")
_OVERLOAD = 100.0
# Time is the limit, not effort.
_ENDLESS = 10**9


class Setting(NamedTuple):
    """Nodes, nodes to be removed, key groups, migrations per period, periods, seconds per plan."""

    nodes: int
    removed: int
    key_groups: int
    migrations: int
    periods: int
    seconds: float


_SETTINGS = {"S": Setting(8, 2, 80, 4, 12, 0.2), "60x1200": Setting(60, 10, 1200, 20, 30, 5.0)}


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def albic_scale_in(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Periods until nodes are balanced, and until the removed ones are empty.

    If not integrated, the removed nodes are emptied evenly first, and the rest is balanced
    afterwards. One or five nodes are overloaded.
    """
    names = chosen(options, _SUBJECTS)
    for size in sizes:
        setting, panels = _SETTINGS[size], []
        for overloaded in (1, 5):
            lines, good, empty = {}, {}, {}
            for name in names:
                options.log(f"{_NAME} {size}: {overloaded} overloaded, {name}")
                problem = leaving(setting, overloaded, options.seed)
                lived = list(_lived(problem, setting, name == _SUBJECTS[0]))
                distances = [d for d, _ in lived]
                lines[name] = (range(len(lived)), distances)
                good[name] = _first([d <= GOOD for d in distances])
                empty[name] = _first([left == 0 for _, left in lived])
                case = f"{overloaded} overloaded"
                for metric, value, unit in (
                    (f"periods until good balance, {case}", good[name], "periods"),
                    (f"periods until the removed are empty, {case}", empty[name], "periods"),
                    (f"load distance, mean, {case}", float(np.mean(distances)), "points"),
                    (f"load distance at the end, {case}", distances[-1], "points"),
                ):
                    yield Row(_NAME, size, name, metric, value, unit)
            if len(names) == len(_SUBJECTS):
                ours, theirs = _SUBJECTS
                sooner = good[ours] < good[theirs]
                yield from holds(_NAME, size, f"sooner balanced, {case}", sooner)
                # Within two periods, or a fifth, of each other.
                like = empty[ours] <= max(empty[theirs] + 2, 1.2 * empty[theirs])
                yield from holds(_NAME, size, f"emptied in like time, {case}", like)
            panels.append(Panel(f"{size}, {case}", "period", "load distance", lines))
        draw(options, f"{_NAME}-{size}", panels)


def leaving(setting: Setting, overloaded: int, seed: int) -> Allocation:
    """A cluster with some nodes marked for removal and others overloaded."""
    s = setting
    p = uneven(s.nodes, s.key_groups, varies=0.0, migrations=s.migrations, seed=seed)
    load, removed = p.load.copy(), np.arange(s.nodes) < s.removed
    for node in range(s.removed, s.removed + min(overloaded, s.nodes - s.removed - 1)):
        load[p.node == node] *= _OVERLOAD / load[p.node == node].sum()
    return replace(p, load=load, removed=removed)


def _lived(problem: Allocation, setting: Setting, integrated: bool) -> Iterator[tuple[float, int]]:
    """Load distance, and how many key groups are left on removed nodes, after each period."""
    p = problem
    for _ in range(setting.periods):
        node = _planned(p, setting.seconds, integrated)
        p = replace(p, node=node, fixed=np.full(len(node), -1))
        yield p.distance(node), int(p.removed[node].sum())


def _planned(problem: Allocation, seconds: float, integrated: bool) -> Ints:
    p = problem
    if not integrated and p.removed[p.node].any():
        return drain(p, p.node)
    return solve(p, rounds=_ENDLESS, deadline=Deadline.after(seconds)).node


def _first(reached: Sequence[bool]) -> float:
    """Number of the period, from 1, from which the condition holds to the end; nan if none."""
    last_not = max((i for i, ok in enumerate(reached) if not ok), default=-1)
    return float(last_not + 2) if last_not + 1 < len(reached) else float("nan")
