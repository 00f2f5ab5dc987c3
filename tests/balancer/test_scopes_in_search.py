from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from balancer_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from balancer import Balancer
from balancer.search.scorer import Scorer
from balancer.search.transition import Transition
from balancer.verification.checker import check_plan
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.scopes import BrokerScope, Grouping, PerTopic
from cluster_model.snapshot import Ints
from goals import Cluster, Goal, State, at_most


class ZoneLoad(Goal):
    """No zone carries more than its brokers' share of a resource."""

    scope: ClassVar = Grouping("zone")
    share: float = 0.4

    def score(self, state: State) -> Any:
        return at_most(state.load("disk") / state.capacity("disk"), self.share)


class TopicPerZone(Goal):
    """No zone has more than `limit` replicas of a topic."""

    scope: ClassVar = PerTopic(Grouping("zone"))
    limit: int = 7

    def score(self, state: State) -> Any:
        return at_most(state.replica_count, self.limit)


class _Halves(BrokerScope):
    def members(self, snapshot: Snapshot) -> Ints:
        return np.arange(snapshot.n_brokers) % 2

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        return "even", "odd"


class HalfLeaders(Goal):
    """Neither half of the brokers leads more than `limit` partitions."""

    scope: ClassVar = _Halves("half", "half", "half")
    limit: int = 30

    def score(self, state: State) -> Any:
        return at_most(state.leader_count, self.limit)


def zoned(seed: int, brokers: int = 9) -> Snapshot:
    """A third of the brokers each in zones a, b and none, for all but small clusters."""
    snapshot = synthetic_snapshot(
        brokers=brokers, partitions=60, topics=5, racks=3, replication_factor=2, seed=seed
    )
    zones = [("a", "b", None)[i % 3] for i in range(brokers)]
    return replace(snapshot, broker_attributes={"zone": zones})


def random_moves(placement: Placement, rng: np.random.Generator, n: int) -> Batch:
    """Moves of random replicas to brokers without one of the partition; partitions are distinct."""
    rows = []
    for p in rng.permutation(placement.snapshot.n_partitions)[:n].tolist():
        held = placement.brokers[p]
        free = np.setdiff1d(np.arange(placement.snapshot.n_brokers), held)
        rows.append((p, int(rng.integers(len(held))), int(rng.choice(free))))
    p, slot, target = np.array(rows).T
    return Batch.of(MOVE, p, slot, target)


def swaps(placement: Placement, rng: np.random.Generator) -> tuple[Batch, Batch]:
    """Random moves, each with one that goes the opposite way."""
    batch = random_moves(placement, rng, 30)
    source, rows, partner = placement.source(batch), [], []
    for i in range(len(batch)):
        for q in rng.permutation(placement.snapshot.n_partitions).tolist():
            held = placement.brokers[q].tolist()
            if batch.target[i] in held and source[i] not in held and q != batch.partition[i]:
                rows.append(i)
                partner.append((q, held.index(int(batch.target[i])), int(source[i])))
                break
    q, slot, target = np.array(partner).T
    return batch[np.array(rows)], Batch.of(MOVE, q, slot, target)


@examples(4)
@given(st.integers(0, 10**6))
def test_a_score_difference_is_what_carrying_it_out_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = Cluster(Placement(zoned(seed % 50)))
    goals = [goal.prepared(cluster) for goal in (ZoneLoad(), TopicPerZone(), HalfLeaders())]
    scorer = Scorer(cluster, goals)
    single = random_moves(cluster.placement, rng, 30)
    for batch, partner in ((single, None), swaps(cluster.placement, rng)):
        transition = Transition(cluster, batch, partner)
        found = [scorer.diff(i, transition) for i in range(len(goals))]
        before, mark = [scores.copy() for scores in scorer.scores], scorer.mark()
        for row in range(len(batch)):
            one = slice(row, row + 1)
            scorer.commit(batch[one], None if partner is None else partner[one])
            fresh = Scorer(cluster, goals)
            for i, goal in enumerate(goals):
                np.testing.assert_allclose(scorer.scores[i], fresh.scores[i], atol=1e-9)
                worse = bool((scorer.scores[i] < before[i] - 1e-9).any())
                assert found[i][1][row] == worse, goal.name
                cells = transition.cells(goal.scope)[:, row]
                cells = cells[cells >= 0]
                if partner is None and len(cells):
                    then, now = before[i][cells].min(), scorer.scores[i][cells].min()
                    # a replica from or to a broker in no group counts as content there
                    if len(cells) == len(transition.cells(goal.scope)):
                        assert found[i][0][row] == pytest.approx(now - then, abs=1e-9)
            scorer.restore(mark)


@pytest.mark.parametrize(
    "goal",
    [ZoneLoad(share=0.5), TopicPerZone(limit=9), HalfLeaders(limit=31)],
    ids=lambda g: g.name,
)
def test_the_search_meets_goals_over_groups(goal: Goal) -> None:
    snapshot = zoned(3)
    plan = Balancer([goal.model_copy(update={"hard": True})]).propose(snapshot)
    (result,) = (r for r in plan.goal_results if r.goal == goal.name)
    assert (result.met_before, result.met_after) == (False, True)
    assert not check_plan(snapshot, plan.document()).violations
