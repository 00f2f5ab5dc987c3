"""Figures of a plan: spreads, contentment, balancedness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from balancer.planning.bounds import imbalance_bound
from balancer.planning.document import ColumnResult, GoalResult, RelaxedLimit, Spread
from balancer.problem.movement_cost import copy_cost
from balancer.problem.problem import Problem
from balancer.problem.rules import Rules
from balancer.search.scorer import Scorer
from cluster_model.columns import COUNT, LEADER, LOAD, Column
from cluster_model.errors import InputError
from cluster_model.placement import Placement
from cluster_model.scopes import BROKER
from cluster_model.snapshot import Floats
from goals import (
    Cluster,
    Goal,
    GoalError,
)
from metrics_reporter.plugins import fault_of


def cost_total(start: Placement) -> float:
    """Cost of copying every replica once, in its role, to the destination where that costs most."""
    s, (lead, follow) = start.snapshot, copy_cost(start)
    if len(s.move_cost):
        most = np.zeros(s.n_partitions)
        np.maximum.at(most, s.move_cost_partition, s.move_cost)
        lead, follow = np.maximum(lead, most), np.maximum(follow, most)
    held = np.count_nonzero(start.brokers >= 0, axis=1)
    return float(np.where(held > 0, lead + follow * (held - 1), 0.0).sum())


def balancedness(hard: Sequence[bool], met: Sequence[bool]) -> float:
    weight, total, lost = 1.0, 0.0, 0.0
    for i in reversed(range(len(hard))):
        cost = weight * (1.5 if hard[i] else 1.0)
        total += cost
        lost += 0.0 if met[i] else cost
        weight *= 1.1
    return 100.0 * (1 - lost / total) if total else 100.0


def columns(
    before: Cluster, after: Cluster, ended: Placement, rules: Rules
) -> dict[str, ColumnResult]:
    return {
        column.resource or column.name: ColumnResult(
            before=_spread(before.placement.recompute(BROKER, column), before.fair_share(column)),
            after=_spread(ended.recompute(BROKER, column), after.fair_share(column)),
            worst_ratio_bound=imbalance_bound(after, rules, column, ended),
        )
        for column in _summed(before)
    }


def fair_shares(cluster: Cluster) -> dict[Column, Floats]:
    """(B,) the fair share of each broker, by column; it depends on where replicas are."""
    return {column: cluster.fair_share(column) for column in _summed(cluster)}


def worst_ratio(placement: Placement, shares: Mapping[Column, Floats]) -> float:
    """The largest load of a broker as a multiple of its fair share, of all columns."""
    return max(
        _spread(placement.sums(BROKER, column), share).worst_ratio
        for column, share in shares.items()
    )


def _summed(cluster: Cluster) -> list[Column]:
    """The columns of a plan: every resource, and the counts of replicas and leaders."""
    counts = [Column(COUNT), Column(COUNT, role=LEADER)]
    return [*(Column(LOAD, r) for r in cluster.snapshot.resources), *counts]


def _spread(value: Floats, share: Floats) -> Spread:
    usable = share > 0
    of = value[usable] if usable.any() else value
    ratio = value[usable] / share[usable] if usable.any() else np.ones(1)
    return Spread(
        mean=float(of.mean()),
        max=float(of.max()),
        min=float(of.min()),
        std=float(of.std()),
        worst_ratio=float(ratio.max()),
    )


def goal_scores(problem: Problem, goals: Sequence[Goal], scorer: Scorer) -> list[Floats]:
    """The scores of each goal as it is configured, at the scorer's placement."""
    found = []
    for i, goal in enumerate(goals):
        asked = problem.as_configured(goal)
        if asked is goal:
            found.append(scorer.scores[i])
        else:
            with fault_of(f"goal {goal.name}: score failed", GoalError, InputError):
                state = scorer.cluster.state(goal.scope)
                found.append(np.asarray(asked.score(state), np.float64))
    return found


def goal_result(
    goal: Goal, old: Floats, new: Floats, relaxed: RelaxedLimit | None = None
) -> GoalResult:
    for scores in (old, new):
        if len(scores) and not 0 <= scores.min() <= scores.max() <= 1:
            wrong = scores[~((scores >= 0) & (scores <= 1))][0]
            raise GoalError(f"goal {goal.name}: score {wrong} found, 0 to 1 expected")
    return GoalResult(
        goal=goal.name,
        hard=goal.hard,
        tier=goal.tier or 0,
        weight=goal.weight,
        met_before=bool((old >= 1).all()),
        met_after=bool((new >= 1).all()),
        unmet_cells_before=int((old < 1).sum()),
        unmet_cells_after=int((new < 1).sum()),
        contentment_before=float(old.mean()) if len(old) else 1.0,
        contentment_after=float(new.mean()) if len(new) else 1.0,
        relaxed=relaxed,
    )
