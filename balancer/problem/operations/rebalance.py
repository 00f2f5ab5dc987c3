"""The plain rebalance: moves whatever helps the goals."""

from __future__ import annotations

from typing import ClassVar

from balancer.problem.operations.operation_type import OperationType


class Rebalance(OperationType):
    """Moves whatever helps the goals."""

    summary: ClassVar = "Move whatever helps the goals."
    needs_loads: ClassVar = True
