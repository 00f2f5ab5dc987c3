"""What a strategy is given: a cluster, what is asked of it, and the goals that judge."""

from __future__ import annotations

from dataclasses import dataclass

from balancer.problem.operation import Operation
from balancer.problem.resolution import ResolvedOperation
from balancer.problem.rules import Rules
from cluster_model.placement import Placement
from goals import Cluster, Goal


@dataclass(frozen=True, eq=False)
class Problem:
    """A placement to be bettered.

    Parameters
    ----------
    operation
        What is asked, as the user put it.
    resolved
        What that lets a strategy touch: its ``rules`` say which actions are legal.
    goals
        Prepared goals in the order of their tiers; no action may hurt a hard one.
    vetoes
        Prepared goals that nobody asked for and every plan obeys: nothing is overfilled.
    """

    operation: Operation
    resolved: ResolvedOperation
    goals: tuple[Goal, ...]
    vetoes: tuple[Goal, ...]

    @property
    def start(self) -> Placement:
        """The placement as it is."""
        return self.resolved.start

    @property
    def cluster(self) -> Cluster:
        """The cluster as goals see it; its placement has replicas added and removed as asked."""
        return self.resolved.cluster

    @property
    def rules(self) -> Rules:
        """Which actions are legal."""
        return self.resolved.rules
