"""Proofs, common to several goals, that no placement keeps the cells below their limits."""

from __future__ import annotations

import math

import numpy as np

from cluster_model.columns import Column
from cluster_model.placement import Placement
from cluster_model.scopes import BROKER, Scope
from cluster_model.snapshot import Bools, BrokerState, Floats, Ints
from goals.cluster import Cluster
from goals.curves import TOLERANCE
from goals.goal import Infeasibility
from metrics_reporter.quantities import amounts, distinct, plural


def partition_name(cluster: Cluster, partition: int) -> str:
    """The partition's name for users, for example ``orders-3``."""
    s = cluster.snapshot
    return f"{s.topics[s.partition_topic[partition]]}-{s.partition_number[partition]}"


def named(cluster: Cluster, partitions: Ints) -> str:
    """The name of the first of some partitions, and the number of others."""
    first = partition_name(cluster, int(partitions[0]))
    return first + (f" and {len(partitions) - 1} more" if len(partitions) > 1 else "")


def described(column: Column | str) -> str:
    """A column's name for users.

    Examples
    --------
    >>> described("leader_load.network_in"), described("replica_count")
    ('leader load (network_in)', 'replicas')
    """
    column = Column.of(column)
    words = column.name.replace("_count", "s").replace("_", " ")
    return f"{words} ({column.resource})" if column.resource else words


def quantities(column: Column | str, *values: float) -> tuple[str, ...]:
    """Amounts of a column for users, in one unit, with enough digits to differ.

    Examples
    --------
    >>> quantities("load.disk", 8.19e13, 7.71e13)
    ('81.9 TB', '77.1 TB')
    >>> quantities("replica_count", 12.0, 10.0)
    ('12', '10')
    >>> quantities("load.network_in", 1.0002e9, 1e9)
    ('1.0002 GB/s', '1 GB/s')
    """
    resource = Column.of(column).resource
    base = {"disk": "B", "network_in": "B/s", "network_out": "B/s"}.get(resource)
    if base is not None:
        return amounts(*values, unit=base)
    return distinct(*values, unit={"cpu": " %"}.get(resource, ""))


def needed_room(
    cluster: Cluster,
    scope: Scope,
    column: Column | str,
    limit: Floats,
    receiving: Bools,
    staying: Bools,
    emptied: bool = False,
) -> tuple[float, float]:
    """The least load that cells with limits must take, and what all limits together allow.

    Cells that receive nothing may keep their replicas: up to their limit or, if they have
    none because they are being emptied, all of them. Followers stay followers on brokers that
    may not lead.

    Parameters
    ----------
    cluster
        The cluster at the start.
    scope, column
        The column counted, and its scope, see :class:`cluster_model.placement.Placement`.
    limit, receiving, staying : (cells,)
        Each cell's limit, whether it may receive replicas, and whether the limit applies:
        it does not to cells that are being emptied.
    emptied
        Whether those cells count as empty: their replicas then need room elsewhere, but for those
        of partitions that already are on every broker that receives replicas.
    """
    placement = cluster.placement
    key, p, at = _cells(placement, scope)
    counts, n = key >= 0, cluster.snapshot.n_partitions
    lead, follow = placement.contribution(column)
    # leadership may change: a replica counts at most as in its heavier role that it can have
    may_lead = cluster.leader_eligible[placement.replica_broker[at]]
    may_lead |= at % placement.slots == placement.leader[p]
    heavier = np.where(may_lead, np.maximum(lead, follow)[p], follow[p])
    most = np.bincount(key[counts], heavier[counts], len(limit))
    most_kept = np.where(staying, limit, 0.0 if emptied else np.inf)
    kept = np.minimum(most, most_kept)[~receiving].sum()
    if emptied and scope == BROKER:
        # the leader leaves
        kept += (_stuck(cluster) * np.minimum(lead, follow)).sum()
    # and if a replica is in no cell, it may lead, so the others may have their lighter role
    known = np.bincount(p[counts], minlength=n)
    led = np.where(known < np.bincount(p, minlength=n), np.minimum(lead, follow), lead)
    needed = float(((known - 1) * follow + led)[known > 0].sum() - kept)
    return needed, float(limit[receiving].sum())


def _stuck(cluster: Cluster) -> Ints:
    """(P,) replicas on brokers to be emptied with no other broker left, or no copy to read from."""
    s, placement = cluster.snapshot, cluster.placement
    at, n = placement.replica_broker, s.n_partitions
    every = np.flatnonzero(at >= 0)
    p, on = every // placement.slots, at[every]
    lives = s.broker_state[on] != BrokerState.DEAD
    if s.n_disks:
        lives &= np.append(s.disk_alive, True)[placement.replica_disk[every]]
    left = cluster.eligible.sum() - np.bincount(p[cluster.eligible[on]], minlength=n)
    left[(np.bincount(p[lives], minlength=n) == 0) & s.needs_source] = 0
    found: Ints = np.maximum(np.bincount(p[cluster.draining[on]], minlength=n) - left, 0)
    return found


def lacks_room(needed: float, room: float) -> bool:
    """Whether more is needed than there is room for, beyond rounding."""
    return needed - room > TOLERANCE * (needed + room)


def too_little_room(
    cluster: Cluster,
    scope: Scope,
    column: Column | str,
    limit: Floats,
    receiving: Bools,
    staying: Bools,
    added: float,
) -> list[Infeasibility]:
    """An infeasibility if all limits together are less than the load to place.

    Parameters
    ----------
    cluster, scope, column, limit, receiving, staying
        See :func:`needed_room`.
    added
        Limit of a broker like the typical one (:attr:`goals.cluster.Cluster.typical`).
    """
    needed, room = needed_room(cluster, scope, column, limit, receiving, staying)
    missing = needed - room
    if not lacks_room(needed, room):
        return []
    brokers = math.ceil(missing / added * (1 - TOLERANCE)) if added > 0 else 0
    more = f"at least {plural(brokers, 'broker')}" if brokers else "brokers"
    much, little = quantities(column, needed, room)
    return [
        Infeasibility(
            reason=f"{described(column)}: {much} needed, {little} within limits",
            remedy=f"add {more}, or raise the limit",
            brokers_to_add=brokers,
        )
    ]


def oversized(
    cluster: Cluster, scope: Scope, column: Column | str, limit: Floats, staying: Bools
) -> list[Infeasibility]:
    """An infeasibility if one replica alone exceeds the largest limit.

    Partitions with a replica that may stay where there is no limit do not count.

    Parameters
    ----------
    cluster
        The cluster at the start.
    scope, column
        The column counted, and its scope, see :class:`cluster_model.placement.Placement`.
    limit, staying : (cells,)
        Each cell's limit, and whether it applies.
    """
    if not staying.any():
        return []
    key, p, _ = _cells(cluster.placement, scope)
    unlimited = np.zeros(cluster.snapshot.n_partitions, np.bool_)
    unlimited[p[(key < 0) | ~staying[key]]] = True
    lead, follow = cluster.placement.contribution(column)
    size = np.maximum(lead, np.where(cluster.replication_factor > 1, follow, 0.0))
    largest = float(limit[staying].max())
    over = np.flatnonzero((size > largest * (1 + TOLERANCE)) & ~unlimited)
    if not len(over):
        return []
    over = over[np.argsort(-size[over], kind="stable")]
    return [too_large(named(cluster, over), column, float(size[over[0]]), largest)]


def too_large(names: str, column: Column | str, size: float, largest: float) -> Infeasibility:
    """The proof that a replica of some partitions, by name, is larger than the largest limit."""
    much, little = quantities(column, size, largest)
    return Infeasibility(
        reason=(
            f"{names}: {described(column)} of a single replica is "
            f"{much}, more than the largest limit, {little}"
        ),
        remedy="split the topic into more partitions, or use larger brokers"
        if largest > 0
        else "use brokers that have this capacity",
    )


def _cells(placement: Placement, scope: Scope) -> tuple[Ints, Ints, Ints]:
    """(N,) each replica's cell, -1 if it counts in none, its partition and its flat position."""
    at = np.flatnonzero(placement.replica_broker >= 0)
    p = at // placement.slots
    disk = placement.replica_disk[at] if len(placement.replica_disk) else np.full_like(at, -1)
    return placement.keys(scope, p, placement.replica_broker[at], disk), p, at
