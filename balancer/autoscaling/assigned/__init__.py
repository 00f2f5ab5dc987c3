"""Consumers that read what a controller assigns to them through a control topic."""

from balancer.autoscaling.assigned.consumer import AssignedConsumer
from balancer.autoscaling.assigned.controller import GroupController
from balancer.autoscaling.assigned.settings import ConsumerSettings, ControlSettings

__all__ = ["AssignedConsumer", "ConsumerSettings", "ControlSettings", "GroupController"]
