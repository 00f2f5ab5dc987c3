"""The metadata of a cluster over time, as a log of changes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from cluster_model.files import load_snapshot, save_snapshot, write_atomically
from cluster_model.history.errors import HistoryError
from cluster_model.history.schema import BROKERS, DEFAULT_CLUSTER, PLACEMENTS, TOPICS
from cluster_model.index import SnapshotIndex
from cluster_model.snapshot import Bools, Floats, Ints, Snapshot
from metrics_reporter.documents import load_document, shown

# The first entry also holds for all time before it, the last one for all time after it.
ALWAYS_MS, NEVER_MS = -(2**63), 2**63 - 1

_NOTHING: Any = np.empty(0)


class Entry(NamedTuple):
    """The changes at one moment.

    Parameters
    ----------
    at_ms
        Start of its validity, ms since 1970.
    snapshot
        All brokers and topics from then on, and the partitions that changed.
    removed
        Topic and number of partitions that no longer exist.
    topic_ids
        Ids of topics that are new or have another id, where known.
    recreated
        Topics that were deleted and created again since the entry before, all of whose
        partitions are in the snapshot.
    """

    at_ms: int
    snapshot: Snapshot
    removed: tuple[tuple[str, int], ...] = ()
    topic_ids: Mapping[str, str] = MappingProxyType({})
    recreated: tuple[str, ...] = ()


class _Rows(NamedTuple):
    """The partitions in the entries, by topic and number, and each in the order of time.

    Parameters
    ----------
    names
        Names of topics.
    topic, number, entry : (n,) int
        The partition, and the index of the entry.
    row : (n,) int
        Row of the partition in the entry's snapshot; -1 where it was removed.
    again : (n - 1,) bool
        Whether the next row is of the same partition.
    born : (n,) bool
        Whether a partition begins here that did not exist before, or was another.
    """

    names: Sequence[str]
    topic: Ints
    number: Ints
    entry: Ints
    row: Ints
    again: Bools
    born: Bools


class MetadataLog:
    """Brokers, their racks and capacities, and placement of one cluster over time.

    The first entry also holds for the time before it. Loads are not compared: those of a
    partition date from the last change of its placement. Communication between partitions
    is kept only if there is a single snapshot.

    Parameters
    ----------
    path
        Local directory of the log, created by the first :meth:`append`; None keeps it in
        memory.
    cluster
        Name of the cluster.

    Raises
    ------
    HistoryError, SnapshotError
        For a path that is not a directory, or a file in it that is not an entry.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> cluster = synthetic_snapshot(brokers=3, partitions=6, racks=3)
    >>> log = MetadataLog.of(cluster)
    >>> log.at(0) == cluster, log.append(1_700_000_000_000, cluster), log.times_ms
    (True, False, (0,))
    """

    def __init__(self, path: str | Path | None = None, *, cluster: str = DEFAULT_CLUSTER) -> None:
        self.cluster = cluster
        self._path = None if path is None else Path(path)
        self._entries = [] if self._path is None else list(_read(self._path))
        self._newest = self._folded(len(self._entries)) if self._entries else None
        self._topic_ids = {t: id_ for entry in self._entries for t, id_ in entry.topic_ids.items()}

    @classmethod
    def of(cls, snapshot: Snapshot, *, cluster: str = DEFAULT_CLUSTER) -> MetadataLog:
        """A log with the same state for all time."""
        log = cls(cluster=cluster)
        log.append(0, snapshot)
        return log

    @property
    def times_ms(self) -> tuple[int, ...]:
        """Times of changes, ms since 1970, ascending."""
        return tuple(entry.at_ms for entry in self._entries)

    def append(
        self, at_ms: int, snapshot: Snapshot, topic_ids: Mapping[str, str] | None = None
    ) -> bool:
        """Log the changes; returns whether there were any.

        Parameters
        ----------
        at_ms
            When the cluster was in this state; later than all entries.
        snapshot
            The whole cluster.
        topic_ids
            Ids of topics where known. A topic with another id than before is another topic, though
            it has the name and the placement of the old one.

        Raises
        ------
        HistoryError
            For an earlier time, or if the log cannot be written.
        """
        old = self._newest
        ids = {t: id_ for t, id_ in (topic_ids or {}).items() if self._topic_ids.get(t) != id_}
        recreated = tuple(sorted(ids.keys() & self._topic_ids.keys() & {*snapshot.topics}))
        entry = Entry(at_ms, snapshot, topic_ids=ids)
        if old is not None:
            changes = _difference(entry, old, recreated)
            if changes is None:
                return False
            entry = changes
        if old is not None and at_ms <= self.times_ms[-1]:
            raise HistoryError(
                f"metadata log: a change at {at_ms} found, one after the last "
                f"({self.times_ms[-1]}) expected"
            )
        if self._path is not None:
            _write(self._path, entry)
        self._entries.append(entry)
        self._newest = entry.snapshot if old is None else _after(old, entry)
        self._topic_ids |= ids
        return True

    def at(self, ms: int) -> Snapshot:
        """The cluster as it was at that time, ms since 1970.

        Raises
        ------
        HistoryError
            If nothing is logged.
        """
        count = max(1, int(np.searchsorted(self.times_ms, ms, "right")))
        if self._newest is None:
            raise self._nothing()
        return self._newest if count == len(self._entries) else self._folded(count)

    def states(self, first_ms: int, end_ms: int) -> Iterator[tuple[int, Snapshot]]:
        """The cluster at `first_ms`, and after each change until `end_ms`, in order of time.

        Each state is made from the one before. Disks are left out.

        Raises
        ------
        HistoryError
            If nothing is logged.
        """
        now = _without_disks(self.at(first_ms))
        yield first_ms, now
        for entry in self._entries:
            if first_ms < entry.at_ms <= end_ms:
                now = _after(now, entry._replace(snapshot=_without_disks(entry.snapshot)))
                yield entry.at_ms, now

    def created_ms(self, ms: int) -> Ints:
        """(P,) int: since when each partition of :meth:`at` exists, ms since 1970.

        It is :data:`ALWAYS_MS` for those that were there in the first entry.
        """
        snapshot = self.at(ms)
        rows = self._rows(max(1, int(np.searchsorted(self.times_ms, ms, "right"))))
        began = np.maximum.accumulate(np.where(rows.born, np.arange(len(rows.row)), 0))
        last = np.flatnonzero((rows.row >= 0) & ~np.append(rows.again, False))
        since = self._since()[rows.entry[began[last]]]
        index = SnapshotIndex(snapshot)
        names = [rows.names[i] for i in rows.topic[last].tolist()]
        place = index.partitions(index.topics(names, [False] * len(names)), rows.number[last])
        found = np.full(snapshot.n_partitions, ALWAYS_MS)
        found[place] = since
        return found

    def placements(self, spark: SparkSession) -> DataFrame:
        """Replicas of each partition over time: the table PLACEMENTS."""
        return spark.createDataFrame(self._placement_rows(), schema=PLACEMENTS)

    def brokers(self, spark: SparkSession) -> DataFrame:
        """State of each broker over time: the table BROKERS."""
        return spark.createDataFrame(self._broker_rows(), schema=BROKERS)

    def topics(self, spark: SparkSession) -> DataFrame:
        """Topics over time: the table TOPICS."""
        return spark.createDataFrame(self._topic_rows(), schema=TOPICS)

    def digests(self) -> list[bytes]:
        """A digest of what each entry changes in the three tables; loads do not count.

        Raises
        ------
        HistoryError
            If nothing is logged.
        """
        if not self._entries:
            raise self._nothing()
        return [_digest(entry) for entry in self._entries]

    def _placement_rows(self) -> pa.Table:
        rows, since = self._rows(len(self._entries)), self._since()
        until = np.full(len(rows.row), NEVER_MS)
        until[:-1][rows.again] = since[rows.entry[1:][rows.again]]
        tables = []
        for e, (entry, here) in enumerate(
            zip(self._entries, _by_entry(rows, rows.row >= 0, len(self._entries)), strict=True)
        ):
            s = _part(entry.snapshot, rows.row[here])
            holds = s.broker_ids[s.replica_broker]
            lead = np.where(s.leader >= 0, s.replica_offset[:-1] + s.leader, -1)
            lists = partial(pa.ListArray.from_arrays, pa.array(s.replica_offset, pa.int32()))
            disks = lists(pa.array(_paths(s), pa.string())) if s.n_disks else [None] * len(here)
            columns = (
                [self.cluster] * len(here),
                np.array(s.topics, np.object_)[s.partition_topic],
                s.partition_number,
                np.full(len(here), since[e]),
                until[here],
                lists(pa.array(holds)),
                np.append(holds, -1)[lead],
                disks,
            )
            tables.append(_table(columns, PLACEMENTS))
        # Spark loses the rows after an empty chunk, such as that of an entry that only removes.
        return pa.concat_tables(tables).combine_chunks()

    def _broker_rows(self) -> pa.Table:
        return self._changes(BROKERS, _brokers)

    def _topic_rows(self) -> pa.Table:
        return self._changes(TOPICS, lambda s: {(name,): () for name in s.topics})

    def _changes(
        self,
        schema: t.StructType,
        reported: Callable[[Snapshot], dict[tuple[Any, ...], tuple[Any, ...]]],
    ) -> pa.Table:
        """A table of (cluster, key, from when, to when, value) from the values of each entry."""
        found: list[tuple[Any, ...]] = []
        since: dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]] = {}
        for now, entry in zip(self._since().tolist(), self._entries, strict=True):
            present = reported(entry.snapshot)
            for key in [k for k, (_, was) in since.items() if present.get(k) != was]:
                began, was = since.pop(key)
                found.append((self.cluster, *key, began, now, *was))
            for key, what in present.items():
                since.setdefault(key, (now, what))
        found += [(self.cluster, *k, began, NEVER_MS, *was) for k, (began, was) in since.items()]
        return _table(tuple(zip(*found, strict=True)), schema)

    def _since(self) -> Ints:
        """Start of each entry's validity, ms since 1970."""
        if not self._entries:
            raise self._nothing()
        return np.array([ALWAYS_MS, *self.times_ms[1:]])

    def _nothing(self) -> HistoryError:
        where = "" if self._path is None else f" {self._path}"
        return HistoryError(f"metadata log{where}: nothing logged found, an entry expected")

    def _rows(self, count: int) -> _Rows:
        """The partitions in the first `count` entries."""
        entries = self._entries[:count]
        names = sorted({name for e in entries for name in (*e.snapshot.topics, *dict(e.removed))})
        index = {name: i for i, name in enumerate(names)}
        columns = []
        created = []
        for i, (_, s, removed, _, recreated) in enumerate(entries):
            topic = np.array([index[name] for name in s.topics], np.int64)[s.partition_topic]
            gone = np.array([index[name] for name, _ in removed], np.int64)
            number = np.array([n for _, n in removed], np.int64)
            row = np.concatenate([np.arange(s.n_partitions), np.full(len(gone), -1)])
            other = np.array([name in recreated for name in s.topics], np.bool_)
            created.append(np.append(other[s.partition_topic], np.zeros(len(gone), np.bool_)))
            columns.append(
                (
                    np.concatenate([topic, gone]),
                    np.concatenate([s.partition_number, number]),
                    np.full(len(row), i),
                    row,
                )
            )
        topic, number, entry, row = (np.concatenate(c) for c in zip(*columns, strict=True))
        order = np.lexsort((entry, number, topic))
        topic, number = topic[order], number[order]
        again = (topic[1:] == topic[:-1]) & (number[1:] == number[:-1])
        row = row[order]
        born = (row >= 0) & np.concatenate([[True], ~again | (row[:-1] < 0)])
        born |= np.concatenate(created)[order]
        return _Rows(names, topic, number, entry[order], row, again, born)

    def _folded(self, count: int) -> Snapshot:
        """The state of the cluster after the first `count` entries."""
        if count == 1:
            return self._entries[0].snapshot
        rows = self._rows(count)
        there = (rows.row >= 0) & ~np.append(rows.again, False)
        parts = [
            _part(entry.snapshot, rows.row[here])
            for entry, here in zip(self._entries, _by_entry(rows, there, count), strict=False)
        ]
        return _joined(parts)


def load_metadata(path: str | Path, *, cluster: str = DEFAULT_CLUSTER) -> MetadataLog:
    """The log in a directory, or one with a snapshot file's state for all time.

    Raises
    ------
    HistoryError, SnapshotError
        For a path that does not exist, or is neither.
    """
    path = Path(path)
    if not path.is_dir():
        return MetadataLog.of(load_snapshot(path), cluster=cluster)
    log = MetadataLog(path, cluster=cluster)
    if not log.times_ms:
        raise HistoryError(f"metadata log {path}: nothing logged found, an entry expected")
    return log


def _read(path: Path) -> Iterator[Entry]:
    """The entries in a directory; none if it does not exist."""
    if path.exists() and not path.is_dir():
        raise HistoryError(f"metadata log {path}: a file found, a directory expected")
    found = [file for file in path.glob("*.npz") if not file.name.startswith(".")]
    for file in found:
        # A time within 64 bits, as Spark has them.
        if not re.fullmatch(r"-?[0-9]{1,18}", file.stem):
            raise HistoryError(f"metadata log: {file} found, names like 1700000000000.npz expected")
    known: dict[str, str] = {}
    for file in sorted(found, key=lambda f: int(f.stem)):
        removed, named = (file.with_suffix(f".{what}.json") for what in ("removed", "ids"))
        where = f"metadata log, {removed}"
        gone = load_document(removed, where, HistoryError) if removed.exists() else []
        pairs = tuple(_removed(gone, where))
        where = f"metadata log, {named}"
        given = load_document(named, where, HistoryError) if named.exists() else {}
        if not isinstance(given, dict):
            raise HistoryError(f"{where}: {type(given).__name__} found, ids of topics expected")
        ids = {str(topic): str(id_) for topic, id_ in given.items()}
        snapshot = load_snapshot(file)
        recreated = tuple(sorted(ids.keys() & known.keys() & {*snapshot.topics}))
        known |= ids
        yield Entry(int(file.stem), snapshot, pairs, ids, recreated)


def _removed(given: Any, where: str) -> Iterator[tuple[str, int]]:
    """The partitions that an entry removes."""
    for pair in given if isinstance(given, list) else [given]:
        match pair:
            case [str() as topic, int() as number] if 0 <= number < 2**31:
                yield topic, number
            case _:
                raise HistoryError(
                    f"{where}: {shown(pair)} found, pairs of a topic and the number of a partition "
                    "expected"
                )


def _put(text: bytes, file: IO[bytes]) -> None:
    file.write(text)


def _write(path: Path, entry: Entry) -> None:
    file = path / f"{entry.at_ms}.npz"
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Before the snapshot, whose presence completes the entry.
        for suffix, what in ((".removed.json", entry.removed), (".ids.json", entry.topic_ids)):
            if what:
                text = json.dumps(what if suffix == ".removed.json" else dict(what)).encode()
                write_atomically(file.with_suffix(suffix), partial(_put, text))
        save_snapshot(entry.snapshot, file)
    except OSError as error:
        reason = error.strerror or error
        raise HistoryError(f"metadata log {path}: cannot be written: {reason}") from None


def _by_entry(rows: _Rows, chosen: Bools, count: int) -> list[Ints]:
    """Of the chosen rows those of each entry."""
    found = np.flatnonzero(chosen)
    found = found[np.argsort(rows.entry[found], kind="stable")]
    return np.split(found, np.searchsorted(rows.entry[found], np.arange(1, count)))


def _after(old: Snapshot, entry: Entry) -> Snapshot:
    """The state of a cluster after the changes of an entry."""
    index, new = SnapshotIndex(old), entry.snapshot
    names = [new.topics[i] for i in new.partition_topic.tolist()] + [t for t, _ in entry.removed]
    numbers = [*new.partition_number.tolist(), *(n for _, n in entry.removed)]
    topic = index.topics(names, [False] * len(names))
    row = index.partitions(topic, np.array(numbers, np.int64))
    return _joined([_part(old, np.setdiff1d(np.arange(old.n_partitions), row)), new])


def _without_disks(s: Snapshot) -> Snapshot:
    return replace(
        s,
        disk_broker=_NOTHING,
        disk_path=(),
        disk_capacity=_NOTHING,
        disk_alive=_NOTHING,
        replica_disk=_NOTHING,
    )


def _difference(now: Entry, old: Snapshot, recreated: tuple[str, ...]) -> Entry | None:
    """The changes in the snapshot of an entry; None if there are none."""
    new = now.snapshot
    index = SnapshotIndex(old)
    topic = index.topics(new.topics, [False] * len(new.topics))
    row = index.partitions(topic[new.partition_topic], new.partition_number)
    gone = np.setdiff1d(np.arange(old.n_partitions), row)
    # Loads of other resources would have another width.
    changed = (
        _moved(old, new, row)
        if old.resources == new.resources
        else np.ones(new.n_partitions, np.bool_)
    )
    other = np.array([name in recreated for name in new.topics], np.bool_)
    changed |= other[new.partition_topic]
    part, none = _part(new, np.flatnonzero(changed)), np.empty(0, np.int64)
    if not (len(gone) or changed.any() or now.topic_ids) and _part(old, none) == part:
        return None
    names = [old.topics[i] for i in old.partition_topic[gone].tolist()]
    numbers = old.partition_number[gone].tolist()
    removed = tuple(zip(names, numbers, strict=True))
    return Entry(now.at_ms, part, removed, now.topic_ids, recreated)


def _moved(old: Snapshot, new: Snapshot, row: Ints) -> Bools:
    """(P,) bool: new partitions, and those placed differently than in that row of the old."""
    at = np.maximum(row, 0)
    moved: Bools = (row < 0) | (np.append(old.leader, -1)[at] != new.leader)
    moved |= np.append(old.replication_factor, 0)[at] != new.replication_factor
    alike = np.flatnonzero(~moved)
    count = new.replication_factor[alike]
    of = np.repeat(alike, count)
    now, was = (
        _ranges(new.replica_offset[alike], count),
        _ranges(old.replica_offset[at[alike]], count),
    )
    other = new.broker_ids[new.replica_broker[now]] != old.broker_ids[old.replica_broker[was]]
    other |= _paths(new)[now] != _paths(old)[was]
    moved[of[other]] = True
    return moved


def _paths(s: Snapshot) -> npt.NDArray[np.object_]:
    """(N,) str: the log directory of each replica, None if unknown."""
    disk = s.replica_disk if s.n_disks else np.full(s.n_replicas, -1)
    return np.array([*s.disk_path, None], np.object_)[disk]


def _part(s: Snapshot, row: Ints) -> Snapshot:
    """The given partitions, without communication; brokers and topics stay."""
    count = s.replication_factor[row]
    replica = _ranges(s.replica_offset[row], count)
    return replace(
        s,
        partition_topic=s.partition_topic[row],
        partition_number=s.partition_number[row],
        leader_load=s.leader_load[row],
        follower_load=s.follower_load[row],
        replica_offset=np.concatenate([[0], np.cumsum(count)]),
        replica_broker=s.replica_broker[replica],
        leader=s.leader[row],
        replica_disk=s.replica_disk[replica] if s.n_disks else s.replica_disk,
        state_size=s.state_size[row] if len(s.state_size) else s.state_size,
        lag=s.lag[row] if len(s.lag) else s.lag,
        move_cost_partition=_NOTHING,
        move_cost_broker=_NOTHING,
        move_cost=_NOTHING,
        traffic_from=_NOTHING,
        traffic_to=_NOTHING,
        traffic_rate=_NOTHING,
    )


def _joined(parts: Sequence[Snapshot]) -> Snapshot:
    """Join partitions of one cluster from several snapshots; the rest is the last one's."""
    last, parts = parts[-1], [s for s in parts if s.n_partitions]
    if not parts:
        return last
    index = {name: i for i, name in enumerate(last.topics)}
    place = {
        (broker, path): d
        for d, (broker, path) in enumerate(
            zip(last.broker_ids[last.disk_broker].tolist(), last.disk_path, strict=True)
        )
    }

    def all_(column: Callable[[Snapshot], Ints | Floats]) -> Any:
        return np.concatenate([column(s) for s in parts])

    def optional(column: Callable[[Snapshot], Floats]) -> Any:
        known = all(len(column(s)) == s.n_partitions for s in parts)
        return all_(column)[order] if known else _NOTHING

    def disks(s: Snapshot) -> Ints:
        brokers = s.broker_ids[s.replica_broker].tolist()
        found = [place.get(at, -1) for at in zip(brokers, _paths(s).tolist(), strict=True)]
        return np.array(found, np.int64)

    topic = all_(lambda s: np.array([index.get(n, -1) for n in s.topics])[s.partition_topic])
    number = all_(lambda s: s.partition_number)
    order = np.lexsort((number, topic))
    count = all_(lambda s: s.replication_factor)
    replica = _ranges((np.cumsum(count) - count)[order], count[order])
    return replace(
        last,
        partition_topic=topic[order],
        partition_number=number[order],
        leader_load=all_(lambda s: s.leader_load)[order],
        follower_load=all_(lambda s: s.follower_load)[order],
        replica_offset=np.concatenate([[0], np.cumsum(count[order])]),
        replica_broker=all_(lambda s: last.broker_index(s.broker_ids[s.replica_broker].tolist()))[
            replica
        ],
        leader=all_(lambda s: s.leader)[order],
        replica_disk=all_(disks)[replica] if last.n_disks else last.replica_disk,
        state_size=optional(lambda s: s.state_size),
        lag=optional(lambda s: s.lag),
    )


def _ranges(start: Ints, count: Ints) -> Ints:
    """count[0] numbers from start[0] on, count[1] from start[1] on, and so forth."""
    before = np.cumsum(count) - count
    return np.arange(int(count.sum())) - np.repeat(before - start, count)


def _brokers(s: Snapshot) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rack, state and capacity of each broker."""
    rack = [s.racks[i] for i in s.broker_rack.tolist()]
    capacity = [tuple(zip(s.resources, row, strict=True)) for row in s.capacity.tolist()]
    reported = zip(rack, s.broker_state.tolist(), capacity, strict=True)
    return {(broker,): what for broker, what in zip(s.broker_ids.tolist(), reported, strict=True)}


def _digest(entry: Entry) -> bytes:
    """Of brokers, topics and placements of an entry, without loads and its time."""
    s = entry.snapshot
    found = hashlib.sha256()
    texts = (_brokers(s), s.topics, _paths(s).tolist(), entry.removed, entry.recreated)
    for part in texts:
        text = repr(part).encode()
        found.update(len(text).to_bytes(8, "big") + text)
    brokers = s.broker_ids[s.replica_broker]
    for array in (s.partition_topic, s.partition_number, s.replica_offset, brokers, s.leader):
        found.update(array.astype(np.int64).tobytes())
    return found.digest()


def _table(columns: Sequence[Any], schema: t.StructType) -> pa.Table:
    kinds = to_arrow_schema(schema)
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, kind.type)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return pa.Table.from_arrays(
        [a.cast(k.type) for a, k in zip(arrays, kinds, strict=True)], schema=kinds
    )
