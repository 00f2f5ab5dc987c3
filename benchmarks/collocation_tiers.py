"""The tier of the collocation goal: pairs of leaders brought together, moves, and goals unmet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from balancer import Balancer
from benchmarks.harness.figures import chosen
from benchmarks.registry import Options, Row, benchmark
from cluster_model import Snapshot, synthetic_snapshot
from cluster_model.placement import Placement
from goals import CollocationGoal, Goal, load_goals

_NAME = "collocation-tiers"
_NONE, _FIRST, _OWN, _USAGE, _LAST = "none", "first", "its own", "usage goals", "last"
_TIERS = (_NONE, _FIRST, _OWN, _USAGE, _LAST)
_RATE = 100.0


class Setting(NamedTuple):
    """Brokers, partitions, topics, pairs of partitions that communicate, and seeds."""

    brokers: int
    partitions: int
    topics: int
    pairs: int
    seeds: int


_SETTINGS = {"S": Setting(6, 30, 3, 6, 2), "12x120": Setting(12, 120, 4, 24, 10)}


@benchmark(_NAME, sizes=tuple(_SETTINGS))
def collocation_tiers(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Pairs on one broker with the collocation goal in each tier of the default profile.

    The clusters are those of ``leaders.py`` in the documentation. ``--rounds`` is the number of
    seeds.
    """
    names = chosen(options, _TIERS)
    for size in sizes:
        s = _SETTINGS[size]
        clusters = [
            _communicating(s, options.seed + seed) for seed in range(options.rounds or s.seeds)
        ]
        for name in names:
            options.log(f"{_NAME} {size}: {name}, {len(clusters)} seeds")
            goals = _profile(name)
            plans = [Balancer(goals).propose(cluster) for cluster in clusters]
            pairs = np.array([_together(plan.final_snapshot()) for plan in plans])
            moves = np.array([plan.summary.replica_moves for plan in plans])
            seeds = sum(any(u.goal != "CollocationGoal" for u in plan.unmet) for plan in plans)
            for metric, value, unit in (
                ("pairs on one broker, mean", pairs.mean(), "pairs"),
                ("pairs on one broker, least", pairs.min(), "pairs"),
                ("pairs on one broker, most", pairs.max(), "pairs"),
                ("replica moves, mean", moves.mean(), "moves"),
                ("seeds with another goal unmet", seeds, "seeds"),
            ):
                yield Row(_NAME, size, name, metric, float(value), unit)


def _communicating(s: Setting, seed: int) -> Snapshot:
    """A cluster in which the leaders of random pairs of partitions communicate."""
    cluster = synthetic_snapshot(
        brokers=s.brokers,
        partitions=s.partitions,
        topics=s.topics,
        replication_factor=3,
        racks=3,
        utilization=0.4,
        seed=seed,
    )
    order = np.random.default_rng(seed).permutation(s.partitions)
    source, target = order[: 2 * s.pairs].reshape(2, s.pairs)
    return replace(
        cluster,
        traffic_from=source,
        traffic_to=target,
        traffic_rate=np.full(s.pairs, _RATE),
    )


def _together(cluster: Snapshot) -> int:
    leader = Placement(cluster).location
    return int((leader[cluster.traffic_from] == leader[cluster.traffic_to]).sum())


def _profile(tier: str) -> list[Goal]:
    """The default goals with the collocation goal in a tier.

    The goal of broker sets is left out, as the clusters have none.
    """
    goals = [goal for goal in load_goals("default") if goal.name != "BrokerSetAwareness"]
    if tier == _NONE:
        return goals
    tiers = [goal.tier or 0 for goal in goals]
    if tier == _OWN:
        lower = [
            goal.model_copy(update={"tier": number + 1}) if number else goal
            for goal, number in zip(goals, tiers, strict=True)
        ]
        return [*lower, CollocationGoal(tier=1)]
    return [*goals, CollocationGoal(tier={_FIRST: 0, _USAGE: 1, _LAST: max(tiers) + 1}[tier])]
