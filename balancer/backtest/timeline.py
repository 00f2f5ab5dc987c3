"""Tracks brokers, partitions and replicas over the time of a history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cluster_model.snapshot import BrokerState, Floats, Ints, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class MetadataHistory(Protocol):
    """A log of changes, such as :class:`cluster_model.history.metadata.MetadataLog`."""

    def states(self, first_ms: int, end_ms: int) -> Iterable[tuple[int, Snapshot]]:
        """The cluster at `first_ms`, and after each change until `end_ms`, in order of time."""

    def at(self, ms: int) -> Snapshot:
        """The cluster at that time."""

    def placements(self, spark: SparkSession) -> DataFrame:
        """Replicas of each partition over time, as a table."""


class Delta(NamedTuple):
    """Partitions whose replicas or leaders change at some time.

    Parameters
    ----------
    from_ms
        First window with the change, ms since 1970.
    row : (n,) int
        Rows of the timeline's partitions.
    replicas : (n, F) int
        Ids of their brokers in preference order, -1 for empty slots.
    leader : (n,) int
        Position of the leader among them; -1 for none.
    """

    from_ms: int
    row: Ints
    replicas: Ints
    leader: Ints


@dataclass(frozen=True, eq=False)
class Timeline:
    """All partitions that ever existed, and the clusters they were in.

    Parameters
    ----------
    names
        Topic and number of the U partitions, ascending.
    slots
        F, the most replicas that a partition ever had.
    starts_ms, casts
        Start times of the casts (the brokers and partitions that existed); the first applies
        before its time too. Loads and disks are left out, placement is that of the moment.
    recorded
        Changes of replicas and leaders in between.
    """

    names: tuple[tuple[str, int], ...]
    slots: int
    starts_ms: tuple[int, ...]
    casts: tuple[Snapshot, ...]
    recorded: tuple[Delta, ...]

    @classmethod
    def of(
        cls, metadata: MetadataHistory, first_ms: int, end_ms: int, *, slots: int = 1
    ) -> Timeline:
        """Read a period of a log; with room for at least `slots` replicas of a partition."""
        starts: list[int] = []
        casts: list[Snapshot] = []
        states: list[tuple[int, Snapshot]] = []
        for at_ms, state in metadata.states(first_ms, end_ms):
            now = _stripped(state)
            if not casts or not _same_cast(casts[-1], now):
                starts.append(at_ms)
                casts.append(now)
            states.append((at_ms, now))
        names = sorted({name for cast in casts for name in names_of(cast)})
        slots = max(slots, *(int(cast.replication_factor.max(initial=1)) for cast in casts))
        # Placements are compared by rows, so the rows must be known first.
        timeline = cls(tuple(names), slots, tuple(starts), tuple(casts), ())
        return replace(timeline, recorded=tuple(_recorded(timeline, states)))

    def at(self, ms: int) -> int:
        """The index of the cast at a time."""
        return max(bisect_right(self.starts_ms, ms) - 1, 0)

    @cached_property
    def _row_of(self) -> dict[tuple[str, int], int]:
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def _rows(self) -> dict[int, Ints]:
        return {}

    def rows(self, cast: int) -> Ints:
        """(P,) int: the row of each partition of a cast."""
        if cast not in self._rows:
            row_of, found = self._row_of, names_of(self.casts[cast])
            self._rows[cast] = np.array([row_of[name] for name in found], np.int64)
        return self._rows[cast]


class CurrentReplicas:
    """The current replicas; changes with plans and with events in the history.

    Attributes
    ----------
    replicas : (U, F) int
        Ids of the brokers of each partition of the timeline in preference order, -1 none.
    leader : (U,) int
        Position of the intended leader, -1 none.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.replicas: Ints = np.full((len(timeline.names), timeline.slots), -1, np.int64)
        self.leader: Ints = np.full(len(timeline.names), -1, np.int64)
        self._factor: Ints = np.zeros(len(timeline.names), np.int64)
        self._cast = -1
        self.follow(0)

    def apply(self, delta: Delta) -> None:
        """Apply a change."""
        self.replicas[delta.row] = delta.replicas
        self.leader[delta.row] = delta.leader

    def follow(self, cast: int) -> Delta | None:
        """Adapt to the brokers and partitions of a cast; returns the resulting change, if any.

        Partitions that are new, have another number of replicas, or are on a removed broker
        are placed as in the history. Removed partitions are dropped.
        """
        if cast == self._cast:
            return None
        s, rows = self._timeline.casts[cast], self._timeline.rows(cast)
        replicas, leader = table_of(s, self._timeline.slots)
        mine = self.replicas[rows]
        unfit = (self._factor[rows] != s.replication_factor) | (
            (mine >= 0) & ~np.isin(mine, s.broker_ids)
        ).any(axis=1)
        gone = np.setdiff1d(np.flatnonzero(self._factor), rows)
        self._factor[gone] = 0
        self._factor[rows] = s.replication_factor
        delta = Delta(
            self._timeline.starts_ms[cast],
            np.concatenate([rows[unfit], gone]),
            np.concatenate([replicas[unfit], np.full((len(gone), replicas.shape[1]), -1)]),
            np.concatenate([leader[unfit], np.full(len(gone), -1)]),
        )
        self._cast = cast
        self.apply(delta)
        return delta if len(delta.row) else None

    def snapshot(
        self, cast: int, leader_load: Floats | None = None, follower_load: Floats | None = None
    ) -> Snapshot:
        """The cluster of a cast with its replicas here, and loads (U, R) of leaders and followers.

        The intended leader leads while its broker lives, else the first living replica.
        """
        s, rows = self._timeline.casts[cast], self._timeline.rows(cast)
        ids, requested = self.replicas[rows], self.leader[rows]
        held = ids >= 0
        broker = np.where(held, np.searchsorted(s.broker_ids, ids), -1)
        lives = held & np.append(s.broker_state != BrokerState.DEAD, False)[broker]
        leads = np.take_along_axis(lives, np.maximum(requested, 0)[:, None], 1)[:, 0]
        leader = np.where(leads & (requested >= 0), requested, lives.argmax(axis=1))
        loads: dict[str, Any] = {}
        if leader_load is not None and follower_load is not None:
            loads = {"leader_load": leader_load[rows], "follower_load": follower_load[rows]}
        return replace(
            s,
            replica_offset=np.concatenate([[0], np.cumsum(held.sum(axis=1))]),
            replica_broker=broker[held],
            leader=np.where(lives.any(axis=1), leader, -1),
            **loads,
        )


class ReplicaHistory:
    """Computes the current replicas at any time from its changes; fastest in order of time."""

    def __init__(self, timeline: Timeline, deltas: Sequence[Delta]) -> None:
        self._timeline, self._deltas = timeline, deltas
        self._start()

    def _start(self) -> None:
        self._current, self._done = CurrentReplicas(self._timeline), 0

    def at(self, ms: int) -> CurrentReplicas:
        """Where replicas are in the window that starts then."""
        if self._done and self._deltas[self._done - 1].from_ms > ms:
            self._start()
        while self._done < len(self._deltas) and self._deltas[self._done].from_ms <= ms:
            self._current.apply(self._deltas[self._done])
            self._done += 1
        return self._current


def names_of(s: Snapshot) -> list[tuple[str, int]]:
    """Topic and number of each partition."""
    topics = [s.topics[t] for t in s.partition_topic.tolist()]
    return list(zip(topics, s.partition_number.tolist(), strict=True))


def table_of(s: Snapshot, slots: int) -> tuple[Ints, Ints]:
    """(P, F) broker ids of the replicas, -1 for empty slots, and (P,) leader's position."""
    table = np.full((s.n_partitions, slots), -1, np.int64)
    place = np.arange(s.n_replicas) - np.repeat(s.replica_offset[:-1], s.replication_factor)
    table[s.replica_partition, place] = s.broker_ids[s.replica_broker]
    return table, s.leader.copy()


def changed(
    from_ms: int, rows: Ints, old: tuple[Ints, Ints], new: tuple[Ints, Ints]
) -> Delta | None:
    """The differences between two tables of the same partitions, as rows of the timeline."""
    differs = (old[0] != new[0]).any(axis=1) | (old[1] != new[1])
    return (
        Delta(from_ms, rows[differs], new[0][differs], new[1][differs]) if differs.any() else None
    )


def _recorded(timeline: Timeline, states: list[tuple[int, Snapshot]]) -> list[Delta]:
    """The moves of replicas and leaders in the history itself."""
    found: list[Delta] = []
    current = CurrentReplicas(timeline)
    for at_ms, s in states:
        cast = timeline.at(at_ms)
        adopted = current.follow(cast)
        found += [] if adopted is None else [adopted]
        rows = timeline.rows(cast)
        now = table_of(s, timeline.slots)
        delta = changed(at_ms, rows, (current.replicas[rows], current.leader[rows]), now)
        if delta is not None:
            current.apply(delta)
            found.append(delta)
    return found


def _stripped(s: Snapshot) -> Snapshot:
    nothing: Any = ()
    return replace(
        s,
        leader_load=np.zeros_like(s.leader_load),
        follower_load=np.zeros_like(s.follower_load),
        disk_broker=nothing,
        disk_path=(),
        disk_capacity=nothing,
        disk_alive=nothing,
        replica_disk=nothing,
        traffic_from=nothing,
        traffic_to=nothing,
        traffic_rate=nothing,
        state_size=nothing,
        lag=nothing,
    )


# Fields whose change makes a new cast, in addition to replica placement.
_CAST = (
    "resources",
    "broker_ids",
    "racks",
    "broker_rack",
    "hosts",
    "broker_host",
    "broker_state",
    "capacity",
    "broker_sets",
    "broker_set",
    "topics",
    "partition_topic",
    "partition_number",
    "replication_factor",
)


def _same_cast(one: Snapshot, other: Snapshot) -> bool:
    return (
        all(np.array_equal(getattr(one, name), getattr(other, name)) for name in _CAST)
        and one.attributes("broker") == other.attributes("broker")
        and one.attributes("topic") == other.attributes("topic")
    )
