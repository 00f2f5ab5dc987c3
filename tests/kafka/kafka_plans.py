"""Handwritten plans for the cluster of the tests."""

from __future__ import annotations

from real_kafka import CLUSTER_ID

from balancer import Action, PlanDocument
from benchmarks.harness.plans import plan_by_hand


def plan_of(*actions: Action) -> PlanDocument:
    """A plan of these actions for the cluster of the tests."""
    return plan_by_hand(*actions, cluster_id=CLUSTER_ID)


def move(topic: str, partition: int, source: int, destination: int) -> Action:
    """One replica from a broker to another."""
    return Action(
        kind="move", topic=topic, partition=partition, source=source, destination=destination
    )
