"""Goals that keep the load of a broker, host or disk below a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, PrivateAttr, ValidationError

from cluster_model.columns import COUNT, LOAD, POTENTIAL, Column
from cluster_model.snapshot import Bools, Floats
from goals.cluster import Cluster
from goals.curves import at_most
from goals.goal import Goal, Infeasibility, Relaxation, Utilization
from goals.infeasibility import lacks_room, needed_room, oversized, too_little_room
from goals.state import State, at_cells

# Cruise Control's capacity thresholds: a cpu queues requests long before it is full.
_THRESHOLDS = {"cpu": 0.7}
_THRESHOLD = 0.8
# halvings that find a limit to within a millionth of the range
_BISECTIONS = 20


class Ceiling(Goal):
    """An upper limit for each cell: 1 up to the limit, then limit / value.

    A subclass names the limited column, the limits, and the field that sets them, to which they
    are proportional (``limited_by``). Cells that are being emptied
    have no limit: :class:`goals.availability.OnlineReplicas` empties them, and a
    dead broker without capacity would otherwise hide changes on living ones.
    """

    limited_by: ClassVar[str] = "threshold"
    _limit: Floats = PrivateAttr()

    @property
    def column(self) -> Column | str:
        """The limited column."""
        raise NotImplementedError

    def limits(self, cluster: Cluster) -> Floats:
        """(cells,) maximum of each cell."""
        raise NotImplementedError

    def receiving(self, cluster: Cluster) -> Bools:
        """(cells,) whether a cell may receive replicas."""
        return cluster.eligible

    def staying(self, cluster: Cluster) -> Bools:
        """(cells,) whether a cell may keep its current replicas."""
        return ~cluster.draining

    def prepare(self, cluster: Cluster) -> None:
        """Fix the limit of each cell."""
        self._limit = np.where(self.staying(cluster), self.limits(cluster), np.inf)

    def score(self, state: State) -> Any:
        """1 up to the limit, then limit / value."""
        return at_most(state.column(self.column), self._limit[state.column(self.scope.index)])

    @classmethod
    def score_batch(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """All goals of this family in one pass."""
        columns = tuple(Column.of(goal.column) for goal in goals)
        limit = np.stack([goal._limit for goal in goals])
        index = goals[0].scope.index

        def score(state: State) -> Any:
            return at_most(state.sums(columns), at_cells(limit, state.column(index)))

        return score

    def added_limit(self, cluster: Cluster) -> float:
        """Maximum of one more broker like the typical one."""
        return 0.0

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """Insufficient capacity of all cells together, and replicas larger than any cell."""
        limit, staying = self.limits(cluster), self.staying(cluster)
        receiving, added = self.receiving(cluster), self.added_limit(cluster)
        return [
            *too_little_room(cluster, self.scope, self.column, limit, receiving, staying, added),
            *oversized(cluster, self.scope, self.column, limit, staying),
        ]

    def relaxed(self, cluster: Cluster, room: float) -> Relaxation | None:
        """The limit at which all cells together have enough room; None if they have it already.

        A replica larger than the largest limit changes nothing: its cell alone stays unmet.
        """
        limit, staying = self.limits(cluster), self.staying(cluster)
        receiving = self.receiving(cluster)

        def needed_at(factor: float) -> tuple[float, float]:
            raised = limit * factor
            return needed_room(cluster, self.scope, self.column, raised, receiving, staying)

        needed, allowed = needed_at(1.0)
        if not (allowed > 0 and lacks_room(needed, allowed)):
            return None
        proofs = self.infeasibilities(cluster)
        if not proofs:
            return None
        low, factor = 1.0, needed / allowed
        if (staying & ~receiving).any():
            # what cells that receive nothing may keep grows with the limit, too
            for _ in range(_BISECTIONS):
                middle = (low + factor) / 2
                low, factor = (middle, factor) if lacks_room(*needed_at(middle)) else (low, middle)
        return self._raised(factor * (1 + room), proofs[0].reason)

    def _raised(self, factor: float, reason: str) -> Relaxation | None:
        """The relaxation that raises the limit by a factor; None beyond the field's range."""
        configured = getattr(self, self.limited_by)
        used = configured * factor
        if isinstance(configured, int):
            used = math.ceil(used)
        try:
            type(self).model_validate(self.model_dump() | {self.limited_by: used})
        except ValidationError:
            return None
        return Relaxation(self.limited_by, configured, used, reason)


class ResourceCapacity(Ceiling):
    """Each broker carries at most `threshold` of its capacity of a resource.

    Parameters
    ----------
    resource
        Name of a resource of the snapshot.
    threshold
        Share of the capacity that may be used; by default 0.7 for ``cpu``, 0.8 for
        the others (Cruise Control's ``*.capacity.threshold``).
    """

    hard: bool = True
    resource: str
    threshold: Utilization = Field(
        default_factory=lambda known: _THRESHOLDS.get(known.get("resource", ""), _THRESHOLD)
    )

    @property
    def column(self) -> Column:
        """The load of the resource."""
        return Column(LOAD, self.resource)

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) the threshold's share of each capacity."""
        return cluster.capacity(self.resource) * self.threshold

    def added_limit(self, cluster: Cluster) -> float:
        """The threshold's share of the typical capacity."""
        return self.threshold * float(cluster.typical[cluster.snapshot.resource(self.resource)])


class HostCapacity(ResourceCapacity):
    """The brokers of a host together carry at most `threshold` of their capacities.

    The same as :class:`ResourceCapacity` if every broker has its own host.

    Parameters
    ----------
    resource, threshold
        As for :class:`ResourceCapacity`.
    """

    scope: ClassVar = "host"

    def limits(self, cluster: Cluster) -> Floats:
        """(H,) the threshold's share of the capacities of the host's staying brokers."""
        s = cluster.snapshot
        capacity = np.where(cluster.draining, 0.0, cluster.capacity(self.resource))
        return (np.bincount(s.broker_host, capacity, len(s.hosts)) * self.threshold).astype(float)

    def receiving(self, cluster: Cluster) -> Bools:
        """(H,) whether a broker of the host may receive replicas."""
        return _any_per_host(cluster, cluster.eligible)

    def staying(self, cluster: Cluster) -> Bools:
        """(H,) whether a broker of the host may keep its replicas."""
        return _any_per_host(cluster, ~cluster.draining)


class ReplicaCapacity(Ceiling):
    """Each broker holds at most `limit` replicas.

    Parameters
    ----------
    limit
        Maximum number of replicas on one broker (Cruise Control's ``max.replicas.per.broker``).
    """

    limited_by: ClassVar[str] = "limit"
    hard: bool = True
    limit: int = Field(default=10000, ge=1)

    @property
    def column(self) -> Column:
        """The number of replicas."""
        return Column(COUNT)

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) the limit."""
        return np.full(cluster.snapshot.n_brokers, float(self.limit))

    def added_limit(self, cluster: Cluster) -> float:
        """The limit."""
        return float(self.limit)


class PotentialNetworkOut(Ceiling):
    """Each broker could serve the readers of all its partitions if it led them all.

    Parameters
    ----------
    threshold
        Share of the outbound network capacity that may be used then.
    """

    requires: ClassVar[tuple[str, ...]] = ("network_out",)
    threshold: Utilization = _THRESHOLD

    @property
    def column(self) -> Column:
        """The outbound load if every replica led its partition."""
        return Column(LOAD, "network_out", POTENTIAL)

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) the threshold's share of each capacity."""
        return cluster.capacity("network_out") * self.threshold

    def added_limit(self, cluster: Cluster) -> float:
        """The threshold's share of the typical capacity."""
        return self.threshold * float(cluster.typical[cluster.snapshot.resource("network_out")])


def _any_per_host(cluster: Cluster, brokers: Bools) -> Bools:
    s = cluster.snapshot
    return np.bincount(s.broker_host, brokers, len(s.hosts)) > 0
