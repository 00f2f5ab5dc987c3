"""Finds a better order on small clusters, by exploring what safe steps lead to, best first."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from balancer.problem.deadline import NEVER, Deadline
from balancer.problem.movement_cost import relative_cost
from balancer.problem.rules import Rules
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
    steps_each: int,
    *,
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
    steps_each
        How many steps from each, on average: more take long and much memory.
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
    # the value, a number, what was spent, the placement before the last step, and all steps
    opened: list[tuple[float, int, float, Placement, list[Batch]]] = [(0.0, 0, 0.0, start, [])]
    seen, number, left = set[bytes](), 0, most
    found, nearest, there = list[Batch](), np.inf, False
    while opened and left and number < steps_each * most and not deadline.passed:
        _, _, spent, source, steps = heappop(opened)
        placement = source.copy()
        if steps:
            placement.apply(steps[-1])
        name = placement.brokers.tobytes() + placement.leader.tobytes()
        if name in seen:
            continue
        seen.add(name)
        left -= 1
        distance = goal.of(placement)
        if distance < nearest:
            found, nearest, there = steps, distance, distance <= 0
        if there:
            break
        scorer.adopt(placement, everything)
        batch = candidates.all_actions()
        batch = batch[safety.safe(Transition(scorer.cluster, batch))]
        cost = spent + goal.price(placement, batch)
        value = cost + _AHEAD * (distance + goal.added(placement, batch))
        for row in range(len(batch)):
            number += 1
            way = [*steps, batch[np.array([row])]]
            heappush(opened, (float(value[row]), number, float(cost[row]), placement, way))
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
