"""What is tried out: goals, settings of the controller, and which loads it goes by."""

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
from balancer.problem.budget import Budget
from metrics_reporter.documents import load_document, shown, shown_name
from metrics_reporter.quantities import byte_rate, duration

Statistic = Literal["mean", "p95", "peak"]
# The history as it was, without anybody's plans.
RECORDED = "history"


@dataclass(frozen=True)
class Configuration:
    """A controller as it could be run.

    Parameters
    ----------
    name
        By which results tell it apart.
    balancer
        Its goals and seed. A limit on the seconds of the search is left out, or results
        would depend on the machine.
    settings
        Of the controller; ``execute`` goes without saying.
    statistic
        Which of a partition's loads plans are made for: the mean of the last windows, their
        95th percentile, or the largest.
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
        limits = {"moves": self.settings.max_moves, "bytes": self.settings.max_bytes}
        own = engine.budget.model_dump(exclude={"seconds"}, exclude_none=True)
        engine.budget = Budget(**{**limits, **own})
        return engine


def load_configurations(path: str | Path) -> tuple[Configuration, ...]:
    """Read configurations from a YAML (or JSON) file: name -> what it is.

    Of each, ``goals`` are what :func:`goals.load_goals` takes (a file's path is relative to
    this file), ``strategy`` is what :func:`balancer.strategies.load_strategy` takes,
    ``settings`` are those of ``counterpoise run``, and ``seed``, ``statistic``,
    ``span`` and ``copy_rate`` are those of :class:`Configuration`.

    Raises
    ------
    InputError
        For a file that cannot be read, or naming the first entry that is wrong.
    """
    where = f"configurations file {path}"
    content = load_document(path, where, BacktestError)
    if not isinstance(content, Mapping) or not content:
        # Without the value, which may hold the address of a webhook.
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
        # What cannot be the name of a file.
        return False


def _number(value: Any, where: str, unit: Callable[[str], float] | None) -> float:
    """A number, or what a text with a unit stands for."""
    if isinstance(value, str) and unit is not None:
        try:
            return unit(value)
        except ValueError as error:
            raise BacktestError(f"{where} {shown(value)} found, {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BacktestError(f"{where} {shown(value)} found, a number expected")
    return value
