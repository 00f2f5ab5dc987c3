"""What is asked of the balancer, and what that lets it touch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from balancer.candidates import Rules, pick_disk
from cluster_model.errors import InputError
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, BrokerState, Ints, Snapshot
from goals import Cluster

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
    excluded_brokers_for_replicas: tuple[int, ...] = ()
    excluded_brokers_for_leadership: tuple[int, ...] = ()
    destinations: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Scene:
    """An operation laid over a snapshot: where the search starts, and its limits."""

    start: Placement
    cluster: Cluster
    rules: Rules


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
    draining = s.broker_state == BrokerState.DEAD
    if op.kind == "remove_brokers":
        draining = draining | mine
    barred = _mask(s, s.broker_index(op.excluded_brokers_for_replicas))
    eligible = ~draining & ~barred
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
        receives &= mine
    if op.kind == "demote_brokers":
        receives[:] = False

    factor = _wanted_factor(s, op)
    start = Placement(s, int(factor.max(initial=1)))
    movable = _unmatched(s, op.excluded_topics) & ~_named(s, op.excluded_partitions)
    slots = np.repeat(movable, start.slots)
    nothing = np.zeros_like(movable)
    where = start.replica_broker
    if op.kind in ("remove_brokers", "fix_offline_replicas"):
        slots = (where >= 0) & draining[where]
        if s.n_disks:
            slots |= (start.replica_disk >= 0) & ~s.disk_alive[start.replica_disk]
    elif op.kind == "change_replication_factor":
        working, slots = _with_factor(start, factor, eligible & receives)
        cluster = Cluster(working, eligible, leads, draining)
        return Scene(start, cluster, Rules(receives, leads, nothing, slots, draining))
    if op.kind == "demote_brokers":
        slots = np.zeros_like(slots)
    if op.kind in ("remove_brokers", "fix_offline_replicas", "demote_brokers"):
        movable = nothing
    working = start.copy()
    cluster = Cluster(working, eligible, leads, draining)
    return Scene(start, cluster, Rules(receives, leads, movable, slots, draining))


def _mask(s: Snapshot, rows: Ints) -> Bools:
    mask = np.zeros(s.n_brokers, np.bool_)
    mask[rows] = True
    return mask


def _matching(s: Snapshot, pattern: str) -> Bools:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise OperationError(f"topic pattern {pattern!r}: {error}") from None
    hit = np.array([expression.fullmatch(t) is not None for t in s.topics], np.bool_)
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


def _with_factor(start: Placement, factor: Ints, receives: Bools) -> tuple[Placement, Bools]:
    """A placement with the wanted numbers of replicas, and (P * F,) which are new.

    Followers in crowded racks go first, then those late in the preference order. New
    replicas are put on the least used broker of a rack the partition does not have
    yet; the search then finds them a better home.
    """
    s, placement = start.snapshot, start.copy()
    brokers = placement.brokers
    have = (brokers >= 0).sum(1)
    most = int(receives.sum())
    unable = np.flatnonzero((factor > have) & (factor > most))
    if len(unable):
        p = unable[0]
        raise OperationError(
            f"replication factor {factor[p]} asked for topic {s.topics[s.partition_topic[p]]!r}, "
            f"but only {most} brokers may receive replicas"
        )
    for p in np.flatnonzero(have > factor):
        row = brokers[p]
        while (row >= 0).sum() > factor[p]:
            slots = np.flatnonzero((row >= 0) & (np.arange(len(row)) != placement.leader[p]))
            racks = s.broker_rack[row[row >= 0]]
            crowd = np.array([(racks == s.broker_rack[row[f]]).sum() for f in slots])
            row[slots[np.flatnonzero(crowd == crowd.max())[-1]]] = -1
    used = np.bincount(brokers[brokers >= 0], minlength=s.n_brokers).astype(np.float64)
    used[~receives] = np.inf
    added = np.zeros(brokers.shape, np.bool_)
    for p in np.flatnonzero(have < factor):
        row = brokers[p]
        while (row >= 0).sum() < factor[p]:
            held = row[row >= 0]
            cost = used + 1e9 * np.isin(s.broker_rack, s.broker_rack[held])
            cost[held] = np.inf
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                raise OperationError(
                    f"replication factor {factor[p]} asked for topic "
                    f"{s.topics[s.partition_topic[p]]!r}, but no further broker may receive replicas"
                )
            slot = int(np.flatnonzero(row < 0)[0])
            row[slot], added[p, slot] = best, True
            used[best] += 1
    if len(placement.replica_disk):
        at = np.flatnonzero(added.ravel())
        placement.replica_disk[placement.replica_broker < 0] = -1
        placement.replica_disk[at] = pick_disk(placement, placement.replica_broker[at])
    return placement, added.ravel()
