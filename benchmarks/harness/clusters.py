"""The clusters of the benchmarks by size, some by the law of Cruise Control's tests."""

from __future__ import annotations

import numpy as np

from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.snapshot import DEFAULT_RESOURCES, BrokerState, Floats, Ints

# Capacity of a broker in Cruise Control's test constants: percent of a core, bytes/s, bytes.
_CAPACITY = np.array([100.0, 3e8, 2e8, 3e11])
# Mean load of a leader and of a follower, in the same constants.
_LEADER = np.array([0.01, 1e5, 1e5, 1e8])
_FOLLOWER = np.array([0.01, 1e5, 0.0, 1e8])


def random_cluster(
    *,
    brokers: int,
    replicas: int,
    topics: int,
    racks: int = 10,
    replication_factor: int = 3,
    heterogeneity: float = 0.0,
    seed: int = 0,
) -> Snapshot:
    """Draw a cluster by the law of Cruise Control's ``RandomCluster`` with many small topics.

    Every topic has a popularity, and every load is exponential around a mean times that. The
    number of partitions of a topic is uniform from 2 to replicas / topics while replicas are
    left, else 1; the rest goes to all topics in turn. A replica is on broker ``b`` (from 1) with
    a probability proportional to ``b`` (the law's linear distribution), without regard to racks;
    a broker is in a random rack. Unlike there, the followers of a partition have equal loads.

    Parameters
    ----------
    brokers, replicas, topics, racks, replication_factor
        Sizes; as many whole partitions as fit the replicas.
    heterogeneity
        Capacities lie between ``1 / (1 + heterogeneity)`` and ``1 + heterogeneity`` times the
        standard broker's.
    seed
        Equal seeds, with equal arguments, give equal snapshots.

    Examples
    --------
    >>> random_cluster(brokers=20, replicas=600, topics=40, racks=4)
    Snapshot(20 brokers, 4 racks, 40 topics, 200 partitions, 600 replicas)
    """
    rng = np.random.default_rng(seed)
    partitions = replicas // replication_factor
    number = _partitions_of_topics(rng, partitions, topics, replicas // topics)
    topic = np.repeat(np.arange(topics), number)
    rack = np.concatenate([np.arange(racks), rng.integers(0, racks, brokers - racks)])
    popularity = rng.exponential(1.0, topics)[topic][:, None]
    spread = np.log1p(heterogeneity)
    return Snapshot(
        resources=DEFAULT_RESOURCES,
        broker_ids=np.arange(brokers),
        racks=_names("rack", racks),
        broker_rack=rack,
        hosts=_names("host", brokers),
        broker_host=np.arange(brokers),
        broker_state=np.full(brokers, BrokerState.ALIVE),
        capacity=np.outer(np.exp(rng.uniform(-spread, spread, brokers)), _CAPACITY),
        topics=_names("topic", topics),
        partition_topic=topic,
        partition_number=np.arange(partitions) - np.repeat(np.cumsum(number) - number, number),
        leader_load=rng.exponential(1.0, (partitions, 4)) * popularity * _LEADER,
        follower_load=rng.exponential(1.0, (partitions, 4)) * popularity * _FOLLOWER,
        replica_offset=np.arange(partitions + 1) * replication_factor,
        replica_broker=_linear(rng, partitions, replication_factor, brokers).ravel(),
        leader=np.zeros(partitions, np.int64),
        disk_broker=np.empty(0, np.int64),
        disk_path=(),
        disk_capacity=np.empty(0),
        disk_alive=np.empty(0, np.bool_),
        replica_disk=np.empty(0, np.int64),
    )


def _partitions_of_topics(
    rng: np.random.Generator, partitions: int, topics: int, most: int
) -> Ints:
    drawn = rng.integers(2, max(most, 2) + 1, topics)
    left, number = partitions - topics, np.ones(topics, np.int64)
    for t in range(topics):
        if drawn[t] - 1 <= left:
            left -= drawn[t] - 1
            number[t] = drawn[t]
    number += left // topics
    number[: left % topics] += 1
    return number


def _linear(rng: np.random.Generator, partitions: int, factor: int, brokers: int) -> Ints:
    """(P, RF) distinct brokers, broker b with a probability proportional to b + 1."""
    reach: Floats = np.cumsum(np.arange(1.0, brokers + 1))
    placed = np.full((partitions, factor), -1)
    for position in range(factor):
        pending = np.arange(partitions)
        while len(pending):
            draw = np.searchsorted(reach, rng.uniform(0, reach[-1], len(pending)), side="right")
            clash = (placed[pending] == draw[:, None]).any(1)
            placed[pending[~clash], position] = draw[~clash]
            pending = pending[clash]
    return placed


def _names(word: str, count: int) -> tuple[str, ...]:
    return tuple(f"{word}-{i:0{len(str(count - 1))}}" for i in range(count))


_SYNTHETIC: dict[str, dict[str, int]] = {
    "S": {"brokers": 20, "partitions": 2_000, "racks": 5},
    "M": {"brokers": 100, "partitions": 20_000, "racks": 10},
    "L": {"brokers": 300, "partitions": 60_000, "racks": 10},
    "XL": {"brokers": 1_000, "partitions": 200_000, "racks": 20},
    "XXL": {"brokers": 215, "partitions": 933_334, "racks": 5, "topics": 3_500},
    "million": {"brokers": 1_000, "partitions": 333_334, "racks": 20},
}
_RANDOM: dict[str, dict[str, int]] = {
    "T": {"brokers": 200, "replicas": 400_000, "topics": 10_000},
}
# Sizes with this ending have capacities of half to twice the standard broker's.
_UNEVEN = "-uneven"
SIZES = tuple(f"{size}{end}" for end in ("", _UNEVEN) for size in (*_SYNTHETIC, *_RANDOM))


def cluster_of(size: str, seed: int) -> Snapshot:
    """The cluster of a size of :data:`SIZES`."""
    base = size.removesuffix(_UNEVEN)
    heterogeneity = 1.0 if base != size else 0.0
    if base in _RANDOM:
        return random_cluster(**_RANDOM[base], heterogeneity=heterogeneity, seed=seed)
    return synthetic_snapshot(**_SYNTHETIC[base], heterogeneity=heterogeneity, seed=seed)
