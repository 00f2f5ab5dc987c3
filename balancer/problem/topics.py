"""Selects partitions by the names of their topics, or by their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from balancer.problem.operation import Operation, OperationError
from cluster_model.snapshot import Bools, Snapshot
from goals.patterns import PatternError, glob_hint, matching
from metrics_reporter.documents import shown


def matching_partitions(s: Snapshot, pattern: str) -> Bools:
    try:
        hit = matching(pattern, s.topics)
    except PatternError as error:
        raise OperationError(str(error)) from None
    return hit[s.partition_topic] if len(s.topics) else np.zeros(0, np.bool_)


def excluded_partitions(s: Snapshot, operation: Operation) -> Bools:
    """(P,) the partitions of topics that an operation excludes.

    Raises
    ------
    OperationError
        For a pattern that matches no topic, unless that is allowed.
    """
    excluded = np.zeros(s.n_partitions, np.bool_)
    for pattern in operation.excluded_topics:
        hit = matching_partitions(s, pattern)
        if not hit.any() and not operation.allow_unmatched:
            raise OperationError(unmatched_exclusion(pattern))
        excluded |= hit
    return excluded


def unmatched_exclusion(pattern: str) -> str:
    """What is wrong with an exclusion that matches no topic."""
    return (
        f"excluded_topics: {shown(pattern)} matches no topic{glob_hint(pattern)}; "
        "--allow-unmatched (allow_unmatched) is for topics that do not exist yet"
    )


def named_partitions(s: Snapshot, names: Sequence[str]) -> Bools:
    """(P,) the partitions with one of these names, like ``orders-3``."""
    mask = np.zeros(s.n_partitions, np.bool_)
    if names:
        requested = set(names)
        pairs = zip(s.partition_topic.tolist(), s.partition_number.tolist(), strict=True)
        mask[:] = [f"{s.topics[t]}-{n}" in requested for t, n in pairs]
    return mask
