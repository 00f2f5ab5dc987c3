"""Which actions an operation lets a strategy take."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, Ints
from metrics_reporter.arrays import read_only


@dataclass(frozen=True)
class Rules:
    """What an operation lets a strategy touch: which actions are legal.

    Parameters
    ----------
    receives : (B,) bool
        Brokers that may receive replicas.
    leads : (B,) bool
        Brokers that may receive leadership.
    movable : (P,) bool
        Partitions that may be moved even when no dead broker or disk requires it.
    slots : (P * F,) bool
        Replicas that may be moved, by their position at the start.
    draining : (B,) bool
        Brokers whose replicas, and leaders, may always be moved.
    lost : (P,) bool
        Partitions with all replicas on dead brokers or dead disks: there is nothing to copy
        from, and they are left alone.
    frozen : (P,) bool
        Partitions that are not touched: those of :class:`Operation`, and those that Kafka is
        reassigning, because another request would replace the one in progress.
    stranded : (P, F) int
        Brokers that hold a copy of the partition on a dead disk at the start, -1 for none:
        Kafka copies nothing between the disks of a broker when the source is dead, and
        treats a replica that comes back as one that never left.
    permitted : (T, B) bool
        Whether a broker may hold replicas of a topic; None if every broker may hold every
        topic. A replica that is where it may not be counts like one on a draining broker: any
        operation that moves replicas may move it away.
    cold : (P, F) int
        Brokers whose replica of the partition may not lead yet, -1 for none: its copy is too
        far behind. None if every replica may, like all that Kafka counts as in sync. A replica
        that moves is copied in full, and may lead where it goes.
    served : (B,) bool
        The only brokers that leadership goes to, and whose disks exchange replicas, except where a
        leader must leave its broker; None for all brokers.
    led : (P,) int
        The broker that leads each partition at the start, -1 for none: leadership may return.
    """

    receives: Bools
    leads: Bools
    movable: Bools
    slots: Bools
    draining: Bools
    lost: Bools
    frozen: Bools
    stranded: Ints
    permitted: Bools | None = None
    cold: Ints | None = None
    served: Bools | None = None
    led: Ints | None = None

    def __post_init__(self) -> None:
        for own in fields(self):
            if (array := getattr(self, own.name)) is not None:
                object.__setattr__(self, own.name, read_only(array))

    @cached_property
    def _some_stay(self) -> bool:
        """Whether the request keeps any partition or replica where it is."""
        unchanged = self.movable.all() and self.slots.all()
        return bool(not unchanged or self.lost.any() or self.frozen.any())

    def takers(self, placement: Placement, partition: int) -> Bools:
        """(B,) brokers that may receive replicas of a partition."""
        if self.permitted is None:
            return self.receives
        topic = placement.snapshot.partition_topic[partition]
        takers: Bools = np.logical_and(self.receives, self.permitted[topic])
        return takers

    def are_cold(self, placement: Placement) -> Bools:
        """(P, F) replicas that may not lead yet."""
        brokers = placement.brokers
        if self.cold is None:
            return np.zeros(brokers.shape, np.bool_)
        cold: Bools = (brokers[:, :, None] == self.cold[:, None, :]).any(2) & (brokers >= 0)
        return cold

    def serves(self, placement: Placement, batch: Batch) -> Bools:
        """(C,) whether each action serves a broker that the operation is for, or must be."""
        if self.served is None:
            return np.ones(len(batch), np.bool_)
        source, target = placement.source(batch), batch.target
        leaves = self.draining[source] | ~self.leads[source]
        if len(placement.replica_disk):
            disk = placement.source_disk(batch)
            leaves |= (disk >= 0) & ~placement.snapshot.disk_alive[disk]
        if self.led is not None:
            leaves |= target == self.led[batch.partition]
        serves: Bools = self.served[target] | (batch.kind == MOVE) | ((batch.kind == LEAD) & leaves)
        return serves

    def free(self, placement: Placement) -> Bools:
        """(P * F,) whether a replica may be moved at all, regardless of the destination."""
        where, s = placement.replica_broker, placement.snapshot
        free = self.slots | self.draining[where]
        if len(placement.replica_disk):
            free |= ~np.append(s.disk_alive, True)[placement.replica_disk]
        if self.permitted is not None:
            topic = np.repeat(s.partition_topic, placement.slots)
            free |= ~self.permitted[topic, where]
        found: Bools = (where >= 0) & free & np.repeat(~(self.lost | self.frozen), placement.slots)
        return found

    def legal(self, placement: Placement, batch: Batch) -> Bools:
        """(C,) whether each action is legal; goals are not consulted."""
        p, at = batch.partition, batch.partition * placement.slots + batch.slot
        own = placement.replica_broker[at]
        source = placement.source(batch)
        lead = batch.kind == LEAD
        move = batch.kind == MOVE
        leaving = self.draining[source]
        if self.permitted is not None:
            leaving |= ~self.permitted[placement.snapshot.partition_topic[p], source]
        urgent = leaving.copy()
        if len(placement.replica_disk):
            disk = placement.source_disk(batch)
            urgent |= (disk >= 0) & ~placement.snapshot.disk_alive[disk]
        ok: Bools = own >= 0
        leads_now = batch.slot == placement.leader[p]
        if self._some_stay:
            ok &= ~(self.lost[p] | self.frozen[p])
            ok &= urgent | np.where(lead, self.movable[p] | ~self.leads[source], self.slots[at])
        ok &= ~lead | (~leads_now & self.leads[own])
        if self.served is not None:
            ok &= self.serves(placement, batch)
        s = placement.snapshot
        if len(placement.replica_disk):
            bare = np.bincount(s.disk_broker, minlength=s.n_brokers) == 0
            to = np.where(move, batch.target, source)
            ok &= lead | np.where(
                batch.disk < 0, bare[to], np.append(s.disk_open, False)[batch.disk]
            )
            # a replica that must leave its broker is not moved between that broker's disks
            ok &= (batch.kind != MOVE_DISK) | ~leaving
        rows = np.flatnonzero(move & ok)
        to, held = batch.target[rows], placement.brokers[p[rows]]
        inside = np.zeros(len(rows), np.bool_)
        for slot in range(placement.slots):
            inside |= held[:, slot] == to
        ok[rows] = ~inside & self.receives[to] & (~leads_now[rows] | self.leads[to])
        if self.permitted is not None:
            ok[rows] &= self.permitted[s.partition_topic[p[rows]], batch.target[rows]]
        if self.cold is not None:
            arrives = lead | (move & leads_now)
            ok &= ~(arrives & (self.cold[p] == batch.target[:, None]).any(1))
        # leadership is transferred before the replica goes to a broker that may not lead
        rows = np.flatnonzero(ok & move & leads_now & ~self.leads[batch.target])
        able = np.append(self.leads, False)[placement.brokers[p[rows]]]
        if self.cold is not None:
            able &= ~self.are_cold(placement)[p[rows]]
        heirs = able.any(1)
        ok[rows[heirs]] = False
        if not s.disk_alive.all():
            ok &= ~(move & (self.stranded[p] == batch.target[:, None]).any(1))
            alive = np.append(s.disk_alive, True)
            ok &= (batch.kind != MOVE_DISK) | alive[placement.source_disk(batch)]
            ok &= ~lead | alive[placement.target_disk(batch)]
        return ok
