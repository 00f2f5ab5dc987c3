"""What no assignment can keep: an SLA below the rebalance time, partitions that are too fast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from balancer.autoscaling.group import Group
from cluster_model.snapshot import Floats
from metrics_reporter.quantities import amount, plural


def sla_warning(sla: float, rebalance_seconds: float) -> str | None:
    """A sentence if a rebalance takes as long as the SLA allows, or longer (seed 003, 5.3).

    Examples
    --------
    >>> sla_warning(0.5, 2.0)
    'an SLA of 0.5 s is not above the rebalance time of 2 s: only over-provisioning can keep it'
    """
    if sla > rebalance_seconds:
        return None
    return (
        f"an SLA of {sla:g} s is not above the rebalance time of {rebalance_seconds:g} s: "
        "only over-provisioning can keep it"
    )


def warnings_of(group: Group, sla: float, rate: Floats) -> tuple[str, ...]:
    """What no number of consumers can keep, one sentence each."""
    found = []
    sentence = sla_warning(sla, group.rebalance_seconds)
    if sentence:
        found.append(sentence)
    found += _too_fast(group, rate, group.largest, "process", lambda v: f"{v:,.0f} events/s")
    read = group.largest * (group.byte_capacity / group.new_capacity)
    found += _too_fast(group, group.speed, read, "read", lambda v: amount(v, "B/s"))
    return tuple(found)


def _too_fast(
    group: Group, values: Floats, limit: float, can: str, shown: Callable[[float], str]
) -> list[str]:
    """A sentence if partitions receive more than any consumer can take."""
    rows = np.flatnonzero(values > limit)
    if not len(rows):
        return []
    worst = int(rows[np.argmax(values[rows])])
    more = len(rows) - 1
    others = f", and {plural(more, 'other partition')} too" if more else ""
    return [
        f"{group.partition_name(worst)} receives more than a consumer can {can}, "
        f"{shown(float(values[worst]))} of {shown(limit)}{others}: more partitions are needed"
    ]
