"""Errors of autoscaling."""

from cluster_model.errors import InputError


class AutoscalingError(InputError):
    """An impossible consumer group, or options that contradict each other."""


class NotYetError(AutoscalingError):
    """Nothing is wrong, but there is nothing to decide on yet."""


class RebalancingError(NotYetError):
    """The group rebalances, which is soon over."""
