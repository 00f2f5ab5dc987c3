"""The default strategy: a batched local search that serves the goals tier by tier."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Literal

from balancer.problem.budget import Budget
from balancer.problem.capacity_guards import implied
from balancer.problem.problem import Problem
from balancer.problem.replication_factor import ReplicationFactor
from balancer.search.local_search import Search
from balancer.search.parameters import SearchParameters
from balancer.search.scorer import Scorer
from balancer.search.spending import Spending
from balancer.strategies.strategy import ProgressCallback, Proposal
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
        started, goals = time.monotonic(), list(problem.goals)
        needed = [g for g in problem.vetoes if not implied(g, goals)]
        before = time.monotonic()
        scorer = Scorer(problem.cluster, [*_at_stake(goals, problem.cluster), *needed], self)
        scoring = time.monotonic() - before
        begin = scorer.mark()
        if limits.seconds is not None:
            reserved = min(self.reserved_scorings * scoring, limits.seconds / 2)
            limits = limits.model_copy(update={"seconds": limits.seconds - reserved})

        def searched(
            spending: Spending | None,
            seconds: float | None,
            hopeless: Callable[[], bool] | None = None,
        ) -> Search:
            search = Search(
                scorer,
                problem.rules,
                serve=len(scorer.tiers) - bool(needed),
                deadline=None if seconds is None else started + seconds,
                seed=seed,
                progress=progress,
                spending=spending,
                hopeless=hopeless,
            )
            search.run()
            if not problem.resolved.type.changes_replication_factor:
                search.reduce(problem.start)
            return search

        exhausted: Literal["budget"] | None = None
        if limits.limits_moves:
            # Most clusters need less than their limits: then no search within them is needed.
            first = None if limits.seconds is None else limits.seconds * self.unlimited_share
            spending = Spending(problem.start, scorer.placement, limits)
            search = searched(None, first, lambda: spending.exceeds(self.hopeless_excess))
            spending.restart()
            if search.exhausted or not spending.within:
                scorer.restore(begin)
                spending.restart()
                search, exhausted = searched(spending, limits.seconds), "budget"
        else:
            search = searched(None, limits.seconds)
        return Proposal(
            placement=scorer.placement,
            trivial_share=self.trivial_share,
            actions=search.actions,
            exhausted="seconds" if search.exhausted else exhausted,
        )


def _at_stake(goals: list[Goal], cluster: Cluster) -> list[Goal]:
    """The goals except availability goals that are met: no legal action hurts those."""
    return [
        g
        for g in goals
        if not (g.availability and (g.score(cluster.partition_state()) >= 1).all())
        # The search neither adds nor removes replicas.
        and not isinstance(g, ReplicationFactor)
    ]
