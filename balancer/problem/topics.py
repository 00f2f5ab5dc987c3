"""Selects partitions by the names of their topics, or by their own."""

from __future__ import annotations

from collections.abc import Sequence

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


def named_partitions(s: Snapshot, names: Sequence[str]) -> Bools:
    """(P,) the partitions with one of these names, like ``orders-3``."""
    mask = np.zeros(s.n_partitions, np.bool_)
    if names:
        requested = set(names)
        pairs = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        mask[:] = [f"{s.topics[t]}-{n}" in requested for t, n in pairs]
    return mask
