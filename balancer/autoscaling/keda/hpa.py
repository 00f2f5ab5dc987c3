"""The metric with which a HorizontalPodAutoscaler runs the number of pods that was decided."""

from __future__ import annotations

import math

from balancer.autoscaling.errors import AutoscalingError

# Ratios are compared as the autoscaler does, in thousandths of a replica.
_MILLI = 1e-3


def metric_value(
    wanted: int, current: int | None, tolerance: float = 0.1, maximum: int | None = None
) -> int:
    """The metric, with a target of 1 per pod, that makes the autoscaler run at least `wanted` pods.

    It runs as many pods as the metric says, but ignores a metric within its tolerance of the
    number it runs: from 11 pods it does not go to 12. More pods are then asked for, just as many
    as it does not ignore; fewer are never asked for, so pods it keeps are spare.

    Parameters
    ----------
    wanted
        Pods that are needed.
    current
        Pods that run; None if unknown.
    tolerance
        The autoscaler's, 0.1 unless the cluster says otherwise.
    maximum
        Never exceeded, even where the autoscaler then ignores the last step to it; None for none.

    Examples
    --------
    >>> metric_value(4, 3), metric_value(12, 11), metric_value(3, 11), metric_value(12, None)
    (4, 13, 3, 12)
    >>> metric_value(12, 11, maximum=12)
    12
    """
    if wanted < 0 or (current is not None and current < 0):
        raise AutoscalingError(f"{min(wanted, current or 0)} pods found, at least 0 expected")
    if not 0 <= tolerance < 1:
        raise AutoscalingError(
            f"tolerance of the autoscaler: {tolerance:g} found, at least 0 and below 1 expected"
        )
    most = wanted if maximum is None else min(wanted, maximum)
    if current is None or wanted <= current:
        return most
    noticed = max(wanted, math.floor(current * (1 + tolerance) + _MILLI) + 1)
    return noticed if maximum is None else min(noticed, maximum)
