"""What a search has reached and at what cost, to tell whether another way is better or cheaper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.problem.budget import Budget
from balancer.search.scorer import EPSILON, Scorer, Tier
from balancer.search.spending import Spending
from cluster_model.placement import Placement
from cluster_model.snapshot import Floats


def every_stage(scorer: Scorer) -> list[Tier]:
    """What a search serves, and what only vetoes, in order."""
    return [stage for tier in scorer.tiers for stage in scorer.stages(tier)]


def penalties(scorer: Scorer) -> list[float]:
    """How far each of these is from content."""
    return [scorer.penalty(stage) for stage in every_stage(scorer)]


@dataclass(frozen=True)
class Reached:
    """A state of a search.

    Parameters
    ----------
    penalties
        Of each stage, in order, and of what only vetoes.
    met
        Whether each goal is met.
    hard
        Scores of the hard goals.
    cost
        Total cost, moves, and transfers of leadership.
    """

    penalties: list[float]
    met: list[bool]
    hard: list[Floats]
    cost: tuple[float, float, int]

    @staticmethod
    def of(scorer: Scorer, start: Placement) -> Reached:
        """The present state, and what the way to it from the start costs."""
        moves, cost = Spending(start, scorer.placement, Budget(moves=0, cost=0)).left
        leads = int((scorer.placement.location != start.location).sum())
        return Reached(
            penalties=penalties(scorer),
            met=[scorer.met(i) for i in range(len(scorer.goals))],
            hard=[scorer.scores[i].copy() for i, goal in enumerate(scorer.goals) if goal.hard],
            cost=(-cost, -moves, leads),
        )

    def beats(self, other: Reached, begin: Reached) -> bool:
        """Whether this is cheaper, no goal is worse, and no hard one anywhere.

        A hard goal may be what it was at the beginning: a safe order may lead there.
        """
        for now, then, first in zip(self.hard, other.hard, begin.hard, strict=True):
            if (now < np.minimum(then, first) * (1 - EPSILON)).any():
                return False
        # a cell that lacks almost nothing adds nothing to a penalty
        if any(then and not now for now, then in zip(self.met, other.met, strict=True)):
            return False
        pairs = zip(self.penalties, other.penalties, strict=True)
        if any(now > then + EPSILON for now, then in pairs):
            return False
        (cost, *rest), (before, *known) = self.cost, other.cost
        rounding = EPSILON * before
        return cost < before - rounding or (cost <= before + rounding and rest < known)
