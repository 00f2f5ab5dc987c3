"""The kinds of cells that goals score: brokers and groups of them, disks, topics, partitions.

A scope says how many cells a cluster has, which cell a replica belongs to, and what a cell
is called. The search, the sums of a placement and the reports read nothing else, so a new
scope is one object: a subclass of :class:`BrokerScope` says which cell each broker is in,
:class:`PerTopic` divides its cells by topic, :class:`PerAttribute` by an attribute of topics.
:class:`Spread` and :class:`Needs` relate such cells to each other: how many of them hold a topic,
and whether a topic is where another one needs it.
"""

from __future__ import annotations

import re

import numpy as np

from cluster_model.columns import DEPENDENT, Column
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
    several
        Whether a replica may be in several cells: :meth:`keys` then has a row for each.
    inner
        The scope whose cells make up the cells of this one, see :meth:`outer`; None for none.
    """

    by_topic = False
    partial = False
    of_partitions = False
    several = False
    inner: Scope | None = None

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
        """The cell of a replica of `partition` on `broker` (on `disk`); -1 for none.

        With :attr:`several`, an array with one more axis in front: a row for each cell.
        """
        raise NotImplementedError

    def rows(self, column: Column) -> slice:
        """With :attr:`several`: the rows of :meth:`keys` whose cells a column counts."""
        return slice(None)

    def outer(self, snapshot: Snapshot, cells: Ints) -> Ints:
        """The cell of this scope that each cell of :attr:`inner` is part of; -1 for -1."""
        raise NotImplementedError

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The attributes it reads, each as ``broker`` or ``topic`` and a name."""
        return ()

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
        for of, name in self.attributes():
            known = snapshot.broker_attributes if of == "broker" else snapshot.topic_attributes
            if name not in known:
                return f"{of} attribute {name!r}"
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

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The attribute of brokers."""
        return (("broker", self.attribute),)


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


class Divided(Scope):
    """Cells of a scope of brokers, each divided by kinds of topics; a subclass says which kinds.

    Parameters
    ----------
    of
        The scope of brokers whose cells are divided.
    name
        Its name in tables and messages.
    """

    by_topic = True
    # what a cell's kind is called, and the column of a state that holds its index
    kind_noun, kind_index = "topic", "value"

    def __init__(self, of: BrokerScope, name: str) -> None:
        super().__init__(name, "topic placement", "cell")
        self.of, self.partial = of, True

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Divided) and other.of == self.of

    __hash__ = Scope.__hash__

    def kinds(self, snapshot: Snapshot) -> Ints:
        """(T,) the kind of each topic; with :attr:`several`, (J, T) all its kinds; -1 for none."""
        raise NotImplementedError

    def kind_names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The name of each kind."""
        raise NotImplementedError

    def cells(self, snapshot: Snapshot) -> int:
        """The number of kinds times that of the brokers' cells."""
        return len(self.kind_names(snapshot)) * self.of.cells(snapshot)

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of the broker within those of each kind that the partition's topic has."""
        own = self.of.keys(snapshot, partition, broker, disk)
        kind = self.kinds(snapshot)[..., snapshot.partition_topic[partition]]
        found: Ints = np.where((own < 0) | (kind < 0), -1, kind * self.of.cells(snapshot) + own)
        return found

    def split(self, snapshot: Snapshot, keys: Ints) -> tuple[Ints, Ints]:
        """The kind of each cell, and its cell in the scope that is divided."""
        width = self.of.cells(snapshot)
        kind = keys // width
        # faster than the remainder
        return kind, keys - kind * width

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Those of the divided scope."""
        return self.of.attributes()

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        """The kind, what the divided cell stands for, or the cell itself."""
        if name == self.index:
            return keys
        if name == self.kind_index:
            return keys // self.of.cells(snapshot)
        return self.of.identity(snapshot, name, self.split(snapshot, keys)[1])

    def label(self, snapshot: Snapshot, cell: int) -> str:
        """The kind, and where."""
        kind, own = divmod(cell, self.of.cells(snapshot))
        where = "on" if self.of.index == "broker" else "in"
        what = f"{self.kind_noun} {self.kind_names(snapshot)[kind]}"
        return f"{what} {where} {self.of.label(snapshot, own)}"


class PerTopic(Divided):
    """Cells of a scope of brokers, each divided by topic: a topic on a broker, in a rack, ….

    Parameters
    ----------
    of
        The scope of brokers whose cells are divided.
    name
        Its name; by default ``topic_`` and that of the scope it divides.
    """

    kind_index = "topic"

    def __init__(self, of: BrokerScope, name: str | None = None) -> None:
        super().__init__(of, name or f"topic_{of.name}")
        self.partial = of.partial

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.of, self.name)

    def kinds(self, snapshot: Snapshot) -> Ints:
        """(T,) the topics themselves."""
        return np.arange(len(snapshot.topics))

    def kind_names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The topics."""
        return snapshot.topics

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The cell of the broker within those of the partition's topic."""
        own = self.of.keys(snapshot, partition, broker, disk)
        found = snapshot.partition_topic.take(partition) * self.of.cells(snapshot) + own
        return np.where(own < 0, -1, found) if self.partial else found


class PerAttribute(Divided):
    """Cells of a scope of brokers, each divided by the value of a topic attribute.

    A cell is, for example, a tenant on a broker or in a rack. Topics without the attribute are
    in none.

    Parameters
    ----------
    attribute
        The attribute of topics.
    of
        The scope of brokers whose cells are divided; by default the brokers themselves.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=3, partitions=9, topics=3)
    >>> snapshot = replace(snapshot, topic_attributes={"tenant": ["shop", None, "shop"]})
    >>> tenants = PerAttribute("tenant")
    >>> tenants.cells(snapshot), tenants.label(snapshot, 2)
    (3, 'tenant shop on broker 3')
    """

    def __init__(self, attribute: str, of: BrokerScope | None = None) -> None:
        of = of or BROKER
        super().__init__(of, f"{attribute}_{of.name}")
        self.attribute = self.kind_noun = attribute

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.attribute, self.of)

    def kinds(self, snapshot: Snapshot) -> Ints:
        """(T,) the group of each topic by the attribute's value."""
        return snapshot.attributes("topic").groups(self.attribute)[0]

    def kind_names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The attribute's values, in ascending order."""
        return snapshot.attributes("topic").groups(self.attribute)[1]

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The attribute of topics, and those of the divided scope."""
        return (("topic", self.attribute), *super().attributes())


class Needs(Divided):
    """Cells of a scope of brokers, each divided by the topics that other topics need there.

    An attribute of topics lists the topics that each needs, separated by commas. In the cell of a
    needed topic and a group of brokers, ``replica_count`` counts the replicas of the needed topic
    in the group, and ``dependent_count`` the replicas of all topics that need it.

    Parameters
    ----------
    attribute
        The attribute of topics that names what they need.
    of
        The scope of brokers whose cells are divided.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=3, partitions=9, topics=3)
    >>> snapshot = replace(snapshot, topic_attributes={"needs": ["topic-1,topic-2", None, "x"]})
    >>> needs = Needs("needs", RACK)
    >>> needs.kind_names(snapshot), needs.kinds(snapshot).tolist()
    (('topic-1', 'topic-2', 'x'), [[-1, 0, 1], [0, -1, 2], [1, -1, -1]])
    """

    several = True

    def __init__(self, attribute: str, of: BrokerScope) -> None:
        super().__init__(of, f"{attribute}_{of.name}")
        self.attribute = attribute

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.attribute, self.of)

    def kinds(self, snapshot: Snapshot) -> Ints:
        """(1 + most needs, T) each topic as a needed one, and the topics that it needs."""
        return snapshot.attributes("topic").needs(self.attribute, snapshot.topics)[0]

    def kind_names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The needed topics, in alphabetical order, those that the cluster lacks too."""
        return snapshot.attributes("topic").needs(self.attribute, snapshot.topics)[1]

    def rows(self, column: Column) -> slice:
        """The needed topics for a count of dependents, otherwise the topic itself."""
        return slice(1, None) if column.role == DEPENDENT else slice(0, 1)

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The attribute of topics, and those of the divided scope."""
        return (("topic", self.attribute), *super().attributes())


class Spread(Scope):
    """Whole topics, or all topics with one value of an attribute, across groups of brokers.

    ``group_count`` is the number of groups (racks, zones, brokers, …) with a replica of it.

    Parameters
    ----------
    inner
        The topic or value in each group: ``PerTopic(RACK)``, ``PerAttribute("tenant", RACK)``.

    Examples
    --------
    >>> from cluster_model import synthetic_snapshot
    >>> snapshot = synthetic_snapshot(brokers=3, partitions=9, topics=3)
    >>> spread = Spread(PerTopic(RACK))
    >>> spread.cells(snapshot), spread.label(snapshot, 2)
    (3, 'topic topic-2')
    """

    by_topic = True
    partial = True

    def __init__(self, inner: PerTopic | PerAttribute) -> None:
        super().__init__(f"spread_{inner.name}", inner.kind_noun, "cell")
        self.inner: PerTopic | PerAttribute = inner

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.inner,)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Spread) and other.inner == self.inner

    __hash__ = Scope.__hash__

    def cells(self, snapshot: Snapshot) -> int:
        """The number of topics or values."""
        return len(self.inner.kind_names(snapshot))

    def keys(self, snapshot: Snapshot, partition: Ints, broker: Ints, disk: Ints) -> Ints:
        """The topic or value; -1 also for a replica that is in no group."""
        return self.outer(snapshot, self.inner.keys(snapshot, partition, broker, disk))

    def outer(self, snapshot: Snapshot, cells: Ints) -> Ints:
        """The topic or value of each cell of the inner scope."""
        return np.where(cells < 0, -1, self.inner.split(snapshot, cells)[0])

    def identity(self, snapshot: Snapshot, name: str, keys: Ints) -> Ints | None:
        """The topic or value, which is the cell itself."""
        return keys if name in (self.index, self.inner.kind_index) else None

    def label(self, snapshot: Snapshot, cell: int) -> str:
        """The topic or value."""
        return f"{self.noun} {self.inner.kind_names(snapshot)[cell]}"

    def attributes(self) -> tuple[tuple[str, str], ...]:
        """Those of the inner scope."""
        return self.inner.attributes()


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


_NAME = r"[^\s]+"
_OF_TOPICS = re.compile(rf"topic attribute ({_NAME})(?: in (rack|host|broker attribute {_NAME}))?")
_OF_BROKERS = re.compile(rf"broker attribute ({_NAME})")


def grouping(attribute: str) -> BrokerScope:
    """The brokers, hosts or racks by that word, and otherwise the groups by an attribute.

    Examples
    --------
    >>> grouping("rack"), grouping("zone")
    (<scope rack>, <scope zone>)
    """
    return {"broker": BROKER, "host": HOST, "rack": RACK}.get(attribute) or Grouping(attribute)


def scope_of(given: Scope | str) -> Scope:
    """A scope itself, the one of a name, or the one that a text with an attribute stands for.

    ``broker attribute NAME`` are the groups of brokers with an equal value. ``topic attribute
    NAME`` is each value of an attribute of topics on each broker, and ``topic attribute NAME in
    rack`` (or ``in host``, ``in broker attribute NAME``) the same in groups of brokers.

    Examples
    --------
    >>> scope_of("rack"), scope_of("broker attribute zone")
    (<scope rack>, <scope zone>)
    >>> scope_of("topic attribute tenant"), scope_of("topic attribute tenant in rack")
    (<scope tenant_broker>, <scope tenant_rack>)

    Raises
    ------
    InputError
        For a name that is not known.
    """
    if isinstance(given, Scope):
        return given
    found = SCOPES.get(given)
    if found is not None:
        return found
    if match := _OF_BROKERS.fullmatch(given):
        return Grouping(match[1])
    if match := _OF_TOPICS.fullmatch(given):
        attribute, where = match.groups(default="broker")
        return PerAttribute(attribute, grouping(where.removeprefix("broker attribute ")))
    raise InputError(
        f"scope {given!r} found, one of {', '.join(SCOPES)}, broker attribute NAME, topic "
        "attribute NAME, topic attribute NAME in rack (or in host, in broker attribute NAME) or an "
        "object of cluster_model.scopes.Scope expected"
    )
