"""The result of a backtest: totals of each configuration, days, windows, and plans."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from balancer.backtest.judge import WindowFigures
from balancer.backtest.replay import Event
from cluster_model.files import write_atomically
from cluster_model.snapshot import Floats, Ints

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_GB = 1e9


class JudgedWindow(NamedTuple):
    """The figures of a window of a configuration."""

    configuration: str
    start_ms: int
    figures: WindowFigures


class DecidedRound(NamedTuple):
    """The decision of a configuration in a round."""

    configuration: str
    event: Event


class BrokerShares(NamedTuple):
    """How loaded each broker was over time.

    Parameters
    ----------
    brokers : (B,) int
        Their ids, ascending.
    column_ms
        Length of a column, whole windows.
    share : (B, C) float
        Largest load / capacity of any resource in each column of time; nan without windows.
    """

    brokers: Ints
    column_ms: int
    share: Floats


class Move(NamedTuple):
    """A step of a plan of a configuration.

    Parameters
    ----------
    configuration
        Its name.
    began_ms, ended_ms
        When the plan's copying began and ended, ms since 1970.
    kind
        As in plans, such as ``move`` or ``leadership``.
    topic, partition
        What was moved.
    source, destination
        Ids of brokers; None for none.
    copied
        Bytes.
    undone
        Whether the plan was stopped, and the step had no effect.
    """

    configuration: str
    began_ms: int
    ended_ms: int
    kind: str
    topic: str
    partition: int
    source: int | None
    destination: int | None
    copied: float
    undone: bool


class ConfigurationFigures(NamedTuple):
    """A configuration's figures over a period.

    Parameters
    ----------
    configuration
        Its name.
    hours
        Hours with known loads.
    hours_violated, hours_violated_hard
        Hours in which a goal, or a hard goal, was not met.
    goals_violated
        Goals not met, mean over the windows.
    balancedness
        Mean over the windows.
    worst, worst_broker, worst_resource, worst_ms
        Load / capacity of the most loaded broker: the maximum, its broker and resource, and
        its time (start of the window, ms since 1970).
    worst_mean
        Load / capacity of the most loaded broker, mean over the windows.
    overloaded_hours
        Hours times the number of brokers above the limit.
    plans, actions
        Plans started, and their steps.
    bytes_moved
        Bytes copied.
    thrash
        Share of these bytes that belongs to partitions that had moved in the twelve hours
        before.
    bytes_a_day, cost_a_day
        Bytes copied per day, and their cost at the given price.
    """

    configuration: str
    hours: float
    hours_violated: float
    hours_violated_hard: float
    goals_violated: float
    balancedness: float
    worst: float
    worst_broker: int
    worst_resource: str
    worst_ms: int
    worst_mean: float
    overloaded_hours: float
    plans: int
    actions: int
    bytes_moved: float
    thrash: float
    bytes_a_day: float
    cost_a_day: float


@dataclass(frozen=True, eq=False)
class BacktestResult:
    """The results of all configurations.

    Parameters
    ----------
    configurations
        Names, ``history`` first: what really happened, without any plans.
    first_ms, end_ms, window_ms
        The period, ms since 1970, and the length of a window.
    limit
        Share of its capacity above which a broker is overloaded.
    price
        Price of a copied GB.
    windows
        Windows by configuration, in order of time.
    rounds
        Rounds by configuration, in order of time.
    partitions
        Topic and number of each row of the plans' moves.
    shares
        Loads of brokers over time, by configuration.
    runs
        Configuration, as given, to the names of its runs with several seeds, itself first.
    """

    configurations: tuple[str, ...]
    first_ms: int
    end_ms: int
    window_ms: int
    limit: float
    price: float
    windows: tuple[JudgedWindow, ...]
    rounds: tuple[DecidedRound, ...]
    partitions: tuple[tuple[str, int], ...] = ()
    shares: Mapping[str, BrokerShares] = field(default_factory=dict)
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def totals(self) -> tuple[ConfigurationFigures, ...]:
        """One for each configuration."""
        windows, rounds = self.by_name
        return tuple(
            self._tally(name, windows[name], rounds[name], self.end_ms - self.first_ms)
            for name in self.configurations
        )

    def days(self) -> tuple[tuple[str, ConfigurationFigures], ...]:
        """The figures of each day (UTC, as 2026-01-31) of each configuration with any window."""
        windows, rounds = self.by_name
        found = []
        for name in self.configurations:
            for start_ms in range(self.first_ms // DAY_MS * DAY_MS, self.end_ms, DAY_MS):
                end_ms = start_ms + DAY_MS
                inside = [w for w in windows[name] if start_ms <= w.start_ms < end_ms]
                # A round belongs to the day of the window that it ends.
                made = [e for e in rounds[name] if start_ms < e.at_ms <= end_ms]
                covered = min(end_ms, self.end_ms) - max(start_ms, self.first_ms)
                if inside:
                    day = datetime.fromtimestamp(start_ms / 1000, UTC).date().isoformat()
                    found.append((day, self._tally(name, inside, made, covered)))
        return tuple(found)

    def decisions(self, configuration: str) -> dict[str, int]:
        """The number of rounds by kind of decision."""
        kinds = (e.kind for e in self.by_name[1][configuration] if e.kind != "adopted")
        return dict(sorted(Counter(kinds).items()))

    def document(self) -> dict[str, Any]:
        """Everything except single windows, as JSON-compatible data."""
        return {
            "first_ms": self.first_ms,
            "end_ms": self.end_ms,
            "window_ms": self.window_ms,
            "overload_limit": self.limit,
            "price": self.price,
            "configurations": [
                {**t._asdict(), "decisions": self.decisions(t.configuration)} for t in self.totals
            ],
            "runs": {name: list(of) for name, of in self.runs.items()},
            "days": [{"day": day, **t._asdict()} for day, t in self.days()],
            "plans": [
                {
                    "configuration": name,
                    "at_ms": e.at_ms,
                    "kind": e.kind,
                    "reason": e.reason,
                    "bytes_moved": e.bytes_moved,
                }
                for name, e in self.rounds
                if e.reason
            ],
        }

    def moves(self) -> Iterator[Move]:
        """The steps of all plans that ended, in order of configurations and time."""
        for name, event in self.rounds:
            of = event.moves
            if of is None:
                continue
            columns = (of.row, of.source, of.destination, of.copied)
            for kind, row, source, destination, copied in zip(
                of.kind, *(column.tolist() for column in columns), strict=True
            ):
                topic, partition = self.partitions[row]
                yield Move(
                    configuration=name,
                    began_ms=of.began_ms,
                    ended_ms=of.ended_ms,
                    kind=kind,
                    topic=topic,
                    partition=partition,
                    source=None if source < 0 else source,
                    destination=None if destination < 0 else destination,
                    copied=copied,
                    undone=of.undone,
                )

    def save_moves(self, path: str | Path) -> None:
        """Write :meth:`moves` to a CSV file, atomically."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Move._fields)
        writer.writerows(self.moves())
        write_atomically(Path(path), lambda f: f.write(text.getvalue().encode()))

    def to_json(self) -> str:
        """:meth:`document` as text; equal histories and configurations give equal bytes."""
        return json.dumps(self.document(), indent=1, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """One row for each window of each configuration."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["configuration", "start_ms", *WindowFigures._fields])
        for name, start_ms, figures in self.windows:
            writer.writerow([name, start_ms, *figures])
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Write :meth:`to_csv` to a file that ends with .csv, else :meth:`to_json`, atomically."""
        path = Path(path)
        text = self.to_csv() if path.suffix == ".csv" else self.to_json()
        write_atomically(path, lambda f: f.write(text.encode()))

    @cached_property
    def by_name(self) -> tuple[dict[str, list[JudgedWindow]], dict[str, list[Event]]]:
        """Windows and rounds of each configuration."""
        windows: dict[str, list[JudgedWindow]] = {name: [] for name in self.configurations}
        rounds: dict[str, list[Event]] = {name: [] for name in self.configurations}
        for judged in self.windows:
            windows[judged.configuration].append(judged)
        for name, event in self.rounds:
            rounds[name].append(event)
        return windows, rounds

    def _tally(
        self, name: str, windows: Sequence[JudgedWindow], rounds: Iterable[Event], covered_ms: int
    ) -> ConfigurationFigures:
        rounds = list(rounds)
        hours = self.window_ms / HOUR_MS
        figures = [w.figures for w in windows]
        peak = max(windows, key=lambda w: w.figures.worst, default=None)
        moved = sum((e.bytes_moved for e in rounds), 0.0)
        a_day = moved * DAY_MS / covered_ms
        return ConfigurationFigures(
            configuration=name,
            hours=hours * len(figures),
            hours_violated=hours * sum(v.violated > 0 for v in figures),
            hours_violated_hard=hours * sum(v.violated_hard > 0 for v in figures),
            goals_violated=_mean([v.violated for v in figures]),
            balancedness=_mean([v.balancedness for v in figures]),
            worst=0.0 if peak is None else peak.figures.worst,
            worst_broker=-1 if peak is None else peak.figures.worst_broker,
            worst_resource="" if peak is None else peak.figures.worst_resource,
            worst_ms=self.first_ms if peak is None else peak.start_ms,
            worst_mean=_mean([v.worst for v in figures]),
            overloaded_hours=hours * sum(v.overloaded for v in figures),
            plans=sum(e.kind == "started" for e in rounds),
            actions=sum(e.actions for e in rounds),
            bytes_moved=moved,
            thrash=sum(e.bytes_again for e in rounds) / moved if moved else 0.0,
            bytes_a_day=a_day,
            cost_a_day=self.price * a_day / _GB,
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
