"""Right-sizes a cluster: empties brokers and rebalances the others, within headroom."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from balancer.problem.operation import OperationError
from balancer.problem.operations.operation_type import OperationType
from balancer.problem.operations.remove_brokers import emptied_verdict
from balancer.problem.verdict import Verdict
from cluster_model.placement import Placement
from cluster_model.snapshot import Bools, Snapshot
from goals import Cluster, Goal
from goals.capacity import Ceiling


class RightSize(OperationType):
    """Makes do with as few brokers as meet all hard goals, or adds as few as they need.

    If the request names brokers, those are emptied, and the others rebalanced. If it names none,
    :meth:`balancer.Balancer.propose` finds which, or how many to add.

    Parameters
    ----------
    min_brokers, max_brokers
        Fewest and most brokers that may hold replicas in the end; None for no limit.
    headroom
        Share of each hard limit, in [0, 1), that is kept free.
    """

    summary: ClassVar = "Empty as many brokers as hard goals allow, or add as few as they need."
    takes_brokers: ClassVar = "optional"
    needs_loads: ClassVar = True

    min_brokers: int = Field(default=1, ge=1)
    max_brokers: int | None = Field(default=None, ge=1)
    headroom: float = Field(default=0.0, ge=0, lt=1)

    def check(self, snapshot: Snapshot, named: Bools) -> None:
        """The limits on the number must leave one."""
        if self.max_brokers is not None and self.max_brokers < self.min_brokers:
            raise OperationError(
                f"operation right_size: min_brokers {self.min_brokers} is more than "
                f"max_brokers {self.max_brokers}"
            )
        if named.all():
            raise OperationError("operation right_size: all brokers named, one must stay")

    def empties(self, snapshot: Snapshot, named: Bools) -> Bools:
        """The named brokers."""
        return named

    def judged_by(self, goals: Iterable[Goal]) -> list[Goal]:
        """The goals, hard limits lowered by the headroom."""
        return [self._lowered(goal) for goal in goals]

    def verdict(self, before: Cluster, ended: Placement, named: Bools) -> Verdict | None:
        """Fulfilled if the brokers to empty hold nothing; None if there are none."""
        return emptied_verdict(ended, named) if named.any() else None

    def _lowered(self, goal: Goal) -> Goal:
        if not (self.headroom and goal.hard and isinstance(goal, Ceiling)):
            return goal
        limit = getattr(goal, goal.limited_by)
        lowered = limit * (1 - self.headroom)
        if isinstance(limit, int):
            lowered = max(1, math.floor(lowered))
        return type(goal).model_validate(goal.model_dump() | {goal.limited_by: lowered})
