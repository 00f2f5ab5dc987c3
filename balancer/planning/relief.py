"""Works out how much of its relief the first actions of a plan bring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.planning.action_rows import in_turns, within
from balancer.planning.document import RELIEF_SHARES, GoalResult, ReliefPoint
from balancer.planning.figures import fair_shares, goal_scores, worst_ratio
from balancer.planning.plan import ActionRows
from balancer.problem.budget import Budget
from balancer.problem.problem import Problem
from balancer.search.scorer import Scorer
from cluster_model.placement import Batch
from goals import Goal
from metrics_reporter.quantities import percent


def relief_points(
    problem: Problem,
    goals: Sequence[Goal],
    results: Sequence[GoalResult],
    scorer: Scorer,
    rows: ActionRows,
    steps: Batch,
) -> tuple[ReliefPoint, ...]:
    """How even the cluster is, and how content the goals are, after first actions of a plan.

    None if the plan costs nothing, improves no goal, or adds or removes replicas.

    Parameters
    ----------
    problem, goals, results
        The problem, its goals, and each goal before and after the plan.
    scorer
        Scores of the start; it is left as it was found.
    rows, steps
        The actions of the plan, and the same as changes of the placement.
    """
    total = float(rows.cost.sum())
    gains = np.array([r.contentment_after - r.contentment_before for r in results])
    better = np.flatnonzero(gains > ReliefPoint.least_gain).tolist()
    if total <= 0 or not better or not {"add", "remove"}.isdisjoint(rows.kind):
        return ()
    weight = np.array([goals[i].weight for i in better])
    mark, done, found = scorer.mark(), 0, []
    shares = fair_shares(scorer.cluster)
    for share in RELIEF_SHARES:
        kept = within(rows, Budget(cost=share * total), problem.start.snapshot)
        for turn in in_turns(steps[done:kept]):
            scorer.commit(turn)
        done = kept
        scores = goal_scores(problem, goals, scorer)
        now = np.array([float(scores[i].mean()) for i in better])
        before = np.array([results[i].contentment_before for i in better])
        found.append(
            ReliefPoint(
                share=share,
                actions=kept,
                cost=float(rows.cost[:kept].sum()),
                worst_ratio=worst_ratio(scorer.placement, shares),
                relief=float(np.average((now - before) / gains[better], weights=weight)),
            )
        )
    scorer.restore(mark)
    return tuple(found)


def relief_phrase(points: Sequence[ReliefPoint], paid: str) -> str:
    """What first shares of what is paid bring, without those that bring no more than the last.

    Examples
    --------
    >>> shares = [(0.01, 0.4), (0.02, 0.4), (0.05, 0.7)]
    >>> points = [ReliefPoint(share=s, actions=1, cost=1.0, worst_ratio=1.0, relief=r)
    ...           for s, r in shares]
    >>> relief_phrase(points, "bytes")
    '40 % after 1 %, 70 % after 5 % of the bytes'
    """
    said, shown = list[str](), 0.0
    for point in points:
        if point.relief > shown:
            said.append(f"{percent(point.relief)} after {percent(point.share)}")
            shown = point.relief
    return f"{', '.join(said) or 'none after the first half'} of the {paid}"
