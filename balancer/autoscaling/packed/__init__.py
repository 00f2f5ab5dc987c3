"""Consumers whose group assigns partitions as the autoscaler has decided."""

from __future__ import annotations

from balancer.autoscaling.packed.async_consumer import async_packed_consumer
from balancer.autoscaling.packed.consumer import packed_consumer
from balancer.autoscaling.packed.decisions import DECISIONS_TOPIC, DecisionWriter
from balancer.autoscaling.packed.membership import PackedSettings

__all__ = [
    "DECISIONS_TOPIC",
    "DecisionWriter",
    "PackedSettings",
    "async_packed_consumer",
    "packed_consumer",
]
