from __future__ import annotations

import numpy as np

from benchmarks.harness.clusters import SIZES, cluster_of, random_cluster


def test_the_random_cluster_has_the_sizes_and_the_law_that_it_states() -> None:
    s = random_cluster(brokers=50, replicas=30_000, topics=1_000, racks=5)
    assert (s.n_brokers, s.n_partitions, s.n_replicas) == (50, 10_000, 30_000)
    of_topic = np.bincount(s.partition_topic, minlength=1_000)
    assert of_topic.min() >= 1
    assert of_topic.max() <= 30
    # broker b of 50 holds about b / 25.5 times the mean, and never twice the same partition
    held = np.bincount(s.replica_broker, minlength=50) / (30_000 / 50)
    assert np.corrcoef(held, np.arange(1, 51))[0, 1] > 0.97
    assert 1.7 < held.max() < 2.2
    topic_load = np.bincount(s.partition_topic, s.leader_load[:, 3]) / of_topic
    assert topic_load.std() > 0.8 * topic_load.mean()
    assert (s.follower_load[:, 2] == 0).all()


def test_every_size_has_a_copy_with_capacities_that_differ_fourfold() -> None:
    assert {f"{size}-uneven" for size in SIZES if not size.endswith("-uneven")} <= set(SIZES)
    even, uneven = cluster_of("S", 0), cluster_of("S-uneven", 0)
    assert np.ptp(even.capacity[:, 0]) == 0
    ratio = uneven.capacity.max(0) / uneven.capacity.min(0)
    assert (ratio > 2.5).all()
    assert (ratio <= 4).all()
    assert uneven.n_replicas == even.n_replicas


def test_equal_seeds_draw_equal_clusters() -> None:
    one, two, other = (
        random_cluster(brokers=9, replicas=90, topics=7, racks=3, seed=seed) for seed in (3, 3, 4)
    )
    assert one.digest() == two.digest() != other.digest()
