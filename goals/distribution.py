"""Goals that distribute load and counts evenly, in proportion to the brokers' sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, PrivateAttr

from cluster_model.columns import COUNT, LEADER, LOAD, Column
from cluster_model.snapshot import Bools, Floats
from goals.cluster import Cluster
from goals.curves import TOLERANCE, distance
from goals.goal import Goal, Infeasibility, Ratio
from goals.infeasibility import oversized
from goals.state import State, at_cells


class Band(Goal):
    """Keeps each broker near its fair share of a column.

    A subclass names the column, and the limits around the share. The score is 1
    between the limits. Outside it follows the AutoBalancer seed's curve of the distance in
    percent of the share: 0.1 a whole share away. Brokers that are being emptied score 1
    (:class:`goals.availability.OnlineReplicas` empties them); living brokers that cannot
    receive replicas have no lower limit.

    Parameters
    ----------
    threshold
        Upper limit / fair share; the lower limit is at the same distance below.
    margin
        Share of the distance to the threshold that is used, so that a current plan still
        holds after a small drift in load (Cruise Control's ``BALANCE_MARGIN``).
    upper_only
        Whether to leave brokers below their share alone: nothing is overloaded, and
        fewer bytes move.
    """

    threshold: Ratio = 1.10
    margin: float = Field(default=0.9, gt=0, le=1)
    upper_only: bool = False
    _lower: Floats = PrivateAttr()
    _upper: Floats = PrivateAttr()
    _percent: Floats = PrivateAttr()

    @property
    def column(self) -> Column | str:
        """Name of the column to distribute."""
        raise NotImplementedError

    @property
    def slack(self) -> float:
        """Relative distance from the share that still counts as balanced."""
        return (self.threshold - 1) * self.margin

    def shares(self, cluster: Cluster) -> Floats:
        """(cells,) fair shares, also of what receives nothing (infinite if nothing receives)."""
        return _share(cluster, self.column)

    def receiving(self, cluster: Cluster) -> Bools:
        """(cells,) whether a cell has a lower limit."""
        return cluster.eligible

    def staying(self, cluster: Cluster) -> Bools:
        """(cells,) whether a cell has an upper limit."""
        return ~cluster.draining

    def limits(self, cluster: Cluster) -> tuple[Floats, Floats]:
        """(cells,) minimum and maximum of each cell, in the unit of the column."""
        share = self.shares(cluster)
        least = 0.0 if self.upper_only else max(0.0, 1 - self.slack)
        # where no broker may receive a share it is infinite, and a lower limit of 0 would give nan
        lower = share * least if least > 0 else np.zeros_like(share)
        return lower, share * (1 + self.slack)

    def prepare(self, cluster: Cluster) -> None:
        """Express the limits in percent of each cell's share."""
        share = self.shares(cluster)
        unit = np.where((share > 0) & (share < np.inf), share, 1.0)
        lower, upper = self.limits(cluster)
        self._percent = 100.0 / unit
        # where nothing may be placed there is no rounding
        tolerance = np.where(upper > 0, 100.0 * TOLERANCE, 0.0)
        self._lower = np.where(self.receiving(cluster), lower * self._percent - tolerance, -np.inf)
        self._upper = np.where(self.staying(cluster), upper * self._percent + tolerance, np.inf)

    def score(self, state: State) -> Any:
        """1 between the limits, then the seed's curve of the distance from them."""
        cell = state.column(self.scope.index)
        percent, lower, upper = (
            at_cells(table[None], cell)[0] for table in (self._percent, self._lower, self._upper)
        )
        value = state.column(self.column) * percent
        outside = np.maximum(value - upper, lower - value)
        return distance(outside, bound=0.0, var=100.0)

    @classmethod
    def score_batch(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """All goals of this family in one pass."""
        columns = tuple(Column.of(goal.column) for goal in goals)
        percent, lower, upper = (
            np.stack([getattr(goal, name) for goal in goals])
            for name in ("_percent", "_lower", "_upper")
        )

        index = goals[0].scope.index

        def score(state: State) -> Any:
            cell = state.column(index)
            value = state.sums(columns) * at_cells(percent, cell)
            outside = np.maximum(value - at_cells(upper, cell), at_cells(lower, cell) - value)
            return distance(outside, bound=0.0, var=100.0)

        return score

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Replicas that alone exceed every cell's upper limit."""
        limit = self.limits(cluster)[1]
        return oversized(cluster, self.scope, self.column, limit, self.staying(cluster))


def _share(cluster: Cluster, given: Column | str) -> Floats:
    """(B,) fair shares, also of brokers that receive nothing (infinite if no broker receives)."""
    column = Column.of(given)
    share = cluster.fair_share(column)
    takes = cluster.eligible
    if column.of_leaders:
        takes = takes & cluster.leader_eligible
    size = cluster.capacity(column.resource) if column.resource else np.ones_like(share)
    groups = int(cluster.group.max()) + 1
    shares = np.bincount(cluster.group, np.where(takes, share, 0), groups)
    sizes = np.bincount(cluster.group, np.where(takes, size, 0), groups)
    rate = np.divide(shares, sizes, out=np.full(groups, np.inf), where=sizes > 0)[cluster.group]
    foreign = np.where(np.isfinite(rate), rate, 0.0) * size
    return np.where(takes, share, np.where(np.isfinite(rate), foreign, np.inf))


class UsageDistribution(Band):
    """Each broker's utilisation of a resource is near the mean.

    Parameters
    ----------
    resource
        Name of a resource of the snapshot.
    threshold, margin
        As for every distribution goal: 1.10 and 0.9 allow 9 percent either way.
    low_utilization
        Share of the capacity at and below which a mean is not worth balancing: brokers
        are then content up to 0.9 of it.
    """

    resource: str
    low_utilization: float = Field(default=0.0, ge=0, le=1)

    @property
    def column(self) -> Column:
        """The load of the resource."""
        return Column(LOAD, self.resource)

    def capacity(self, cluster: Cluster) -> Floats:
        """(cells,) capacity of each cell."""
        return cluster.capacity(self.resource)

    def limits(self, cluster: Cluster) -> tuple[Floats, Floats]:
        """(cells,) limits around the share, or only an upper one if utilisation is low."""
        lower, upper = super().limits(cluster)
        capacity = self.capacity(cluster)
        idle = self.shares(cluster) <= self.low_utilization * capacity
        relaxed = np.maximum(upper, self.margin * self.low_utilization * capacity)
        return np.where(idle, 0.0, lower), np.where(idle, relaxed, upper)


class ReplicaDistribution(Band):
    """Each broker's number of replicas is near its share.

    Parameters
    ----------
    threshold, margin
        The limits are floor(share * (1 - m)) and ceil(share * (1 + m)) with
        m = (threshold - 1) * margin.
    """

    @property
    def column(self) -> Column:
        """The number of replicas."""
        return Column(COUNT)

    def limits(self, cluster: Cluster) -> tuple[Floats, Floats]:
        """(B,) whole-number limits around the share."""
        lower, upper = super().limits(cluster)
        return np.floor(lower * (1 + TOLERANCE)), np.ceil(upper * (1 - TOLERANCE))


class LeaderReplicaDistribution(ReplicaDistribution):
    """Each broker's number of leaders is near its share.

    Parameters
    ----------
    threshold, margin
        As for :class:`ReplicaDistribution`.
    """

    @property
    def column(self) -> Column:
        """The number of leaders."""
        return Column(COUNT, role=LEADER)

    def prepare(self, cluster: Cluster) -> None:
        """As for replicas; brokers that may not lead have no lower limit."""
        super().prepare(cluster)
        self._lower = np.where(cluster.leader_eligible, self._lower, -np.inf)


class LeaderBytesInDistribution(Band):
    """No broker's leaders take in much more than its share of what producers write.

    An upper limit only, and by capacity: Cruise Control's mean is the same for all.

    Parameters
    ----------
    threshold, margin
        Upper limit / fair share; here the margin is 1, as in Cruise Control.
    low_utilization
        Share of the network capacity up to which any broker is content.
    """

    requires: ClassVar[tuple[str, ...]] = ("network_in",)
    margin: float = Field(default=1.0, gt=0, le=1)
    low_utilization: float = Field(default=0.0, ge=0, le=1)

    @property
    def column(self) -> Column:
        """The inbound load of leaders."""
        return Column(LOAD, "network_in", LEADER)

    def limits(self, cluster: Cluster) -> tuple[Floats, Floats]:
        """(B,) no lower limit, and the upper one."""
        lower, upper = super().limits(cluster)
        enough = self.low_utilization * cluster.capacity("network_in")
        return np.zeros_like(lower), np.maximum(upper, enough)
