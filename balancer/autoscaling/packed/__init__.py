"""Consumers of kafka-python whose group assigns partitions as the autoscaler has decided."""

from __future__ import annotations

from balancer.autoscaling.packed.consumer import PackedSettings, packed_consumer
from balancer.autoscaling.packed.decisions import DECISIONS_TOPIC, DecisionWriter

__all__ = ["DECISIONS_TOPIC", "DecisionWriter", "PackedSettings", "packed_consumer"]
