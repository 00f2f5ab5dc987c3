"""Goals that keep the load of a broker, host or disk below a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, PrivateAttr, ValidationError

from cluster_model.columns import COUNT, FORMER_LOAD, LOAD, POTENTIAL, Column
from cluster_model.snapshot import Bools, Floats
from goals.cluster import Cluster
from goals.curves import TOLERANCE, at_most
from goals.goal import Goal, Infeasibility, Relaxation, Utilization
from goals.infeasibility import (
    described,
    lacks_room,
    needed_room,
    oversized,
    quantities,
    too_little_room,
)
from goals.state import State, at_cells
from goals.terms import Limit, Term

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

    @property
    def prepared_limit(self) -> Floats:
        """(cells,) maximum of each cell, once the goal is prepared; infinite for none."""
        return self._limit

    def score(self, state: State) -> Any:
        """1 up to the limit, then limit / value."""
        cell = state.column(self.scope.index)
        return at_most(state.column(self.column), at_cells(self._limit[None], cell)[0])

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

        What is on cells that are being emptied counts if it has room within the limit that is used
        without it: then no plan for what follows needs a higher one.
        A replica larger than the largest limit changes nothing: its cell alone stays unmet.
        """
        needed, allowed = self.needed_room(cluster)
        if not (allowed > 0 and lacks_room(needed, allowed)):
            return None
        proofs = self.infeasibilities(cluster)
        if not proofs:
            return None
        factor, after = (self._least_factor(cluster, emptied) for emptied in (False, True))
        reason = proofs[0].reason
        found = self._raised(factor * (1 + room), reason)
        if found is not None and factor < after <= found.used / found.configured:
            return self._raised(after * (1 + room), reason) or found
        return found

    def exceeded(self, cluster: Cluster) -> bool:
        """Whether some cell that may keep its replicas is above its limit."""
        load = cluster.placement.sums(self.scope, self.column)
        above = load > self.limits(cluster) * (1 + TOLERANCE)
        return bool(above[self.staying(cluster)].any())

    def yielding(self, cluster: Cluster, room: float) -> Relaxation | None:
        """The limit that has room for what is on dead brokers and disks, too.

        Only a limit that is exceeded already yields to that; None if it need not.
        """
        needed, allowed = self.needed_room(cluster, emptied=True)
        lacks = allowed > 0 and lacks_room(needed, allowed)
        if not (lacks and self.exceeded(cluster)):
            return None
        much, little = quantities(self.column, needed, allowed)
        reason = f"{described(self.column)}: {much} needed, {little} within limits"
        factor = self._least_factor(cluster, emptied=True) * (1 + room)
        return self._raised(factor, reason, healing=True)

    def needed_room(
        self, cluster: Cluster, factor: float = 1.0, emptied: bool = False
    ) -> tuple[float, float]:
        """The load that cells with limits must take, and what all limits together allow.

        See :func:`goals.infeasibility.needed_room`.

        Parameters
        ----------
        cluster
            The cluster at the start.
        factor
            By which the limits are raised.
        emptied
            Whether cells that are being emptied count as empty.
        """
        raised, receiving = self.limits(cluster) * factor, self.receiving(cluster)
        staying = self.staying(cluster)
        return needed_room(cluster, self.scope, self.column, raised, receiving, staying, emptied)

    def _least_factor(self, cluster: Cluster, emptied: bool) -> float:
        """By how much the limits must at least be raised for enough room."""
        needed, allowed = self.needed_room(cluster, emptied=emptied)
        low, factor = 1.0, needed / allowed
        if (self.staying(cluster) & ~self.receiving(cluster)).any():
            # what cells that receive nothing may keep grows with the limit, too
            for _ in range(_BISECTIONS):
                middle = (low + factor) / 2
                lacks = lacks_room(*self.needed_room(cluster, middle, emptied))
                low, factor = (middle, factor) if lacks else (low, middle)
        return factor

    def _raised(self, factor: float, reason: str, healing: bool = False) -> Relaxation | None:
        """The relaxation that raises the limit by a factor; None beyond the field's range."""
        configured = getattr(self, self.limited_by)
        used = configured * factor
        if isinstance(configured, int):
            used = math.ceil(used)
        try:
            type(self).model_validate(self.model_dump() | {self.limited_by: used})
        except ValidationError:
            return None
        return Relaxation(self.limited_by, configured, used, reason, healing)


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

    def terms(self, cluster: Cluster) -> tuple[Term, ...] | None:
        """The limit of each broker."""
        return (Limit(self.resource, self._limit),)

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

    def terms(self, cluster: Cluster) -> tuple[Term, ...] | None:
        """None: a host may have several brokers."""
        return None

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


class TransientCapacity(Ceiling):
    """While a plan is carried out, each broker uses at most `limit` of its capacity of a resource.

    A replica that moves uses the resource on both sides until the move is done: a broker's use is
    its load, and the load of the replicas that it held at the start, in the snapshot, and holds no
    longer. The latter count in the role that they had there.

    Parameters
    ----------
    resource
        Name of a resource of the snapshot.
    limit
        Share of the capacity that may be used.
    """

    limited_by: ClassVar[str] = "limit"
    hard: bool = True
    resource: str
    limit: Utilization = 1.0

    @property
    def column(self) -> Column:
        """The load of the resource, which is a part of the use."""
        return Column(LOAD, self.resource)

    def terms(self, cluster: Cluster) -> tuple[Term, ...]:
        """The limit of each broker, which counts what has left it."""
        return (Limit(self.resource, self._limit, former=True),)

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) the limit's share of each capacity."""
        return cluster.capacity(self.resource) * self.limit

    def added_limit(self, cluster: Cluster) -> float:
        """The limit's share of the typical capacity."""
        return self.limit * float(cluster.typical[cluster.snapshot.resource(self.resource)])

    def score(self, state: State) -> Any:
        """1 up to the limit, then limit / use."""
        use = state.load(self.resource) + state.former_load(self.resource)
        return at_most(use, self._limit[state.broker])

    @classmethod
    def score_batch(cls, goals: Sequence[Self]) -> Callable[[State], Any]:
        """All goals of this family in one pass."""
        now = tuple(Column(LOAD, goal.resource) for goal in goals)
        former = tuple(Column(FORMER_LOAD, goal.resource) for goal in goals)
        limit = np.stack([goal._limit for goal in goals])

        def score(state: State) -> Any:
            use = state.sums(now) + state.sums(former)
            return at_most(use, at_cells(limit, state.broker))

        return score

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """As for every limit, and brokers above it at the start: what they held then still counts.

        Unless a replica there has a lighter role.
        """
        placement, limit = cluster.placement, self.limits(cluster)
        lead, follow = placement.contribution(self.column)
        p, slot = np.nonzero(placement.start >= 0)
        light = np.minimum(lead, follow)[p]
        use = np.bincount(placement.start[p, slot], light, len(limit))
        over = np.flatnonzero((use > limit * (1 + TOLERANCE)) & ~cluster.draining)
        found = super().infeasibilities(cluster)
        if len(over):
            worst = over[np.argmax(use[over] - limit[over])]
            much, little = quantities(self.column, float(use[worst]), float(limit[worst]))
            more = f" and {len(over) - 1} more" if len(over) > 1 else ""
            found.append(
                Infeasibility(
                    reason=f"broker {cluster.snapshot.broker_ids[worst]}{more}: what is there at "
                    f"the start uses {much} until the plan is done, more than the limit, {little}",
                    remedy="raise the limit",
                )
            )
        return found


class RackFailureCapacity(Ceiling):
    """Whichever rack fails, the others carry everything within `limit` of their capacity.

    The brokers of the other racks take over what the rack carried, its leaders and rebuilt
    replicas, in proportion to their capacities. They can if no broker uses more than
    ``limit * (1 - largest)`` of its capacity before, where `largest` is the largest rack's share of
    the capacity of all brokers that stay. With three equal racks, that is two thirds of the limit.
    That is stricter than needed if racks are filled unevenly; but a load that fits into what the
    largest rack leaves meets this goal once it is spread evenly.

    Parameters
    ----------
    resource
        Name of a resource of the snapshot.
    limit
        Share of the capacity that may be used after the failure.
    """

    limited_by: ClassVar[str] = "limit"
    resource: str
    limit: Utilization = 1.0

    @property
    def column(self) -> Column:
        """The load of the resource."""
        return Column(LOAD, self.resource)

    def limits(self, cluster: Cluster) -> Floats:
        """(B,) the limit's share of each capacity, less the part kept free for a failure."""
        capacity = np.where(cluster.draining, 0.0, cluster.capacity(self.resource))
        racks = np.bincount(cluster.snapshot.broker_rack, capacity)
        total = float(capacity.sum())
        left = 1 - float(racks.max()) / total if total > 0 else 0.0
        return cluster.capacity(self.resource) * (self.limit * left)

    def added_limit(self, cluster: Cluster) -> float:
        """What a typical broker adds to all limits together, if it is in no larger rack."""
        return self.limit * float(cluster.typical[cluster.snapshot.resource(self.resource)])

    def infeasibilities(self, cluster: Cluster) -> list[Infeasibility]:
        """As for every limit; without a second rack, nothing is left when the first one fails."""
        found = super().infeasibilities(cluster)
        s = cluster.snapshot
        racks = np.unique(s.broker_rack[~cluster.draining])
        if not found or len(racks) > 1:
            return found
        where = f"rack {s.racks[racks[0]]}" if len(racks) else "no rack"
        return [
            Infeasibility(
                reason=f"all brokers that stay are in {where}: nothing is left if it fails",
                remedy="add brokers in another rack",
                brokers_to_add=1,
                racks_to_add=1,
            )
        ]


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
