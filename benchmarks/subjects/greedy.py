"""A greedy: the fullest broker gives its largest replica that fits to the emptiest broker."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.harness.answers import Answer
from cluster_model.snapshot import Floats, Ints, Snapshot

# Replicas of the fullest broker that are looked at together.
_AT_ONCE = 64


def usage(snapshot: Snapshot, only: Sequence[str] = ()) -> Floats:
    """(M, B) usage of each broker over the cluster's, for resources, replicas and leaders.

    Parameters
    ----------
    snapshot
        The cluster.
    only
        Names of the resources to look at; by default all, and the counts.
    """
    columns = [snapshot.resource(name) for name in only or snapshot.resources]
    used = snapshot.broker_load()[:, columns].T
    size = snapshot.capacity[:, columns].T
    if not only:
        ones = np.ones((1, snapshot.n_brokers))
        at, leads = snapshot.replica_broker, snapshot.replica_is_leader
        counts = [np.bincount(held, minlength=snapshot.n_brokers) for held in (at, at[leads])]
        used, size = np.vstack([used, *counts]), np.vstack([size, ones, ones])
    found: Floats = used / size * (size.sum(1) / used.sum(1))[:, None]
    return found


def greedy(
    snapshot: Snapshot, limits: Sequence[int], only: Sequence[str] = ()
) -> dict[int, Answer]:
    """The placement after each number of moves.

    Each move relieves the broker that is fullest, in whatever it is fullest: its largest replica
    for which some broker stays less full in everything, and has no replica of the partition in its
    rack, goes to the emptiest such broker. Leaders keep their role. It ends when no replica fits.

    Parameters
    ----------
    snapshot
        The cluster.
    limits
        Numbers of moves, in any order.
    only
        As for :func:`usage`.
    """
    began = time.perf_counter()
    s, at = snapshot, snapshot.replica_broker.copy()
    of, leads = s.replica_partition, s.replica_is_leader
    columns = [s.resource(name) for name in only or s.resources]
    load = np.where(leads[:, None], s.leader_load[of], s.follower_load[of])[:, columns]
    size = s.capacity[:, columns]
    if not only:
        load = np.hstack([load, np.ones((s.n_replicas, 1)), leads[:, None]])
        size = np.hstack([size, np.ones((s.n_brokers, 2))])
    load = load * (size.sum(0) / load.sum(0))
    used = usage(s, only).T
    found: dict[int, Answer] = {}
    for moved in range(max(limits) + 1):
        if moved in limits:
            found[moved] = Answer(at.copy(), s.leader, time.perf_counter() - began)
        step = _relief(s, at, used, load, size)
        if step is None:
            break
        replica, target = step
        used[at[replica]] -= load[replica] / size[at[replica]]
        used[target] += load[replica] / size[target]
        at[replica] = target
    last = Answer(at, s.leader, time.perf_counter() - began)
    return {limit: found.get(limit, last) for limit in limits}


def _relief(
    s: Snapshot, at: Ints, used: Floats, load: Floats, size: Floats
) -> tuple[int, int] | None:
    """The replica that leaves the fullest broker, and where it goes; None if none fits."""
    fullest, what = np.unravel_index(int(used.argmax()), used.shape)
    own = np.flatnonzero(at == fullest)
    emptiest = np.argsort(used[:, what], kind="stable")
    own = own[np.argsort(-load[own, what], kind="stable")]
    for at_once in np.split(own, range(_AT_ONCE, len(own), _AT_ONCE)):
        after = used + load[at_once, None] / size
        fits = (after < used[fullest, what]).all(2)
        for row in np.flatnonzero(fits.any(1)).tolist():
            p = s.replica_partition[at_once[row]]
            holders = at[s.replica_offset[p] : s.replica_offset[p + 1]]
            taken = s.broker_rack[holders[holders != fullest]]
            targets = emptiest[(fits[row] & ~np.isin(s.broker_rack, taken))[emptiest]]
            if len(targets):
                return int(at_once[row]), int(targets[0])
    return None
