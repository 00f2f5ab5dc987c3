"""Errors of autoscaling."""

from cluster_model.errors import InputError


class AutoscalingError(InputError):
    """An impossible consumer group, or options that contradict each other."""
