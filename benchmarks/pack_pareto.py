"""Packs 500 measurements of write speeds in turn: bins against rebalance cost (seed 000, VI)."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from balancer.allocation.packing.any_fit import any_fit
from balancer.allocation.packing.modified_any_fit import modified_any_fit
from balancer.allocation.packing.parameters import RepairParameters
from balancer.allocation.packing.problem import Packing
from balancer.allocation.packing.repair import repair
from benchmarks.harness.figures import Panel, chosen, draw, stated
from benchmarks.harness.write_speeds import write_speeds
from benchmarks.registry import Options, Row, benchmark
from cluster_model.snapshot import Floats, Ints

_NAME = "pack-pareto"
_PARTITIONS, _MEASUREMENTS, _CAPACITY = 200, 500, 100.0
_SEEDS = 10
_DELTAS = (0, 5, 10, 15, 20, 25)
# CBS and mean Rscore, computed from the raw results that the authors of Modified Any Fit published
# (GitHub, landaudiogo/thesis_data, uniform_start.csv).
_PUBLISHED = Path(__file__).parent / "published" / "modified-any-fit.csv"
_PRICES = (0.0, 0.3, 0.5, 1.0, 2.0, 5.0, 1e9)
OURS = {f"repair, a consumer worth {price:g}": price for price in _PRICES}

# Packs a measurement, whose number is the second argument.
_Pack = Callable[[Packing, int], Ints]


def _classical(fit: str, decreasing: bool, problem: Packing, number: int) -> Ints:
    return any_fit(problem, fit, decreasing=decreasing, seed=number)


_PAPER: dict[str, _Pack] = {
    **{
        f"{fit[0]}f{'d' if decreasing else ''}": partial(_classical, fit, decreasing)
        for fit in ("next", "first", "best", "worst")
        for decreasing in (False, True)
    },
    "mwf": lambda p, _: modified_any_fit(p, "worst", by="sum"),
    "mbf": lambda p, _: modified_any_fit(p, "best", by="sum"),
    "mwfp": lambda p, _: modified_any_fit(p, "worst", by="largest"),
    "mbfp": lambda p, _: modified_any_fit(p, "best", by="largest"),
}


def _repaired(price: float, problem: Packing, number: int) -> Ints:
    return repair(problem, RepairParameters(bin_price=price))


_SUBJECTS: dict[str, _Pack] = {
    **_PAPER,
    **{name: partial(_repaired, price) for name, price in OURS.items()},
}


class _Run(NamedTuple):
    """Bins of each measurement, and the mean Rscore and seconds of a measurement."""

    bins: Ints
    rscore: float
    seconds: float


@benchmark(_NAME, sizes=tuple(f"delta-{d}" for d in _DELTAS))
def pack_pareto(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Consumers against rebalance cost of the paper's twelve heuristics and of ours (Figure 12).

    The streams are our own, drawn by the authors' generator: theirs are not published. CBS is the
    mean share of consumers above the fewest that any of the twelve needs; Rscore is the write speed
    of the partitions that move over the capacity of a consumer. ``--rounds`` is the number of
    streams.
    """
    names = chosen(options, tuple(_SUBJECTS))
    panels = []
    for size in sizes:
        delta = int(size.removeprefix("delta-"))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(_SEEDS if options.rounds is None else options.rounds):
            options.log(f"{_NAME} {size}: stream {seed}")
            stream = write_speeds(_PARTITIONS, _MEASUREMENTS, delta, seed=options.seed + seed)
            # the fewest of the twelve are needed in any case
            runs = {
                name: followed(_SUBJECTS[name], stream)
                for name in {**_PAPER, **dict.fromkeys(names)}
            }
            fewest = np.min([runs[name].bins for name in _PAPER], axis=0)
            for name in names:
                cbs = float(((runs[name].bins - fewest) / fewest).mean())
                found[name].append((cbs, runs[name].rscore))
                seconds[name].append(runs[name].seconds)
        paper = published(delta)
        for name in names:
            for column, metric, unit in ((0, "CBS", "ratio"), (1, "Rscore", "ratio")):
                values = [pair[column] for pair in found[name]]
                yield Row(_NAME, size, name, f"{metric}, mean", float(np.mean(values)), unit)
                yield Row(_NAME, size, name, f"{metric}, deviation", float(np.std(values)), unit)
                if name in paper:
                    yield stated(_NAME, size, name, f"{metric}, mean", paper[name][column], unit)
            yield Row(_NAME, size, name, "processor time", float(np.mean(seconds[name])), "seconds")
        points = {name: np.mean(found[name], axis=0).tolist() for name in names}
        lines = {name: ([x], [y]) for name, (x, y) in points.items() if name in _PAPER}
        ours = [points[name] for name in names if name not in _PAPER]
        if ours:
            lines["repair"] = ([x for x, _ in ours], [y for _, y in ours])
        panels.append(Panel(f"δ = {delta} %", "CBS", "mean Rscore", lines))
    draw(options, _NAME, panels)


def subject(name: str) -> _Pack:
    """How a subject packs."""
    return _SUBJECTS[name]


def followed(pack: _Pack, stream: Floats) -> _Run:
    """One heuristic over a stream; each packing starts from the one before."""
    owner = np.full(stream.shape[1], -1, np.int64)
    bins, rscores = [], []
    began = time.process_time()
    for number, speed in enumerate(stream):
        problem = Packing(size=speed[:, None], owner=owner, capacity=np.array([_CAPACITY]))
        packed = pack(problem, number)
        moved = (owner >= 0) & (owner != packed)
        bins.append(len(np.unique(packed)))
        rscores.append(speed[moved].sum() / _CAPACITY)
        owner = packed
    spent = time.process_time() - began
    return _Run(np.array(bins), float(np.mean(rscores)), spent / len(stream))


def published(delta: int) -> dict[str, tuple[float, float]]:
    """CBS and mean Rscore of each heuristic as published, with random first speeds."""
    with _PUBLISHED.open(encoding="utf-8", newline="") as file:
        return {
            row["algorithm"]: (float(row["CBS"]), float(row["avg_Rscore"]))
            for row in csv.DictReader(file)
            if row["start"] == "uniform_start" and row["delta"] == str(delta)
        }
