"""Draws communication graphs of stream jobs: four kinds, with loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cluster_model.snapshot import Floats, Ints

_OPERATORS = 10
# Receivers of a key group: in partial partitioning, and of a popular or a random kind.
_PARTIAL, _SEVERAL, _FEW = 8, 6, 4
# Key groups in a community on average, and the share of traffic that stays in it.
_COMMUNITY, _INSIDE = 10, 0.8


class Graph(NamedTuple):
    """Key groups and their traffic.

    Parameters
    ----------
    operator : (U,) int
        The operator of each key group; each sends to the next.
    source, target : (E,) int
    rate : (E,) float
    load : (U,) float
        Relative to each other.
    """

    operator: Ints
    source: Ints
    target: Ints
    rate: Floats
    load: Floats


def _operators(units: int) -> tuple[Ints, list[Ints]]:
    operator = np.arange(units) * _OPERATORS // units
    return operator, [np.flatnonzero(operator == o) for o in range(_OPERATORS)]


def one_to_one(units: int, rng: np.random.Generator) -> Graph:
    """Every second stream is one-to-one, the others are partial partitionings."""
    operator, of = _operators(units)
    source, target, rate = list[int](), list[int](), list[float]()
    for o in range(_OPERATORS - 1):
        for number, unit in enumerate(of[o].tolist()):
            if o % 2 == 0:
                ends = of[o + 1][[number % len(of[o + 1])]]
            else:
                ends = rng.choice(of[o + 1], min(_PARTIAL, len(of[o + 1])), replace=False)
            sent = 100.0 * rng.uniform(0.8, 1.2) / len(ends)
            source += [unit] * len(ends)
            target += ends.tolist()
            rate += [sent] * len(ends)
    return _graph(operator, source, target, rate, rng.uniform(0.5, 1.5, units))


def communities(units: int, rng: np.random.Generator) -> Graph:
    """Key groups of all operators belong to communities, which keep most traffic to themselves."""
    operator, of = _operators(units)
    label = rng.integers(0, max(1, units // _COMMUNITY), units)
    source, target = list[int](), list[int]()
    for o in range(_OPERATORS - 1):
        for unit in of[o].tolist():
            own = of[o + 1][label[of[o + 1]] == label[unit]]
            for _ in range(_SEVERAL):
                inside = len(own) > 0 and rng.random() < _INSIDE
                source.append(unit)
                target.append(int(rng.choice(own if inside else of[o + 1])))
    rate = rng.uniform(0.5, 1.5, len(source))
    return _graph(operator, source, target, rate.tolist(), rng.uniform(0.5, 1.5, units))


def skewed(units: int, rng: np.random.Generator) -> Graph:
    """Rates and loads follow power laws: few pairs carry most of the traffic."""
    operator, of = _operators(units)
    source, target, rate = list[int](), list[int](), list[float]()
    for o in range(_OPERATORS - 1):
        for unit in of[o].tolist():
            sent = rng.pareto(1.2, len(of[o + 1]))
            most = np.argsort(-sent, kind="stable")[:_PARTIAL]
            source += [unit] * len(most)
            target += of[o + 1][most].tolist()
            rate += sent[most].tolist()
    load = np.minimum(rng.pareto(1.5, units) + 0.2, 6.0)
    return _graph(operator, source, target, rate, load)


def scattered(units: int, rng: np.random.Generator) -> Graph:
    """Every key group sends about equally much to a few random ones."""
    operator, of = _operators(units)
    source, target = list[int](), list[int]()
    for o in range(_OPERATORS - 1):
        for unit in of[o].tolist():
            ends = rng.choice(of[o + 1], min(_FEW, len(of[o + 1])), replace=False)
            source += [unit] * len(ends)
            target += ends.tolist()
    rate = rng.uniform(0.5, 1.5, len(source))
    return _graph(operator, source, target, rate.tolist(), rng.uniform(0.5, 1.5, units))


KINDS: dict[str, Callable[[int, np.random.Generator], Graph]] = {
    "one-to-one": one_to_one,
    "communities": communities,
    "skewed": skewed,
    "random": scattered,
}


def _graph(
    operator: Ints, source: list[int], target: list[int], rate: list[float], load: Floats
) -> Graph:
    return Graph(operator, np.array(source), np.array(target), np.array(rate), load)
