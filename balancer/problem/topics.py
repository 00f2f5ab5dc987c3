"""Selects partitions by the names of their topics."""

from __future__ import annotations

import numpy as np

from balancer.problem.operation import OperationError
from cluster_model.snapshot import Bools, Snapshot
from goals.patterns import PatternError, matching


def matching_partitions(s: Snapshot, pattern: str) -> Bools:
    try:
        hit = matching(pattern, s.topics)
    except PatternError as error:
        raise OperationError(str(error)) from None
    return hit[s.partition_topic] if len(s.topics) else np.zeros(0, np.bool_)
