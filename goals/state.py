"""The state of a cluster as goals read it: named arrays of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cluster_model.columns import (
    CAPACITY,
    FORMER_LOAD,
    LEADER,
    LOAD,
    LOCAL_TRAFFIC,
    POTENTIAL,
    TRAFFIC,
    Column,
)
from metrics_reporter.arrays import Floats, Ints, read_only


class State:
    """The state of any number of cells at once: read-only arrays of one shape, fetched on demand.

    The goal's scope defines a cell: a broker, a host, a topic on a broker
    (``topic``), a topic in a rack (``topic_rack``), a disk, or a partition.

    Examples
    --------
    >>> state = State.of(replica_count=[9, 10, 11], load={"disk": [1.0, 2.0, 3.0]})
    >>> state.replica_count <= 10
    array([ True,  True, False])
    >>> state.load("disk")
    array([1., 2., 3.])
    """

    __slots__ = ("_cache", "_fetch", "_fetch_sums", "_tables")

    def __init__(
        self,
        fetch: Callable[[Column], Any],
        fetch_sums: Callable[[tuple[Column, ...]], Any] | None = None,
    ) -> None:
        self._fetch, self._fetch_sums = fetch, fetch_sums
        self._cache: dict[Column, Any] = {}
        self._tables: dict[tuple[Column, ...], Floats] = {}

    @classmethod
    def of(cls, **values: Any) -> State:
        """A state from arrays (or, for ``load`` and the like, from resource-to-array mappings)."""
        columns: dict[Column, Any] = {}
        for name, value in values.items():
            if isinstance(value, Mapping):
                columns.update({Column.of(f"{name}.{k}"): np.asarray(v) for k, v in value.items()})
            else:
                columns[Column.of(name)] = np.asarray(value)

        def fetch(column: Column) -> Any:
            if column not in columns:
                known = ", ".join(map(str, columns))
                raise AttributeError(f"this state has no {column}; it has {known}")
            return columns[column]

        return cls(fetch)

    def column(self, column: Column | str) -> Any:
        """An array by its column, or by the column's text, for example ``"load.disk"``."""
        column = Column.of(column)
        found = self._cache.get(column)
        if found is None:
            found = self._cache[column] = read_only(self._fetch(column))
        return found

    def sums(self, columns: tuple[Column, ...]) -> Floats:
        """Several sums at once, stacked on a new first axis."""
        found = self._tables.get(columns)
        if found is None:
            found = self._tables[columns] = read_only(self._part_of_known(columns))
        return found

    def _part_of_known(self, columns: tuple[Column, ...]) -> Floats:
        # goals of different families read overlapping columns, most of all loads
        for known, table in self._tables.items():
            if columns[0] in known:
                at = known.index(columns[0])
                if known[at : at + len(columns)] == columns:
                    return table[at : at + len(columns)]
        if self._fetch_sums is None:
            return np.stack([self.column(column) for column in columns])
        fetched: Floats = self._fetch_sums(columns)
        return fetched

    def load(self, resource: str) -> Floats:
        """Load of the resource carried by the cell, in the resource's unit."""
        return self.column(Column(LOAD, resource))  # type: ignore[no-any-return]

    def leader_load(self, resource: str) -> Floats:
        """Load of the resource carried by the cell's leaders only."""
        return self.column(Column(LOAD, resource, LEADER))  # type: ignore[no-any-return]

    def potential_load(self, resource: str) -> Floats:
        """Load of the resource if every replica of the cell led its partition."""
        return self.column(Column(LOAD, resource, POTENTIAL))  # type: ignore[no-any-return]

    def former_load(self, resource: str) -> Floats:
        """Load of the replicas that the broker held at the start and holds no longer.

        Each counts in the role that it had there. While a plan is carried out, a broker still has
        what leaves it: together with :meth:`load` this is what it uses until the plan is done
        (scope ``broker``).
        """
        return self.column(Column(FORMER_LOAD, resource))  # type: ignore[no-any-return]

    def traffic(self, factor: float) -> Floats:
        """Traffic of the cell's leaders with partitions that they should be collocated with.

        See :func:`cluster_model.traffic.communicating` for these pairs and the factor.
        """
        return self.column(Column(TRAFFIC, factor=float(factor)))  # type: ignore[no-any-return]

    def local_traffic(self, factor: float) -> Floats:
        """The part of :meth:`traffic` that stays on the broker (scope ``broker``)."""
        return self.column(Column(LOCAL_TRAFFIC, factor=float(factor)))  # type: ignore[no-any-return]

    def capacity(self, resource: str) -> Floats:
        """Capacity of the cell (broker, host or disk)."""
        return self.column(Column(CAPACITY, resource))  # type: ignore[no-any-return]

    @property
    def replica_count(self) -> Floats:
        """Replicas in the cell."""
        return self.column("replica_count")  # type: ignore[no-any-return]

    @property
    def leader_count(self) -> Floats:
        """Leaders in the cell."""
        return self.column("leader_count")  # type: ignore[no-any-return]

    @property
    def group_count(self) -> Floats:
        """Groups of brokers with a replica (a scope :class:`cluster_model.scopes.Spread`)."""
        return self.column("group_count")  # type: ignore[no-any-return]

    @property
    def dependent_count(self) -> Floats:
        """Replicas of topics that need the cell's (a scope :class:`cluster_model.scopes.Needs`)."""
        return self.column("dependent_count")  # type: ignore[no-any-return]

    @property
    def broker(self) -> Ints:
        """Index of the cell's broker (scopes ``broker``, ``topic``, ``disk``)."""
        return self.column("broker")  # type: ignore[no-any-return]

    @property
    def group(self) -> Ints:
        """Index of the group of brokers (a scope :class:`cluster_model.scopes.Grouping`)."""
        return self.column("group")  # type: ignore[no-any-return]

    @property
    def host(self) -> Ints:
        """Index of the host (scope ``host``)."""
        return self.column("host")  # type: ignore[no-any-return]

    @property
    def topic(self) -> Ints:
        """Index of the topic (scopes ``topic``, ``topic_rack``, ``partition``)."""
        return self.column("topic")  # type: ignore[no-any-return]

    @property
    def value(self) -> Ints:
        """Index of the topics' attribute value (:class:`cluster_model.scopes.PerAttribute`)."""
        return self.column("value")  # type: ignore[no-any-return]

    @property
    def rack(self) -> Ints:
        """Index of the rack (scopes ``broker``, ``topic``, ``topic_rack``)."""
        return self.column("rack")  # type: ignore[no-any-return]

    @property
    def disk(self) -> Ints:
        """Index of the disk (scope ``disk``)."""
        return self.column("disk")  # type: ignore[no-any-return]

    @property
    def partition(self) -> Ints:
        """Index of the partition (scope ``partition``)."""
        return self.column("partition")  # type: ignore[no-any-return]

    @property
    def replica_broker(self) -> Ints:
        """(…, F) broker of each replica of the partition, -1 for an empty slot."""
        return self.column("replica_broker")  # type: ignore[no-any-return]

    @property
    def replica_rack(self) -> Ints:
        """(…, F) rack of each replica of the partition, -1 for an empty slot."""
        return self.column("replica_rack")  # type: ignore[no-any-return]

    @property
    def replica_disk(self) -> Ints:
        """(…, F) disk of each replica of the partition, -1 if unknown or empty."""
        return self.column("replica_disk")  # type: ignore[no-any-return]

    @property
    def replica_lag(self) -> Floats:
        """(…, F) records that each broker's copy of the partition is behind, infinite if unknown.

        It is the lag in the snapshot: a broker that the partition moves to has its own, and
        what the move copies is not counted.
        """
        return self.column("replica_lag")  # type: ignore[no-any-return]

    @property
    def start_broker(self) -> Ints:
        """(…, S) brokers that held the partition in the snapshot, -1 for an empty slot.

        S is the largest number of replicas of a partition there; the slots are not those of
        :attr:`replica_broker`.
        """
        return self.column("start_broker")  # type: ignore[no-any-return]

    @property
    def start_leader(self) -> Ints:
        """Slot of the leader in :attr:`start_broker`, -1 for none (scope ``partition``)."""
        return self.column("start_leader")  # type: ignore[no-any-return]

    @property
    def leader(self) -> Ints:
        """Slot of the partition's leader, -1 for none (scope ``partition``)."""
        return self.column("leader")  # type: ignore[no-any-return]


def at_cells(table: Floats, cells: Ints) -> Floats:
    """(k, …) columns of a (k, cells) table; a broadcastable one if all cells are equal."""
    first = table[:, :1]
    if table.shape[1] and (table == first).all():
        return first.reshape(-1, *(1,) * np.ndim(cells))
    return table.take(cells, axis=1)
