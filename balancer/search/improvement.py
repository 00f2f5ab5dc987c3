"""Improves a placement from which no single action helps: disturbs its worst cells, and repairs.

Each round carries out a few random actions on the cells that are not content, serves the goals
again from there, and keeps what is better (iterated local search; Lourenço, Martin and Stützle,
Handbook of Metaheuristics, 2003).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from balancer.search.local_search import Search
from balancer.search.scorer import EPSILON, Tier
from balancer.search.sequential_transition import SequentialTransition
from balancer.search.transition import Transition
from cluster_model.placement import Batch, Placement
from goals.goal import proofs_of

# What ended the improvement of a placement.
Ended = Literal["rounds", "seconds", "nothing left"]


def improve(search: Search, start: Placement, rounds: int | None) -> Ended:
    """Improve what a search has found, which is reduced to what the goals need.

    Tiers with goals that add up are left as they are. Never ends with a worse placement: the first
    tier whose penalty changes has a lower one, or none changes and fewer bytes move.

    Parameters
    ----------
    search
        A search that has ended.
    start
        The placement from which bytes are counted.
    rounds
        How many rounds to make, which makes the result independent of the clock; None for as many
        as the search's deadline allows, until too many in a row have failed.

    Returns
    -------
    str
        What ended it. More of that may improve the placement further.
    """
    scorer, own = search.scorer, search.parameters
    rng = np.random.default_rng([search.seed, 1])
    done = futile = 0
    ended: Ended = "nothing left" if rounds is None else "rounds"
    while done < rounds if rounds is not None else futile < own.futile_improvements:
        unmet = [k for k, tier in enumerate(scorer.tiers[: search.serve]) if _hopeful(search, tier)]
        if not unmet or search.spent():
            ended = "seconds" if unmet else "nothing left"
            break
        number = unmet[done % len(unmet)]
        done, futile = done + 1, futile + 1
        mark, actions, before = scorer.mark(), search.actions, _by_tier(search)
        moved = search.bytes_away(start)
        if _disturb(search, number, rng):
            _repair(search, number, before)
            change = _change(search, before)
            if change > 0:
                search.reduce(start)
                search.settle()
                futile = 0
                continue
            if change == 0 and search.bytes_away(start) < moved:
                continue
        scorer.restore(mark)
        search.actions = actions
    # What the limit of time ended is only this: the search itself had ended before.
    search.exhausted = search.deadline.stopped
    return ended


def _hopeful(search: Search, tier: Tier) -> bool:
    """Whether a tier has a goal that is unmet, but not proven to be impossible."""
    scorer = search.scorer
    goals = [scorer.goals[i] for i in tier.goals]
    if any(goal.aggregate == "sum" for goal in goals):
        return False
    unmet = [scorer.goals[i] for i in tier.goals if not scorer.met(i)]
    return any(not proofs_of(goal, scorer.cluster) for goal in unmet)


def _by_tier(search: Search) -> list[tuple[float, int]]:
    """The penalty of each tier, and how many of its goals are met."""
    scorer = search.scorer
    return [
        (scorer.penalty(tier), sum(scorer.met(i) for i in tier.goals))
        for tier in scorer.tiers[: search.serve]
    ]


def _repair(search: Search, number: int, before: list[tuple[float, int]]) -> None:
    """Serve the tiers that a disturbance has hurt, until one remains worse for nothing."""
    scorer, gained = search.scorer, False
    for k in range(number, len(before)):
        tier, then = scorer.tiers[k], before[k][0]
        if k == number or scorer.penalty(tier) > then + EPSILON:
            search.repair(k)
        now = scorer.penalty(tier)
        if now > then + EPSILON and not gained:
            return
        gained |= now < then - EPSILON


def _change(search: Search, before: list[tuple[float, int]]) -> int:
    """1 if the first tier that has changed is better, -1 if it is worse, 0 if none has changed.

    A penalty is better only if the change is worthwhile. In the first tier in which the number of
    goals that are met has changed, it must not be lower.
    """
    scorer, share = search.scorer, search.parameters.trivial_share
    now = _by_tier(search)
    if next((m < n for (_, m), (_, n) in zip(now, before, strict=True) if m != n), False):
        return -1
    for tier, (after, _), (then, _) in zip(scorer.tiers, now, before, strict=False):
        if after < scorer.worthwhile(tier, then, share) - EPSILON:
            return 1
        if abs(after - then) > EPSILON:
            return -1
    return 0


def _disturb(search: Search, number: int, rng: np.random.Generator) -> bool:
    """Carry out random actions on a tier's worst cells, as far as goals above it allow them."""
    scorer, own = search.scorer, search.parameters
    tier = scorer.tiers[number]
    batch = Batch.concatenate(
        [
            search.candidates.draw(tier, search.candidates.receivers, own.least_candidates),
            search.candidates.random_actions(own.perturbation_choices),
        ]
    )
    batch = batch[rng.permutation(len(batch))[: own.perturbation_choices]]
    batch = batch[np.sort(np.unique(batch.partition, return_index=True)[1])]
    batch = batch[scorer.allowed(number, Transition(scorer.cluster, batch))]
    batch = batch[: int(rng.integers(1, own.improvement_actions + 1))]
    while len(batch):
        keep = scorer.allowed(number, SequentialTransition(scorer.cluster, batch))
        if keep.all():
            search.carry_out(batch)
            return True
        batch = batch[keep]
    return False
