"""Goals other than CollocationGoal offer groups: the search and the plan respect them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from balancer_cases import QUICK
from pydantic import PrivateAttr

from balancer import Balancer, Budget, Plan
from balancer.strategies.local_search import LocalSearch
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from cluster_model.snapshot import Floats, Ints
from goals import (
    Cluster,
    CollocationGoal,
    Goal,
    GoalError,
    Groups,
    Pairs,
    ReplicaDistribution,
    State,
    pairs_of,
)
from goals.testing import assert_conforms


class OneBrokerPerTopic(Goal):
    """All leaders of a topic on one broker."""

    scope: ClassVar = "topic"
    hard: bool = True
    _total: Floats = PrivateAttr()

    def prepare(self, cluster: Cluster) -> None:
        s = cluster.snapshot
        self._total = np.bincount(s.partition_topic, minlength=len(s.topics)).astype(np.float64)

    def score(self, state: State) -> Any:
        """1 with all or none; the less even in between, the better."""
        share = state.leader_count / np.maximum(self._total[state.topic], 1.0)
        return np.maximum(share, 1 - share)


class TogetherByTopic(OneBrokerPerTopic):
    """The same, and offers the topics as groups."""

    def belong_together(self, cluster: Cluster) -> Pairs:
        topic = cluster.snapshot.partition_topic
        at: Ints = np.flatnonzero(topic[1:] == topic[:-1])
        return Pairs(at, at + 1)


def topics_of_two(brokers: tuple[int, ...]) -> Snapshot:
    """Topics of two partitions with one replica, on these of three brokers."""
    n = len(brokers)
    s = synthetic_snapshot(
        brokers=3, partitions=n, topics=n // 2, replication_factor=1, racks=1, utilization=0.2
    )
    return replace(
        s,
        partition_topic=np.repeat(np.arange(n // 2), 2),
        partition_number=np.tile([0, 1], n // 2),
        replica_broker=np.array(brokers),
    )


def by_topic(plan: Plan) -> list[list[int]]:
    return plan.placement.location.reshape(-1, 2).tolist()


def test_which_goals_offer_groups() -> None:
    assert isinstance(CollocationGoal(), Groups)
    assert isinstance(TogetherByTopic(), Groups)
    assert not isinstance(OneBrokerPerTopic(), Groups)
    assert_conforms(TogetherByTopic())


def test_groups_move_as_a_whole_where_single_moves_are_vetoed() -> None:
    start = topics_of_two((0,) * 12)
    count = ReplicaDistribution(tier=1)
    assert len(Balancer([OneBrokerPerTopic(tier=0), count]).propose(start)) == 0
    plan = Balancer([TogetherByTopic(tier=0), count]).propose(start)
    assert plan.ok
    assert plan.summary.group_moves == 4
    assert all(one == two for one, two in by_topic(plan))
    assert sorted(np.bincount(plan.placement.location).tolist()) == [4, 4, 4]


@pytest.mark.parametrize("moves", [1, 2, 5])
def test_a_budget_takes_a_group_whole_or_not_at_all(moves: int) -> None:
    start = topics_of_two((0,) * 12)
    goals = [TogetherByTopic(tier=0), ReplicaDistribution(tier=1)]
    plan = Balancer(goals, budget=Budget(moves=moves), strategy=QUICK).propose(start)
    assert plan.summary.replica_moves == moves // 2 * 2
    assert plan.summary.group_moves == moves // 2
    assert all(one == two for one, two in by_topic(plan))


@pytest.mark.parametrize("seed", range(2))
def test_what_is_apart_comes_together(seed: int) -> None:
    start = topics_of_two((0, 1, 1, 2, 2, 0, 0, 2))
    plan = Balancer([TogetherByTopic(tier=0)], seed=seed).propose(start)
    assert plan.ok
    assert all(one == two for one, two in by_topic(plan))


class AllOrNothing(TogetherByTopic):
    """The same, but nothing in between is better than the rest."""

    def score(self, state: State) -> Any:
        share = state.leader_count / np.maximum(self._total[state.topic], 1.0)
        return np.where((share == 0) | (share == 1), 1.0, 0.5)


def test_halves_of_a_group_come_together_where_no_single_move_helps() -> None:
    start = replace(
        topics_of_two((0, 0, 1, 1)),
        topics=("a",),
        partition_topic=np.zeros(4, np.int64),
        partition_number=np.arange(4),
    )
    systematic = LocalSearch(perturbed_replicas=0)
    plan = Balancer([AllOrNothing(tier=0)], strategy=systematic).propose(start)
    assert plan.ok
    assert (plan.summary.replica_moves, plan.summary.group_moves) == (2, 1)


def test_groups_of_several_goals_add_up() -> None:
    start = replace(
        topics_of_two((0,) * 8),
        traffic_from=np.array([0]),
        traffic_to=np.array([7]),
        traffic_rate=np.array([9.0]),
    )
    cluster = Cluster(Placement(start))
    assert pairs_of([ReplicaDistribution()], cluster) is None
    found = pairs_of([CollocationGoal(factor=0), TogetherByTopic()], cluster)
    assert found is not None
    assert sorted(zip(*(end.tolist() for end in found), strict=True)) == [
        (0, 1),
        (0, 7),
        (2, 3),
        (4, 5),
        (6, 7),
    ]


@pytest.mark.parametrize("wrong", [([0], [8]), ([-1], [0]), ([0, 1], [2])])
def test_pairs_of_no_partitions_are_reported(wrong: tuple[list[int], list[int]]) -> None:
    class Wrong(OneBrokerPerTopic):
        def belong_together(self, cluster: Cluster) -> Pairs:
            return Pairs(np.array(wrong[0]), np.array(wrong[1]))

    with pytest.raises(GoalError, match=r"goal Wrong: belong_together .* from 0 to 7 expected"):
        Balancer([Wrong()]).propose(topics_of_two((0,) * 8))
