"""Tells what a placement that has no safe order meets, and what is in the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from balancer.planning.figures import goal_scores
from balancer.problem.problem import Problem
from balancer.search.scorer import Scorer
from cluster_model.placement import Placement
from goals import Cluster
from goals.infeasibility import partition_name


@dataclass(frozen=True, eq=False)
class Unreached:
    """A placement to which no safe order of steps was found.

    Parameters
    ----------
    cluster
        It.
    met
        Numbers of the goals that it meets, and that the safe steps do not.
    blocked
        What stops the first action without a safe order.
    """

    cluster: Cluster
    met: frozenset[int]
    blocked: str

    @staticmethod
    def of(problem: Problem, ended: Scorer, cluster: Cluster, blocked: str) -> Unreached | None:
        """Compare a placement with the end of the safe steps; None if it meets no goal more."""
        goals = problem.goals
        other = Scorer(cluster, ended.goals)
        pairs = zip(
            goal_scores(problem, goals, ended), goal_scores(problem, goals, other), strict=True
        )
        # the disks of replicas are not stated
        met = frozenset(
            i
            for i, (here, there) in enumerate(pairs)
            if (here < 1).any() and (there >= 1).all() and goals[i].scope.name != "disk"
        )
        return Unreached(cluster, met, blocked) if met else None

    def difference(self, ended: Placement) -> dict[str, tuple[int | str, ...]]:
        """What it places or leads otherwise than the end of a plan, the leader first."""
        there, found = self.cluster.placement, {}
        ids = there.snapshot.broker_ids
        rows = np.flatnonzero(
            (np.sort(there.brokers, 1) != np.sort(ended.brokers, 1)).any(1)
            | (there.location != ended.location)
        )
        for p in rows.tolist():
            held, lead = there.brokers[p], int(there.leader[p])
            slots = [lead, *(k for k in range(len(held)) if k != lead)]
            brokers = held[[k for k in slots if held[k] >= 0]]
            found[partition_name(self.cluster, p)] = tuple(ids[brokers].tolist())
        return found
