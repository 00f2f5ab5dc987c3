"""What a metrics record says: at this time, on this broker, these values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BYTES_IN = "bytes_in"
BYTES_OUT = "bytes_out"
SIZE = "size"
CPU = "cpu"


class Record(NamedTuple):
    """Metrics of a broker, or of the replica of one partition that a broker holds.

    A named tuple, because a consumer makes hundreds of thousands of them a second.

    Parameters
    ----------
    time_ms
        When the values held, in milliseconds since 1970 (UTC).
    broker
        Id of the broker that measured.
    metrics
        Value by metric name. This project gives meaning to, of a broker, ``cpu``
        (in the unit of the broker's cpu capacity); of the partition's leader,
        ``bytes_in`` and ``bytes_out`` (clients' bytes/s, replication not counted); of any
        replica, ``size`` (bytes on disk). Any other name is carried along.
    topic, partition
        The partition measured; None and -1 where the record is about the whole broker.

    Examples
    --------
    >>> Record(1_700_000_000_000, 3, {"cpu": 120.0}).scope
    'broker'
    >>> Record(1_700_000_000_000, 3, {"size": 4096.0}, "orders", 0).scope
    'partition'
    """

    time_ms: int
    broker: int
    metrics: Mapping[str, float]
    topic: str | None = None
    partition: int = -1

    @property
    def scope(self) -> str:
        """``"broker"`` or ``"partition"``."""
        return "broker" if self.topic is None else "partition"
