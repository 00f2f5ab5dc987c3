"""The metrics record: values measured on a broker at one time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Record(NamedTuple):
    """Metrics of a broker, of a partition's replica on it, or of a topic's leaders on it.

    A named tuple, because a consumer makes hundreds of thousands of them a second.

    Parameters
    ----------
    time_ms
        When the values were measured, in milliseconds since 1970 (UTC).
    broker
        Id of the broker that measured.
    metrics
        Value by metric name; units and scopes are in
        :data:`~metrics_reporter.metrics.METRIC_TABLE`. For a partition's leader, ``bytes_in`` and
        ``bytes_out`` are clients' bytes, replication not counted; a follower may report as
        ``bytes_out`` what consumers read from it.
        :func:`~metrics_reporter.metrics.bytes_to` names further rates. For a topic, the two rates
        are sums over the partitions that the broker leads. For any replica, ``size`` is bytes on
        disk. Any other name is passed through.
    topic, partition
        The partition measured; -1 if the record is about a topic on the broker, and
        None and -1 if it is about the whole broker.
    underscored
        Whether the topic's name has ``_`` in place of ``.``, as written by Cruise Control's
        reporter.

    Examples
    --------
    >>> Record(1_700_000_000_000, 3, {"cpu": 120.0}).scope
    'broker'
    >>> Record(1_700_000_000_000, 3, {"size": 4096.0}, "orders", 0).scope
    'partition'
    >>> Record(1_700_000_000_000, 3, {"bytes_in": 4096.0}, "orders").scope
    'topic'
    """

    time_ms: int
    broker: int
    metrics: Mapping[str, float]
    topic: str | None = None
    partition: int = -1
    underscored: bool = False

    @property
    def scope(self) -> str:
        """``"broker"``, ``"partition"`` or ``"topic"``."""
        if self.topic is None:
            return "broker"
        return "topic" if self.partition == -1 else "partition"
