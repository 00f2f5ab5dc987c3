"""The input of a strategy: a cluster, the request, and the goals that judge the result."""

from __future__ import annotations

from dataclasses import dataclass

from balancer.problem.operation import Operation
from balancer.problem.resolution import ResolvedOperation
from balancer.problem.rules import Rules
from cluster_model.placement import Placement
from goals import Cluster, Goal


@dataclass(frozen=True, eq=False)
class Problem:
    """A placement to improve.

    Parameters
    ----------
    operation
        The request as the user stated it.
    resolved
        What the request lets a strategy touch: its ``rules`` say which actions are legal.
    goals
        Prepared goals in tier order; no action may hurt a hard one.
    vetoes
        Prepared goals that apply to every plan, requested or not: nothing is overfilled.
    """

    operation: Operation
    resolved: ResolvedOperation
    goals: tuple[Goal, ...]
    vetoes: tuple[Goal, ...]

    @property
    def start(self) -> Placement:
        """The current placement."""
        return self.resolved.start

    @property
    def cluster(self) -> Cluster:
        """The cluster as goals see it, with replicas added and removed as requested."""
        return self.resolved.cluster

    @property
    def rules(self) -> Rules:
        """Which actions are legal."""
        return self.resolved.rules
