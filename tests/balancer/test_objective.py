"""What the search climbs, measures and keeps: one objective per tier, and no tier above hurt."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from balancer_cases import examples
from hypothesis import given
from hypothesis import strategies as st

from balancer.search.scorer import Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model import synthetic_snapshot
from cluster_model.placement import LEAD, MOVE, Batch, Placement
from goals import Cluster, Goal, ReplicaDistribution, State, load_goals
from goals.testing import assert_conforms


class DiskCost(Goal):
    """A broker costs what it stores above 20 % of its capacity."""

    aggregate: ClassVar[Literal["min", "sum"]] = "sum"

    def score(self, state: State) -> Any:
        return 1 - np.maximum(state.load("disk") / state.capacity("disk") - 0.2, 0)


def random_batch(placement: Placement, rng: np.random.Generator, n: int) -> Batch:
    """Legal moves and leadership transfers of distinct partitions."""
    snapshot, rows = placement.snapshot, []
    for p in rng.permutation(snapshot.n_partitions)[:n].tolist():
        held = placement.brokers[p]
        slot = int(rng.integers(len(held)))
        if rng.random() < 0.3 and slot != placement.leader[p]:
            rows.append((LEAD, p, slot, int(held[slot])))
        else:
            free = np.setdiff1d(np.arange(snapshot.n_brokers), held)
            rows.append((MOVE, p, slot, int(rng.choice(free))))
    kind, p, slot, target = np.array(rows).T
    moves = Batch.of(MOVE, p, slot, target)
    return Batch(kind.astype(moves.kind.dtype), p, slot, target, moves.disk)


def cost(scorer: Scorer, i: int) -> float:
    return float((1 - scorer.goals[i].score(scorer.cluster.state("broker"))).sum())


@examples(10)
@given(st.integers(0, 10**6))
def test_a_goal_that_adds_up_scores_an_action_by_its_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = synthetic_snapshot(brokers=6, partitions=40, racks=3, seed=seed % 40)
    cluster = Cluster(Placement(snapshot))
    scorer = Scorer(cluster, [DiskCost()])
    batch = random_batch(cluster.placement, rng, 12)
    alone = scorer.diff(0, Transition(cluster, batch))
    series = scorer.diff(0, SequentialTransition(cluster, batch))
    unit = np.repeat(np.arange(4), 3)
    groups = scorer.diff(0, Transition(cluster, batch, unit=unit))
    start, mark = cost(scorer, 0), scorer.mark()
    for row in range(len(batch)):
        scorer.commit(batch[row : row + 1])
        change = start - cost(scorer, 0)
        assert alone[0][row] == pytest.approx(change, abs=1e-9)
        assert alone[1][row] == (change < -1e-9)
        scorer.restore(mark)
    for group in range(4):
        scorer.commit(batch[unit == group])
        assert groups[0][group] == pytest.approx(start - cost(scorer, 0), abs=1e-9)
        scorer.restore(mark)
    for row in range(len(batch)):
        before = cost(scorer, 0)
        scorer.commit(batch[row : row + 1])
        assert series[0][row] == pytest.approx(before - cost(scorer, 0), abs=1e-9)
    assert scorer.penalty(scorer.tiers[0]) == pytest.approx(cost(scorer, 0), rel=1e-9)


def test_a_goal_that_adds_up_conforms() -> None:
    assert_conforms(DiskCost)


@examples(4)
@given(st.integers(0, 10**6))
def test_what_is_allowed_hurts_no_goal_above(seed: int) -> None:
    rng = np.random.default_rng(seed)
    snapshot = synthetic_snapshot(
        brokers=7, partitions=60, racks=3, seed=seed % 60, skew=float(rng.uniform(1, 5))
    )
    cluster = Cluster(Placement(snapshot))
    goals = [g.prepared(cluster) for g in load_goals("default")]
    # goals of one tier must not make up for one another
    goals = [g.model_copy(update={"tier": (g.tier or i) // 3}) for i, g in enumerate(goals)]
    scorer = Scorer(cluster, goals)
    batch = random_batch(cluster.placement, rng, 60)
    before = [scores.copy() for scores in scorer.scores]
    mark = scorer.mark()
    for number in range(len(scorer.tiers)):
        above = [i for tier in scorer.tiers[:number] for i in tier.goals]
        for row in np.flatnonzero(scorer.allowed(number, Transition(cluster, batch))).tolist():
            scorer.commit(batch[row : row + 1])
            for i in above:
                then, now = before[i], scorer.scores[i]
                assert not ((then >= 1) & (now < 1 - 1e-9)).any(), goals[i].name
                assert ((1 - now) ** 2).sum() <= ((1 - then) ** 2).sum() + 1e-9, goals[i].name
            scorer.restore(mark)


def test_work_that_adds_to_a_cost_is_not_kept_for_the_lowest_score() -> None:
    s = synthetic_snapshot(brokers=6, partitions=40, racks=3, seed=1, skew=4.0)
    cluster = Cluster(Placement(s))
    given = [ReplicaDistribution(tier=1), DiskCost(tier=1)]
    for goals, lifted in ((given[:1], True), (given, False)):
        scorer = Scorer(cluster, [goal.prepared(cluster) for goal in goals])
        (tier,) = scorer.tiers
        then = scorer.lowest(tier)
        scorer.scores[0] = np.minimum(scorer.scores[0] * 1.1, 1.0)
        assert scorer.lifted(tier, then, 0.01) == lifted
        assert not scorer.lifted(tier, scorer.lowest(tier), 0.01)
        assert not scorer.lifted(tier, then, 0.2)
