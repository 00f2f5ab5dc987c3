"""Decides which steps of a plan are safe at their turn."""

from __future__ import annotations

import numpy as np

from balancer.search.scorer import EPSILON, Scorer
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model.columns import Column
from cluster_model.placement import Batch
from cluster_model.snapshot import Bools, Floats, Ints
from goals import Goal
from goals.capacity import Ceiling
from goals.curves import TOLERANCE


class Fill:
    """What cells with a hard limit may hold: the limit or, if it is more, what they hold now.

    It compares amounts, as the check of a plan does. Scores do not suffice: each of many tiny
    amounts may leave the score of a full cell as it is, and where nothing is allowed, the score
    hardly depends on the amount.

    Parameters
    ----------
    scorer
        All goals and vetoes, before the first step.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._most: dict[int, tuple[Ceiling, Floats]] = {}
        for i, goal in enumerate(scorer.goals):
            if goal.hard and isinstance(goal, Ceiling) and goal.aggregate == "min":
                held = scorer.placement.sums(goal.scope, goal.column)
                # part of the tolerance that the check of a plan has
                most = np.maximum(goal.prepared_limit * (1 + TOLERANCE), held * (1 + TOLERANCE / 4))
                self._most[i] = goal, most

    def kept(self, transition: Transition) -> Bools:
        """(C,) whether no cell holds too much after each action."""
        ok = np.ones(len(transition), np.bool_)
        for i in self._most:
            ok &= ~self.exceeded(i, transition).any(0)
        return ok

    def exceeded(self, i: int, transition: Transition) -> Bools:
        """(K, C) which of the cells that an action touches then hold too much for goal `i`."""
        if i not in self._most:
            return np.zeros((1, len(transition)), np.bool_)
        goal, most = self._most[i]
        cells = transition.cells(goal.scope)
        (held,) = transition.after_state(goal.scope).sums((Column.of(goal.column),))
        found: Bools = (held > most.take(cells)) & (cells >= 0)
        return found


class Safety:
    """Which steps leave no cell of a hard goal less content, and overfill none.

    Parameters
    ----------
    scorer
        All goals and vetoes, at the start of the steps.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        #: Whether a cell above a limit may be filled again up to what it held at the start.
        self.refill = False
        self._fill = Fill(scorer)
        self._began = {
            i: scorer.scores[i].copy()
            for i, goal in enumerate(scorer.goals)
            if goal.hard and isinstance(goal, Ceiling) and goal.aggregate == "min"
        }

    def safe(self, transition: Transition) -> Bools:
        """(C,) whether each action is safe."""
        if not self.refill:
            return self.scorer.harmless(transition, hard_only=True) & self._fill.kept(transition)
        ok = np.ones(len(transition), np.bool_)
        for i, goal in enumerate(self.scorer.goals):
            if goal.hard and not _settled(goal, transition):
                ok &= ~self.worsened(i, transition).any(0)
        return ok

    def safe_in_turn(self, batch: Batch) -> tuple[Batch, SequentialTransition]:
        """The actions on distinct partitions that are safe one after the other; their transition.

        An action that is not safe at its turn is left out.
        """
        cluster, alone = self.scorer.cluster, Transition(self.scorer.cluster, batch)
        ok = np.ones(len(batch), np.bool_)
        for i, goal in enumerate(self.scorer.goals):
            if goal.hard and goal.scope.of_partitions:
                ok &= ~self.worsened(i, alone).any(0)
        batch = batch[ok]
        while True:
            series = SequentialTransition(cluster, batch)
            ok = self.safe(series)
            if ok.all():
                return batch, series
            batch = batch[ok]

    def worsened(self, i: int, transition: Transition) -> Bools:
        """(K, C) which of the cells that an action touches are too discontent with goal `i`."""
        _, worse = self.scorer.diff(i, transition)
        before, after = transition.scored[i]
        if self.refill and i in self._began:
            before = np.minimum(before, self.least(i, transition.cells(self.scorer.goals[i].scope)))
        cells: Bools = (after < before * (1 - EPSILON)) & worse
        return cells | self._fill.exceeded(i, transition)

    def least(self, i: int, cells: Ints) -> Floats:
        """The least contentment with goal `i` that lets every action into a cell pass."""
        if not self.refill or i not in self._began:
            return np.ones(cells.shape)
        found: Floats = np.where(cells < 0, 1.0, self._began[i][cells])
        return found

    def shortage(self, transition: Transition) -> Floats:
        """(C,) contentment that unsafe actions take from the cells they touch, over hard goals."""
        total = np.zeros(len(transition))
        for i, goal in enumerate(self.scorer.goals):
            if goal.hard:
                worse = self.worsened(i, transition)
                total += np.where(worse, 1 - transition.scored[i][1], 0.0).sum(0)
        return total


def _settled(goal: Goal, transition: Transition) -> bool:
    # the effect on an action's own partition was checked before the series was formed
    return goal.scope.of_partitions and isinstance(transition, SequentialTransition)
