"""Runs a stateful Python consumer on a Kafka group: an example, and a test bed of the assignor."""

from __future__ import annotations

from balancer.assignment.group.configs import GroupConfigs
from balancer.assignment.group.errors import GroupError
from balancer.assignment.group.host import Host
from balancer.assignment.group.processing import Processor, Record, State

__all__ = ["GroupConfigs", "GroupError", "Host", "Processor", "Record", "State"]
