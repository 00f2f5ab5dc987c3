"""Says which of the configurations of a backtest was best, where seeds leave no doubt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from balancer.backtest.result import BacktestResult
from metrics_reporter.quantities import amount, percent, rounded

# What decides, the most important first; less is better.
DECIDING = ("hours_violated_hard", "overloaded_hours", "bytes_moved")


class Spread(NamedTuple):
    """A figure of a configuration over its seeds."""

    mean: float
    least: float
    most: float


class Verdict(NamedTuple):
    """How two configurations compare.

    Parameters
    ----------
    better, other
        Names; if neither is better, the first of both in the result.
    figure
        The figure of :class:`balancer.backtest.ConfigurationFigures` that decided; None if
        neither is better.
    text
        The same in one sentence.
    """

    better: str
    other: str
    figure: str | None
    text: str


def spread(result: BacktestResult, configuration: str, figure: str) -> Spread:
    """A figure over the seeds of a configuration."""
    totals = {t.configuration: t for t in result.totals}
    runs = result.runs.get(configuration, (configuration,))
    values = [float(getattr(totals[run], figure)) for run in runs]
    return Spread(sum(values) / len(values), min(values), max(values))


def compared(result: BacktestResult, one: str, other: str) -> Verdict:
    """Which of two configurations is better.

    The first figure of :data:`DECIDING` counts that is lower with every seed of the one than with
    any seed of the other.
    """
    for figure in DECIDING:
        a, b = (spread(result, name, figure) for name in (one, other))
        if a.most < b.least or b.most < a.least:
            better, worse = (one, other) if a.most < b.least else (other, one)
            return Verdict(better, worse, figure, _sentence(result, better, worse, figure))
    return Verdict(one, other, None, f"neither {one} nor {other} is better beyond its seeds")


def verdicts(result: BacktestResult) -> tuple[Verdict, ...]:
    """The best configuration against each other one; the history as it was is one of them.

    The best is the first that no other is better than. As each pair is decided by a figure of its
    own, all may be worse than some other: then none is best, and the verdicts are of all pairs.
    """
    names = _given(result)
    pairs = [compared(result, one, other) for one, other in combinations(names, 2)]
    worse = {found.other for found in pairs if found.figure is not None}
    best = next((name for name in names if name not in worse), None)
    if best is None:
        return tuple(pairs)
    return tuple(compared(result, best, name) for name in names if name != best)


def _given(result: BacktestResult) -> list[str]:
    """The configurations as given, without their further seeds."""
    further = {run for runs in result.runs.values() for run in runs[1:]}
    return [name for name in result.configurations if name not in further]


def _sentence(result: BacktestResult, better: str, worse: str, figure: str) -> str:
    def figures(name: str, shown: Sequence[str]) -> str:
        return " and ".join(_shown(result, of, spread(result, name, of)) for of in shown)

    shown = list(dict.fromkeys((figure, "bytes_moved")))
    return f"{better} is better than {worse}: {figures(better, shown)}, not {figures(worse, shown)}"


def _shown(result: BacktestResult, figure: str, of: Spread) -> str:
    def value(x: float) -> str:
        return amount(x) if figure == "bytes_moved" else rounded(x)

    between = f" ({value(of.least)} to {value(of.most)})" if of.least < of.most else ""
    unit = {
        "hours_violated_hard": " hours with a hard goal not met",
        "overloaded_hours": f" broker-hours above {percent(result.limit)}",
        "bytes_moved": " copied",
    }[figure]
    return f"{value(of.mean)}{between}{unit}"


def spreads(result: BacktestResult) -> dict[str, dict[str, Spread]]:
    """Configuration -> figure -> spread over its seeds, of those with several."""
    first = result.totals[0]._asdict()
    figures = [
        name
        for name, value in first.items()
        if isinstance(value, int | float) and name not in ("worst_ms", "worst_broker")
    ]
    return {
        name: {figure: spread(result, name, figure) for figure in figures}
        for name, runs in result.runs.items()
        if len(runs) > 1
    }
