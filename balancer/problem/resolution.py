"""Applies an operation to a snapshot: which brokers may hold, lead and receive what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.problem.empty_brokers import EmptyBrokers
from balancer.problem.liveness import (
    dead_brokers,
    lost_partitions,
    offline_replicas,
    stranded_replicas,
)
from balancer.problem.operation import Operation, OperationError
from balancer.problem.operations import OperationType, type_of
from balancer.problem.permissions import Permissions
from balancer.problem.replication_factor import ReplicationFactor, with_replication_factor
from balancer.problem.rules import Rules
from balancer.problem.topics import excluded_partitions, named_partitions
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot
from goals import Cluster, Goal


@dataclass(frozen=True)
class ResolvedOperation:
    """An operation applied to a snapshot: where the search starts, and its limits.

    Parameters
    ----------
    type
        What the operation does.
    start
        The current placement, with enough slots.
    cluster
        The cluster as goals see it, with replicas removed and added as requested.
    rules
        What may be touched.
    factor : (P,) int
        Target number of replicas of each partition.
    named : (B,) bool
        The brokers of the operation.
    emptied : (B,) bool
        Brokers that the operation empties.
    """

    type: OperationType
    start: Placement
    cluster: Cluster
    rules: Rules
    factor: Ints
    named: Bools
    emptied: Bools

    @property
    def adds(self) -> bool:
        """Whether partitions get more replicas than they have."""
        return bool((self.factor > self.start.snapshot.replication_factor).any())

    @property
    def heals(self) -> bool:
        """Whether replicas on dead brokers or disks may move elsewhere."""
        placement = self.cluster.placement
        offline = offline_replicas(placement).ravel() & self.rules.free(placement)
        return bool(offline.any() and self.rules.receives.any())

    def goals(self) -> list[Goal]:
        """Hard goals that express the request; they come before all others."""
        own = self.type.goals(self.factor)
        if self.adds and not any(isinstance(g, ReplicationFactor) for g in own):
            own = [ReplicationFactor.of(self.factor), *own]
        empty = EmptyBrokers.of(self.emptied)
        return [empty, *own] if empty.needed(self.cluster) else own


def resolve(snapshot: Snapshot, operation: Operation) -> ResolvedOperation:
    """Work out which brokers may hold, lead and receive what.

    Raises
    ------
    OperationError, SnapshotError
        Naming the broker, topic pattern or number that does not fit the snapshot.
    """
    s, op = snapshot, operation
    asked = type_of(op)
    if asked.takes_brokers == "always" and not op.brokers:
        raise OperationError(f"operation {op.kind}: at least one broker expected, none given")
    if asked.takes_brokers == "never" and op.brokers:
        raise OperationError(f"operation {op.kind}: takes no brokers, {list(op.brokers)} given")
    named = _broker_mask(s, s.broker_index(op.brokers))
    barred = _broker_mask(s, s.broker_index(op.excluded_brokers_for_replicas))
    follows = _broker_mask(s, s.broker_index(op.excluded_brokers_for_leadership))
    receives = np.ones(s.n_brokers, np.bool_)
    if op.destinations is not None:
        receives = _broker_mask(s, s.broker_index(op.destinations))
    asked.check(s, named)
    emptied = asked.empties(s, named)
    draining = dead_brokers(s) | emptied
    eligible = ~draining & ~barred & s.broker_open
    factor = asked.factor(s)
    start = Placement(s, int(factor.max(initial=1)))
    frozen = named_partitions(s, op.frozen_partitions) | ~s.partition_settled
    movable = ~excluded_partitions(s, op) & ~named_partitions(s, op.excluded_partitions) & ~frozen
    allowed = asked.permissions(
        Permissions(
            start=start,
            named=named,
            draining=draining,
            eligible=eligible,
            receives=receives & eligible,
            leads=~draining & (s.broker_state != BrokerState.DEMOTED) & ~follows,
            movable=movable,
            slots=np.repeat(movable, start.slots),
            lost=lost_partitions(start),
            frozen=frozen,
            permitted=s.may_hold if s.may_hold.size else None,
        )
    )
    placement, slots = asked.placement(allowed)
    if not asked.changes_replication_factor:
        placement, added = _assigned(placement, factor, allowed)
        slots = slots | added
    rules = Rules(
        receives=allowed.receives,
        leads=allowed.leads,
        movable=allowed.movable & ~frozen,
        slots=slots & np.repeat(~frozen, start.slots),
        draining=draining,
        lost=allowed.lost,
        frozen=frozen,
        stranded=stranded_replicas(start),
        permitted=allowed.permitted,
        served=allowed.served,
        led=start.location,
        cold=_cold(start, op.acceptable_lag) if s.warming.any() else None,
    )
    cluster = Cluster(placement, eligible, allowed.leads, draining)
    return ResolvedOperation(asked, start, cluster, rules, factor, named, emptied)


def _cold(start: Placement, acceptable_lag: float) -> Ints:
    """(P, F) brokers whose replica warms up and is further behind than acceptable, else -1."""
    s, brokers = start.snapshot, start.brokers
    warming = np.zeros(brokers.shape, np.bool_)
    # replicas take the first slots of their partition, in order
    warming[brokers >= 0] = s.warming
    lag = s.lag_of(np.arange(s.n_partitions)[:, None], brokers)
    return np.where(warming & ~(lag <= acceptable_lag), brokers, -1)


def _assigned(placement: Placement, factor: Ints, allowed: Permissions) -> tuple[Placement, Bools]:
    """A placement with the replicas that the snapshot asks for, and (P * F,) which are new."""
    lacks = (placement.brokers >= 0).sum(1) < factor
    if not lacks.any():
        return placement, np.zeros(len(placement.replica_broker), np.bool_)
    return with_replication_factor(
        placement,
        np.maximum(factor, (placement.brokers >= 0).sum(1)),
        allowed.eligible & allowed.receives,
        allowed.lost,
        allowed.frozen,
        allowed.permitted,
        allowed.leads,
        strict=False,
    )


def with_ids_of(operation: Operation, snapshot: Snapshot) -> Operation:
    """The operation with broker ids in the snapshot's type: 7 or "7".

    Raises
    ------
    SnapshotError
        For a broker that the snapshot does not have.
    """
    ids = {
        name: tuple(snapshot.broker_ids[snapshot.broker_index(given)].tolist())
        for name in (
            "brokers",
            "excluded_brokers_for_replicas",
            "excluded_brokers_for_leadership",
            "destinations",
        )
        if (given := getattr(operation, name))
    }
    return operation.model_copy(update=ids) if ids else operation


def _broker_mask(s: Snapshot, rows: Ints) -> Bools:
    mask = np.zeros(s.n_brokers, np.bool_)
    mask[rows] = True
    return mask
