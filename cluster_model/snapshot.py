"""The snapshot: an immutable picture of a cluster's placement and load, as arrays.

With B brokers, P partitions, N replicas, R resources and D disks, replicas of one
partition are contiguous in preference order: those of partition ``p`` are rows
``replica_offset[p]:replica_offset[p + 1]`` of the replica arrays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cluster_model.attributes import Attributes
from cluster_model.errors import SnapshotError
from metrics_reporter.arrays import Bools as Bools
from metrics_reporter.arrays import Floats as Floats
from metrics_reporter.arrays import Ints as Ints
from metrics_reporter.documents import shown
from metrics_reporter.quantities import plural

BrokerIds = npt.NDArray[Any]
"""Ids of brokers: integers in Kafka, or names."""

# Limit for sums of loads or capacities: squares and products of such sums stay finite.
LARGEST_SUM = 1e100
# Smallest capacity and load other than 0: their quotients stay finite.
SMALLEST = 1e-50
# Kafka's broker ids have 32 bits.
LARGEST_ID = 2**31 - 1
DEFAULT_RESOURCES = ("cpu", "network_in", "network_out", "disk")


class BrokerState(IntEnum):
    """What a broker can do at present."""

    ALIVE = 0
    NEW = 1
    DEAD = 2
    DEMOTED = 3
    BAD_DISKS = 4


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


def _no_floats() -> Floats:
    return np.empty(0, np.float64)


def _no_bools() -> Bools:
    return np.empty(0, np.bool_)


def _no_table() -> Bools:
    return np.empty((0, 0), np.bool_)


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """A cluster at one moment; validated on creation, then frozen.

    Brokers are in ascending id order, topics in ascending name order, partitions
    in ascending (topic, number) order and disks in the order of their brokers, so
    equal clusters have equal arrays. :func:`cluster_model.build_snapshot` accepts
    any order. Racks, hosts and broker sets may be given in any order and with unused
    names; they are sorted, and unused names are dropped.

    Parameters
    ----------
    resources
        Names of the R load dimensions, for example ``("cpu", "disk")``: those whose loads are
        known. None if only the placement is.
    broker_ids : (B,) int or str
        Whole numbers from 0 to 2147483647, as in Kafka, or names.
    racks, broker_rack : names of the racks, and (B,) int index into them
    hosts, broker_host : names of the hosts, and (B,) int index into them
    broker_state : (B,) int
        Values of :class:`BrokerState`.
    capacity : (B, R) float
        In the unit of the resource (``cpu`` percent, network bytes/s, ``disk``
        bytes, or any unit that the source also uses for load). 0 means none: nothing
        with a load of the resource may be placed there. A resource of unknown capacity
        does not belong in a snapshot. A capacity between 0 and 1e-50 is rejected.
    topics, partition_topic, partition_number
        Topic names, (P,) int index into them, (P,) int partition number.
    leader_load, follower_load : (P, R) float
        Load of one replica of the partition as leader, and as follower. Loads, rates and
        sizes below 1e-50 are stored as 0.
    replica_offset : (P + 1,) int
    replica_broker : (N,) int
        Index (not id) of the broker that holds the replica.
    leader : (P,) int
        Position of the leader within the partition's replica list; -1 for none.
    broker_sets, broker_set
        Names of broker sets and (B,) int index into them (-1 in none); empty
        if the cluster is not divided.
    disk_broker, disk_path, disk_capacity, disk_alive
        The D disks of a JBOD cluster: (D,) broker index, path, capacity, alive. A
        capacity of 0 means that nothing may be placed there.
    replica_disk : (N,) int
        Index of the disk that holds the replica; -1 if unknown. Empty without disks.
    traffic_from, traffic_to, traffic_rate
        Sparse communication matrix between partitions: (E,) int, int, float.
    state_size : (P,) float
        What a move of the partition carries, in `cost_unit`: bytes of state, records to
        restore; empty if unknown.
    move_cost_partition, move_cost_broker, move_cost
        Destinations where a move costs something other than `state_size`, sparse: (M,) int,
        int, float. A consumer that holds a part of the state already, or a broker in
        another zone. In any order; each pair once.
    lag : (P,) float
        Consumer lag per partition; empty if unknown.
    reassigning : (P,) bool
        Partitions that Kafka is reassigning; their replicas are those after the
        reassignment, and no plan moves them. Without a leader there is nothing to copy
        from and the reassignment cannot end: the replicas are the previous ones. Empty if
        there are none.
    disk_cordoned : (D,) bool
        Disks that get no new replicas; those they hold may stay or leave. Empty if
        there are none.
    broker_attributes, topic_attributes
        Named properties, such as a zone or a tenant: by name, (B,) or (T,) text or numbers,
        None for a missing one; see :meth:`attributes`.
    creatable : (P,) bool
        Partitions whose replicas need no source to be copied from, as a consumer that is
        assigned a partition copies nothing. Only they may have no replica at all, and no
        leader then: the first assignment is part of a plan. Replicas of all others are copied
        from a living one, as in Kafka. Empty if there are none.
    target_replicas : (P,) int
        Replicas that a partition should have if it has fewer, 0 for no more than it has; one
        without any replica should have at least one. Empty if no partition has a target.
    warming : (N,) bool
        Replicas that are being built up, like a warm-up task: each carries load like any other
        follower, and may not lead before its copy is close enough to the leader's, see
        :attr:`balancer.Operation.acceptable_lag`. Their partitions have a leader. Empty if
        there are none.
    copy_partition, copy_broker, copy_lag
        How far copies are behind: (K,) int, int, and float in records, as a sparse matrix of
        partitions by brokers. A broker may have a copy without holding a replica, such as the
        state that a client kept on its disk. Pairs that are not listed are unknown.
    may_hold : (T, B) bool
        Whether a broker may hold replicas of a topic, as a consumer may read only the topics
        it subscribes to. Empty if every broker may hold every topic, as in Kafka.
    cost_unit
        Unit of `state_size` and `move_cost`, which are then what moves cost even if there is a
        resource ``disk``; None for bytes.
    cluster_id, taken_ms, metadata_version
        Which cluster this is, when the snapshot was taken (ms since 1970), and the
        cluster's ``metadata.version``; None if unknown, as in a file written by hand.
        Equality ignores `taken_ms`: an unchanged cluster has equal snapshots.

    Raises
    ------
    SnapshotError
        For an invalid field, with its name, the row and the value.
    """

    resources: tuple[str, ...]
    broker_ids: BrokerIds
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
    disk_alive: Bools = field(default_factory=_no_bools)
    replica_disk: Ints = field(default_factory=_no_ints)
    traffic_from: Ints = field(default_factory=_no_ints)
    traffic_to: Ints = field(default_factory=_no_ints)
    traffic_rate: Floats = field(default_factory=_no_floats)
    state_size: Floats = field(default_factory=_no_floats)
    move_cost_partition: Ints = field(default_factory=_no_ints)
    move_cost_broker: Ints = field(default_factory=_no_ints)
    move_cost: Floats = field(default_factory=_no_floats)
    lag: Floats = field(default_factory=_no_floats)
    reassigning: Bools = field(default_factory=_no_bools)
    disk_cordoned: Bools = field(default_factory=_no_bools)
    broker_attributes: Mapping[str, Any] = field(default_factory=dict)
    topic_attributes: Mapping[str, Any] = field(default_factory=dict)
    creatable: Bools = field(default_factory=_no_bools)
    target_replicas: Ints = field(default_factory=_no_ints)
    warming: Bools = field(default_factory=_no_bools)
    copy_partition: Ints = field(default_factory=_no_ints)
    copy_broker: Ints = field(default_factory=_no_ints)
    copy_lag: Floats = field(default_factory=_no_floats)
    may_hold: Bools = field(default_factory=_no_table)
    cost_unit: str | None = None
    cluster_id: str | None = None
    taken_ms: int | None = field(default=None, compare=False)
    metadata_version: int | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _SCALARS:
                _set(self, f.name, _scalar(f.name, value))
                continue
            if f.name in ATTRIBUTES:
                continue
            kind = _KINDS[f.name]
            if f.name == "broker_ids":
                kind = np.str_ if np.asarray(value).dtype.kind in "UO" else np.int64
            if kind is str:
                _set(self, f.name, tuple(str(v) for v in value))
            else:
                _set(self, f.name, _array(f.name, value, kind))
        for name, (of, counted) in ATTRIBUTES.items():
            values = Attributes(of, len(getattr(self, counted)), getattr(self, name))
            object.__setattr__(self, name, values)
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
        """D, the number of disks; 0 if the snapshot has none."""
        return len(self.disk_broker)

    @property
    def replication_factor(self) -> Ints:
        """(P,) int: the number of replicas of each partition."""
        return np.diff(self.replica_offset)

    @property
    def target_replication_factor(self) -> Ints:
        """(P,) int: the number of replicas each partition should have; at least the present one."""
        target = np.maximum(self.replication_factor, 1)
        return np.maximum(target, self.target_replicas) if len(self.target_replicas) else target

    @property
    def needs_source(self) -> Bools:
        """(P,) bool: partitions whose replicas can only be copied from a living one."""
        return ~self.creatable if len(self.creatable) else np.ones(self.n_partitions, np.bool_)

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

    @property
    def partition_settled(self) -> Bools:
        """(P,) bool: partitions that Kafka is not reassigning, which a plan may move."""
        busy = self.reassigning if len(self.reassigning) else np.zeros(self.n_partitions, np.bool_)
        return ~busy

    @property
    def leaderless(self) -> Bools:
        """(P,) bool: partitions without a leader, which cannot be copied; creatable ones can.

        In a snapshot without any leader this includes only partitions under reassignment.
        """
        known = ~self.partition_settled | (self.leader >= 0).any()
        found: Bools = (self.leader < 0) & known & self.needs_source
        return found

    @property
    def disk_open(self) -> Bools:
        """(D,) bool: disks open for new replicas: alive and not cordoned."""
        return self.disk_alive & ~self.disk_cordoned if len(self.disk_cordoned) else self.disk_alive

    @property
    def broker_open(self) -> Bools:
        """(B,) bool: brokers without disks, or with a disk that is not cordoned."""
        if not len(self.disk_cordoned):
            return np.ones(self.n_brokers, np.bool_)
        disks = np.bincount(self.disk_broker, minlength=self.n_brokers)
        # A dead disk does not count as cordoned: whether its broker serves is a separate question.
        closed = np.bincount(self.disk_broker[~self.disk_open], minlength=self.n_brokers)
        cordoned = np.bincount(self.disk_broker[self.disk_cordoned], minlength=self.n_brokers)
        found: Bools = np.logical_or.reduce([disks == 0, cordoned == 0, closed < disks])
        return found

    def attributes(self, of: Literal["broker", "topic"]) -> Attributes:
        """The attributes of the brokers, or of the topics."""
        found: Attributes = getattr(self, f"{of}_attributes")
        return found

    def lag_of(self, partition: Ints, broker: Ints) -> Floats:
        """How far copies of partitions on brokers are behind, in records; infinite if unknown.

        Parameters
        ----------
        partition, broker : int
            Indices, of shapes that fit each other; broker -1 is unknown, like an empty slot.
        """
        return self._stated("copy", self.copy_lag, partition, broker, np.inf)

    def move_cost_of(self, partition: Ints, broker: Ints, usual: Floats) -> Floats:
        """What the snapshot says that copying partitions to brokers costs.

        Parameters
        ----------
        partition, broker : int
            As for :meth:`lag_of`.
        usual : float
            Where it says nothing of that broker.
        """
        return self._stated("move_cost", self.move_cost, partition, broker, usual)

    def _stated(
        self, table: str, values: Floats, partition: Ints, broker: Ints, otherwise: Floats | float
    ) -> Floats:
        """Values of a table that is sorted by partition and broker, or `otherwise`."""
        if not len(values):
            return np.full(np.broadcast(partition, broker).shape, otherwise)
        key = np.asarray(partition * self.n_brokers + broker)
        of_partition = getattr(self, f"{table}_partition")
        known = of_partition * self.n_brokers + getattr(self, f"{table}_broker")
        at = np.minimum(np.searchsorted(known, key), len(known) - 1)
        return np.where((known[at] == key) & (broker >= 0), values[at], otherwise)

    def digest(self) -> str:
        """A hash (SHA-256, hex) of everything a plan depends on.

        Equal placements, loads and capacities have equal digests, also after a round trip
        through a file. Cluster id, time and metadata version are left out: they identify
        the snapshot, and do not describe the cluster.

        Examples
        --------
        >>> from cluster_model import synthetic_snapshot
        >>> one, same, other = (synthetic_snapshot(brokers=6, seed=n) for n in (0, 0, 1))
        >>> one.digest() == same.digest() != other.digest()
        True
        """
        found = hashlib.sha256()
        content_of = {f: getattr(self, f) for f in sorted(_KINDS)}
        for f in ATTRIBUTES:
            for name, values in getattr(self, f).items():
                text = values.dtype.kind == "U"
                content_of[f"{f}.{name}"] = tuple(values.tolist()) if text else values
        for f, value in content_of.items():
            # Empty fields add nothing, so that fields of later releases change no digest.
            if not len(value):
                continue
            if isinstance(value, tuple):
                content = "\0".join(value).encode()
            else:
                # Adding 0 turns a negative zero into a zero, which it equals.
                array = value + 0.0 if value.dtype.kind == "f" else value
                # The width of a string array depends on where it came from, its content does not.
                if array.dtype.kind == "U":
                    array = np.frombuffer("\0".join(array.tolist()).encode(), np.uint8)
                content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            found.update(f"{f} {len(value)} {len(content)}\n".encode())
            found.update(content)
        if self.cost_unit is not None:
            found.update(f"cost_unit {self.cost_unit}\n".encode())
        return found.hexdigest()

    def resource(self, name: str) -> int:
        """Column of a resource; raises SnapshotError for an unknown one."""
        try:
            return self.resources.index(name)
        except ValueError:
            raise SnapshotError(
                f"the snapshot has no resource {name!r}; it has {', '.join(self.resources)}"
            ) from None

    @property
    def named_brokers(self) -> bool:
        """Whether broker ids are names, as they never are in Kafka."""
        return self.broker_ids.dtype.kind == "U"

    def broker_index(self, broker_ids: Sequence[int | str]) -> Ints:
        """Indices of brokers given by id; raises SnapshotError for an unknown id."""
        if not len(broker_ids):
            return _no_ints()
        ids = np.asarray(list(broker_ids))
        if ids.dtype.kind != self.broker_ids.dtype.kind:
            ids = np.array([self._own_id(given) for given in broker_ids])
        at = np.searchsorted(self.broker_ids, ids)
        known = at < self.n_brokers
        known[known] = self.broker_ids[at[known]] == ids[known]
        if not known.all():
            raise SnapshotError(
                f"no broker {ids[~known][0]} in the snapshot; it has {_some(self.broker_ids)}"
            )
        return at.astype(np.int64)

    def _own_id(self, given: int | str) -> int | str:
        """An id in this snapshot's type: 7 for "7" if ids are numbers, "7" for 7 if names."""
        if self.named_brokers:
            return str(given)
        text = str(given)
        known = text.isascii() and text.isdecimal() and len(text) <= 10
        if not known or str(int(text)) != text:
            raise SnapshotError(
                f"no broker {shown(given)} in the snapshot; it has {_some(self.broker_ids)}"
            )
        return int(text)

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

    def with_resources(self, names: Container[str]) -> Snapshot:
        """The snapshot with only those of its resources that are named.

        What nobody measured is left out, so that no goal and no figure takes it as 0.
        """
        kept = [r for r, name in enumerate(self.resources) if name in names]
        return replace(
            self,
            resources=tuple(self.resources[r] for r in kept),
            capacity=self.capacity[:, kept],
            leader_load=self.leader_load[:, kept],
            follower_load=self.follower_load[:, kept],
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return all(
            getattr(self, f.name) == getattr(other, f.name)
            if f.name in ATTRIBUTES
            else np.array_equal(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
            if f.compare
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equality by content, no hash

    def __repr__(self) -> str:
        return (
            f"Snapshot({plural(self.n_brokers, 'broker')}, {plural(len(self.racks), 'rack')}, "
            f"{plural(len(self.topics), 'topic')}, {plural(self.n_partitions, 'partition')}, "
            f"{plural(self.n_replicas, 'replica')})"
        )


_KINDS: dict[str, Any] = {
    "resources": str,
    "broker_ids": np.generic,
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
    "move_cost_partition": np.int64,
    "move_cost_broker": np.int64,
    "move_cost": np.float64,
    "lag": np.float64,
    "reassigning": np.bool_,
    "disk_cordoned": np.bool_,
    "creatable": np.bool_,
    "target_replicas": np.int64,
    "warming": np.bool_,
    "copy_partition": np.int64,
    "copy_broker": np.int64,
    "copy_lag": np.float64,
    "may_hold": np.bool_,
}

# The fields of attributes: what has them, and the field that lists these.
ATTRIBUTES = {
    "broker_attributes": ("broker", "broker_ids"),
    "topic_attributes": ("topic", "topics"),
}

_SCALARS: dict[str, type[int] | type[str]] = {
    "cost_unit": str,
    "cluster_id": str,
    "taken_ms": int,
    "metadata_version": int,
}


def _scalar(name: str, value: Any) -> int | str | None:
    """A value that may be missing; files store it as an array without dimensions."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.ndim == 0 else value
    if value is None:
        return None
    kind = _SCALARS[name]
    if not isinstance(value, kind) or isinstance(value, bool) or value in ("",):
        expected = "a name" if kind is str else "a whole number"
        raise SnapshotError(f"snapshot field {name}: {value!r} found, {expected} expected")
    if kind is str:
        _storable(name, [str(value)])
    elif not 0 <= int(value) < 2**63:
        raise SnapshotError(
            f"snapshot field {name}: {value!r} found, a whole number of at least 0 expected"
        )
    return value


# numpy's codes of the kinds of values that a field's type holds without loss.
_HELD = {np.int64: "iu", np.float64: "iuf", np.bool_: "b", np.str_: "U"}
_TABLES = ("capacity", "leader_load", "follower_load", "may_hold")


def _array(name: str, value: Any, kind: type[Any]) -> npt.NDArray[Any]:
    """A copy of a field's values as an array of its type; no value is truncated."""
    try:
        given = np.asarray(value)
        if given.size and given.dtype.kind not in _HELD[kind]:
            raise SnapshotError(
                f"snapshot field {name}: values of type {given.dtype} found, "
                f"{kind.__name__} expected"
            )
        if given.dtype.kind == "u" and given.size and int(given.max()) >= 2**63:
            raise SnapshotError(
                f"snapshot field {name}: {given.max()} found, a number below 2**63 expected"
            )
        with np.errstate(over="ignore"):
            array = np.array(given, dtype=kind, copy=True, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"snapshot field {name}: {error}") from None
    dimensions = 2 if name in _TABLES else 1
    if array.ndim != dimensions:
        raise SnapshotError(
            f"snapshot field {name}: {array.ndim} dimensions found, {dimensions} expected"
        )
    return array


def _some(ids: BrokerIds) -> str:
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


def _none_or_some(name: str, array: Floats) -> None:
    ok = (array == 0) | (array >= SMALLEST)
    _check(ok, name, array, f"0, or a capacity of at least {SMALLEST:g},")


def _summable(name: str, array: Floats, times: Any = 1) -> None:
    with np.errstate(over="ignore"):
        total = float((array * times).sum(axis=0).max(initial=0.0))
    if total > LARGEST_SUM:
        raise SnapshotError(
            f"snapshot field {name}: values that add up to {total:.3g} found, at most "
            f"{LARGEST_SUM:.3g} expected"
        )


def _unique(name: str, values: Sequence[Any]) -> None:
    seen: set[Any] = set()
    for row, value in enumerate(values):
        if value in seen:
            raise SnapshotError(
                f"snapshot field {name}, row {row}: {value!r} found twice, unique values expected"
            )
        seen.add(value)


# UTF-8 JSON cannot hold lone surrogates, and numpy's strings drop a NUL at the end.
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
    for name in ("resources", "racks", "hosts", "broker_sets", "topics"):
        _unique(name, getattr(s, name))
    for name in ("resources", "racks", "hosts", "broker_sets", "topics", "disk_path"):
        _storable(name, getattr(s, name))
    if s.named_brokers:
        names = s.broker_ids.tolist()
        _storable("broker_ids", names)
        _check(s.broker_ids != "", "broker_ids", s.broker_ids, "a name that is not empty")
    else:
        _check(s.broker_ids >= 0, "broker_ids", s.broker_ids, "an id of at least 0")
        possible = s.broker_ids <= LARGEST_ID
        _check(possible, "broker_ids", s.broker_ids, f"an id of at most {LARGEST_ID}, as in Kafka,")
    _ascending("broker_ids", s.broker_ids)
    if list(s.topics) != sorted(s.topics):
        raise SnapshotError("snapshot field topics: names in ascending order expected")
    _within(s, "broker_rack", b, 0, len(s.racks), "racks")
    _within(s, "broker_host", b, 0, len(s.hosts), "hosts")
    _within(s, "broker_state", b, 0, len(BrokerState), "broker states")
    _load_like(s, "capacity", (b, r))
    _none_or_some("capacity", s.capacity)
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
    for name, length in (
        ("reassigning", p),
        ("disk_cordoned", d),
        ("creatable", p),
        ("target_replicas", p),
        ("warming", n),
    ):
        if len(getattr(s, name)):
            _shape(name, getattr(s, name), (length,))
    rising = s.replica_offset[1:] > s.replica_offset[:-1]
    if len(s.creatable):
        rising |= s.creatable & (s.replica_offset[1:] == s.replica_offset[:-1])
    _check(
        rising,
        "replica_offset",
        s.replica_offset[1:],
        "at least one replica for a partition that is not creatable",
    )
    target = s.target_replicas
    _check(target >= 0, "target_replicas", target, "a number of at least 0")
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
    _none_or_some("disk_capacity", s.disk_capacity)
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
    if len(s.warming):
        follows = (s.leader >= 0)[s.replica_partition] & ~s.replica_is_leader
        _check(
            follows | ~s.warming,
            "warming",
            s.warming,
            "only followers of a partition with a leader",
        )
    k = len(s.copy_lag)
    _within(s, "copy_partition", k, 0, p, "partitions")
    _within(s, "copy_broker", k, 0, b, "brokers")
    _load_like(s, "copy_lag", (k,))
    _unique(
        "copy_broker", list(zip(s.copy_partition.tolist(), s.copy_broker.tolist(), strict=True))
    )
    if s.may_hold.size:
        _shape("may_hold", s.may_hold, (len(s.topics), b))
    m = len(s.move_cost)
    _within(s, "move_cost_partition", m, 0, p, "partitions")
    _within(s, "move_cost_broker", m, 0, b, "brokers")
    _load_like(s, "move_cost", (m,))
    pairs = s.move_cost_partition * b + s.move_cost_broker
    unique = np.zeros(m, np.bool_)
    unique[np.unique(pairs, return_index=True)[1]] = True
    _check(unique, "move_cost_broker", s.move_cost_broker, "each broker once per partition")
    if (s.cost_unit is not None or m) and p and not len(s.state_size):
        given = "cost_unit" if s.cost_unit is not None else "move_cost"
        raise SnapshotError(
            f"snapshot field {given}: given without state_size, what a move of each partition costs"
        )
    if m and s.cost_unit is None and "disk" in s.resources:
        raise SnapshotError(
            "snapshot field move_cost: given together with a resource 'disk', whose load is what "
            "moves cost; name the unit of state_size and move_cost in cost_unit"
        )
    for name in ("leader_load", "follower_load"):
        _summable(name, getattr(s, name), np.maximum(factor, 1)[:, None])
    for name in ("capacity", "disk_capacity", "traffic_rate", "state_size", "move_cost", "lag"):
        _summable(name, getattr(s, name))


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
    for name in ("leader_load", "follower_load", "traffic_rate", "state_size", "move_cost", "lag"):
        array = getattr(s, name)
        if ((array > 0) & (array < SMALLEST)).any():
            _set(s, name, np.where(array < SMALLEST, 0.0, array))
    order = np.lexsort((s.move_cost_broker, s.move_cost_partition))
    if (np.diff(order) < 0).any():
        for name in ("move_cost_partition", "move_cost_broker", "move_cost"):
            _set(s, name, getattr(s, name)[order])
    if not s.broker_sets:
        _set(s, "broker_set", _no_ints())
    if not s.n_disks:
        _set(s, "replica_disk", _no_ints())
    for name in ("reassigning", "disk_cordoned", "creatable", "warming"):
        if not getattr(s, name).any():
            _set(s, name, _no_bools())
    order = np.lexsort((s.copy_broker, s.copy_partition))
    for name in ("copy_partition", "copy_broker", "copy_lag"):
        _set(s, name, getattr(s, name)[order])
    if not s.target_replicas.any():
        _set(s, "target_replicas", _no_ints())
    if s.may_hold.all():
        _set(s, "may_hold", _no_table())


def _set(s: Snapshot, name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    object.__setattr__(s, name, value)
