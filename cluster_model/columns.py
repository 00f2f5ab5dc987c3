"""Columns: what is known about the cells of a scope, such as the load of their leaders.

A column's text (``load.disk``, ``leader_count``) is used in documents, and by goals that name it as
text; everything else reads its fields.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

LOAD, FORMER_LOAD, COUNT, TRAFFIC, LOCAL_TRAFFIC, GROUPS, CAPACITY = (
    "load",
    "former_load",
    "count",
    "traffic",
    "local_traffic",
    "group_count",
    "capacity",
)
# Replicas that count: all in their current roles, leaders alone, all as if they led, or those of
# topics that need the cell's topic.
ANY, LEADER, POTENTIAL, DEPENDENT = "any", "leader", "potential", "dependent"

_SUMS = {LOAD, FORMER_LOAD, COUNT, TRAFFIC, LOCAL_TRAFFIC, GROUPS}
_NAMES = {
    (LOAD, ANY): "load",
    (LOAD, LEADER): "leader_load",
    (LOAD, POTENTIAL): "potential_load",
    (COUNT, ANY): "replica_count",
    (COUNT, LEADER): "leader_count",
    (COUNT, DEPENDENT): "dependent_count",
}
_MEASURES = {name: measure for measure, name in _NAMES.items()}


class Column(NamedTuple):
    """One quantity of every cell: a sum over its replicas, a capacity, or what the cell stands for.

    Parameters
    ----------
    measure
        ``load``, ``former_load``, ``count``, ``traffic``, ``local_traffic``, ``group_count`` or
        ``capacity``; any other name is a property that identifies the cell, such as ``broker`` or
        ``topic``.
    resource
        The resource of a load or a capacity.
    role
        For a load or a count: which replicas it sums over.
    factor
        For traffic: the factor of :meth:`cluster_model.placement.Placement.traffic`.
    part
        Number of a part of the column, see :meth:`cluster_model.placement.Placement.parts`; -1
        for the whole.

    Examples
    --------
    >>> Column.of("leader_load.cpu")
    Column(measure='load', resource='cpu', role='leader', factor=0.0, part=-1)
    >>> str(Column("count")), str(Column("traffic", factor=1.5)), Column("topic").is_sum
    ('replica_count', 'traffic.1.5', False)
    """

    measure: str
    resource: str = ""
    role: str = ANY
    factor: float = 0.0
    part: int = -1

    @staticmethod
    def of(given: Column | str) -> Column:
        """A column itself, or the one that a text stands for."""
        return given if isinstance(given, Column) else _parsed(given)

    @property
    def name(self) -> str:
        """The text without the resource or the factor, for example ``leader_load``."""
        return _NAMES.get((self.measure, self.role), self.measure)

    @property
    def is_sum(self) -> bool:
        """Whether actions change it: a sum over replicas, or a count of groups with some."""
        return self.measure in _SUMS

    @property
    def is_load(self) -> bool:
        """Whether it is a sum of loads."""
        return self.measure in (LOAD, FORMER_LOAD)

    @property
    def is_former(self) -> bool:
        """Whether it sums over replicas that have left their broker since the start."""
        return self.measure == FORMER_LOAD

    @property
    def is_traffic(self) -> bool:
        """Whether it is traffic between partitions, which is not load."""
        return self.measure in (TRAFFIC, LOCAL_TRAFFIC)

    @property
    def is_local(self) -> bool:
        """Whether it also depends on where other partitions are."""
        return self.measure == LOCAL_TRAFFIC

    @property
    def shifts(self) -> bool:
        """Whether a further load on its cell would add to it."""
        return self.is_sum and not (self.is_traffic or self.is_former)

    @property
    def is_uneven(self) -> bool:
        """Whether an action may add to its target another amount than it takes from its source."""
        return self.is_local or self.is_former

    @property
    def is_group_count(self) -> bool:
        """Whether it is the number of groups with a replica, which is not a sum over replicas."""
        return self.measure == GROUPS

    @property
    def of_leaders(self) -> bool:
        """Whether only leaders count."""
        return self.role == LEADER

    def __str__(self) -> str:
        detail = f"{self.factor!r}" if self.is_traffic else self.resource
        text = f"{self.name}.{detail}" if detail else self.name
        return text if self.part < 0 else f"{text}#{self.part}"


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Column:
    name, _, detail = text.partition(".")
    if name in (TRAFFIC, LOCAL_TRAFFIC):
        return Column(name, factor=float(detail))
    measure, role = _MEASURES.get(name, (name, ANY))
    return Column(measure, detail, role)
