"""What earlier searches got wrong: costs that rose, goals given up, helpful actions taken back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from balancer_cases import long

from balancer import Balancer
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.search.candidates import Candidates
from balancer.search.scorer import EPSILON, Scorer
from balancer.search.transition import Transition
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from goals import Cluster, Goal, LoadCost, TopicLeaderDistribution, goals_for


def skewed(partitions: int, worst: float) -> Snapshot:
    """20 brokers of one size, the fullest of which has `worst` times the mean of all loads."""
    s = synthetic_snapshot(brokers=20, partitions=partitions, racks=4, replication_factor=1, seed=3)
    rng = np.random.default_rng(5)
    share = rng.uniform(0.5, 1.0, 20)
    share[0] = worst * share[1:].sum() / (20 - worst)
    held = rng.choice(20, partitions, p=share / share.sum())
    return replace(
        s,
        replica_broker=held,
        capacity=np.broadcast_to(s.capacity.mean(0), s.capacity.shape),
    )


@pytest.mark.slow
def test_autobalancer_balances_brokers_far_above_the_mean() -> None:
    plan = Balancer("autobalancer").propose(skewed(100_000, 2.53))
    column = plan.columns["network_in"]
    assert column.before.worst_ratio > 2.3
    assert column.after.worst_ratio < 1.3
    assert plan.ok


@pytest.mark.parametrize("seed", range(3))
def test_what_an_action_gains_is_what_a_cost_falls_by(seed: int) -> None:
    s = synthetic_snapshot(
        brokers=6, partitions=60, racks=3, replication_factor=2, utilization=0.6, skew=3, seed=seed
    )
    start = Placement(s)
    cluster = Cluster(start)
    goal = LoadCost(resource="disk", above=0.4).prepared(cluster)
    scorer = Scorer(cluster, [goal])
    rules = resolve(s, Operation()).rules
    batch = Candidates(scorer, rules, np.random.default_rng(seed)).random_actions(200)
    gain = scorer.gain(scorer.tiers[0], Transition(cluster, batch))
    cost = scorer.penalty(scorer.tiers[0])
    fall = []
    for row in range(len(batch)):
        mark = scorer.mark()
        scorer.commit(batch[np.array([row])])
        fall.append(cost - scorer.penalty(scorer.tiers[0]))
        scorer.restore(mark)
    assert np.corrcoef(gain, fall)[0, 1] > 0.999
    assert not ((gain > EPSILON) & (np.array(fall) < -EPSILON)).any()


@pytest.mark.parametrize("seed", [0, *long(*range(1, 6))])
def test_one_goal_more_leaves_no_higher_goal_unmet(seed: int) -> None:
    s = synthetic_snapshot(
        brokers=12,
        partitions=240,
        topics=8,
        racks=3,
        replication_factor=2,
        utilization=0.3,
        skew=2.5,
        seed=seed,
    )
    goals: list[Goal] = goals_for(s, "cruise-control")
    last = 1 + max(g.tier or 0 for g in goals)
    more = [*goals, TopicLeaderDistribution(tier=last)]
    met = [
        {r.goal for r in Balancer(own).propose(s).goal_results if r.met_after}
        for own in (goals, more)
    ]
    assert met[0] <= met[1]
