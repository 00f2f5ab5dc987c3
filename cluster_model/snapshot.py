"""An immutable picture of a cluster: placement and load, as arrays.

With B brokers, P partitions, N replicas, R resources, D disks, replicas of one
partition are contiguous in preference order: those of partition ``p`` are rows
``replica_offset[p]:replica_offset[p + 1]`` of the replica arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_model.errors import SnapshotError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

DEFAULT_RESOURCES = ("cpu", "network_in", "network_out", "disk")


class BrokerState(IntEnum):
    """What a broker can do at the moment."""

    ALIVE = 0
    NEW = 1
    DEAD = 2
    DEMOTED = 3
    BAD_DISKS = 4


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


def _no_floats() -> Floats:
    return np.empty(0, np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """A cluster at one moment; validated on entry, frozen afterwards.

    Brokers are in ascending id order, topics in ascending name order, partitions
    in ascending (topic, number) order and disks in that of their brokers, so that
    equal clusters have equal arrays. :func:`cluster_model.build_snapshot` accepts
    any order. Racks, hosts and broker sets may be given in any order, with names
    that no broker has; they are kept in ascending order, without such names.

    Parameters
    ----------
    resources
        Names of the R load dimensions, for example ``("cpu", "disk")``.
    broker_ids : (B,) int
    racks, broker_rack : names of the racks, and (B,) int index into them
    hosts, broker_host : names of the hosts, and (B,) int index into them
    broker_state : (B,) int
        Values of :class:`BrokerState`.
    capacity : (B, R) float
        In the unit of the resource (``cpu`` percent, network bytes/s, ``disk``
        bytes, or whatever the source uses consistently for load).
    topics, partition_topic, partition_number
        Topic names, (P,) int index into them, (P,) int partition number.
    leader_load, follower_load : (P, R) float
        Load of one replica of the partition while it leads, and while it follows.
    replica_offset : (P + 1,) int
    replica_broker : (N,) int
        Index (not id) of the broker that holds the replica.
    leader : (P,) int
        Position of the leader within the partition's replica list; -1 for none.
    broker_sets, broker_set
        Names of broker sets and (B,) int index into them (-1 in none); empty
        where the cluster is not divided.
    disk_broker, disk_path, disk_capacity, disk_alive
        The D disks of a JBOD cluster: (D,) broker index, path, capacity, alive.
    replica_disk : (N,) int
        Index of the disk that holds the replica; -1 unknown. Empty without disks.
    traffic_from, traffic_to, traffic_rate
        Sparse communication matrix between partitions: (E,) int, int, float.
    state_size : (P,) float
        Bytes of state that a move of the partition carries; empty if unknown.
    lag : (P,) float
        Consumer lag per partition; empty if unknown.

    Raises
    ------
    SnapshotError
        Naming the field, the row and the value.
    """

    resources: tuple[str, ...]
    broker_ids: Ints
    racks: tuple[str, ...]
    broker_rack: Ints
    hosts: tuple[str, ...]
    broker_host: Ints
    broker_state: Ints
    capacity: Floats
    topics: tuple[str, ...]
    partition_topic: Ints
    partition_number: Ints
    leader_load: Floats
    follower_load: Floats
    replica_offset: Ints
    replica_broker: Ints
    leader: Ints
    broker_sets: tuple[str, ...] = ()
    broker_set: Ints = field(default_factory=_no_ints)
    disk_broker: Ints = field(default_factory=_no_ints)
    disk_path: tuple[str, ...] = ()
    disk_capacity: Floats = field(default_factory=_no_floats)
    disk_alive: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    replica_disk: Ints = field(default_factory=_no_ints)
    traffic_from: Ints = field(default_factory=_no_ints)
    traffic_to: Ints = field(default_factory=_no_ints)
    traffic_rate: Floats = field(default_factory=_no_floats)
    state_size: Floats = field(default_factory=_no_floats)
    lag: Floats = field(default_factory=_no_floats)

    def __post_init__(self) -> None:
        for f in fields(self):
            kind = _KINDS[f.name]
            value = getattr(self, f.name)
            if kind is str:
                _set(self, f.name, tuple(str(v) for v in value))
                continue
            try:
                array = np.array(value, dtype=kind, copy=True, order="C")
            except (TypeError, ValueError, OverflowError) as error:
                raise SnapshotError(f"snapshot field {f.name}: {error}") from None
            _set(self, f.name, array)
        _validate(self)
        _canonicalise(self)

    @property
    def n_brokers(self) -> int:
        """B, the number of brokers."""
        return len(self.broker_ids)

    @property
    def n_partitions(self) -> int:
        """P, the number of partitions."""
        return len(self.partition_topic)

    @property
    def n_replicas(self) -> int:
        """N, the number of replicas."""
        return len(self.replica_broker)

    @property
    def n_disks(self) -> int:
        """D, the number of disks; 0 where disks are not told apart."""
        return len(self.disk_broker)

    @property
    def replication_factor(self) -> Ints:
        """(P,) int: the number of replicas of each partition."""
        return np.diff(self.replica_offset)

    @property
    def replica_partition(self) -> Ints:
        """(N,) int: the partition each replica belongs to."""
        return np.repeat(np.arange(self.n_partitions), self.replication_factor)

    @property
    def replica_is_leader(self) -> Bools:
        """(N,) bool: whether the replica leads its partition."""
        leads = np.zeros(self.n_replicas, np.bool_)
        has = self.leader >= 0
        leads[(self.replica_offset[:-1] + self.leader)[has]] = True
        return leads

    def resource(self, name: str) -> int:
        """Column of a resource; raises SnapshotError for one the snapshot does not have."""
        try:
            return self.resources.index(name)
        except ValueError:
            raise SnapshotError(
                f"the snapshot has no resource {name!r}; it has {', '.join(self.resources)}"
            ) from None

    def broker_index(self, broker_ids: Sequence[int]) -> Ints:
        """Indices of brokers given by id; raises SnapshotError for an unknown id."""
        ids = np.asarray(list(broker_ids), np.int64)
        at = np.searchsorted(self.broker_ids, ids)
        known = at < self.n_brokers
        known[known] = self.broker_ids[at[known]] == ids[known]
        if not known.all():
            raise SnapshotError(
                f"no broker {ids[~known][0]} in the snapshot; it has {_some(self.broker_ids)}"
            )
        return at.astype(np.int64)

    def broker_load(self) -> Floats:
        """(B, R) float: the load each broker carries."""
        load = np.where(
            self.replica_is_leader[:, None],
            self.leader_load[self.replica_partition],
            self.follower_load[self.replica_partition],
        )
        total = np.empty((self.n_brokers, len(self.resources)))
        for r in range(len(self.resources)):
            total[:, r] = np.bincount(self.replica_broker, load[:, r], self.n_brokers)
        return total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equality by content, no hash

    def __repr__(self) -> str:
        return (
            f"Snapshot({self.n_brokers} brokers, {len(self.racks)} racks, {len(self.topics)} "
            f"topics, {self.n_partitions} partitions, {self.n_replicas} replicas)"
        )


_KINDS: dict[str, Any] = {
    "resources": str,
    "broker_ids": np.int64,
    "racks": str,
    "broker_rack": np.int64,
    "hosts": str,
    "broker_host": np.int64,
    "broker_state": np.int64,
    "capacity": np.float64,
    "topics": str,
    "partition_topic": np.int64,
    "partition_number": np.int64,
    "leader_load": np.float64,
    "follower_load": np.float64,
    "replica_offset": np.int64,
    "replica_broker": np.int64,
    "leader": np.int64,
    "broker_sets": str,
    "broker_set": np.int64,
    "disk_broker": np.int64,
    "disk_path": str,
    "disk_capacity": np.float64,
    "disk_alive": np.bool_,
    "replica_disk": np.int64,
    "traffic_from": np.int64,
    "traffic_to": np.int64,
    "traffic_rate": np.float64,
    "state_size": np.float64,
    "lag": np.float64,
}


def _some(ids: Ints) -> str:
    shown = ", ".join(str(i) for i in ids[:8])
    return shown + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")


def _check(ok: Bools, name: str, values: Any, expected: str) -> None:
    if ok.all():
        return
    row = np.unravel_index(int(np.argmin(ok)), ok.shape)
    place = ", ".join(str(int(i)) for i in row)
    raise SnapshotError(
        f"snapshot field {name}, row {place}: {np.asarray(values)[row]} found, {expected} expected"
    )


def _shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise SnapshotError(
            f"snapshot field {name}: an array of shape {array.shape} found, {shape} expected"
        )


def _within(s: Snapshot, name: str, length: int, low: int, high: int, of: str) -> None:
    array = getattr(s, name)
    _shape(name, array, (length,))
    _check((array >= low) & (array < high), name, array, f"an index of {of} ({low} to {high - 1})")


def _load_like(s: Snapshot, name: str, shape: tuple[int, ...]) -> None:
    array = getattr(s, name)
    _shape(name, array, shape)
    _check(np.isfinite(array) & (array >= 0), name, array, "a finite number of at least 0")


def _unique(name: str, values: Sequence[Any]) -> None:
    seen: set[Any] = set()
    for row, value in enumerate(values):
        if value in seen:
            raise SnapshotError(
                f"snapshot field {name}, row {row}: {value!r} found twice, unique values expected"
            )
        seen.add(value)


# JSON as UTF-8 has no half surrogates, and numpy's strings have no NUL at their end.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def _storable(name: str, values: Sequence[str]) -> None:
    for row, value in enumerate(values):
        if _UNSTORABLE.search(value):
            raise SnapshotError(
                f"snapshot field {name}, row {row}: {value!r} found, Unicode text without NUL "
                "expected"
            )


def _ascending(name: str, values: npt.NDArray[Any]) -> None:
    if len(values) > 1:
        ok = np.concatenate([[True], values[1:] > values[:-1]])
        _check(ok, name, values, "strictly ascending values")


def _validate(s: Snapshot) -> None:
    b, p, n, r, d = s.n_brokers, s.n_partitions, s.n_replicas, len(s.resources), s.n_disks
    if b == 0:
        raise SnapshotError("snapshot field broker_ids: none found, at least one broker expected")
    if r == 0:
        raise SnapshotError("snapshot field resources: none found, at least one name expected")
    for name in ("resources", "racks", "hosts", "broker_sets", "topics"):
        _unique(name, getattr(s, name))
    for name in ("resources", "racks", "hosts", "broker_sets", "topics", "disk_path"):
        _storable(name, getattr(s, name))
    _check(s.broker_ids >= 0, "broker_ids", s.broker_ids, "an id of at least 0")
    _ascending("broker_ids", s.broker_ids)
    if list(s.topics) != sorted(s.topics):
        raise SnapshotError("snapshot field topics: names in ascending order expected")
    _within(s, "broker_rack", b, 0, len(s.racks), "racks")
    _within(s, "broker_host", b, 0, len(s.hosts), "hosts")
    _within(s, "broker_state", b, 0, len(BrokerState), "broker states")
    _load_like(s, "capacity", (b, r))
    if s.broker_sets or len(s.broker_set):
        _within(s, "broker_set", b, -1, len(s.broker_sets), "broker sets")
    _within(s, "partition_topic", p, 0, len(s.topics), "topics")
    _shape("partition_number", s.partition_number, (p,))
    number = s.partition_number
    _check(number >= 0, "partition_number", number, "a number of at least 0")
    topic = s.partition_topic
    ordered = np.ones(p, np.bool_)
    ordered[1:] = (topic[1:] > topic[:-1]) | (
        (topic[1:] == topic[:-1]) & (number[1:] > number[:-1])
    )
    _check(
        ordered, "partition_number", number, "unique partitions in ascending (topic, number) order"
    )
    _load_like(s, "leader_load", (p, r))
    _load_like(s, "follower_load", (p, r))
    _shape("replica_offset", s.replica_offset, (p + 1,))
    if s.replica_offset[0] != 0 or s.replica_offset[-1] != n:
        raise SnapshotError(
            f"snapshot field replica_offset: {s.replica_offset[0]} to {s.replica_offset[-1]} "
            f"found, 0 to {n} (the number of replicas) expected"
        )
    factor = s.replication_factor
    _check(factor >= 1, "replica_offset", s.replica_offset[1:], "at least one replica a partition")
    _within(s, "replica_broker", n, 0, b, "brokers")
    held = s.replica_partition * b + s.replica_broker
    order = np.argsort(held, kind="stable")
    once = np.ones(n, np.bool_)
    once[order[1:]] = held[order[1:]] != held[order[:-1]]
    _check(
        once, "replica_broker", s.replica_broker, "each replica of a partition on another broker"
    )
    _shape("leader", s.leader, (p,))
    _check(
        (s.leader >= -1) & (s.leader < factor),
        "leader",
        s.leader,
        "a position in the partition's replica list, or -1 for none,",
    )
    if len(s.disk_path) != d:
        raise SnapshotError(f"snapshot field disk_path: {len(s.disk_path)} found, {d} expected")
    if d:
        _within(s, "disk_broker", d, 0, b, "brokers")
        in_order = np.concatenate([[True], np.diff(s.disk_broker) >= 0])
        _check(in_order, "disk_broker", s.disk_broker, "disks in the order of their brokers")
        _unique("disk_path", list(zip(s.disk_broker.tolist(), s.disk_path, strict=True)))
    _load_like(s, "disk_capacity", (d,))
    _shape("disk_alive", s.disk_alive, (d,))
    if d or len(s.replica_disk):
        _within(s, "replica_disk", n, -1, max(d, 0), "disks")
        placed = s.replica_disk >= 0
        own = np.ones(n, np.bool_)
        own[placed] = s.disk_broker[s.replica_disk[placed]] == s.replica_broker[placed]
        _check(own, "replica_disk", s.replica_disk, "a disk of the replica's own broker")
    e = len(s.traffic_rate)
    _within(s, "traffic_from", e, 0, p, "partitions")
    _within(s, "traffic_to", e, 0, p, "partitions")
    _load_like(s, "traffic_rate", (e,))
    for name in ("state_size", "lag"):
        if len(getattr(s, name)):
            _load_like(s, name, (p,))


def _canonicalise(s: Snapshot) -> None:
    for names, row in (
        ("racks", "broker_rack"),
        ("hosts", "broker_host"),
        ("broker_sets", "broker_set"),
    ):
        given, index = getattr(s, names), getattr(s, row)
        used = sorted({given[i] for i in np.unique(index[index >= 0]).tolist()})
        if tuple(used) == given:
            continue
        place = {name: i for i, name in enumerate(used)}
        # index -1 (in no broker set) reads the last element
        moved = np.array([*(place.get(name, -1) for name in given), -1], np.int64)[index]
        _set(s, names, tuple(used))
        _set(s, row, moved)
    if not s.broker_sets:
        _set(s, "broker_set", _no_ints())
    if not s.n_disks:
        _set(s, "replica_disk", _no_ints())


def _set(s: Snapshot, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    object.__setattr__(s, name, value)
