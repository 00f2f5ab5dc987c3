"""What no assignment can keep: an SLA below the rebalance time, partitions that are too fast."""

from __future__ import annotations

import numpy as np

from balancer.autoscaling.group import Group
from cluster_model.snapshot import Floats


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
    largest = group.largest
    too_fast = np.flatnonzero(rate > largest)
    if len(too_fast):
        worst = int(too_fast[np.argmax(rate[too_fast])])
        found.append(
            f"{len(too_fast)} partitions receive more than a consumer can process, partition "
            f"{worst} {rate[worst]:.0f} events/s of {largest:.0f}: the topic needs more partitions"
        )
    return tuple(found)
