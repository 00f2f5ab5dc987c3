"""Generates clusters of any size: skewed, partly violating the rack rule, reproducible."""

from __future__ import annotations

import math

import numpy as np

from cluster_model.errors import SnapshotError
from cluster_model.snapshot import DEFAULT_RESOURCES, BrokerState, Floats, Ints, Snapshot

# A typical current broker: 8 cores in percent, 1 GB/s each way, 10 TB.
_CAPACITY = np.array([800.0, 1e9, 1e9, 1e13])
# A follower's share of its leader's load, per default resource: it appends the same
# bytes, serves no reader, and spends no cpu on clients.
_FOLLOWER_SHARE = np.array([0.3, 1.0, 0.0, 1.0])
# Exponent of topic popularity: few topics have very many partitions, most have few.
_ZIPF = 0.8
# Minimum weight of a broker as a share of the mean, so that drawing ends.
_LEAST_WEIGHT = 0.02


def synthetic_snapshot(
    *,
    brokers: int = 20,
    partitions: int = 2000,
    replication_factor: int | None = None,
    racks: int | None = None,
    topics: int | None = None,
    skew: float = 2.0,
    load_sigma: float = 1.0,
    largest_partition: float = 0.05,
    utilization: float = 0.5,
    rack_violations: float = 0.05,
    heterogeneity: float = 0.0,
    disks_per_broker: int = 0,
    dead_brokers: int = 0,
    new_brokers: int = 0,
    seed: int = 0,
) -> Snapshot:
    """Generate an unbalanced cluster with the four default resources.

    Broker ids are 1 to `brokers`; racks alternate; the leader of a partition is
    its first replica on a living broker (none if all are dead).

    Parameters
    ----------
    brokers, partitions
        Sizes.
    replication_factor, racks
        Replicas of each partition and racks of the cluster; by default 3 and 5, or fewer
        if there are not enough brokers.
    topics
        Number of topics, one per 50 partitions by default; partitions are distributed
        over them by a Zipf-like law, at least one each.
    skew
        How many times more likely than the mean the most popular broker is to get
        a replica; 1 places evenly. The load and the counts of the worst
        broker are about `skew` times the mean.
    load_sigma
        Standard deviation of the logarithm of partition load, half of its variance
        common to the topic; 0 makes all partitions equal.
    largest_partition
        Limit of a partition leader's load in any resource, as a share of the mean load
        of a broker (never less than two mean partitions).
    utilization
        Mean load of the living brokers as a share of their capacity.
    rack_violations
        Share of partitions with two replicas in one rack, as far as racks have two
        brokers to hold them. With fewer racks than replicas every partition
        violates the rule.
    heterogeneity
        Capacities lie between ``1 / (1 + heterogeneity)`` and ``1 + heterogeneity``
        times the standard broker's; 0 makes all brokers equal.
    disks_per_broker
        Equal disks per broker (JBOD); 0 for no disks in the snapshot.
    dead_brokers, new_brokers
        Number of dead brokers (still in replica lists), and of new brokers
        (empty).
    seed
        Equal seeds, with equal arguments, give equal snapshots.

    Raises
    ------
    SnapshotError
        For an invalid argument: its name, the value found and what was expected.

    Examples
    --------
    >>> synthetic_snapshot(brokers=6, partitions=100, racks=3)
    Snapshot(6 brokers, 3 racks, 2 topics, 100 partitions, 300 replicas)
    """
    n_topics = max(1, partitions // 50) if topics is None else topics
    _require("brokers", brokers, brokers >= 1, "at least 1")
    _require("partitions", partitions, partitions >= 1, "at least 1")
    racks = min(5, brokers) if racks is None else racks
    _require("racks", racks, 1 <= racks <= brokers, f"1 to {brokers} (the brokers)")
    _require("topics", n_topics, 1 <= n_topics <= partitions, f"1 to {partitions} (the partitions)")
    _require("skew", skew, 1 <= skew < math.inf, "a number of at least 1")
    _require("load_sigma", load_sigma, 0 <= load_sigma <= 10, "a number of 0 to 10")
    _require("largest_partition", largest_partition, largest_partition > 0, "a number above 0")
    _require("utilization", utilization, 0 < utilization < math.inf, "a number above 0")
    _require("rack_violations", rack_violations, 0 <= rack_violations <= 1, "a share of 0 to 1")
    _require(
        "heterogeneity", heterogeneity, 0 <= heterogeneity < math.inf, "a number of at least 0"
    )
    _require("disks_per_broker", disks_per_broker, disks_per_broker >= 0, "at least 0")
    _require("new_brokers", new_brokers, 0 <= new_brokers < brokers, f"0 to {brokers - 1}")
    holders = brokers - new_brokers
    _require("dead_brokers", dead_brokers, 0 <= dead_brokers < brokers, f"0 to {brokers - 1}")
    _require("dead_brokers", dead_brokers, dead_brokers <= holders, f"0 to {holders} (not new)")
    if replication_factor is None:
        replication_factor = min(3, holders)
    _require(
        "replication_factor",
        replication_factor,
        1 <= replication_factor <= holders,
        f"1 to {holders} (the brokers that are not new)",
    )

    rng = np.random.default_rng(seed)
    rack = np.arange(brokers) % racks
    state = _states(rng, brokers, dead_brokers, new_brokers)
    weight = _ramp(rng, brokers, skew)
    weight[state == BrokerState.NEW] = 0
    replicas = _place(rng, weight, rack, partitions, replication_factor, rack_violations)
    living = state[replicas] != BrokerState.DEAD
    leader = np.where(living.any(axis=1), living.argmax(axis=1), -1)

    topic = _topic_of_partition(rng, partitions, n_topics)
    capacity = np.outer(_capacity_factor(rng, brokers, heterogeneity), _CAPACITY)
    copies = 1 + (replication_factor - 1) * _FOLLOWER_SHARE
    shape = _level(
        _load_shape(rng, topic, n_topics, load_sigma), copies, largest_partition, brokers
    )
    offered = utilization * capacity[state != BrokerState.DEAD].sum(axis=0)
    leads = (leader >= 0)[:, None]
    # A partition without a leader carries only its followers' loads.
    carried = np.where(leads, copies, copies - 1 + _FOLLOWER_SHARE)
    total = (shape * carried).sum(axis=0)
    leader_load = shape * np.divide(offered, total, out=np.zeros_like(total), where=total > 0)

    disks = np.arange(brokers * disks_per_broker)
    first = np.searchsorted(topic, np.arange(n_topics))
    return Snapshot(
        resources=DEFAULT_RESOURCES,
        broker_ids=np.arange(1, brokers + 1),
        racks=_names("rack", racks),
        broker_rack=rack,
        hosts=_names("host", brokers),
        broker_host=np.arange(brokers),
        broker_state=state,
        capacity=capacity,
        topics=_names("topic", n_topics),
        partition_topic=topic,
        partition_number=np.arange(partitions) - first[topic],
        leader_load=leader_load,
        follower_load=leader_load * _FOLLOWER_SHARE,
        replica_offset=np.arange(partitions + 1) * replication_factor,
        replica_broker=replicas.ravel(),
        leader=leader,
        disk_broker=disks // max(disks_per_broker, 1),
        disk_path=tuple(f"/data/{d % disks_per_broker}" for d in disks.tolist()),
        disk_capacity=np.repeat(capacity[:, 3] / max(disks_per_broker, 1), disks_per_broker),
        disk_alive=np.ones(len(disks), np.bool_),
        replica_disk=_disks(rng, replicas.ravel(), disks_per_broker, skew),
    )


def _require(name: str, value: float, ok: bool, expected: str) -> None:
    if not ok:
        raise SnapshotError(f"synthetic cluster, {name}: {value} found, {expected} expected")


def _names(word: str, count: int) -> tuple[str, ...]:
    width = len(str(count - 1))
    return tuple(f"{word}-{i:0{width}}" for i in range(count))


def _states(rng: np.random.Generator, brokers: int, dead: int, new: int) -> Ints:
    state = np.full(brokers, BrokerState.ALIVE, np.int64)
    state[brokers - new :] = BrokerState.NEW
    state[rng.permutation(brokers - new)[:dead]] = BrokerState.DEAD
    return state


def _ramp(rng: np.random.Generator, count: int, skew: float) -> Floats:
    """(count,) float: weights of mean about 1 and maximum about `skew`, shuffled."""
    rising = ((np.arange(count) + 0.5) / count) ** (skew - 1)
    weight: Floats = rng.permutation(rising / rising.mean())
    return np.maximum(weight, _LEAST_WEIGHT)


def _place(
    rng: np.random.Generator,
    weight: Floats,
    rack: Ints,
    partitions: int,
    factor: int,
    violations: float,
) -> Ints:
    """(P, RF) int: brokers drawn by weight, racks distinct except in violating partitions."""
    # Brokers of a rack are adjacent on the line that is drawn from, so that a draw
    # within a rack is a draw from one interval.
    order = np.argsort(rack, kind="stable")
    reach = np.concatenate([[0.0], np.cumsum(weight[order])])
    end = np.searchsorted(rack[order], np.arange(rack.max() + 1), side="right")
    high = reach[end]
    low = np.concatenate([[0.0], high[:-1]])
    usable = np.bincount(rack, weight > 0)
    racks_differ = int((usable > 0).sum()) >= factor

    placed = np.empty((partitions, factor), np.int64)
    doubles = np.zeros(partitions, np.bool_)
    for position in range(factor):
        pending = np.arange(partitions)
        while len(pending):
            bottom = np.zeros(len(pending))
            top = np.full(len(pending), reach[-1])
            if position == 1:
                inside = doubles[pending]
                home = rack[placed[pending[inside], 0]]
                bottom[inside], top[inside] = low[home], high[home]
            at = np.searchsorted(reach, rng.uniform(bottom, top), side="right") - 1
            broker = order[np.minimum(at, len(order) - 1)]
            placed[pending, position] = broker
            earlier = placed[pending, :position]
            clash = (earlier == broker[:, None]).any(axis=1) | (weight[broker] == 0)
            if racks_differ:
                together = (rack[earlier] == rack[broker][:, None]).any(axis=1)
                clash |= together & ~(doubles[pending] & (position == 1))
            pending = pending[clash]
        if position == 0 and racks_differ:
            able = np.flatnonzero(usable[rack[placed[:, 0]]] >= 2)
            doubles[rng.permutation(able)[: round(violations * partitions)]] = factor > 1
    return placed


def _topic_of_partition(rng: np.random.Generator, partitions: int, topics: int) -> Ints:
    """(P,) int, ascending: at least one partition per topic, the rest by popularity."""
    share = np.arange(1, topics + 1) ** -_ZIPF
    exact = share / share.sum() * (partitions - topics)
    count = np.floor(exact).astype(np.int64)
    missing = partitions - topics - int(count.sum())
    count[np.argsort(count - exact, kind="stable")[:missing]] += 1
    return np.repeat(np.arange(topics), rng.permutation(count + 1))


def _load_shape(rng: np.random.Generator, topic: Ints, topics: int, sigma: float) -> Floats:
    """(P, R) float: relative leader loads; bytes in, its readers, its retention, its cpu."""
    half = sigma * math.sqrt(0.5)
    written = np.exp(rng.normal(0, half, topics)[topic] + rng.normal(0, half, len(topic)))
    readers = np.exp(rng.normal(0, half / 2, topics))[topic]
    retention = np.exp(rng.normal(0, half / 2, topics))[topic]
    read = written * readers
    effort = (written + read) * np.exp(rng.normal(0, half / 4, len(topic)))
    return np.column_stack([effort, written, read, written * retention])


def _level(load: Floats, copies: Floats, largest: float, brokers: int) -> Floats:
    """Cut each column at the level that is `largest` of a broker's mean after the cut."""
    cut = np.empty_like(load)
    count = len(load)
    for r in range(load.shape[1]):
        # The level c solves c = share * sum(min(load, c)): with the k largest cut,
        # c = share * rest / (1 - share * k), valid once it is at least the next load.
        share = max(largest * copies[r] / brokers, 2 / count)
        falling = np.sort(load[:, r])[::-1]
        rest = falling[::-1].cumsum()[::-1]
        k = np.arange(count)
        level = np.full(count, -math.inf)
        feasible = share * k < 1
        level[feasible] = share * rest[feasible] / (1 - share * k[feasible])
        above = np.flatnonzero(level >= falling)
        cut[:, r] = np.minimum(load[:, r], level[above[0]] if len(above) else falling[-1])
    return cut


def _capacity_factor(rng: np.random.Generator, brokers: int, heterogeneity: float) -> Floats:
    spread = math.log1p(heterogeneity)
    return np.exp(rng.uniform(-spread, spread, brokers))


def _disks(rng: np.random.Generator, holder: Ints, disks_per_broker: int, skew: float) -> Ints:
    """(N,) int: a disk of the replica's own broker, with a preference for some disks."""
    if disks_per_broker == 0:
        return np.empty(0, np.int64)
    chance = _ramp(rng, disks_per_broker, skew)
    pick: Ints = rng.choice(disks_per_broker, len(holder), p=chance / chance.sum())
    return holder * disks_per_broker + pick
