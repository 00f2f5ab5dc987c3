"""Plans made by hand for the cluster of the tests."""

from __future__ import annotations

from real_kafka import CLUSTER_ID

from balancer import Action, Identity, PlanDocument
from balancer.plan import Summary


def plan_of(*actions: Action) -> PlanDocument:
    """A plan of these actions, and of nothing else that a plan says."""
    nothing = {name: 0 for name in Summary.model_fields if name != "exhausted"}
    return PlanDocument(
        identity=Identity(cluster_id=CLUSTER_ID),
        operation={"kind": "rebalance"},
        goals=(),
        summary=Summary.model_validate(nothing),
        columns={},
        goal_results=(),
        unmet=(),
        actions=actions,
    )


def move(topic: str, partition: int, source: int, destination: int) -> Action:
    """One replica from a broker to another."""
    return Action(
        kind="move", topic=topic, partition=partition, source=source, destination=destination
    )
