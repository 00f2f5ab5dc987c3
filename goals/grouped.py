"""Goals over groups of brokers that share the value of an attribute: a zone, a generation."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cluster_model.scopes import Grouping, Scope
from cluster_model.snapshot import Bools, Floats
from goals.capacity import ResourceCapacity
from goals.cluster import Cluster
from goals.distribution import UsageDistribution
from goals.goal import Goal, Infeasibility

_GROUP = Scope("group", "group of brokers", "group")


class _OfAttribute:
    """The scope of a goal with a field `attribute`."""

    def __get__(self, goal: Any, owner: type[Goal]) -> Scope:
        return _GROUP if goal is None else Grouping(goal.attribute)


class GroupCapacity(ResourceCapacity):
    """The brokers of a group together carry at most `threshold` of their capacities.

    Use it for a limit that a zone shares: only the total of a group counts. Brokers
    without the attribute are in no group.

    Parameters
    ----------
    resource, threshold
        As for :class:`goals.capacity.ResourceCapacity`.
    attribute
        The attribute of brokers whose values are the groups, for example ``zone``.
    """

    scope: ClassVar = _OfAttribute()

    attribute: str

    @property
    def name(self) -> str:
        """The class, its resource and the attribute."""
        return _name(self, self.resource, self.attribute)

    def limits(self, cluster: Cluster) -> Floats:
        """(G,) the threshold's share of the capacities of the group's staying brokers."""
        staying = np.where(cluster.draining, 0.0, cluster.capacity(self.resource))
        return _per_group(self.attribute, cluster, staying) * self.threshold

    def receiving(self, cluster: Cluster) -> Bools:
        """(G,) whether a broker of the group may receive replicas."""
        return _per_group(self.attribute, cluster, cluster.eligible) > 0

    def staying(self, cluster: Cluster) -> Bools:
        """(G,) whether a broker of the group may keep its replicas."""
        return _per_group(self.attribute, cluster, ~cluster.draining) > 0

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """As for every limit; none if a broker in no group may take any amount."""
        return super().infeasibilities(cluster) if _all_grouped(self.attribute, cluster) else []


class GroupUsageDistribution(UsageDistribution):
    """Each group of brokers carries its share of a resource, by capacity.

    A group's share is that of its brokers that stay. A group with a staying broker that cannot
    receive replicas has no lower limit. Brokers without the attribute are in no group.

    Parameters
    ----------
    resource, low_utilization
        As for :class:`goals.distribution.UsageDistribution`.
    threshold, margin
        As for every distribution goal: 1.10 and 0.9 allow 9 percent either way.
    attribute
        The attribute of brokers whose values are the groups, for example ``zone``.
    """

    scope: ClassVar = _OfAttribute()

    attribute: str

    @property
    def name(self) -> str:
        """The class, its resource and the attribute."""
        return _name(self, self.resource, self.attribute)

    def shares(self, cluster: Cluster) -> Floats:
        """(G,) the shares of the group's staying brokers."""
        share = np.where(cluster.draining, 0.0, super().shares(cluster))
        return _per_group(self.attribute, cluster, share)

    def capacity(self, cluster: Cluster) -> Floats:
        """(G,) the capacities of the group's staying brokers."""
        staying = np.where(cluster.draining, 0.0, cluster.capacity(self.resource))
        return _per_group(self.attribute, cluster, staying)

    def receiving(self, cluster: Cluster) -> Bools:
        """(G,) whether every staying broker of the group may receive replicas."""
        closed = _per_group(self.attribute, cluster, ~cluster.eligible & ~cluster.draining) > 0
        return self.staying(cluster) & ~closed

    def staying(self, cluster: Cluster) -> Bools:
        """(G,) whether a broker of the group may keep its replicas."""
        return _per_group(self.attribute, cluster, ~cluster.draining) > 0

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Replicas larger than any limit; none if a broker in no group may take them."""
        return super().infeasibilities(cluster) if _all_grouped(self.attribute, cluster) else []


def _name(goal: Goal, resource: str, attribute: str) -> str:
    return f"{type(goal).__name__}[{resource} by {attribute}]"


def _per_group(attribute: str, cluster: Cluster, values: Floats | Bools) -> Floats:
    """(G,) values of brokers, added up by group."""
    scope = Grouping(attribute)
    own = scope.members(cluster.snapshot)
    inside = own >= 0
    return np.bincount(own[inside], values[inside], scope.cells(cluster.snapshot)).astype(float)


def _all_grouped(attribute: str, cluster: Cluster) -> bool:
    """Whether all brokers that may receive replicas are in a group."""
    return bool((Grouping(attribute).members(cluster.snapshot)[cluster.eligible] >= 0).all())
