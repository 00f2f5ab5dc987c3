"""Judges the cluster as it is: each goal of the controller, met or not, and where it is worst."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.controller.finding import View
from balancer.engine import Balancer
from balancer.problem.operation import Operation
from balancer.problem.resolution import resolve
from balancer.problem.tiers import with_availability
from balancer.search.scorer import Scorer, unscorable
from balancer.server.models import GoalState
from goals import applicable, inapplicable


def goal_states(balancer: Balancer, view: View) -> Sequence[GoalState]:
    """Each goal, in the order of tiers; those that do not apply come last, with the reason."""
    snapshot = view.snapshot
    cluster = resolve(snapshot, Operation()).cluster
    fitting = with_availability(applicable(balancer.goals, snapshot, strict=False))
    try:
        goals = [goal.prepared(cluster) for goal in fitting]
        scorer, failing = Scorer(cluster, goals), dict[str, str]()
    # Goals of other packages raise anything; one that fails hides no other.
    except Exception:
        failing = unscorable(cluster, fitting)
        goals = [goal.prepared(cluster) for goal in fitting if goal.name not in failing]
        scorer = Scorer(cluster, goals)
    found = []
    for place, (goal, scores) in enumerate(zip(goals, scorer.scores, strict=True)):
        worst = int(np.argmin(scores)) if len(scores) else None
        met = bool(scorer.met(place))
        found.append(
            GoalState(
                goal=goal.name,
                tier=goal.tier,
                hard=goal.hard,
                weight=goal.weight,
                met=met,
                cells=len(scores),
                unmet_cells=int(np.count_nonzero(scores < 1)),
                worst=1.0 if worst is None else float(scores[worst]),
                where=None if met or worst is None else goal.scope.label(snapshot, worst),
            )
        )
    by_name = {goal.name: goal for goal in balancer.goals}
    for name, why in (inapplicable(balancer.goals, snapshot) | failing).items():
        goal = by_name[name]
        found.append(
            GoalState(
                goal=name,
                tier=goal.tier,
                hard=goal.hard,
                weight=goal.weight,
                met=None,
                cells=0,
                unmet_cells=None,
                worst=None,
                where=None,
                left_out=why if view.incomplete is None else f"{why}: {view.incomplete}",
            )
        )
    return found
