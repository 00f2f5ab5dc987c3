"""The kinds of cells that goals score: brokers and groups of them, disks, topics, partitions.

A scope says how many cells a cluster has, which cell a replica belongs to, and what a cell
is called. The search, the sums of a placement and the reports read nothing else, so a new
scope is one object: a subclass of :class:`BrokerScope` says which cell each broker is in, and
:class:`PerTopic` divides its cells by topic.
"""

from __future__ import annotations

import numpy as np

from cluster_model.errors import InputError
from cluster_model.snapshot import Floats, Ints, Snapshot


class Scope:
    """A kind of cell. Scopes of equal class and name are equal.

    Parameters
    ----------
    name
        Its name in tables and messages, for example ``topic_rack``.
    noun
        What a report calls a cell, in the singular.
    index
        The column of a state that holds the index of the cell itself.

    Attributes
    ----------
    by_topic
        Whether the cell of a replica depends on its topic.
    partial
        Whether a replica may be in no cell.
    of_partitions
        Whether each cell is a partition with all its replicas, which has no sums.
    """

    by_topic = False
    partial = False
    of_partitions = False

    def __init__(self, name: str, noun: str, index: str) -> None:
        self.name, self.noun, self.index = name, noun, index
        self._hash = hash((type(self).__name__, name))

    def __repr__(self) -> str:
        return f"<scope {self.name}>"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and str(other) == self.name)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        # The hash of text differs between processes.
        return type(self), (self.name, self.noun, self.index)

    def cells(self, snapshot: Snapshot) -> int:
        """The number of cells."""
        raise NotImplementedError

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of a replica of `partition` on `broker` (on `disk`); -1 for none."""
        raise NotImplementedError

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        """What a cell stands for: the index of its broker, rack, topic, …; None if it has none."""
        raise NotImplementedError

    def capacity(self, snapshot: Snapshot, resource: str) -> Floats:
        """(cells,) capacity of a resource."""
        raise InputError(f"scope {self.name}: its cells have no capacity of {resource!r}")

    def label(self, snapshot: Snapshot, cell: int) -> str:
        """The name of a cell for users, for example ``broker 3``."""
        raise NotImplementedError

    def lacks(self, snapshot: Snapshot) -> str | None:
        """Data that a snapshot needs for this scope and does not have; None if it has all."""
        return None


class BrokerScope(Scope):
    """Cells that are brokers, or groups of brokers; a subclass says which and how they are called.

    Examples
    --------
    A scope of two halves of a cluster:

    >>> class Halves(BrokerScope):
    ...     def members(self, snapshot):
    ...         return np.arange(snapshot.n_brokers) % 2
    ...     def names(self, snapshot):
    ...         return "even", "odd"
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=6)
    >>> halves = Halves("half", "half", "half")
    >>> halves.label(snapshot, 1), halves.capacity(snapshot, "cpu").tolist()
    ('half odd', [2400.0, 2400.0])
    """

    def members(self, snapshot: Snapshot) -> Ints:
        """(B,) the cell of each broker; -1 for none."""
        raise NotImplementedError

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The name of each cell."""
        raise NotImplementedError

    def cells(self, snapshot: Snapshot) -> int:
        """The number of cells."""
        return len(self.names(snapshot))

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of the broker."""
        found: Ints = self.members(snapshot)[broker]
        return found

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        """The cell itself."""
        return keys if name == self.index else None

    def capacity(self, snapshot: Snapshot, resource: str) -> Floats:
        """(cells,) the brokers' capacities, added up."""
        capacity = snapshot.capacity[:, snapshot.resource(resource)]
        own = self.members(snapshot)
        inside = own >= 0
        return np.bincount(own[inside], capacity[inside], self.cells(snapshot)).astype(np.float64)

    def label(self, snapshot: Snapshot, cell: int) -> str:
        """The noun and the name."""
        return f"{self.noun} {self.names(snapshot)[cell]}"


class _Brokers(BrokerScope):
    def members(self, snapshot: Snapshot) -> Ints:
        return np.arange(snapshot.n_brokers)

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return tuple(map(str, snapshot.broker_ids.tolist()))

    def cells(self, snapshot: Snapshot) -> int:
        return snapshot.n_brokers

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        return broker

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        if name == "rack":
            return snapshot.broker_rack[keys]
        return keys if name == "broker" else None

    def capacity(self, snapshot: Snapshot, resource: str) -> Floats:
        capacity: Floats = snapshot.capacity[:, snapshot.resource(resource)]
        return capacity


class _Hosts(BrokerScope):
    def members(self, snapshot: Snapshot) -> Ints:
        return snapshot.broker_host

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return snapshot.hosts


class _Racks(BrokerScope):
    def members(self, snapshot: Snapshot) -> Ints:
        return snapshot.broker_rack

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return snapshot.racks


class Grouping(BrokerScope):
    """The groups of brokers with an equal value of an attribute; brokers without it are in none.

    Parameters
    ----------
    attribute
        Its name, see :attr:`cluster_model.snapshot.Snapshot.broker_attributes`.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=4)
    >>> snapshot = replace(snapshot, broker_attributes={"zone": ["b", "a", None, "b"]})
    >>> zones = Grouping("zone")
    >>> zones.names(snapshot), zones.members(snapshot).tolist()
    (('a', 'b'), [1, 0, -1, 1])
    """

    partial = True

    def __init__(self, attribute: str) -> None:
        super().__init__(attribute, attribute, "group")
        self.attribute = attribute

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.attribute,)

    def members(self, snapshot: Snapshot) -> Ints:
        """(B,) the group of each broker; -1 for none."""
        return snapshot.attributes("broker").groups(self.attribute)[0]

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The attribute's values, in ascending order."""
        return snapshot.attributes("broker").groups(self.attribute)[1]

    def lacks(self, snapshot: Snapshot) -> str | None:
        """The attribute, if no broker has it."""
        if self.attribute in snapshot.broker_attributes:
            return None
        return f"broker attribute {self.attribute!r}"


class _Disks(Scope):
    partial = True

    def cells(self, snapshot: Snapshot) -> int:
        return snapshot.n_disks

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        return disk

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        if name == "disk":
            return keys
        broker = snapshot.disk_broker[keys] if name in ("broker", "rack") else None
        return snapshot.broker_rack[broker] if name == "rack" else broker

    def capacity(self, snapshot: Snapshot, resource: str) -> Floats:
        return snapshot.disk_capacity

    def label(self, snapshot: Snapshot, cell: int) -> str:
        broker = snapshot.broker_ids[snapshot.disk_broker[cell]]
        return f"disk {snapshot.disk_path[cell]} of broker {broker}"

    def lacks(self, snapshot: Snapshot) -> str | None:
        return None if snapshot.n_disks else "disks"


class _Partitions(Scope):
    of_partitions = True

    def cells(self, snapshot: Snapshot) -> int:
        return snapshot.n_partitions

    def label(self, snapshot: Snapshot, cell: int) -> str:
        topic = snapshot.topics[snapshot.partition_topic[cell]]
        return f"{topic}-{snapshot.partition_number[cell]}"


class PerTopic(Scope):
    """Cells of a scope of brokers, each divided by topic: a topic on a broker, in a rack, ….

    Parameters
    ----------
    of
        The scope of brokers whose cells are divided.
    name
        Its name; by default ``topic_`` and that of the scope it divides.
    """

    by_topic = True

    def __init__(self, of: BrokerScope, name: str | None = None) -> None:
        super().__init__(name or f"topic_{of.name}", "topic placement", "cell")
        self.of, self.partial = of, of.partial

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.of, self.name)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, PerTopic) and other.of == self.of

    __hash__ = Scope.__hash__

    def cells(self, snapshot: Snapshot) -> int:
        """The number of topics times that of the brokers' cells."""
        return len(snapshot.topics) * self.of.cells(snapshot)

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of the broker within those of the partition's topic."""
        own = self.of.keys(snapshot, partition, broker, disk)
        found = snapshot.partition_topic[partition] * self.of.cells(snapshot) + own
        return np.where(own < 0, -1, found) if self.partial else found

    def split(self, snapshot: Snapshot, keys: Ints) -> tuple[Ints, Ints]:
        """The topic of each cell, and its cell in the scope that is divided."""
        width = self.of.cells(snapshot)
        return keys // width, keys % width

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        """The topic, what the divided cell stands for, or the cell itself."""
        if name == self.index:
            return keys
        topic, own = self.split(snapshot, keys)
        return topic if name == "topic" else self.of.identity(snapshot, name, own)

    def label(self, snapshot: Snapshot, cell: int) -> str:
        """The topic, and where."""
        topic, own = divmod(cell, self.of.cells(snapshot))
        where = "on" if self.of.index == "broker" else "in"
        return f"topic {snapshot.topics[topic]} {where} {self.of.label(snapshot, own)}"

    def lacks(self, snapshot: Snapshot) -> str | None:
        """What the divided scope lacks."""
        return self.of.lacks(snapshot)


BROKER = _Brokers("broker", "broker", "broker")
HOST = _Hosts("host", "host", "host")
RACK = _Racks("rack", "rack", "rack")
DISK = _Disks("disk", "disk", "disk")
PARTITION = _Partitions("partition", "partition", "partition")
TOPIC = PerTopic(BROKER, "topic")
TOPIC_RACK = PerTopic(RACK)

# Those with a name; `scope_of` takes groups by an attribute and objects besides.
SCOPES: dict[str, Scope] = {
    scope.name: scope for scope in (BROKER, HOST, RACK, DISK, PARTITION, TOPIC, TOPIC_RACK)
}


def scope_of(given: Scope | str) -> Scope:
    """A scope itself, the one of a name, or the groups of ``broker attribute NAME``.

    Examples
    --------
    >>> scope_of("rack"), scope_of("broker attribute zone")
    (<scope rack>, <scope zone>)

    Raises
    ------
    InputError
        For a name that is not known.
    """
    if isinstance(given, Scope):
        return given
    found = SCOPES.get(given)
    if found is None:
        before, named, attribute = given.partition("broker attribute ")
        if named and attribute and not before:
            return Grouping(attribute)
        raise InputError(
            f"scope {given!r} found, one of {', '.join(SCOPES)}, broker attribute NAME or an "
            "object of cluster_model.scopes.Scope expected"
        )
    return found
