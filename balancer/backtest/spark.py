"""Runs a backtest on Spark: plans sequentially, windows in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from balancer.backtest.configuration import RECORDED, Configuration
from balancer.backtest.errors import BacktestError
from balancer.backtest.judge import WindowFigures, broker_load, broker_shares, judge
from balancer.backtest.progress import Progress, Reporter, listening
from balancer.backtest.replay import Event, Moves, Window, replay_one
from balancer.backtest.result import BacktestResult, BrokerShares, DecidedRound, JudgedWindow
from balancer.backtest.timeline import (
    CurrentReplicas,
    Delta,
    MetadataHistory,
    ReplicaHistory,
    Timeline,
    names_of,
    table_of,
)
from cluster_model.attribution import with_estimates
from cluster_model.snapshot import Floats, Ints, Snapshot
from goals import Goal, applicable, load_goals, profile_of
from goals.registry import Config

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Column -> type of the executors' results.
_EVENTS = {
    "configuration": "long",
    "at_ms": "long",
    "kind": "string",
    "reason": "string",
    "actions": "long",
    "bytes_moved": "double",
    "bytes_again": "double",
    "from_ms": "long",
    "row": "array<long>",
    "replicas": "array<long>",
    "leader": "array<long>",
    "began_ms": "long",
    "ended_ms": "long",
    "undone": "boolean",
    "step": "array<string>",
    "partition": "array<long>",
    "source": "array<long>",
    "destination": "array<long>",
    "sender": "array<long>",
    "copied": "array<double>",
}
_FIGURES = {
    "configuration": "long",
    "start_ms": "long",
    "known": "double",
    "violated": "long",
    "violated_hard": "long",
    "cells": "long",
    "balancedness": "double",
    "worst": "double",
    "worst_broker": "long",
    "worst_resource": "string",
    "uneven": "double",
    "overloaded": "long",
    "copying": "double",
}
# In addition, the share of each broker for the resource that it is most loaded in.
_SHARES = {"broker": "array<long>", "share": "array<double>"}
# Columns of a heat map: more make no visible difference.
_COLUMNS = 200
REPLAYING, JUDGING = "replaying windows", "judging windows"


class LoadHistory(Protocol):
    """The loads to replay: :class:`cluster_model.history.History`, or an equivalent."""

    @property
    def window_ms(self) -> int:
        """Length of a window."""

    @property
    def metadata(self) -> MetadataHistory:
        """Brokers and placement over time."""

    def loads(self, first_ms: int, end_ms: int) -> DataFrame:
        """Rows ``start_ms, topic, partition, leader, follower``, loads in order of resources."""


@dataclass(frozen=True, eq=False)
class _Task:
    """The inputs of a task on an executor."""

    timeline: Timeline
    first_ms: int
    end_ms: int
    window_ms: int
    limit: float
    reporter: Reporter

    @property
    def windows(self) -> int:
        """Number of windows."""
        return (self.end_ms - self.first_ms) // self.window_ms


def backtest(
    history: LoadHistory,
    configurations: Sequence[Configuration],
    *,
    first_ms: int,
    end_ms: int,
    goals: Config | Sequence[Goal] = "default",
    limit: float = 0.8,
    price: float = 0.0,
    seeds: int = 1,
    progress: Progress | None = None,
) -> BacktestResult:
    """Replay a history with configurations to see what each would have done.

    First each configuration's controller replays the history in one task, window by window,
    and plans on the placement that its own plans led to. Then all windows of all configurations
    are judged in many parallel tasks, each by its real loads. Equal histories and
    configurations give equal results, regardless of the executors.

    Parameters
    ----------
    history
        Loads of windows, and metadata. A configuration ignores moves in the history; its
        partitions and brokers come and go as in the history.
    configurations
        At least one, with distinct names.
    first_ms, end_ms
        ms since 1970; only windows entirely inside count.
    goals
        The goals that judge all configurations, whichever goals these plan for.
    limit
        Share of the capacity of a resource above which a broker is overloaded.
    price
        Price of a copied GB, for the cost per day.
    seeds
        Number of seeds with which each configuration is replayed, from its own on.
    progress
        Called in a thread with the phase, how many windows are done, and how many there are.

    Raises
    ------
    InputError
        If a range is empty or has no data, or if the goals don't fit.
    """
    names = [c.name for c in configurations]
    if not names or len({*names}) < len(names):
        raise BacktestError(
            f"backtest: configurations {', '.join(names) or 'none'} found, at least one, and "
            "each name once, expected"
        )
    if not 0 <= price < float("inf"):
        raise BacktestError(f"backtest: price {price} found, at least 0 expected")
    if seeds < 1:
        raise BacktestError(f"backtest: {seeds} seeds found, at least 1 expected")
    runs = {c.name: tuple(_seeded(c, k) for k in range(seeds)) for c in configurations}
    configurations = [run for of in runs.values() for run in of]
    names = [run.name for run in configurations]
    if len({*names}) < len(names):
        raise BacktestError(f"backtest: {_twice(names)!r} found twice, other names expected")
    requested = [n for c in configurations for n in c.settings.missing_replicas.topics.values()]
    task = _task(history, first_ms, end_ms, limit, max([1, *requested]))
    for cluster in task.timeline.casts:
        for configuration in configurations:
            engine = configuration.engine()
            applicable(engine.goals, cluster, strict=engine.strict)
    judges = _judges(goals, task)
    totals = {REPLAYING: task.windows * len(configurations), JUDGING: task.windows}
    with (
        _loads(history, task) as loads,
        listening(loads.sparkSession, totals, progress) as reporter,
    ):
        task = replace(task, reporter=reporter)
        rounds = _replayed(loads, configurations, task)
        made: list[list[Delta]] = [[] for _ in configurations]
        for number, event in rounds:
            if event.delta is not None:
                made[number].append(event.delta)
        copies = ((), *(_copies(rounds, number) for number in range(len(configurations))))
        jury = _WindowJudge(task, judges, (task.timeline.recorded, *made), copies)
        windows = _judged(loads, jury)
    of_runs = {name: tuple(run.name for run in of) for name, of in runs.items()}
    return _result((RECORDED, *names), task, price, windows, rounds, of_runs)


def _seeded(configuration: Configuration, further: int) -> Configuration:
    """The configuration with a later seed."""
    if not further:
        return configuration
    engine = copy(configuration.balancer)
    engine.seed += further
    return replace(
        configuration, name=f"{configuration.name} (seed {engine.seed})", balancer=engine
    )


def _twice(names: Sequence[str]) -> str:
    return next(name for name in names if names.count(name) > 1)


def judge_placements(
    history: LoadHistory,
    placements: Mapping[str, Snapshot],
    *,
    first_ms: int,
    end_ms: int,
    goals: Config | Sequence[Goal] = "default",
    limit: float = 0.8,
) -> BacktestResult:
    """Judge fixed placements by the loads of a history.

    Parameters
    ----------
    history
        See :func:`backtest`.
    placements
        Name to a cluster with the partitions of the history, for example the end of a plan
        (:meth:`balancer.Plan.final_snapshot`); its loads are ignored.
    first_ms, end_ms, goals, limit
        See :func:`backtest`.

    Raises
    ------
    InputError
        As for :func:`backtest`, or naming a partition that the history does not have.
    """
    slots = max([1, *(int(s.replication_factor.max(initial=1)) for s in placements.values())])
    task = _task(history, first_ms, end_ms, limit, slots)
    deltas = [_lasting(name, placement, task) for name, placement in placements.items()]
    copies = ((),) * (1 + len(deltas))
    jury = _WindowJudge(task, _judges(goals, task), (task.timeline.recorded, *deltas), copies)
    with _loads(history, task) as loads:
        windows = _judged(loads, jury)
    return _result((RECORDED, *placements), task, 0.0, windows, [], {})


def _task(history: LoadHistory, first_ms: int, end_ms: int, limit: float, slots: int) -> _Task:
    """The complete windows of a range, and its brokers and partitions."""
    window_ms = history.window_ms
    first_ms, end_ms = -(-first_ms // window_ms) * window_ms, end_ms // window_ms * window_ms
    if first_ms >= end_ms:
        raise BacktestError(
            f"backtest: from {first_ms} to {end_ms} found, at least one window of "
            f"{window_ms / 1000:g} s expected"
        )
    if not 0 < limit < float("inf"):
        raise BacktestError(f"backtest: limit {limit} found, a share above 0 expected")
    timeline = Timeline.of(history.metadata, first_ms, end_ms, slots=slots)
    if not timeline.names:
        raise BacktestError("backtest: metadata without partitions found, at least one expected")
    return _Task(timeline, first_ms, end_ms, window_ms, limit, Reporter())


def _lasting(name: str, placement: Snapshot, task: _Task) -> list[Delta]:
    """A placement for a whole history, apart from partitions that come and go."""
    timeline = task.timeline
    row_of = {known: row for row, known in enumerate(timeline.names)}
    named, (replicas, leader) = names_of(placement), table_of(placement, timeline.slots)
    what = [f"partition {topic}-{n}" for topic, n in named if (topic, n) not in row_of][:1]
    strange = np.setdiff1d(replicas, [-1, *timeline.casts[0].broker_ids])
    what += [f"broker {b}" for b in strange[:1]] + ["that name"] * (name == RECORDED)
    if what:
        raise BacktestError(
            f"placement {name!r}: {what[0]} found, partitions and brokers of the history, and a "
            f"name other than {RECORDED!r}, expected"
        )
    rows = np.array([row_of[n] for n in named], np.int64)
    current, delta = CurrentReplicas(timeline), Delta(task.first_ms, rows, replicas, leader)
    current.apply(delta)
    later = (current.follow(cast) for cast in range(1, len(timeline.casts)))
    return [delta, *(d for d in later if d is not None)]


def _judges(goals: Config | Sequence[Goal], task: _Task) -> list[Goal]:
    if isinstance(goals, str | Path | Mapping):
        found, strict = load_goals(goals), profile_of(goals) is None
    else:
        found, strict = list(goals), True
    for cluster in task.timeline.casts:
        applicable(found, cluster, strict=strict)
    return found


@contextmanager
def _loads(history: LoadHistory, task: _Task) -> Iterator[DataFrame]:
    """The loads of a range by row, computed once and kept on the executors' disks."""
    from pyspark import StorageLevel

    loads = _by_row(history.loads(task.first_ms, task.end_ms), task.timeline)
    loads = loads.persist(StorageLevel.DISK_ONLY)
    try:
        yield loads
    finally:
        loads.unpersist()


def _result(
    names: tuple[str, ...],
    task: _Task,
    price: float,
    judged: tuple[list[tuple[int, int, WindowFigures]], list[BrokerShares]],
    rounds: list[tuple[int, Event]],
    runs: Mapping[str, tuple[str, ...]],
) -> BacktestResult:
    windows, shares = judged
    if not windows:
        raise BacktestError(
            f"backtest: no loads found from {task.first_ms} to {task.end_ms} (ms since 1970), at "
            "least one window expected"
        )
    return BacktestResult(
        configurations=names,
        first_ms=task.first_ms,
        end_ms=task.end_ms,
        window_ms=task.window_ms,
        limit=task.limit,
        price=price,
        windows=tuple(JudgedWindow(names[n], at_ms, figures) for n, at_ms, figures in windows),
        rounds=tuple(DecidedRound(names[1 + n], event) for n, event in rounds),
        partitions=task.timeline.names,
        shares=dict(zip(names, shares, strict=True)),
        runs=runs,
    )


def _by_row(loads: DataFrame, timeline: Timeline) -> DataFrame:
    """The loads with the timeline's rows instead of names, in compact form."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    topics, numbers = zip(*timeline.names, strict=True)
    named = {"topic": topics, "partition": numbers, "row": range(len(topics))}
    rows = loads.sparkSession.createDataFrame(
        pa.table({name: pa.array(values) for name, values in named.items()})
    )
    return loads.join(f.broadcast(rows), ["topic", "partition"]).select(
        "start_ms", "row", "leader", "follower"
    )


def _replayed(
    loads: DataFrame, configurations: Sequence[Configuration], task: _Task
) -> list[tuple[int, Event]]:
    """The decisions of each configuration (by number), in order of time."""
    from pyspark.sql import DataFrame

    # All tasks read the same exchange.
    ordered = loads.repartition(1).sortWithinPartitions("start_ms", "row")
    parts = [
        ordered.mapInArrow(_ConfigurationReplay(number, configuration, task).live, _ddl(_EVENTS))
        for number, configuration in enumerate(configurations)
    ]
    found = reduce(DataFrame.unionAll, parts).toArrow().to_pydict()
    rounds = []
    for number, at_ms, kind, reason, actions, moved, again, *rest in zip(
        *found.values(), strict=True
    ):
        from_ms, *delta = rest[:4]
        began_ms, ended_ms, undone, steps, *columns = rest[4:]
        change = moves = None
        if from_ms is not None:
            row, replicas, leader = (np.array(part, np.int64) for part in delta)
            change = Delta(from_ms, row, replicas.reshape(len(row), task.timeline.slots), leader)
        if began_ms is not None:
            *places, copied = columns
            row, source, destination, sender = (np.array(part, np.int64) for part in places)
            moves = Moves(
                began_ms, ended_ms, bool(undone), tuple(steps), row, source, destination, sender,
                np.array(copied, np.float64),
            )  # fmt: skip
        event = Event(at_ms, kind, reason, actions, moved, again, change, moves)
        rounds.append((number, event))
    return sorted(rounds, key=lambda r: r[0])


class _Copying(NamedTuple):
    """What a plan copies in a time: ids of brokers, and bytes/s in and out (n, 2)."""

    began_ms: int
    ended_ms: int
    brokers: Ints
    rate: Floats


def _copies(rounds: Sequence[tuple[int, Event]], number: int) -> tuple[_Copying, ...]:
    """The copying of all plans of a configuration."""
    found = []
    for of, event in rounds:
        moves = event.moves
        if of != number or moves is None or not moves.copied.any():
            continue
        brokers = np.unique(np.concatenate([moves.destination, moves.sender]))
        sums = [
            np.bincount(np.searchsorted(brokers, ids), moves.copied, len(brokers))
            for ids in (moves.destination, moves.sender)
        ]
        seconds = max(moves.ended_ms - moves.began_ms, 1) / 1000
        rate = np.column_stack(sums) / seconds
        found.append(_Copying(moves.began_ms, moves.ended_ms, brokers, rate))
    return tuple(found)


def _judged(
    loads: DataFrame, jury: _WindowJudge
) -> tuple[list[tuple[int, int, WindowFigures]], list[BrokerShares]]:
    """Number of the placement, start of the window, and its figures, in this order; and shares."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    def judged(window: pa.Table) -> pa.Table:
        return jury.judge(window)

    task = jury.task
    column_ms = -(-task.windows // _COLUMNS) * task.window_ms
    all_ = loads.groupBy("start_ms").applyInArrow(judged, _ddl({**_FIGURES, **_SHARES}))
    all_ = all_.persist(StorageLevel.DISK_ONLY)
    try:
        found = all_.select(*_FIGURES).toArrow().to_pydict()
        column = f.floor((f.col("start_ms") - f.lit(task.first_ms)) / f.lit(column_ms))
        pairs = f.explode(f.arrays_zip("broker", "share")).alias("of")
        cells = (
            all_.select("configuration", column.alias("column"), pairs)
            .groupBy("configuration", "column", f.col("of.broker").alias("broker"))
            .agg(f.max("of.share").alias("share"))
            .toArrow()
        )
    finally:
        all_.unpersist()
    rows = sorted(zip(*found.values(), strict=True), key=lambda r: r[:2])
    windows = [(number, start_ms, WindowFigures(*figures)) for number, start_ms, *figures in rows]
    number, at, broker, share = (cells[name].to_numpy() for name in cells.column_names)
    brokers = np.unique(broker)
    tables = np.full(
        (len(jury.deltas), len(brokers), -(-task.windows * task.window_ms // column_ms)), np.nan
    )
    tables[number, np.searchsorted(brokers, broker), at] = share
    return windows, [BrokerShares(brokers, column_ms, table) for table in tables]


@dataclass(frozen=True, eq=False)
class _ConfigurationReplay:
    """The whole history of one configuration, on an executor."""

    number: int
    configuration: Configuration
    task: _Task

    def live(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = self.task
        events = replay_one(
            self.configuration,
            task.timeline,
            self.counted(_windows(batches)),
            first_ms=task.first_ms,
            end_ms=task.end_ms,
            window_ms=task.window_ms,
        )
        for event in events:
            *reported, delta, moves = event
            changes: list[Any] = [None] * 4
            if delta is not None:
                changes = [delta.from_ms, delta.row, delta.replicas.ravel(), delta.leader]
            steps: Sequence[Any] = [None] * len(Moves._fields)
            if moves is not None:
                steps = moves
            yield _batch(_EVENTS, [(self.number, *reported, *changes, *steps)])

    def counted(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The windows; the driver hears how many there were."""
        task = self.task
        for window in windows:
            yield window
            done = (window.start_ms - task.first_ms) // task.window_ms + 1
            task.reporter.report(REPLAYING, self.number, done)


@dataclass(frozen=True, eq=False)
class _WindowJudge:
    """Judges single windows on all placements, on the executors."""

    task: _Task
    goals: list[Goal]
    deltas: tuple[Sequence[Delta], ...]
    copies: tuple[Sequence[_Copying], ...]

    @cached_property
    def courses(self) -> list[ReplicaHistory]:
        """One for each placement, for the duration of a task."""
        return [ReplicaHistory(self.task.timeline, deltas) for deltas in self.deltas]

    def judge(self, window: pa.Table) -> pa.Table:
        """Judge one window's loads."""
        import pyarrow as pa

        timeline = self.task.timeline
        (loads,) = _windows(window.sort_by("row").combine_chunks().to_batches())
        cluster = timeline.at(loads.start_ms)
        rows = timeline.rows(cluster)
        tables = []
        for of_rows in (loads.leader, loads.follower):
            table = np.full((len(timeline.names), of_rows.shape[1]), np.nan)
            table[loads.row] = of_rows
            table[rows] = with_estimates(timeline.casts[cluster], table[rows])
            tables.append(table)
        known = float(np.isin(rows, loads.row).mean()) if len(rows) else 1.0
        ids = timeline.casts[cluster].broker_ids
        found = []
        for n, course in enumerate(self.courses):
            now = course.at(loads.start_ms).snapshot(cluster, *tables)
            copying = self.copying(n, loads.start_ms, ids)
            figures = judge(now, self.goals, self.task.limit, known, copying)
            shares = broker_shares(now, broker_load(now, copying)).max(axis=1)
            found.append((n, loads.start_ms, *figures, ids, shares))
        self.task.reporter.report(JUDGING, loads.start_ms, 1)
        return pa.Table.from_batches([_batch({**_FIGURES, **_SHARES}, found)])

    def copying(self, number: int, start_ms: int, ids: Ints) -> Floats:
        """(B, 2) mean bytes/s that brokers receive and send in a window, for plans."""
        rate, end_ms = np.zeros((len(ids), 2)), start_ms + self.task.window_ms
        for of in self.copies[number]:
            overlap = min(of.ended_ms, end_ms) - max(of.began_ms, start_ms)
            if overlap > 0:
                here = np.isin(of.brokers, ids)
                at = np.searchsorted(ids, of.brokers[here])
                rate[at] += of.rate[here] * (overlap / self.task.window_ms)
        return rate


def _windows(batches: Iterable[pa.RecordBatch]) -> Iterator[Window]:
    """Rows in order of time, one window at a time."""
    pending: list[tuple[Any, ...]] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [batch.column(name) for name in ("start_ms", "row")]
        start, row = (np.asarray(c) for c in columns)
        loads = [_matrix(batch.column(name)) for name in ("leader", "follower")]
        cuts = [0, *(np.flatnonzero(np.diff(start)) + 1).tolist(), len(start)]
        for a, b in pairwise(cuts):
            if pending and pending[0][0] != start[a]:
                yield _window(pending)
                pending = []
            pending.append((int(start[a]), row[a:b], *(load[a:b] for load in loads)))
    if pending:
        yield _window(pending)


def _window(parts: list[tuple[Any, ...]]) -> Window:
    start_ms = parts[0][0]
    return Window(start_ms, *(np.concatenate(c) for c in list(zip(*parts, strict=True))[1:]))


def _matrix(column: Any) -> Floats:
    """(n, R) float of a column of arrays."""
    flat = column.flatten().to_numpy(zero_copy_only=False)
    found: Floats = flat.reshape(len(column), -1).astype(np.float64)
    return found


def _batch(columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "array<long>": pa.list_(pa.int64()),
        "array<double>": pa.list_(pa.float64()),
        "array<string>": pa.list_(pa.string()),
    }
    arrays = [
        pa.array(values, kinds[kind])
        for values, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
