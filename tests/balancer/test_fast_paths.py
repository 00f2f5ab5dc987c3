"""Shortcuts of the search give the same results as what they replace."""

from __future__ import annotations

import numpy as np
import pytest

from balancer.search.arrays import best_of_each, descending, stable_order
from balancer.search.candidates import ReplicaIndex
from balancer.search.scorer import Scorer
from balancer.search.transition import Transition
from cluster_model import synthetic_snapshot
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from goals import Cluster, topics
from goals.registry import load_goals
from goals.topics import TopicReplicaDistribution


def scored(profile: str = "cruise-control") -> Scorer:
    cluster = Cluster(Placement(synthetic_snapshot(brokers=12, partitions=300, racks=4, topics=9)))
    goals = [goal for goal in load_goals(profile) if not goal.scope.lacks(cluster.snapshot)]
    for goal in goals:
        goal.prepare(cluster)
    return Scorer(cluster, goals)


def some_actions(scorer: Scorer, n: int = 500) -> Batch:
    rng, s = np.random.default_rng(1), scorer.placement.snapshot
    p, slot = rng.integers(0, s.n_partitions, n), rng.integers(0, scorer.placement.slots, n)
    own = scorer.placement.brokers[p, slot]
    elects = rng.random(n) < 0.2
    kind = np.where(elects, LEAD, MOVE).astype(np.int8)
    target = np.where(elects, own, rng.integers(0, s.n_brokers, n))
    batch = Batch(kind, p, slot, target, np.full(n, -1))
    return batch[(elects | (scorer.placement.brokers[p] != target[:, None]).all(1)) & (own >= 0)]


@pytest.mark.parametrize("kind", ["few", "many", "wide", "negative", "real", "equal", "none"])
def test_orders_are_stable(kind: str) -> None:
    rng = np.random.default_rng(0)
    values = {
        "few": rng.integers(0, 7, 1000),
        "many": rng.integers(0, 10**9, 1000) // 10**6,
        "wide": rng.integers(-(2**62), 2**62, 1000),
        "negative": rng.integers(-5, 70_000, 1000),
        "real": np.round(rng.normal(size=1000), 1),
        "equal": np.zeros(1000),
        "none": np.empty(0),
    }[kind]
    found = stable_order(values)  # type: ignore[arg-type]
    assert np.array_equal(found, np.argsort(values, kind="stable"))


def test_best_of_each_keeps_the_order_of_equal_ones() -> None:
    rng = np.random.default_rng(0)
    groups, value = rng.integers(0, 50, 1000), np.round(rng.random(1000), 1)
    order = np.lexsort((-value, groups))
    assert np.array_equal(best_of_each(groups, value, 1000), order)
    assert np.array_equal(descending(value), np.argsort(-value, kind="stable"))


def test_the_index_of_replicas_follows_the_placement() -> None:
    scorer = scored()
    placement, index = scorer.placement, ReplicaIndex(scorer.placement)
    for part in range(3):
        index.update()
        begin, count = index.between(np.arange(12), 0, len(placement.replica_broker))
        for b in range(12):
            held = np.flatnonzero(placement.replica_broker == b)
            assert np.array_equal(index.at(begin[b] + np.arange(count[b])), held)
        batch = some_actions(scorer)
        batch = batch[np.unique(batch.partition, return_index=True)[1]]
        placement.apply(batch[slice(part, None, 4)])


def test_allowed_rows_are_those_that_are_allowed() -> None:
    scorer = scored()
    batch = some_actions(scorer)
    for number in range(len(scorer.tiers) + 1):
        allowed = scorer.allowed(number, Transition(scorer.cluster, batch))
        assert np.array_equal(scorer.allowed_rows(number, batch), np.flatnonzero(allowed))


def test_a_copy_of_scores_changes_separately() -> None:
    scorer = scored()
    before = [scores.copy() for scores in scorer.scores]
    batch = some_actions(scorer)
    batch = batch[np.unique(batch.partition, return_index=True)[1]]
    other = scorer.copy(Cluster(scorer.placement.copy()))
    other.commit(batch)
    assert all(np.array_equal(a, b) for a, b in zip(before, scorer.scores, strict=True))
    scorer.commit(batch, transition=Transition(scorer.cluster, batch))
    assert all(np.array_equal(a, b) for a, b in zip(scorer.scores, other.scores, strict=True))
    fresh = Scorer(scorer.cluster, scorer.goals)
    for kept, new in zip(scorer.scores, fresh.scores, strict=True):
        np.testing.assert_allclose(kept, new, rtol=1e-9)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("sets", [False, True])
def test_limits_of_topics_are_equal_with_and_without_a_table(
    monkeypatch: pytest.MonkeyPatch, uneven: bool, sets: bool
) -> None:
    cluster = Cluster(Placement(synthetic_snapshot(brokers=12, partitions=300, racks=4, topics=9)))
    if uneven:
        cluster.__dict__["weight"] = 1.0 + np.arange(12) % 3
    if sets:
        cluster.__dict__["group"] = np.arange(12) // 6
    found = []
    for size in (topics._TABULATED, 0):
        monkeypatch.setattr(topics, "_TABULATED", size)
        goal = TopicReplicaDistribution(threshold=1.01, min_gap=0)
        goal.prepare(cluster)
        assert (goal._table is None) == (size == 0)
        found.append(goal.score(cluster.state("topic")))
    assert np.array_equal(*found)
    assert (found[0] < 1).any()
