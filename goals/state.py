"""The state of a cluster as goals read it: named arrays of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from metrics_reporter.arrays import Floats, Ints


class State:
    """The state of any number of cells at once: arrays of one shape, fetched on demand.

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

    __slots__ = ("_cache", "_fetch", "_fetch_sums")

    def __init__(
        self,
        fetch: Callable[[str], Any],
        fetch_sums: Callable[[tuple[str, ...]], Any] | None = None,
    ) -> None:
        self._fetch, self._fetch_sums = fetch, fetch_sums
        self._cache: dict[Any, Any] = {}

    @classmethod
    def of(cls, **values: Any) -> State:
        """A state from arrays (or, for ``load`` and the like, from resource-to-array mappings)."""
        columns: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, Mapping):
                columns.update({f"{name}.{k}": np.asarray(v) for k, v in value.items()})
            else:
                columns[name] = np.asarray(value)

        def fetch(name: str) -> Any:
            if name not in columns:
                raise AttributeError(f"this state has no {name}; it has {', '.join(columns)}")
            return columns[name]

        return cls(fetch)

    def column(self, name: str) -> Any:
        """An array by its column name, for example ``"load.disk"``."""
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = self._fetch(name)
        return found

    def sums(self, names: tuple[str, ...]) -> Floats:
        """Several sums at once, stacked on a new first axis."""
        found = self._cache.get(names)
        if found is None:
            found = self._cache[names] = self._part_of_known(names)
        return found

    def _part_of_known(self, names: tuple[str, ...]) -> Floats:
        # goals of different families read overlapping columns, most of all loads
        for known, table in self._cache.items():
            if isinstance(known, tuple) and names[0] in known:
                at = known.index(names[0])
                if known[at : at + len(names)] == names:
                    part: Floats = table[at : at + len(names)]
                    return part
        if self._fetch_sums is None:
            return np.stack([self.column(name) for name in names])
        fetched: Floats = self._fetch_sums(names)
        return fetched

    def load(self, resource: str) -> Floats:
        """Load of the resource carried by the cell, in the resource's unit."""
        return self.column(f"load.{resource}")  # type: ignore[no-any-return]

    def leader_load(self, resource: str) -> Floats:
        """Load of the resource carried by the cell's leaders only."""
        return self.column(f"leader_load.{resource}")  # type: ignore[no-any-return]

    def potential_load(self, resource: str) -> Floats:
        """Load of the resource if every replica of the cell led its partition."""
        return self.column(f"potential_load.{resource}")  # type: ignore[no-any-return]

    def traffic(self, factor: float) -> Floats:
        """Traffic of the cell's leaders with partitions that they should be collocated with.

        See :func:`cluster_model.traffic.communicating` for these pairs and the factor.
        """
        return self.column(f"traffic.{float(factor)!r}")  # type: ignore[no-any-return]

    def local_traffic(self, factor: float) -> Floats:
        """The part of :meth:`traffic` that stays on the broker (scope ``broker``)."""
        return self.column(f"local_traffic.{float(factor)!r}")  # type: ignore[no-any-return]

    def capacity(self, resource: str) -> Floats:
        """Capacity of the cell (broker, host or disk)."""
        return self.column(f"capacity.{resource}")  # type: ignore[no-any-return]

    @property
    def replica_count(self) -> Floats:
        """Replicas in the cell."""
        return self.column("replica_count")  # type: ignore[no-any-return]

    @property
    def leader_count(self) -> Floats:
        """Leaders in the cell."""
        return self.column("leader_count")  # type: ignore[no-any-return]

    @property
    def broker(self) -> Ints:
        """Index of the cell's broker (scopes ``broker``, ``topic``, ``disk``)."""
        return self.column("broker")  # type: ignore[no-any-return]

    @property
    def host(self) -> Ints:
        """Index of the host (scope ``host``)."""
        return self.column("host")  # type: ignore[no-any-return]

    @property
    def topic(self) -> Ints:
        """Index of the topic (scopes ``topic``, ``topic_rack``, ``partition``)."""
        return self.column("topic")  # type: ignore[no-any-return]

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
    def leader(self) -> Ints:
        """Slot of the partition's leader, -1 for none (scope ``partition``)."""
        return self.column("leader")  # type: ignore[no-any-return]


def at_cells(table: Floats, cells: Ints) -> Floats:
    """(k, …) columns of a (k, cells) table; a broadcastable one if all cells are equal."""
    first = table[:, :1]
    if table.shape[1] and (table == first).all():
        return first.reshape(-1, *(1,) * np.ndim(cells))
    return table[:, cells]
