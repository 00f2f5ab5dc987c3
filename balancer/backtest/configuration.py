"""The configurations to compare: goals, controller settings, and the load statistic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from balancer.backtest.errors import BacktestError
from balancer.controller import Settings
from balancer.controller.settings import as_settings
from balancer.engine import Balancer
from metrics_reporter.documents import load_document, shown, shown_name
from metrics_reporter.quantities import byte_rate, duration

Statistic = Literal["mean", "p95", "peak"]
# The history as it happened, without any plans.
RECORDED = "history"


@dataclass(frozen=True)
class Configuration:
    """A controller's configuration.

    Parameters
    ----------
    name
        Name in the results.
    balancer
        Its goals and seed. A limit on the seconds of the search is ignored, or results would
        depend on the machine.
    settings
        Settings of the controller; ``execute`` is implied.
    statistic
        The load statistic of a partition that plans are based on: the mean of the last windows,
        their 95th percentile, or the largest.
    span
        Seconds that the last windows cover; by default as many as the settings' model keeps.
    copy_rate
        Bytes/s that a broker gives to moves.

    Examples
    --------
    >>> Configuration("careful", Balancer("default"), Settings(max_moves=100)).name
    'careful'
    """

    name: str
    balancer: Balancer = field(default_factory=Balancer)
    settings: Settings = field(default_factory=Settings)
    statistic: Statistic = "mean"
    span: float | None = None
    copy_rate: float = 50e6

    def __post_init__(self) -> None:
        if not self.name or self.name == RECORDED:
            raise BacktestError(
                f"configuration: the name {shown(self.name)} found, one other than {RECORDED!r} "
                "(what was) expected"
            )
        what = f"configuration {shown_name(self.name)}"
        if self.statistic not in get_args(Statistic):
            known = ", ".join(get_args(Statistic))
            raise BacktestError(
                f"{what}: statistic {shown(self.statistic)} found, {known} expected"
            )
        for name in ("span", "copy_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise BacktestError(f"{what}: {name} {value} found, a number above 0 expected")

    def engine(self) -> Balancer:
        """The balancer, with the limits of the settings and none of the clock."""
        engine = copy(self.balancer)
        limits = engine.budget.within(self.settings.budget)
        engine.budget = limits.model_copy(update={"seconds": None})
        return engine


def load_configurations(path: str | Path) -> tuple[Configuration, ...]:
    """Read configurations from a YAML (or JSON) file: name -> configuration.

    In each, ``goals`` are what :func:`goals.load_goals` takes (a file's path is relative to
    this file), ``strategy`` is what :func:`balancer.strategies.load_strategy` takes,
    ``settings`` are those of ``counterpoise run``, and ``seed``, ``statistic``,
    ``span`` and ``copy_rate`` are those of :class:`Configuration`.

    Raises
    ------
    InputError
        If a file cannot be read, or naming the first invalid entry.
    """
    where = f"configurations file {path}"
    content = load_document(path, where, BacktestError)
    if not isinstance(content, Mapping) or not content:
        # Without the value, which may contain the address of a webhook.
        found = type(content).__name__ if content else shown(content)
        raise BacktestError(f"{where}: {found} found, a mapping of names expected")
    return tuple(
        _configuration(str(name), entry, f"{where}: {name}", Path(path).parent)
        for name, entry in content.items()
    )


def _configuration(name: str, entry: Any, where: str, folder: Path) -> Configuration:
    entry = {} if entry is None else entry
    if not isinstance(entry, Mapping):
        raise BacktestError(f"{where}: {type(entry).__name__} found, a mapping expected")
    known = ("goals", "strategy", "settings", "seed", "statistic", "span", "copy_rate")
    for key in entry:
        if key not in known:
            raise BacktestError(f"{where}: {shown(key)} found, one of {', '.join(known)} expected")
    goals = entry.get("goals", "default")
    if isinstance(goals, str) and _is_file(folder / goals):
        goals = folder / goals
    elif isinstance(goals, Sequence) and not isinstance(goals, str):
        goals = {"goals": goals}
    elif not isinstance(goals, str | Mapping):
        raise BacktestError(f"{where}: goals {shown(goals)} found, a profile or a list expected")
    units = {"span": duration, "copy_rate": byte_rate, "seed": None}
    numbers = {
        k: _number(entry[k], f"{where}: {k}", unit) for k, unit in units.items() if k in entry
    }
    seed = numbers.pop("seed", 0)
    return Configuration(
        name,
        Balancer(goals, seed=int(seed), strategy=entry.get("strategy", "goals")),
        as_settings(entry.get("settings", {}), f"{where}, settings"),
        entry.get("statistic", "mean"),
        **numbers,
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # Names that cannot be file names.
        return False


def _number(value: Any, where: str, unit: Callable[[str], float] | None) -> float:
    """A number, or the value of a text with a unit."""
    if isinstance(value, str) and unit is not None:
        try:
            return unit(value)
        except ValueError as error:
            raise BacktestError(f"{where} {shown(value)} found, {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BacktestError(f"{where} {shown(value)} found, a number expected")
    return value
