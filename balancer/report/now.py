"""What is wrong in the cluster now, whatever the operation, and what the plan changes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from balancer.planning.plan import Plan
from balancer.problem.liveness import dead_brokers
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.problem.tiers import with_availability
from balancer.search.scorer import Scorer
from cluster_model.placement import Placement
from cluster_model.snapshot import Ints, Snapshot
from goals import Cluster, Goal
from goals.availability import EligibleLeaders, OnlineReplicas
from goals.capacity import Ceiling
from goals.racks import RackAwareness
from metrics_reporter.quantities import plural

_SHOWN = 5


@dataclass(frozen=True)
class Wrong:
    """Something that is wrong; ``fate`` says what the plan makes of it, ``mended`` if all of it."""

    sentence: str
    fate: str
    mended: bool


def wrong_now(plan: Plan, goals: Sequence[Goal]) -> list[Wrong]:
    """What is down, offline, without leader, over a limit or crowded in racks, worst first.

    Parameters
    ----------
    plan
        The plan; goals are judged on its snapshot and its end, as for a rebalance: what only the
        operation asks for is not wrong now.
    goals
        The plan's goals, as far as they are known by name.
    """
    return [*_states(plan.snapshot), *_goals(plan, goals)]


def _states(s: Snapshot) -> Iterator[Wrong]:
    dead = dead_brokers(s)
    if dead.any():
        down = np.flatnonzero(dead)
        ids = _some([str(s.broker_ids[b]) for b in down])
        sentence = f"{plural(len(down), 'broker is', 'brokers are')} down: {ids}"
        yield Wrong(sentence, "for you to repair or replace", False)
    lost = np.flatnonzero(~s.disk_alive & ~dead[s.disk_broker])
    if len(lost):
        paths = _some(
            [f"{s.disk_path[d]} of broker {s.broker_ids[s.disk_broker[d]]}" for d in lost]
        )
        sentence = f"{plural(len(lost), 'disk is', 'disks are')} offline: {paths}"
        yield Wrong(sentence, "for you to repair or replace", False)
    leaderless = np.flatnonzero(s.leaderless)
    if len(leaderless):
        sentence = (
            f"{plural(len(leaderless), 'partition has', 'partitions have')} no leader: "
            f"{_some(_names(s, leaderless))}"
        )
        yield Wrong(sentence, "no plan can: start a broker with a replica in sync", False)


def _goals(plan: Plan, goals: Sequence[Goal]) -> Iterator[Wrong]:
    c = resolve(plan.snapshot, Operation()).cluster
    hard = [goal for goal in with_availability(list(goals)) if goal.hard]
    before, after = (
        _discontented(Cluster(placement, c.eligible, c.leader_eligible, c.draining), hard)
        for placement in (Placement(plan.snapshot), plan.placement)
    )
    for goal, was, now in zip(hard, before, after, strict=True):
        if was:
            yield Wrong(_sentence(goal, was), _fate(was, now), not now)


def _discontented(cluster: Cluster, goals: Sequence[Goal]) -> list[int]:
    """The number of cells that each goal is not content with."""
    scores = Scorer(cluster, [goal.prepared(cluster) for goal in goals]).scores
    return [int(np.count_nonzero(of < 1)) for of in scores]


def _sentence(goal: Goal, count: int) -> str:
    if isinstance(goal, OnlineReplicas):
        what = plural(count, "partition has", "partitions have")
        return f"{what} replicas on dead brokers or disks, or where they may not be"
    if isinstance(goal, EligibleLeaders):
        what = plural(count, "partition is", "partitions are")
        return f"{what} led by a broker that may not lead"
    noun = goal.scope.noun
    if isinstance(goal, Ceiling):
        return f"{plural(count, f'{noun} exceeds', f'{noun}s exceed')} a hard limit: {goal.name}"
    if isinstance(goal, RackAwareness):
        what = plural(count, "partition has", "partitions have")
        return f"{what} more replicas in one rack than necessary: {goal.name}"
    what = plural(count, f"{noun} breaks", f"{noun}s break")
    return f"{what} {goal.name}, a hard goal"


def _fate(before: int, after: int) -> str:
    if not after:
        return "mended by this plan"
    if after < before:
        return f"{before - after:,} mended by this plan, {after:,} left"
    return "not mended by this plan" if after == before else f"{after:,} after this plan"


def _names(s: Snapshot, partitions: Ints) -> list[str]:
    return [f"{s.topics[s.partition_topic[p]]}-{s.partition_number[p]}" for p in partitions]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
