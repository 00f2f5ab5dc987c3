"""Matches topics for requests that are answered at once, so that no client takes all processors."""

from __future__ import annotations

import threading

from balancer.server.errors import RequestError
from cluster_model.snapshot import Bools, Snapshot
from goals.patterns import PatternLimits, matching

# Some patterns take exponential time: these are ended soon, and one is matched at a time.
_LIMITS = PatternLimits(seconds=2.0)
_WAIT_SECONDS = 0.1
_one = threading.Lock()


def partitions_of_topics(pattern: str, s: Snapshot) -> Bools:
    """(P,) the partitions of topics whose whole name matches.

    Raises
    ------
    RequestError
        If another pattern takes long just now.
    """
    if not _one.acquire(timeout=_WAIT_SECONDS):
        raise RequestError(
            "the pattern of another request is being matched; try again in some seconds", 429
        )
    try:
        found: Bools = matching(pattern, s.topics, _LIMITS)[s.partition_topic]
    finally:
        _one.release()
    return found
