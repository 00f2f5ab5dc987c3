"""The input of a strategy: a cluster, the request, and the goals that judge the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event

from balancer.problem.operation import Operation
from balancer.problem.resolution import ResolvedOperation
from balancer.problem.rules import Rules
from cluster_model.placement import Placement
from goals import Cluster, Goal, Relaxation


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
    relaxed
        Goals by name as they are configured, prepared, and the limit that replaced theirs in
        `goals`, because no placement keeps the configured one.
    vetoes
        Prepared goals that apply to every plan, requested or not: nothing is overfilled.
    stop
        If given, a strategy ends soon after it is set, and returns the best it has found.
    """

    operation: Operation
    resolved: ResolvedOperation
    goals: tuple[Goal, ...]
    vetoes: tuple[Goal, ...]
    relaxed: Mapping[str, tuple[Goal, Relaxation]] = field(default_factory=dict)
    stop: Event | None = None

    def as_configured(self, goal: Goal) -> Goal:
        """A goal as it is configured, even if no placement keeps its limit."""
        return self.relaxed[goal.name][0] if goal.name in self.relaxed else goal

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
