"""The cluster as goals see it before they score: totals, averages, eligible brokers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cluster_model.columns import CAPACITY, Column
from cluster_model.placement import Placement, start_brokers
from cluster_model.scopes import BROKER, Scope, scope_of
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints, Snapshot
from goals.state import State
from metrics_reporter.arrays import read_only


class Cluster:
    """A cluster at the start of an optimisation, as goals see it; they may change none of it.

    Parameters
    ----------
    placement
        The placement the optimisation starts from.
    eligible : (B,) bool
        Brokers that may receive replicas; by default all but the dead.
    leader_eligible : (B,) bool
        Brokers that may lead; by default the eligible ones not demoted.
    draining : (B,) bool
        Brokers that must end without replicas; by default the dead.
    """

    def __init__(
        self,
        placement: Placement,
        eligible: Bools | None = None,
        leader_eligible: Bools | None = None,
        draining: Bools | None = None,
    ) -> None:
        self.placement = placement
        state = placement.snapshot.broker_state
        self.draining: Bools = read_only(
            state == BrokerState.DEAD if draining is None else draining
        )
        self.eligible: Bools = read_only(~self.draining if eligible is None else eligible)
        self.leader_eligible: Bools = read_only(
            self.eligible & (state != BrokerState.DEMOTED)
            if leader_eligible is None
            else leader_eligible
        )

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot the placement started from."""
        return self.placement.snapshot

    def capacity(self, resource: str) -> Floats:
        """(B,) capacity of the brokers."""
        capacity: Floats = self.snapshot.capacity[:, self.snapshot.resource(resource)]
        return capacity

    def broker_attribute(self, name: str) -> Any:
        """(B,) text or numbers: an attribute of the brokers, ``""`` or nan where it is missing.

        Raises
        ------
        SnapshotError
            If no broker has it; the message names the attributes there are.
        """
        return self.snapshot.attributes("broker").named(name)

    def topic_attribute(self, name: str) -> Any:
        """(T,) text or numbers: an attribute of the topics, ``""`` or nan where it is missing.

        Raises
        ------
        SnapshotError
            If no topic has it; the message names the attributes there are.
        """
        return self.snapshot.attributes("topic").named(name)

    @cached_property
    def typical(self) -> Floats:
        """(R,) median capacities of the brokers that may receive replicas: a typical broker."""
        capacity = self.snapshot.capacity
        capacity = np.sort(capacity[self.eligible] if self.eligible.any() else capacity, axis=0)
        middle: Floats = read_only(capacity[(len(capacity) - 1) // 2])
        return middle

    @cached_property
    def typical_disks(self) -> Ints:
        """Disks of the broker with the median total disk capacity: those of a typical broker."""
        s = self.snapshot
        size = np.bincount(s.disk_broker, s.disk_capacity, s.n_brokers)
        brokers = np.flatnonzero(self.eligible if self.eligible.any() else size >= 0)
        brokers = brokers[np.argsort(size[brokers], kind="stable")]
        disks: Ints = read_only(np.flatnonzero(s.disk_broker == brokers[(len(brokers) - 1) // 2]))
        return disks

    @cached_property
    def replication_factor(self) -> Ints:
        """(P,) replicas of each partition in the placement."""
        count: Ints = read_only(np.count_nonzero(self.placement.brokers >= 0, axis=1))
        return count

    @cached_property
    def eligible_racks(self) -> Ints:
        """Indices of racks with at least one broker that may receive replicas."""
        held = np.bincount(self.snapshot.broker_rack[self.eligible], minlength=1)
        racks: Ints = read_only(np.flatnonzero(held))
        return racks

    @cached_property
    def group(self) -> Ints:
        """(B,) the broker set within which averages are taken (0 if there are no sets)."""
        s = self.snapshot
        sets: Ints = read_only(
            s.broker_set + 1 if len(s.broker_set) else np.zeros(s.n_brokers, np.int64)
        )
        return sets

    @cached_property
    def weight(self) -> Floats:
        """(B,) size of each eligible broker relative to the others, from all its capacities.

        The mean over resources of capacity / mean capacity; 0 for brokers that may
        not receive replicas. Counts (replicas, leaders) are distributed in proportion to it.
        """
        capacity = self.snapshot.capacity
        mean = capacity.mean(0)
        size = (capacity[:, mean > 0] / mean[mean > 0]).mean(1) if (mean > 0).any() else 1.0
        found: Floats = read_only(np.where(self.eligible, size, 0.0))
        return found

    def fair_share(self, column: Column | str) -> Floats:
        """(B,) load of each broker in a perfectly balanced cluster.

        The total of a column within the broker set, distributed by capacity: of the
        column's resource, or for counts by :attr:`weight`. 0 for brokers that may
        not receive replicas; the load on them counts only if it must leave.
        """
        column = Column.of(column)
        weight = self.weight
        if column.resource:
            weight = np.where(self.eligible, self.capacity(column.resource), 0)
        if column.of_leaders:
            weight = np.where(self.leader_eligible, weight, 0)
        n = int(self.group.max()) + 1
        counted = (weight > 0) | self.draining | self.eligible
        sums = self.total(column, np.where(counted, self.group, -1), n)
        weights = np.bincount(self.group, weight, n)
        # load that must leave a set without eligible brokers has no share elsewhere
        per = np.divide(sums, weights, out=np.zeros(n), where=weights > 0)
        return per[self.group] * weight

    def total(self, column: Column | str, group: Ints, groups: int) -> Floats:
        """(groups,) a sum over the replicas of each group of brokers.

        Parameters
        ----------
        column
            What is summed.
        group : (B,)
            The group of each broker; -1 for none.
        groups
            The number of groups.
        """
        column = Column.of(column)
        if column.is_uneven or column.is_group_count:
            held = np.flatnonzero(group >= 0)
            sums = self.placement.recompute(BROKER, column)
            return np.bincount(group[held], sums[held], groups).astype(np.float64)
        # index -1 (an empty slot) reads the last element
        of_replica = np.append(group, -1)[self.placement.replica_broker]
        return self.placement.totals(column, of_replica, groups)

    def state(self, scope: Scope | str) -> State:
        """The current state of every cell of a scope."""
        scope = scope_of(scope)
        keys = np.arange(self.placement.cells(scope))
        return State(lambda name: self.fetch(scope, name, keys))

    def fetch(self, scope: Scope, column: Column, keys: Ints) -> Floats | Ints:
        """A column of a scope at the given cells (any shape)."""
        if column.is_sum:
            return self.placement.sums(scope, column).take(keys)
        if column.measure == CAPACITY:
            return scope.capacity(self.snapshot, column.resource)[keys]
        found = scope.identity(self.snapshot, column.measure, keys)
        if found is None:
            raise AttributeError(
                f"a goal of scope {str(scope)!r} asks for {column}, which it lacks"
            )
        return found

    def means(self, columns: tuple[Column, ...]) -> Floats:
        """(k,) mean of the eligible brokers, per column."""
        n = max(int(self.eligible.sum()), 1)
        return np.array([self.placement.sums(BROKER, name).sum() / n for name in columns])

    def shifted(self, parcel: float | Floats, brokers: Ints) -> State:
        """Brokers after an additional load, relative to the mean broker's load."""

        def fetch(column: Column) -> Floats | Ints:
            found = self.fetch(BROKER, column, brokers)
            return found + parcel * self.means((column,))[0] if column.shifts else found

        return State(fetch)

    def partition_state(self, partition: Ints | None = None) -> State:
        """The current state of partitions (all by default)."""
        rows = np.arange(self.snapshot.n_partitions) if partition is None else partition
        placement = self.placement
        return partition_state(
            self.snapshot,
            rows,
            placement.brokers[rows],
            placement.leader[rows],
            placement.replica_disk.reshape(-1, placement.slots)[rows]
            if len(placement.replica_disk)
            else None,
        )


def partition_state(
    snapshot: Snapshot, partition: Ints, brokers: Ints, leader: Ints, disks: Ints | None
) -> State:
    """The state of partitions with replicas on the given brokers (C, F) and disks."""

    def fetch(column: Column) -> Ints | Floats:
        name = column.measure
        if name == "partition":
            return partition
        if name == "topic":
            return snapshot.partition_topic[partition]
        if name == "replica_broker":
            return brokers
        if name == "replica_rack":
            return np.where(brokers < 0, -1, snapshot.broker_rack[brokers])
        if name == "leader":
            return leader
        if name == "start_broker":
            return start_brokers(snapshot, partition)
        if name == "start_leader":
            return snapshot.leader[partition]
        if name == "replica_lag":
            return snapshot.lag_of(partition[..., None], brokers)
        if name == "replica_disk":
            return np.full(brokers.shape, -1, np.int64) if disks is None else disks
        raise AttributeError(
            f"a goal of scope 'partition' asks for {column}, which partitions lack"
        )

    return State(fetch)
