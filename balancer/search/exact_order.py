"""Finds a better order on small clusters, by exploring what safe steps lead to, best first."""

from __future__ import annotations

import numpy as np

from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.movement_cost import relative_cost
from balancer.problem.rules import Rules
from balancer.search.best_first import BestFirst
from balancer.search.candidates import Candidates
from balancer.search.safety import Safety
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, Batch, Placement
from cluster_model.snapshot import Floats

# What is still to do counts more than what was done: the first way found is a short one.
_AHEAD = 2.0


def find_order(
    safety: Safety,
    rules: Rules,
    final: Placement,
    most: int,
    steps: int,
    deadline: Deadline = NEVER,
) -> tuple[list[Batch], bool]:
    """Safe single steps that lead to a placement or, if none are found, nearest to it.

    The scorer is left where it was.

    Parameters
    ----------
    safety
        What is safe, with a scorer at the start of the steps.
    rules
        What is legal.
    final
        Where the steps are to lead.
    most
        How many placements to look at.
    steps
        How many steps from each of them to consider, on average.
    deadline
        When to stop.

    Returns
    -------
    tuple
        The steps, and whether they lead there.
    """
    scorer = safety.scorer
    start = scorer.placement.copy()
    everything = np.arange(len(start.leader))
    candidates = Candidates(scorer, rules, np.random.default_rng(0))
    goal = _Distance(final)
    # what was spent, the placement before the last step, and all steps
    opened = BestFirst[tuple[float, Placement, list[Batch]]](most, steps)
    opened.add(0.0, (0.0, start, []))
    found, nearest, there = list[Batch](), np.inf, False
    for spent, source, way in opened.each(lambda: deadline.passed):
        placement = source.copy()
        if way:
            placement.apply(way[-1])
        if not opened.is_new(placement.brokers.tobytes() + placement.leader.tobytes()):
            continue
        distance = goal.of(placement)
        if distance < nearest:
            found, nearest, there = way, distance, distance <= 0
        if there:
            break
        scorer.adopt(placement, everything)
        batch = candidates.all_actions()
        batch = batch[safety.safe(Transition(scorer.cluster, batch))]
        cost = spent + goal.price(placement, batch)
        value = cost + _AHEAD * (distance + goal.added(placement, batch))
        for row in range(len(batch)):
            longer = [*way, batch[np.array([row])]]
            opened.add(float(value[row]), (float(cost[row]), placement, longer))
    scorer.adopt(start, everything)
    return found, there


class _Distance:
    """What it takes at least to reach a placement."""

    def __init__(self, final: Placement) -> None:
        self.final = final
        self.lead = final.brokers[np.arange(len(final.leader)), final.leader]

    def price(self, placement: Placement, batch: Batch) -> Floats:
        """(C,) the cost of each action in copies of the mean replica, with one for any step."""
        found: Floats = relative_cost(placement, batch, 1.0)
        return found

    def of(self, placement: Placement) -> float:
        """For every replica and leader elsewhere, what a step there costs at least."""
        there = (placement.brokers[:, :, None] == self.final.brokers[:, None, :]).any(2)
        p, slot = np.nonzero(~there & (placement.brokers >= 0))
        moves = Batch.of(0, p, slot, placement.brokers[p, slot])
        led = placement.brokers[np.arange(len(self.lead)), placement.leader]
        return float(self.price(placement, moves).sum()) + float((led != self.lead).sum())

    def added(self, placement: Placement, batch: Batch) -> Floats:
        """(C,) what each action adds to the distance."""
        p, target, final = batch.partition, batch.target, self.final.brokers
        source = placement.source(batch)
        moves = batch.kind != LEAD
        arrives = (final[p] == target[:, None]).any(1)
        leaves = (final[p] == source[:, None]).any(1)
        found = np.where(moves, leaves.astype(float) - arrives, 0.0) * self.price(placement, batch)
        leads = ~moves | (batch.slot == placement.leader[p])
        led = placement.brokers[p, placement.leader[p]]
        change = (target != self.lead[p]).astype(float) - (led != self.lead[p])
        return found + np.where(leads, change, 0.0)
