"""Applies the request that a plan states to its snapshot: who may hold, lead and receive what."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from balancer.verification.operations import kind_of
from balancer.verification.replicas import sums
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from goals.patterns import matching


class StatedRequest:
    """Which brokers may hold, lead and receive what, as the plan states its operation.

    For an operation of unknown kind it holds what every operation forbids; that kind may
    allow less.
    """

    def __init__(self, s: Snapshot, operation: Mapping[str, Any]) -> None:
        self.snapshot, self.operation = s, operation
        self.kind, self.kind_name = kind_of(operation), str(operation["kind"])
        # the meaning of other fields is unknown for an unknown kind
        own = operation if self.kind.known else {}
        self.named = np.isin(s.broker_ids, list(own.get("brokers") or ()))
        disks = np.bincount(s.disk_broker, minlength=s.n_brokers)
        broken = np.bincount(s.disk_broker, ~s.disk_alive, s.n_brokers)
        # a broker with only dead disks cannot hold anything either
        self.dead = (s.broker_state == BrokerState.DEAD) | ((disks > 0) & (broken == disks))
        self.emptied = self.named & self.kind.empties
        self.draining = self.dead | self.emptied
        self.eligible = ~self.draining & ~self._brokers("excluded_brokers_for_replicas")
        # a broker with only cordoned disks receives nothing either
        cordoned = np.zeros(s.n_disks, np.bool_)
        cordoned[: len(s.disk_cordoned)] = s.disk_cordoned
        self.open_disk = s.disk_alive & ~cordoned
        shut = np.bincount(s.disk_broker, ~self.open_disk, s.n_brokers) == disks
        self.eligible &= ~(shut & (np.bincount(s.disk_broker, cordoned, s.n_brokers) > 0))
        self.reassigning = np.zeros(s.n_partitions, np.bool_)
        self.reassigning[: len(s.reassigning)] = s.reassigning
        self.may_lead = ~self.draining & (s.broker_state != BrokerState.DEMOTED)
        self.may_lead &= ~self._brokers("excluded_brokers_for_leadership")
        self.may_lead &= ~(self.named & self.kind.demotes)
        self.receives = self.eligible.copy()
        if operation.get("destinations") is not None:
            self.receives &= self._brokers("destinations")
        if self.kind.receivers == "named":
            self.receives &= self.named
        self.receives &= self.kind.receivers != "none"
        self.excluded = np.zeros(s.n_partitions, np.bool_)
        for pattern in operation.get("excluded_topics", ()):
            self.excluded |= self.topics(pattern)[s.partition_topic]
        self.excluded |= self._partitions("excluded_partitions")
        self.frozen = self._partitions("frozen_partitions")
        self.untouched = self.frozen | self.reassigning
        # a partition without replicas gets its first
        self.factor = np.maximum(s.replication_factor, 1)
        self.factor[: len(s.target_replicas)] = np.maximum(
            self.factor[: len(s.target_replicas)], s.target_replicas
        )
        if self.kind.receivers == "none":
            self.factor = s.replication_factor.copy()
        # (partition, broker) of warming replicas that are too far behind to lead
        self.cold: set[tuple[int, int]] = set()
        if len(s.warming):
            acceptable = operation.get("acceptable_lag", 0.0)
            pairs = zip(s.copy_partition.tolist(), s.copy_broker.tolist(), strict=True)
            ready = {
                pair
                for pair, lag in zip(pairs, s.copy_lag.tolist(), strict=True)
                if lag <= acceptable
            }
            held = zip(s.replica_partition.tolist(), s.replica_broker.tolist(), strict=True)
            self.cold = {pair for pair, is_ in zip(held, s.warming.tolist(), strict=True) if is_}
            self.cold -= ready
        # partitions of which nothing can be created without a copy
        self.needs_source = np.ones(s.n_partitions, np.bool_)
        self.needs_source[: len(s.creatable)] = ~s.creatable
        for pattern, number in (own.get("replication_factor") or {}).items():
            self.factor[self.topics(pattern)[s.partition_topic]] = number
        self.set_index = s.broker_set + 1 if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
        self.n_sets = int(self.set_index.max()) + 1

    def _brokers(self, name: str) -> Bools:
        return np.isin(self.snapshot.broker_ids, list(self.operation.get(name) or ()))

    def _partitions(self, name: str) -> Bools:
        """(P,) partitions named in a list of the operation."""
        s, named = self.snapshot, frozenset(self.operation.get(name, ()))
        if not named:
            return np.zeros(s.n_partitions, np.bool_)
        numbered = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        return np.array([f"{s.topics[t]}-{n}" in named for t, n in numbered], np.bool_)

    def forbidden(self, partition: Ints, broker: Ints) -> Bools:
        """Whether brokers may not hold replicas of partitions, pair by pair."""
        s = self.snapshot
        if not s.may_hold.size:
            return np.zeros(np.broadcast_shapes(partition.shape, broker.shape), np.bool_)
        may: Bools = s.may_hold[s.partition_topic[partition], broker]
        return ~may

    def holders(self, topic: int) -> Bools:
        """(B,) brokers that may hold replicas of a topic."""
        s = self.snapshot
        return s.may_hold[topic] if s.may_hold.size else np.ones(s.n_brokers, np.bool_)

    def topics(self, pattern: str) -> Bools:
        """(T,) topics whose whole name matches a pattern; an empty pattern matches none."""
        return matching(pattern, self.snapshot.topics)

    @cached_property
    def size(self) -> Floats:
        """(B,) the mean over resources of capacity / mean capacity, 0 if nothing may go there."""
        capacity = self.snapshot.capacity
        known = capacity.mean(0) > 0
        if not known.any():
            return np.where(self.eligible, 1.0, 0.0)
        relative = capacity[:, known] / capacity[:, known].mean(0)
        return np.where(self.eligible, relative.mean(1), 0.0)

    @cached_property
    def led_size(self) -> Floats:
        """(B,) :attr:`size`, but also 0 if the broker may not lead."""
        return np.where(self.may_lead, self.size, 0.0)

    def per_set(self, values: Floats | Bools) -> Floats:
        """(B,) the sum over each broker's own broker set."""
        return sums(self.set_index, values, self.n_sets)[self.set_index]

    def fair_share(self, total: Floats, weight: Floats) -> Floats:
        """(B,) a total of each set, except what stays on barred brokers, shared out by weight."""
        counted = self.per_set(np.where(self.eligible | self.draining, total, 0.0))
        weights = self.per_set(weight)
        return np.divide(counted, weights, out=np.zeros_like(total), where=weights > 0) * weight

    def weight(self, column: str) -> Floats:
        """(B,) the weights by which a column is shared out."""
        resource = column.partition(".")[2]
        takes = self.takes(column)
        return np.where(takes, self.capacity(resource) if resource else self.size, 0.0)

    def takes(self, column: str) -> Bools:
        """(B,) brokers that share in a column: those that may receive replicas, or leaders."""
        takes: Bools = self.eligible
        return takes & self.may_lead if column.startswith("leader_") else takes

    def capacity(self, resource: str) -> Floats:
        """(B,) capacity of a resource."""
        return self.snapshot.capacity[:, self.snapshot.resources.index(resource)]
