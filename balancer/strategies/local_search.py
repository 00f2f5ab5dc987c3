"""The default strategy: a batched local search that serves the goals tier by tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from balancer.problem.budget import Budget
from balancer.problem.capacity_guards import implied
from balancer.problem.deadline import Deadline
from balancer.problem.disks import pick_disk
from balancer.problem.movement_cost import copy_cost
from balancer.problem.problem import Problem
from balancer.problem.replication_factor import ReplicationFactor
from balancer.search.exploration import (
    copy_less,
    meet_more,
    out_of_reach,
    settle_for_less,
    sort_slots,
)
from balancer.search.improvement import Ended, improve
from balancer.search.local_search import Search
from balancer.search.packing import fit
from balancer.search.parameters import SearchParameters
from balancer.search.scorer import Scorer
from balancer.search.spending import Spending
from balancer.strategies.strategy import ProgressCallback, Proposal
from cluster_model.placement import MOVE, Batch, Placement
from cluster_model.snapshot import Floats, Ints
from goals import Cluster, Goal


class LocalSearch(SearchParameters):
    """Local search on the goals, for clusters of any size."""

    summary: ClassVar[str] = "Improve the goals tier by tier with a local search."
    universal: ClassVar[bool] = True
    takes_search_parameters: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """``goals``."""
        return "goals"

    def propose(
        self, problem: Problem, limits: Budget, seed: int, progress: ProgressCallback | None = None
    ) -> Proposal:
        """Serve the tiers in order; see :class:`balancer.search.local_search.Search`."""
        deadline, goals = Deadline.after(limits.seconds, problem.stop), list(problem.goals)
        needed = [g for g in problem.vetoes if not implied(g, goals)]
        at_stake = _at_stake(goals, problem.cluster)
        scorer = Scorer(problem.cluster, [*at_stake, *needed], self)
        grows = problem.resolved.type.changes_replication_factor
        sorts = not (grows or problem.resolved.adds or problem.start.snapshot.n_disks)
        sorts &= problem.rules.cold is None and self._small(scorer)
        if sorts:
            sort_slots(scorer, problem.rules)
        if grows or problem.resolved.adds:
            fit(scorer, problem.rules, problem.start, deadline)
        begin = scorer.mark()

        # Goals that the search does not change, and without those unmet because of their limit.
        others = [g for g in goals if not any(g is other for other in at_stake)]
        settled = sum(_met(g, problem.cluster) for g in others)
        counted = {i for i, g in enumerate(at_stake) if g.name not in problem.relaxed}
        before = settled + sum(scorer.met(i) for i in counted)

        def report(phase: str, met: list[int], actions: int) -> None:
            assert progress is not None
            progress(phase, settled + len(counted.intersection(met)), len(goals), actions)

        def report_trial(phase: str, met: list[int], actions: int) -> None:
            # Its plan may exceed the limits: then the best so far is the start.
            assert progress is not None
            progress(f"{phase} without limits", before, len(goals), 0)

        improved: Ended | None = None

        def searched(
            spending: Spending | None,
            deadline: Deadline,
            hopeless: Callable[[], bool] | None = None,
        ) -> Search:
            shown = report if spending is not None or not limits.limits_moves else report_trial

            def fresh(share: float = 1.0) -> Search:
                return Search(
                    scorer,
                    problem.rules,
                    serve=len(scorer.tiers) - bool(needed),
                    deadline=deadline if share == 1 else deadline.within(share),
                    seed=seed,
                    progress=shown if progress is not None else None,
                    spending=spending,
                    hopeless=hopeless,
                )

            nonlocal improved
            search = fresh()
            search.run()
            if not search.exhausted and problem.rules.draining.any():
                search = _with_largest_first(search, fresh(0.5), begin)
            if not grows:
                search.reduce(problem.start)
                if (spending is None or not limits.limits_moves) and not search.exhausted:
                    search = self._finished(search, fresh, begin, sorts)
                if not limits.limits_moves and not search.exhausted:
                    if self.improvement_rounds:
                        improved = improve(search, problem.start, self.improvement_rounds)
                    elif limits.seconds is not None:
                        improved = improve(search, problem.start, None)
            return search

        exhausted: Literal["seconds", "budget", "stopped"] | None = None
        if limits.limits_moves:
            # Most clusters need less than their limits: then no search within them is needed.
            spending = Spending(problem.start, scorer.placement, limits)
            search = searched(
                None,
                deadline.within(self.unlimited_share),
                lambda: spending.exceeds(self.hopeless_excess),
            )
            spending.restart()
            if search.exhausted or not spending.within:
                if deadline.stopped:
                    # the plan is the first part of this search's that the limits allow
                    exhausted = "stopped"
                else:
                    bound, first, end = not spending.within, search, scorer.mark()
                    scorer.restore(begin)
                    spending.restart()
                    search = searched(spending, deadline)
                    if search.exhausted and not len(scorer.placement.changed(begin[0])):
                        # time ended it before its first action: the first part of what the other
                        # one found is better than nothing
                        scorer.restore(end)
                        search, search.exhausted = first, True
                    # a search that time ended does not show whether the limits bound the plan
                    exhausted = "budget" if bound or spending.refused else None
        elif self._costs_are_equal(scorer, problem):
            search = searched(Spending(problem.start, scorer.placement, limits), deadline)
        else:
            search = searched(None, deadline)
        if search.exhausted:
            exhausted = "stopped" if deadline.stopped else "seconds"
        return Proposal(
            placement=scorer.placement,
            trivial_share=self.trivial_share,
            actions=search.actions,
            exhausted=exhausted,
            known=Batch.concatenate(search.known) if search.known else None,
            unreached=None if exhausted or grows else out_of_reach(search, begin[0]),
            longer="" if grows else _longer(search, limits, improved),
        )

    def _costs_are_equal(self, scorer: Scorer, problem: Problem) -> bool:
        """Whether every copy costs the same, on clusters that are not small, without annealing.

        Then the search within limits makes the fewest moves: it relieves the worst cells first, by
        their largest replicas.
        """
        costs = np.concatenate(copy_cost(problem.start))
        equal = len(costs) > 0 and costs.min() == costs.max()
        equal &= not len(problem.start.snapshot.move_cost)
        sums = any(goal.aggregate == "sum" for goal in scorer.goals)
        return bool(equal) and not sums and not self._small(scorer)

    def _small(self, scorer: Scorer) -> bool:
        return scorer.placement.snapshot.n_replicas <= self.perturbed_replicas

    def _finished(
        self,
        search: Search,
        fresh: Callable[[], Search],
        begin: tuple[Placement, list[Floats]],
        sorts: bool,
    ) -> Search:
        """The search after a few more, each of which starts where the one before it ended.

        So a plan for the result hardly ever finds more. On small clusters, more ways to meet goals
        and to copy less are tried too.
        """
        scorer, small = search.scorer, self._small(search.scorer)
        _polish(search, begin)
        for _ in range(self.second_searches if small else self.second_searches // 4):
            if search.exhausted or (search.met and not small):
                break
            end = scorer.mark()
            if sorts:
                sort_slots(scorer, search.rules)
            began = scorer.mark()
            other = fresh()
            other.actions, other.known = search.actions, [*search.known]
            if not small:
                other.annealed = search.annealed
            other.run()
            while meet_more(other, began[0]):
                other.run()
            settle_for_less(other, began)
            if not len(scorer.placement.changed(began[0])):
                scorer.restore(end)
                break
            search = other
            search.reduce(begin[0])
            _polish(search, begin)
            if not len(scorer.placement.changed(end[0])):
                # no safe steps led from the start to what it found: it would find that again
                break
        return search


def _staying(search: Search, placement: Placement) -> Ints:
    """Flat positions of the replicas that may move, on brokers that they have to leave."""
    rules = search.rules
    there = np.append(rules.draining, False)[placement.replica_broker]
    return np.flatnonzero(there & rules.free(placement))


def _with_largest_first(
    search: Search, other: Search, begin: tuple[Placement, list[Floats]]
) -> Search:
    """Another search, in which the largest of what has to leave goes first, if less stays then.

    Only where little stays, and could go: where much does, there is too little room in any order.

    Parameters
    ----------
    search
        A search that has ended.
    other
        The same one, not begun yet.
    begin
        The mark of where it started.
    """
    scorer, rules = search.scorer, search.rules
    stays, before = (_staying(search, found) for found in (scorer.placement, begin[0]))
    if not 0 < len(stays) <= max(1, search.parameters.retried_share * len(before)):
        return search
    to = np.repeat(np.flatnonzero(rules.receives), len(stays))
    partition, slot = np.divmod(np.resize(stays, len(to)), scorer.placement.slots)
    away = Batch.of(MOVE, partition, slot, to, pick_disk(scorer.placement, to))
    if not rules.legal(scorer.placement, away).any():
        return search
    end, spending, shown, best = scorer.mark(), search.spending, other.progress, search.best
    scorer.restore(begin)
    if spending is not None:
        spending.restart()
        refused = spending.refused
    if shown is not None:
        # until it is better, the best is that of the first search
        other.progress = lambda phase, met, actions: shown(f"{phase}, largest first", *best)
    other.largest_first = True
    other.run()
    if len(_staying(search, scorer.placement)) < len(stays) and not other.exhausted:
        other.progress, other.deadline = shown, search.deadline
        other.settle()
        return other
    scorer.restore(end)
    if spending is not None:
        spending.restart()
        spending.refused = refused
    return search


def _longer(
    search: Search,
    limits: Budget,
    improved: Ended | None,
) -> str:
    """What makes the search try more, if it can; `improved` is None if it was not improved."""
    scorer = search.scorer
    unmet = [t.goals for t in scorer.tiers[: search.serve] if not all(map(scorer.met, t.goals))]
    # more time or rounds do not change tiers with costs that add up
    sums = any(scorer.goals[i].aggregate == "sum" for goals in unmet for i in goals)
    if sums or improved == "nothing left":
        return ""
    if improved == "rounds":
        return "plan with more improvement_rounds"
    if improved == "seconds":
        return "plan with a longer limit of time, which the search uses to try more"
    if not limits.limits_moves:
        return "plan with a limit of time, which the search uses to try more"
    if search.parameters.improvement_rounds:
        return "plan without limits on what is moved: the search then makes improvement_rounds"
    return (
        "plan with a limit of time and none on what is moved: the search then uses the time to "
        "try more"
    )


def _polish(search: Search, begin: tuple[Placement, list[Floats]]) -> None:
    """Meet more, copy less, and end where safe steps lead, as far as the cluster is small."""
    start = begin[0]
    while meet_more(search, start):
        search.run()
        search.reduce(start)
    search.shorten(start)
    copy_less(search, start)
    settle_for_less(search, begin)


def _at_stake(goals: list[Goal], cluster: Cluster) -> list[Goal]:
    """The goals except availability goals that are met: no legal action hurts those."""
    return [
        g
        for g in goals
        if not (g.availability and _met(g, cluster))
        # The search neither adds nor removes replicas.
        and not isinstance(g, ReplicationFactor)
    ]


def _met(goal: Goal, cluster: Cluster) -> bool:
    """Whether every partition is content with a goal on partitions."""
    return bool((goal.score(cluster.partition_state()) >= 1).all())
