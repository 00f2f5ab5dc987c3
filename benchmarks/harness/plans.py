"""Builds a plan from given actions, without a search."""

from __future__ import annotations

from typing import Any

from balancer import Action, Identity, PlanDocument
from balancer.planning.document import Summary


def plan_by_hand(*actions: Action, cluster_id: str, **operation: Any) -> PlanDocument:
    """A plan with these actions and nothing else."""
    nothing = {name: 0 for name, field in Summary.model_fields.items() if field.is_required()}
    return PlanDocument(
        identity=Identity(cluster_id=cluster_id),
        operation={"kind": "rebalance", **operation},
        goals=(),
        summary=Summary.model_validate(nothing),
        columns={},
        goal_results=(),
        unmet=(),
        actions=actions,
    )
