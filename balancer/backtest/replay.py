"""Replays a history with one configuration: the real controller on simulated time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balancer.backtest.configuration import Configuration, Statistic
from balancer.backtest.timeline import CurrentReplicas, Delta, Timeline, changed, names_of, table_of
from balancer.controller import Controller, Decision, Settings
from balancer.controller.feed import standard_error
from balancer.controller.settings import GoalViolations, MissingReplicas
from balancer.planning.plan import Plan
from cluster_model.attribution import with_estimates
from cluster_model.errors import InputError
from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot
from cluster_model.trust import Distrust, partition_names

# A partition that moves again within this time was moved needlessly.
COPIED_AGAIN_SECONDS = 12 * 3600.0
_P95 = 0.95
# If any of these is unknown, so is a partition's load.
_RATES = ("network_in", "network_out")


class Window(NamedTuple):
    """Loads of one window of the history.

    Parameters
    ----------
    start_ms
        ms since 1970.
    row : (n,) int
        Rows of the partitions with any known load.
    leader, follower : (n, R) float
        Loads of a replica as leader, and as follower; nan if unknown.
    """

    start_ms: int
    row: Ints
    leader: Floats
    follower: Floats


class Moves(NamedTuple):
    """The steps of a plan that was executed, or stopped on the way.

    Parameters
    ----------
    began_ms, ended_ms
        When copying began and ended, ms since 1970.
    undone
        Whether it was stopped, and nothing changed.
    kind : n texts
        Of each step, as in plans.
    row : (n,) int
        Partition, as a row of the timeline.
    source, destination, sender : (n,) int
        Ids of the brokers that had and got the replica or the leadership, and of the one that
        sent the copy (the leader); -1 for none.
    copied : (n,) float
        Bytes.
    """

    began_ms: int
    ended_ms: int
    undone: bool
    kind: tuple[str, ...]
    row: Ints
    source: Ints
    destination: Ints
    sender: Ints
    copied: Floats


class Event(NamedTuple):
    """A decision of a configuration, or a change of the placement.

    Parameters
    ----------
    at_ms
        When, ms since 1970.
    kind
        Kind of the decision (see :class:`balancer.controller.Decision`); ``adopted`` for
        changes in the history itself.
    reason
        One sentence; empty if the round led to nothing.
    actions, bytes_moved
        Steps of a plan that was started; bytes copied by one that was executed.
    bytes_again
        Of those, the bytes of partitions that had moved recently.
    delta
        The change of the placement, if any.
    moves
        The steps of a plan that ended.
    """

    at_ms: int
    kind: str
    reason: str = ""
    actions: int = 0
    bytes_moved: float = 0.0
    bytes_again: float = 0.0
    delta: Delta | None = None
    moves: Moves | None = None


def replay_one(
    configuration: Configuration,
    timeline: Timeline,
    windows: Iterable[Window],
    *,
    first_ms: int,
    end_ms: int,
    window_ms: int,
) -> Iterator[Event]:
    """Replay a history with a configuration's controller.

    At the end of each window the controller looks at the loads of the last windows, on the
    placement that its own plans led to, and does what it would do live: the same detectors,
    grace periods, cool-downs, and cost-benefit decisions. A plan takes as long as copying
    takes, and applies from the next window on.

    Parameters
    ----------
    configuration
        The configuration to replay.
    timeline
        The brokers and partitions over time.
    windows
        Loads in order of time; windows without data may be missing.
    first_ms, end_ms, window_ms
        Start of the first window, end of the last, and their length.

    Yields
    ------
    Event
        In order of time.
    """
    replay = _Replay(configuration, timeline, window_ms)
    coming = iter(windows)
    window = next(coming, None)
    for start_ms in range(first_ms, end_ms, window_ms):
        if window is not None and window.start_ms == start_ms:
            replay.take(window)
            window = next(coming, None)
        if window is not None and window.start_ms <= start_ms:
            raise ValueError(f"a window of {window.start_ms} found after that of {start_ms}")
        yield from replay.end_window(start_ms + window_ms)


@dataclass(frozen=True)
class _ReplayedOutcome:
    state: Any
    completed: int
    cancelled: int
    bytes_moved: float
    seconds: float
    failed: int = 0
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Known:
    """Loads of one window as tables of all partitions: (U, R), nan if unknown."""

    start_ms: int
    leader: Floats
    follower: Floats

    def or_else(self, earlier: _Known) -> _Known:
        """The same, with earlier loads where unknown."""
        leader, follower = (
            np.where(np.isnan(now), before, now)
            for now, before in ((self.leader, earlier.leader), (self.follower, earlier.follower))
        )
        return _Known(self.start_ms, leader, follower)


class _Replay:
    """A simulated cluster: the controller's model and executor in one."""

    def __init__(self, configuration: Configuration, timeline: Timeline, window_ms: int) -> None:
        self._configuration, self._timeline, self._window_ms = configuration, timeline, window_ms
        settings = configuration.settings
        span = configuration.span or settings.model.windows * settings.model.window
        self._kept: deque[_Known] = deque(maxlen=max(1, round(span * 1000 / window_ms)))
        self._look_ms = math.ceil(settings.interval * 1000 / window_ms) * window_ms
        self._current = CurrentReplicas(timeline)
        self._cast = 0
        self._now_ms = timeline.starts_ms[0]
        self._looked_ms = self._now_ms
        self._last: _Known | None = None
        self._seen: Snapshot | None = None
        self._distrust = Distrust()
        self._job: Callable[[], None] | None = None
        self._began_ms = self._takes_ms = 0
        self._stopped = False
        self._moved_ms: Ints = np.full(len(timeline.names), -(2**62), np.int64)
        self._events: list[Event] = []
        self._again = 0.0
        self._delta: Delta | None = None
        self._moves: Moves | None = None
        self._controller = Controller(
            self,
            configuration.engine(),
            self,
            _in_looks(settings, self._look_ms / 1000),
            clock=lambda: self._now_ms / 1000,
            spawn=self._spawn,
            witness=self._decided,
        )

    def take(self, window: Window) -> None:
        """Add the measurements of a window."""
        shape = (len(self._timeline.names), window.leader.shape[1])
        tables = np.full(shape, np.nan), np.full(shape, np.nan)
        for table, loads in zip(tables, (window.leader, window.follower), strict=True):
            table[window.row] = loads
        known = _Known(window.start_ms, *tables)
        self._kept.append(known)
        self._last = known if self._last is None else known.or_else(self._last)

    def end_window(self, now_ms: int) -> list[Event]:
        """Advance to a window's end; returns what happened then."""
        self._now_ms, self._events = now_ms, []
        oldest_ms = now_ms - (self._kept.maxlen or 1) * self._window_ms
        while self._kept and self._kept[0].start_ms < oldest_ms:
            self._kept.popleft()
        self._cast = self._timeline.at(now_ms)
        adopted = self._current.follow(self._cast)
        if adopted is not None:
            self._events.append(Event(now_ms, "adopted", delta=adopted))
        self._finish()
        if now_ms - self._looked_ms >= self._look_ms:
            self._looked_ms = now_ms
            try:
                self._controller.step()
            except InputError as error:
                # As in a running controller: reported, and retried.
                self._events.append(Event(now_ms, "error", str(error)))
            self._finish()
        return self._events

    # --- the controller's model

    def snapshot(self, min_ratio: float = 0.95) -> Snapshot:
        """The cluster on this configuration's placement, with the loads of the last windows.

        As in the live model, an unknown load is replaced by the last known one, or else by the
        mean of the topic or of all partitions, and nothing is planned on it.
        """
        rows, cast = self._timeline.rows(self._cast), self._timeline.casts[self._cast]
        resources = len(cast.resources)
        leader, follower = (
            statistic_of(
                [getattr(w, role)[rows] for w in self._kept], self._configuration.statistic
            )
            if self._kept
            else np.full((len(rows), resources), np.nan)
            for role in ("leader", "follower")
        )
        rates = np.isin(cast.resources, _RATES)
        unknown = np.isnan(leader[:, rates] if rates.any() else leader).any(axis=1)
        self._distrust = Distrust(unknown=partition_names(cast, np.flatnonzero(unknown)))
        ratio = float((~unknown).mean()) if len(rows) else 1.0
        if ratio < min_ratio:
            raise InputError(
                f"loads of {ratio:.1%} of partitions found, at least {min_ratio:.1%} expected"
            )
        tables = []
        for role, found in (("leader", leader), ("follower", follower)):
            last = found if self._last is None else getattr(self._last, role)[rows]
            table = np.zeros((len(self._timeline.names), resources))
            table[rows] = with_estimates(cast, np.where(np.isnan(found), last, found))
            tables.append(table)
        self._seen = self._current.snapshot(self._cast, *tables)
        return self._seen

    def placement(self) -> Snapshot:
        """The cluster on this configuration's placement, even if few loads are known."""
        return self.snapshot(0.0)

    def staleness(self) -> None:
        """None: no age of records is expected."""

    def signals(self) -> dict[str, dict[int, float]]:
        """Empty: only loads are known."""
        return {}

    def since(self) -> float | None:
        """Start of the oldest window."""
        return self._kept[0].start_ms / 1000 if self._kept else None

    def noise(self) -> dict[str, float]:
        """How uncertain brokers' loads are, from the variation of their shares between windows."""
        if self._seen is None or len(self._kept) < 2:
            return {}
        s, rows = self._seen, self._timeline.rows(self._cast)
        partition, leads = s.replica_partition, s.replica_is_leader[:, None]
        expected = np.where(leads, s.leader_load[partition], s.follower_load[partition])
        samples = np.empty((len(self._kept), s.n_brokers, len(s.resources)))
        for w, known in enumerate(self._kept):
            loads = np.where(leads, known.leader[rows][partition], known.follower[rows][partition])
            # Missing values of a window are no noise.
            loads = np.where(np.isnan(loads), expected, loads)
            for r in range(len(s.resources)):
                samples[w, :, r] = np.bincount(s.replica_broker, loads[:, r], s.n_brokers)
        # Sizes are levels, without noise.
        return {
            name: standard_error(samples[:, :, r].T)
            for r, name in enumerate(s.resources)
            if name != "disk"
        }

    def distrust(self) -> Distrust:
        """The history is already cleaned; some of it may be missing."""
        return self._distrust

    def refresh(self) -> None:
        """Do nothing: the placement is always current."""

    # --- the controller's executor

    def execute(
        self, plan: Plan, *, progress: Callable[[Any], None] | None = None
    ) -> _ReplayedOutcome:
        """Apply the plan's final placement; a stopped plan changes nothing."""
        seconds = (self._now_ms - self._began_ms) / 1000
        if self._stopped:
            done = min(1.0, (self._now_ms - self._began_ms) / max(self._takes_ms, 1))
            self._moves = self._moves_of(plan, done, undone=True)
            return _ReplayedOutcome("rolled back", 0, len(plan), done * plan.summary.cost, seconds)
        s, final = plan.snapshot, plan.final_snapshot()
        rows = self._rows_of(s)
        delta = changed(
            self._now_ms,
            rows,
            table_of(s, self._timeline.slots),
            table_of(final, self._timeline.slots),
        )
        self._delta = None if delta is None else self._fitting(delta)
        if self._delta is not None:
            self._current.apply(self._delta)
        moved = rows[plan.rows.partition]
        carried = plan.rows.cost > 0
        again = self._now_ms - self._moved_ms[moved] <= COPIED_AGAIN_SECONDS * 1000
        self._again = float(plan.rows.cost[carried & again].sum())
        self._moved_ms[moved[carried]] = self._now_ms
        self._moves = self._moves_of(plan, 1.0, undone=False)
        return _ReplayedOutcome("done", len(plan), 0, plan.summary.cost, seconds)

    def _moves_of(self, plan: Plan, done: float, *, undone: bool) -> Moves:
        """The steps of a plan, of whose bytes a share was copied."""
        s, rows = plan.snapshot, plan.rows
        ids = np.append(s.broker_ids, -1)
        leads = s.leader[rows.partition]
        at = s.replica_offset[rows.partition] + np.maximum(leads, 0)
        sender = np.where(leads >= 0, s.replica_broker[np.minimum(at, s.n_replicas - 1)], -1)
        return Moves(
            began_ms=self._began_ms,
            ended_ms=min(self._now_ms, self._began_ms + max(self._takes_ms, 1)),
            undone=undone,
            kind=tuple(rows.kind),
            row=self._rows_of(s)[rows.partition],
            source=ids[rows.source],
            destination=ids[rows.target],
            sender=ids[sender],
            copied=done * rows.cost,
        )

    def recover(self, *, progress: Callable[[Any], None] | None = None) -> None:
        """Nothing to recover: executions here never die."""

    def left(self) -> tuple[str, ...]:
        """Empty: executions here leave nothing behind."""
        return ()

    def stop(self) -> None:
        """Abandon the current execution."""
        self._stopped = True

    # --- what happens between looks

    def _spawn(self, job: Callable[[], None]) -> None:
        work = self._controller.work
        plan = None if work is None else work.plan
        if plan is None:
            job()
            return
        s = self._timeline.casts[self._cast]
        living = int((s.broker_state != BrokerState.DEAD).sum())
        # Each byte is sent by one broker and received by another.
        rate = self._configuration.copy_rate * max(living / 2, 1)
        self._began_ms = self._now_ms
        self._takes_ms = round(1000 * float(plan["cost"]) / rate)
        self._job, self._stopped = job, False

    def _finish(self) -> None:
        """End the execution if it is time."""
        if self._job is None:
            return
        if self._stopped or self._now_ms - self._began_ms >= max(self._takes_ms, 1):
            job, self._job = self._job, None
            job()

    def _decided(self, decision: Decision) -> None:
        plan, outcome = decision.plan, decision.outcome
        event = Event(self._now_ms, decision.kind)
        if decision.kind == "started" and plan is not None:
            event = event._replace(reason=decision.reason, actions=int(plan["actions"]))
        elif outcome is not None:
            event = event._replace(
                reason=decision.reason,
                bytes_moved=float(outcome["bytes_moved"]),
                bytes_again=self._again,
                delta=self._delta,
                moves=self._moves,
            )
            self._again, self._delta, self._moves = 0.0, None, None
        elif decision.kind == "error":
            event = event._replace(reason=decision.reason)
        self._events.append(event)

    def _rows_of(self, s: Snapshot) -> Ints:
        """(P,) the timeline's row of each partition of an earlier snapshot."""
        now = self._timeline.casts[self._cast]
        if s.topics == now.topics and np.array_equal(s.partition_topic, now.partition_topic):
            return self._timeline.rows(self._cast)
        row_of = {name: row for row, name in enumerate(self._timeline.names)}
        return np.array([row_of[name] for name in names_of(s)], np.int64)

    def _fitting(self, delta: Delta) -> Delta | None:
        """The part of a change that still fits the cluster, which may have changed meanwhile."""
        ids = self._timeline.casts[self._cast].broker_ids
        there = ((delta.replicas < 0) | np.isin(delta.replicas, ids)).all(axis=1)
        present = np.isin(delta.row, self._timeline.rows(self._cast))
        fits = there & present
        return delta._replace(
            row=delta.row[fits], replicas=delta.replicas[fits], leader=delta.leader[fits]
        )


def _in_looks(settings: Settings, look: float) -> Settings:
    """The settings for looks `look` seconds apart; streaks of rounds keep their duration."""

    def rounds(count: int) -> int:
        return max(1, math.ceil(count * settings.interval / look))

    violations: GoalViolations = settings.goal_violations
    missing: MissingReplicas = settings.missing_replicas
    return settings.model_copy(
        update={
            "execute": True,
            "interval": look,
            "decisions": 1,
            "webhooks": (),
            # Nothing may depend on this machine's speed, and executions here report no progress.
            "max_seconds": None,
            "silence_timeout": math.inf,
            "goal_violations": violations.model_copy(update={"rounds": rounds(violations.rounds)}),
            "missing_replicas": missing.model_copy(update={"rounds": rounds(missing.rounds)}),
        }
    )


def statistic_of(loads: list[Floats], statistic: Statistic) -> Floats:
    """(P, R) float: the statistic of windows (P, R), with nan for unknown loads."""
    if statistic == "mean":
        total, count = np.zeros_like(loads[0]), np.zeros_like(loads[0])
        for load in loads:
            known = ~np.isnan(load)
            total += np.where(known, load, 0.0)
            count += known
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    # Unknown values are sorted to the end.
    ordered = np.sort(np.stack(loads), axis=0)
    last = (~np.isnan(ordered)).sum(axis=0) - 1
    place = np.maximum(last, 0) * (1.0 if statistic == "peak" else _P95)
    low = np.floor(place).astype(np.int64)
    at = [np.take_along_axis(ordered, i[None], 0)[0] for i in (low, np.ceil(place).astype(int))]
    found: Floats = at[0] + (place - low) * (at[1] - at[0])
    return found
