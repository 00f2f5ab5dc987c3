"""Explores the placements of small clusters that safe steps lead to, best first.

Where hard goals are so tight that the way from one placement to a better one leads through worse
ones, a search that only climbs ends before it. The steps here are those that a plan may take: each
cell of a hard goal stays as content as it is or, where the goal is a limit, as it was at the start.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from balancer.problem.budget import Budget
from balancer.problem.rules import Rules
from balancer.search.best_first import BestFirst
from balancer.search.candidates import nothing
from balancer.search.exact_order import find_order
from balancer.search.local_search import Search
from balancer.search.safety import Safety
from balancer.search.scorer import EPSILON, Scorer, Tier, better, standing
from balancer.search.shortening import Reached, every_stage
from balancer.search.spending import Spending
from balancer.search.transition import Transition
from cluster_model.placement import LEAD, Batch, Placement
from cluster_model.snapshot import Floats
from goals.goal import proofs_of


def meet_more(search: Search, start: Placement) -> bool:
    """Go on from a placement that meets more hard goals, if one is found; whether one is.

    Every hard goal that is met stays met, and no tier above the goal that is gained is worse.

    Parameters
    ----------
    search
        A search that has ended.
    start
        Where it started.
    """
    more = _MoreMet.of(search, start)
    return more is not None and more.run()


def out_of_reach(search: Search, start: Placement) -> Placement | None:
    """A placement that meets more hard goals, as :func:`meet_more` does, whatever leads there.

    No cell of a hard goal is less content than at the start.

    Parameters
    ----------
    search
        A search that has ended.
    start
        Where it started.
    """
    more = _MoreMet.of(search, start, safely=False)
    return None if more is None else more.look()


def settle_for_less(search: Search, start: tuple[Placement, list[Floats]]) -> None:
    """If no safe steps lead to the end of a search: go where some do.

    That is where more hard goals are met than at the start or, if there is no such placement, as
    near to the end as safe steps lead, if it is better than the start.

    Parameters
    ----------
    search
        A search that has ended.
    start
        The mark of where it started.
    """
    scorer = search.scorer
    if not _small(search) or len(scorer.placement.replica_disk):
        return
    way, reachable = _way(search, start)
    if reachable:
        return
    scorer.restore(start)
    before = standing(scorer, every_stage(scorer))
    while meet_more(search, start[0]):
        pass
    if not len(scorer.placement.changed(start[0])):
        for step in way:
            scorer.commit(step)
        if not better(scorer, before, search.parameters.trivial_share):
            scorer.restore(start)
    known = scorer.mark()
    search.run()
    search.reduce(start[0])
    if not _way(search, start)[1]:
        scorer.restore(known)


def _way(search: Search, start: tuple[Placement, list[Floats]]) -> tuple[list[Batch], bool]:
    """Safe steps from the start towards the present placement, and whether they lead there."""
    scorer, end = search.scorer, search.scorer.mark()
    scorer.restore(start)
    safety = Safety(scorer)
    safety.refill = True
    own = search.parameters
    most, steps = own.explored_placements // 4, own.explored_steps
    found = find_order(safety, search.rules, end[0], most, steps, search.deadline)
    scorer.restore(end)
    return found


def copy_less(search: Search, start: Placement) -> bool:
    """Go to a placement that costs less and where no goal is worse, if one is found.

    Parameters
    ----------
    search
        A search that has ended.
    start
        Where it started.
    """
    return _small(search) and _LessCopied(search, start).run()


def sort_slots(scorer: Scorer, rules: Rules) -> None:
    """Put leaders into the first slots and others in the order of brokers.

    Equal placements are then searched alike, whatever led to them.
    """
    placement = scorer.placement.copy()
    held, may = placement.brokers >= 0, rules.slots.reshape(placement.brokers.shape)
    alike = (may | ~held).all(1) | ~(may & held).any(1)
    rows = np.flatnonzero(alike & held.any(1))
    own, lead = placement.brokers[rows], placement.leader[rows]
    key = np.where(own < 0, placement.snapshot.n_brokers, own)
    key[np.arange(len(rows)), lead] = -1
    placement.brokers[rows] = np.take_along_axis(own, np.argsort(key, 1, kind="stable"), 1)
    placement.leader[rows] = 0
    scorer.adopt(placement, rows)


def _small(search: Search) -> bool:
    replicas = search.scorer.placement.snapshot.n_replicas
    # single actions do not keep groups together
    fits = replicas <= search.parameters.perturbed_replicas and search.candidates.pairs is None
    return fits and not search.spent()


class _Exploration:
    """Placements that were seen, and those to look at next."""

    safely = True
    share = 1

    def __init__(self, search: Search, start: Placement) -> None:
        self.search, self.scorer, self.start = search, search.scorer, start
        self.end = self.scorer.mark()
        own = search.parameters
        # what to look at: a placement, and the action there
        self.open = BestFirst[tuple[Placement, Batch, int]](
            own.explored_placements // self.share, own.explored_steps
        )
        self.go_to(start)
        self.began = [scores.copy() for scores in self.scorer.scores]
        self.safety = Safety(self.scorer)
        self.safety.refill = True

    def found(self) -> bool:
        """Whether the present placement is what is looked for."""
        raise NotImplementedError

    def values(self, transition: Transition) -> Floats:
        """(C,) how far each action leads from what is looked for; infinite for too far."""
        raise NotImplementedError

    def run(self) -> bool:
        """Go to the placement that is looked for; whether it is found."""
        if not self._found():
            self.scorer.restore(self.end)
            return False
        self.search.actions += len(self.scorer.placement.changed(self.end[0]))
        self.search.settle()
        return True

    def look(self) -> Placement | None:
        """The placement that is looked for, without going there."""
        found = self.scorer.placement.copy() if self._found() else None
        self.scorer.restore(self.end)
        return found

    def _found(self) -> bool:
        """Look at one placement after the other; whether one is found, and is the present one."""
        for source, actions, row in self.open.each(self.search.spent):
            if not self.open.is_new(_name(source, actions, row)):
                continue
            placement = source.copy()
            placement.apply(actions[row : row + 1])
            self.go_to(placement)
            if self.found():
                return True
            self._expand(placement)
        return False

    def add(self, value: float, placement: Placement, actions: Batch, row: int = 0) -> None:
        """Look where one of some actions leads from a placement when its turn comes."""
        self.open.add(value, (placement, actions, row))

    def go_to(self, placement: Placement) -> None:
        """Change the scored placement to another one."""
        self.scorer.adopt(placement, np.arange(placement.snapshot.n_partitions))

    def _expand(self, placement: Placement) -> None:
        """Add what safe actions lead to."""
        batch = self.search.candidates.all_actions()
        transition = Transition(self.scorer.cluster, batch)
        values = self.values(transition)
        ok = np.isfinite(values)
        if self.safely:
            ok &= self.safety.safe(transition)
        for row in np.flatnonzero(ok).tolist():
            self.add(float(values[row]), placement, batch, row)


class _MoreMet(_Exploration):
    """Looks for placements that meet hard goals which the end of a search does not meet."""

    def __init__(
        self,
        search: Search,
        start: Placement,
        kept: list[int],
        sought: list[int],
        safely: bool,
    ) -> None:
        scorer, self.safely = search.scorer, safely
        self.kept, self.sought = kept, sought
        self.met = [scorer.met(i) for i in range(len(scorer.goals))]
        self.penalties = [scorer.penalty(tier) for tier in scorer.tiers]
        self.aim = Tier([*kept, *sought], np.ones(len(kept) + len(sought)))
        least = scorer.penalty(self.aim)
        super().__init__(search, start)
        self.add(least, self.end[0], nothing())
        self.add(scorer.penalty(self.aim), start, nothing())

    @classmethod
    def of(cls, search: Search, start: Placement, safely: bool = True) -> Self | None:
        """The search for those that may be met; None if none may, or the cluster is too large."""
        scorer = search.scorer
        if not _small(search):
            return None
        hard = [i for tier in scorer.tiers for i in tier.goals if scorer.goals[i].hard]
        kept = [i for i in hard if scorer.met(i)]
        unmet = [i for i in hard if not scorer.met(i)]
        sought = [i for i in unmet if not proofs_of(scorer.goals[i], scorer.cluster)]
        return cls(search, start, kept, sought, safely) if sought else None

    def found(self) -> bool:
        """Whether a goal is met that was not, and nothing is lost that comes before it."""
        scorer = self.scorer
        gained = {i for i in self.sought if scorer.met(i)}
        if not gained or not all(scorer.met(i) for i in self.kept):
            return False
        hard = [i for i, goal in enumerate(scorer.goals) if goal.hard]
        if any((scorer.scores[i] < self.began[i] * (1 - EPSILON)).any() for i in hard):
            return False
        for tier, penalty in zip(scorer.tiers, self.penalties, strict=True):
            if gained.intersection(tier.goals):
                return True
            lost = any(self.met[i] and not scorer.met(i) for i in tier.goals)
            if lost or scorer.penalty(tier) > penalty + EPSILON:
                return False
        return False

    def values(self, transition: Transition) -> Floats:
        """What the hard goals lack."""
        found: Floats = self.scorer.penalty(self.aim) + self.scorer.penalty_change(
            self.aim, transition
        )
        return found


class _LessCopied(_Exploration):
    """Looks for cheaper placements that are as good as the end of a search."""

    share = 8

    def __init__(self, search: Search, start: Placement) -> None:
        self.best = Reached.of(search.scorer, start)
        super().__init__(search, start)
        self.begin = Reached.of(self.scorer, start)
        self.add(0.0, start, nothing())

    def found(self) -> bool:
        """Whether nothing is worse, and less is copied."""
        return Reached.of(self.scorer, self.start).beats(self.best, self.begin)

    def values(self, transition: Transition) -> Floats:
        """What the stages lack beyond what they lacked, and a little for the cost."""
        scorer, most = self.scorer, self.best.cost[0]
        spending = Spending(self.start, scorer.placement, Budget(cost=0))
        cost = spending.added(transition.batch)[1] - spending.left[1]
        total = EPSILON * cost / max(most, EPSILON)
        for stage, penalty in zip(every_stage(scorer), self.best.penalties, strict=True):
            now = scorer.penalty(stage) + scorer.penalty_change(stage, transition)
            total += (now - penalty).clip(0)
        found: Floats = np.where(cost > most * (1 + EPSILON), np.inf, total)
        return found


def _name(placement: Placement, actions: Batch, row: int) -> bytes:
    """Equal for placements after an action that differ only in the slots of replicas."""
    brokers, leader = placement.brokers.copy(), placement.leader.copy()
    if row < len(actions):
        p, slot = int(actions.partition[row]), int(actions.slot[row])
        if actions.kind[row] == LEAD:
            leader[p] = slot
        else:
            brokers[p, slot] = actions.target[row]
    lead = brokers[np.arange(len(leader)), leader]
    return np.sort(brokers, 1).tobytes() + lead.tobytes()
