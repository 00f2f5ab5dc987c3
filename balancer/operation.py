"""What is asked of the balancer, and what that lets it touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from balancer.candidates import Rules, pick_disk
from cluster_model.errors import InputError
from cluster_model.placement import LEAD, MOVE, MOVE_DISK, Batch, Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot
from goals import Cluster, Goal, State
from goals.patterns import PatternError, matching
from goals.racks import majority_set
from metrics_reporter.quantities import plural

Kind = Literal[
    "rebalance",
    "add_brokers",
    "remove_brokers",
    "demote_brokers",
    "fix_offline_replicas",
    "change_replication_factor",
]


class OperationError(InputError):
    """An operation that cannot be carried out as asked."""


class Operation(BaseModel):
    """One of the things a balancer is asked to do; all ids are broker ids.

    Parameters
    ----------
    kind
        ``rebalance``: move whatever helps. ``add_brokers``: replicas move only to
        `brokers`. ``remove_brokers``: nothing is left on `brokers`, nothing else moves.
        ``demote_brokers``: `brokers` lead nothing, no replica moves.
        ``fix_offline_replicas``: replicas on dead brokers and disks get a new home,
        nothing else moves. ``change_replication_factor``: as `replication_factor` says.
    brokers
        The brokers of the operation.
    replication_factor
        Regular expression of topics -> replicas each of their partitions shall have.
    excluded_topics
        Regular expressions of topics that stay where they are (but for a dead or
        removed broker, which they leave).
    excluded_partitions
        The same for single partitions, by name (``orders-3``); names that the snapshot
        does not have are no error, since topics come and go.
    frozen_partitions
        Partitions, by name, that nothing touches, not even to leave a dead or removed
        broker: because nothing can be copied from them, or because they are left to a person.
    excluded_brokers_for_replicas, excluded_brokers_for_leadership
        Brokers that are given no replicas, or no leadership; averages leave them out.
    destinations
        The only brokers that are given replicas; None for all.

    Examples
    --------
    >>> Operation(kind="remove_brokers", brokers=(7,)).brokers
    (7,)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind = "rebalance"
    brokers: tuple[int, ...] = ()
    replication_factor: dict[str, int] = Field(default_factory=dict)
    excluded_topics: tuple[str, ...] = ()
    excluded_partitions: tuple[str, ...] = ()
    frozen_partitions: tuple[str, ...] = ()
    excluded_brokers_for_replicas: tuple[int, ...] = ()
    excluded_brokers_for_leadership: tuple[int, ...] = ()
    destinations: tuple[int, ...] | None = None


class ReplicationFactor(Goal):
    """Every partition has as many replicas as the operation asks for.

    The score is the share of them that it has, or, while it has too many, the share of
    those it has that are wanted.
    """

    scope: ClassVar = "partition"
    hard: bool = True
    tier: int | None = 0
    _wanted: Ints = PrivateAttr()

    @classmethod
    def of(cls, wanted: Ints) -> ReplicationFactor:
        """The goal that each of the P partitions has its number of replicas."""
        goal = cls()
        goal._wanted = wanted
        return goal

    def score(self, state: State) -> Any:
        """Fewer / more of the replicas there are and those wanted."""
        have, wanted = (state.replica_broker >= 0).sum(-1), self._wanted[state.partition]
        return np.minimum(have, wanted) / np.maximum(have, wanted)

    def too_many(self, cluster: Cluster) -> Bools:
        """(P,) whether a partition has more replicas than it is to have."""
        more: Bools = cluster.replication_factor > self._wanted
        return more


@dataclass(frozen=True)
class LivingRules(Rules):
    """Rules that leave alone what cannot be copied, and lead nowhere where nobody may.

    Parameters
    ----------
    lost : (P,) bool
        Partitions all of whose replicas are on dead brokers or dead disks.
    frozen : (P,) bool
        Partitions that are not touched: those of :class:`Operation`, and those that Kafka is
        reassigning, as another request would replace the one under way.
    stranded : (P, F) int
        Brokers that hold a copy of the partition on a dead disk at the start, -1 for none:
        Kafka copies nothing between the disks of a broker when the source is dead, and
        takes a replica that comes back for one that never left.
    """

    lost: Bools
    frozen: Bools
    stranded: Ints

    def free(self, placement: Placement) -> Bools:
        """(P * F,) whether a replica may be moved, to wherever it may go."""
        where, s = placement.replica_broker, placement.snapshot
        free = self.slots | self.draining[where]
        if len(placement.replica_disk):
            free |= ~np.append(s.disk_alive, True)[placement.replica_disk]
        found: Bools = (where >= 0) & free & np.repeat(~(self.lost | self.frozen), placement.slots)
        return found

    def legal(self, placement: Placement, batch: Batch) -> Bools:
        """(C,) whether each action is possible at all: no goal is asked."""
        p = batch.partition
        legal = super().legal(placement, batch) & ~(self.lost[p] | self.frozen[p])
        # leadership is handed over before its replica goes where nobody may lead
        moves = (batch.kind == MOVE) & (batch.slot == placement.leader[p])
        rows = np.flatnonzero(legal & moves & ~self.leads[batch.target])
        heirs = np.append(self.leads, False)[placement.brokers[p[rows]]].any(1)
        legal[rows[heirs]] = False
        s = placement.snapshot
        if not s.disk_alive.all():
            arrives = batch.kind == MOVE
            legal &= ~(arrives & (self.stranded[p] == batch.target[:, None]).any(1))
            alive = np.append(s.disk_alive, True)
            legal &= (batch.kind != MOVE_DISK) | alive[placement.source_disk(batch)]
            legal &= (batch.kind != LEAD) | alive[placement.target_disk(batch)]
        return legal


@dataclass(frozen=True)
class Scene:
    """An operation laid over a snapshot: where the search starts, and its limits.

    Parameters
    ----------
    start
        The placement as it is, with slots enough.
    cluster
        The cluster as goals meet it, replicas removed and added as asked.
    rules
        What may be touched.
    factor : (P,) int
        How many replicas each partition is to have.
    """

    start: Placement
    cluster: Cluster
    rules: LivingRules
    factor: Ints


def set_scene(snapshot: Snapshot, operation: Operation) -> Scene:
    """Work out who may hold, lead and move what.

    Raises
    ------
    OperationError, SnapshotError
        Naming the broker, topic pattern or number that does not fit the snapshot.
    """
    s, op = snapshot, operation
    named = s.broker_index(op.brokers)
    if op.kind in ("add_brokers", "remove_brokers", "demote_brokers") and not len(named):
        raise OperationError(f"operation {op.kind}: at least one broker expected, none given")
    if op.kind in ("rebalance", "fix_offline_replicas") and len(named):
        raise OperationError(f"operation {op.kind}: takes no brokers, {list(op.brokers)} given")
    if bool(op.replication_factor) != (op.kind == "change_replication_factor"):
        raise OperationError(
            "replication_factor (a topic pattern and a number) goes with the operation "
            "change_replication_factor, and only with it"
        )
    mine = _mask(s, named)
    draining = _dead(s)
    if op.kind == "remove_brokers":
        draining = draining | mine
    barred = _mask(s, s.broker_index(op.excluded_brokers_for_replicas))
    eligible = ~draining & ~barred & s.broker_open
    leads = ~draining & (s.broker_state != BrokerState.DEMOTED)
    leads &= ~_mask(s, s.broker_index(op.excluded_brokers_for_leadership))
    if op.kind == "demote_brokers":
        leads &= ~mine
    receives = eligible.copy()
    if op.destinations is not None:
        receives &= _mask(s, s.broker_index(op.destinations))
    if op.kind == "add_brokers":
        gone = s.broker_ids[mine & draining]
        if len(gone):
            raise OperationError(f"operation add_brokers: broker {gone[0]} is dead")
        closed = s.broker_ids[mine & ~s.broker_open]
        if len(closed):
            raise OperationError(
                f"operation add_brokers: every log directory of broker {closed[0]} is cordoned"
            )
        receives &= mine
    if op.kind == "demote_brokers":
        receives[:] = False

    factor = _wanted_factor(s, op)
    start = Placement(s, int(factor.max(initial=1)))
    frozen = _named(s, op.frozen_partitions) | ~s.partition_settled
    movable = _unmatched(s, op.excluded_topics) & ~_named(s, op.excluded_partitions) & ~frozen
    slots = np.repeat(movable, start.slots)
    nothing = np.zeros_like(movable)
    where = start.replica_broker
    lost = _lost(start)
    stranded = _stranded(start)
    if op.kind in ("remove_brokers", "fix_offline_replicas"):
        slots = (where >= 0) & draining[where]
        if s.n_disks:
            slots |= (start.replica_disk >= 0) & ~s.disk_alive[start.replica_disk]
    elif op.kind == "change_replication_factor":
        working, slots = _with_factor(start, factor, eligible & receives, lost, frozen)
        cluster = Cluster(working, eligible, leads, draining)
        rules = LivingRules(receives, leads, nothing, slots, draining, lost, frozen, stranded)
        return Scene(start, cluster, rules, factor)
    if op.kind == "demote_brokers":
        slots = np.zeros_like(slots)
    if op.kind in ("remove_brokers", "fix_offline_replicas", "demote_brokers"):
        movable = nothing
    movable, slots = movable & ~frozen, slots & np.repeat(~frozen, start.slots)
    working = start.copy()
    cluster = Cluster(working, eligible, leads, draining)
    rules = LivingRules(receives, leads, movable, slots, draining, lost, frozen, stranded)
    return Scene(start, cluster, rules, factor)


def _lost(start: Placement) -> Bools:
    """(P,) whether no living replica is left to copy from."""
    gone: Bools = np.logical_not(_lives(start).any(axis=1))
    return gone


def _stranded(start: Placement) -> Ints:
    """(P, F) the broker of each replica on a dead disk, -1 for the others."""
    disks = start.replica_disk.reshape(start.brokers.shape) if start.snapshot.n_disks else None
    if disks is None:
        return np.full(start.brokers.shape, -1)
    alive = np.append(start.snapshot.disk_alive, True)[disks]
    return np.where(alive, -1, start.brokers)


def _lives(placement: Placement) -> Bools:
    """(P, F) whether a slot holds a replica on a living broker and disk."""
    s, brokers = placement.snapshot, placement.brokers
    disks = (
        placement.replica_disk.reshape(brokers.shape) if s.n_disks else np.full_like(brokers, -1)
    )
    on_broker: Bools = np.append(~_dead(s), False)[brokers]
    on_disk: Bools = np.append(s.disk_alive, True)[disks]
    lives: Bools = np.logical_and(on_broker, on_disk)
    return lives


def _dead(s: Snapshot) -> Bools:
    """(B,) brokers that are dead, or have disks and none of them alive."""
    disks = np.bincount(s.disk_broker, minlength=s.n_brokers)
    alive = np.bincount(s.disk_broker[s.disk_alive], minlength=s.n_brokers)
    dead: Bools = np.logical_or(s.broker_state == BrokerState.DEAD, (disks > 0) & (alive == 0))
    return dead


def _mask(s: Snapshot, rows: Ints) -> Bools:
    mask = np.zeros(s.n_brokers, np.bool_)
    mask[rows] = True
    return mask


def _matching(s: Snapshot, pattern: str) -> Bools:
    try:
        hit = matching(pattern, s.topics)
    except PatternError as error:
        raise OperationError(str(error)) from None
    return hit[s.partition_topic] if len(s.topics) else np.zeros(0, np.bool_)


def _unmatched(s: Snapshot, patterns: Sequence[str]) -> Bools:
    free = np.ones(s.n_partitions, np.bool_)
    for pattern in patterns:
        free &= ~_matching(s, pattern)
    return free


def _named(s: Snapshot, partitions: Sequence[str]) -> Bools:
    mask = np.zeros(s.n_partitions, np.bool_)
    if partitions:
        wanted = set(partitions)
        pairs = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        mask[:] = [f"{s.topics[t]}-{n}" in wanted for t, n in pairs]
    return mask


def _wanted_factor(s: Snapshot, op: Operation) -> Ints:
    factor = s.replication_factor.copy()
    for pattern, wanted in op.replication_factor.items():
        if wanted < 1:
            raise OperationError(
                f"replication factor of {pattern!r}: {wanted} found, 1 or more expected"
            )
        hit = _matching(s, pattern)
        if not hit.any():
            raise OperationError(f"topic pattern {pattern!r} matches none of the snapshot's topics")
        factor[hit] = wanted
    return factor


def _with_factor(
    start: Placement, factor: Ints, receives: Bools, lost: Bools, frozen: Bools
) -> tuple[Placement, Bools]:
    """A placement with the wanted numbers of replicas, and (P * F,) which are new.

    Dead followers go first, then those in crowded racks, then those late in the
    preference order; the last living replica stays as long as the leader is dead. New
    replicas are put on the least used broker of a rack the partition does not have
    yet, in the broker set that holds most of its topic; the search then finds them a
    better home. What is lost is given none: there is
    nothing to copy. What is frozen stays as it is.
    """
    s, placement = start.snapshot, start.copy()
    brokers = placement.brokers
    have = (brokers >= 0).sum(1)
    most = int(receives.sum())
    unable = np.flatnonzero((factor > have) & (factor > most) & ~frozen)
    if len(unable):
        p = unable[0]
        raise OperationError(
            f"replication factor {factor[p]} asked for topic {s.topics[s.partition_topic[p]]!r}, "
            f"but only {plural(most, 'broker')} may receive replicas"
        )
    lives = _lives(placement)
    for p in np.flatnonzero((have > factor) & ~frozen):
        row = brokers[p]
        while (row >= 0).sum() > factor[p]:
            follow = (row >= 0) & (np.arange(len(row)) != placement.leader[p])
            # the last living replica is what the others are restored from
            last = (lives[p] & (row >= 0)).sum() == 1
            slots = np.flatnonzero(follow & ~(lives[p] & last))
            if not len(slots):
                break
            racks = s.broker_rack[row[row >= 0]]
            crowd = [(racks == s.broker_rack[row[f]]).sum() for f in slots]
            row[slots[np.lexsort((slots, crowd, ~lives[p, slots]))[-1]]] = -1
    used = np.bincount(brokers[brokers >= 0], minlength=s.n_brokers).astype(np.float64)
    used[~receives] = np.inf
    added = np.zeros(brokers.shape, np.bool_)
    own = s.broker_set if len(s.broker_set) else np.full(s.n_brokers, -1, np.int64)
    home = majority_set(s, start.brokers, own)
    for p in np.flatnonzero((have < factor) & ~lost & ~frozen):
        row = brokers[p]
        held = row[row >= 0]
        racks = np.isin(s.broker_rack, s.broker_rack[held])
        cost = used + 1e9 * racks
        if home[s.partition_topic[p]] >= 0:
            cost = cost + 1e12 * (own != home[s.partition_topic[p]])
        cost[held] = np.inf
        for slot in np.flatnonzero(row < 0)[: factor[p] - len(held)].tolist():
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                raise OperationError(
                    f"replication factor {factor[p]} asked for topic "
                    f"{s.topics[s.partition_topic[p]]!r}, but no further broker may receive "
                    "replicas"
                )
            row[slot], added[p, slot] = best, True
            used[best] += 1
            cost[best] = np.inf
            if not racks[best]:
                mates = s.broker_rack == s.broker_rack[best]
                racks |= mates
                cost[mates] += 1e9
    if len(placement.replica_disk):
        at = np.flatnonzero(added.ravel())
        placement.replica_disk[placement.replica_broker < 0] = -1
        placement.replica_disk[at] = pick_disk(placement, placement.replica_broker[at])
    return placement, added.ravel()
