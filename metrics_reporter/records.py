"""What a metrics record says: at this time, on this broker, these values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BYTES_IN = "bytes_in"
BYTES_OUT = "bytes_out"
SIZE = "size"
CPU = "cpu"
CPU_RATIO = "cpu_ratio"
REPLICATION_IN = "replication_bytes_in"
REPLICATION_OUT = "replication_bytes_out"
MESSAGES_IN = "messages_in"
PRODUCE_RATE = "produce_rate"
FETCH_RATE = "fetch_rate"
HANDLER_IDLE = "request_handler_idle"
REQUEST_QUEUE = "request_queue_size"
LOG_FLUSH_RATE = "log_flush_rate"
LOG_FLUSH_MEAN = "log_flush_time_ms_mean"
LOG_FLUSH_P999 = "log_flush_time_ms_p999"
PRODUCE_TIME_MEAN = "produce_total_time_ms_mean"
PRODUCE_TIME_P999 = "produce_total_time_ms_p999"
FETCH_TIME_MEAN = "consumer_fetch_total_time_ms_mean"
FETCH_TIME_P999 = "consumer_fetch_total_time_ms_p999"
APPEND_TIME_MEAN = "append_latency_ms_mean"
PENDING_APPEND_MAX = "pending_append_latency_ms_max"
PENDING_FETCH_MAX = "pending_fetch_latency_ms_max"
PRODUCE_LOCAL_MEAN = "produce_local_time_ms_mean"
PRODUCE_LOCAL_P999 = "produce_local_time_ms_p999"
FETCH_LOCAL_MEAN = "consumer_fetch_local_time_ms_mean"
FETCH_LOCAL_P999 = "consumer_fetch_local_time_ms_p999"
FOLLOWER_LOCAL_MEAN = "follower_fetch_local_time_ms_mean"
FOLLOWER_LOCAL_P999 = "follower_fetch_local_time_ms_p999"

BYTES_TO = "bytes_to/"

# What is said of a whole broker, cpu first.
BROKER_METRICS = (
    CPU,
    BYTES_IN,
    BYTES_OUT,
    REPLICATION_IN,
    REPLICATION_OUT,
    MESSAGES_IN,
    PRODUCE_RATE,
    FETCH_RATE,
    HANDLER_IDLE,
    REQUEST_QUEUE,
    LOG_FLUSH_RATE,
    LOG_FLUSH_MEAN,
    LOG_FLUSH_P999,
    PRODUCE_TIME_MEAN,
    PRODUCE_TIME_P999,
    FETCH_TIME_MEAN,
    FETCH_TIME_P999,
    APPEND_TIME_MEAN,
    PENDING_APPEND_MAX,
    PENDING_FETCH_MAX,
    PRODUCE_LOCAL_MEAN,
    PRODUCE_LOCAL_P999,
    FETCH_LOCAL_MEAN,
    FETCH_LOCAL_P999,
    FOLLOWER_LOCAL_MEAN,
    FOLLOWER_LOCAL_P999,
)


class Record(NamedTuple):
    """Metrics of a broker, of a partition's replica on it, or of a topic's leaders on it.

    A named tuple, because a consumer makes hundreds of thousands of them a second.

    Parameters
    ----------
    time_ms
        When the values held, in milliseconds since 1970 (UTC).
    broker
        Id of the broker that measured.
    metrics
        Value by metric name. This project gives meaning to, of a broker,
        :data:`BROKER_METRICS` (``cpu`` in the unit of the broker's cpu capacity, rates
        per second, times in ms; total times hold a fetch's wait for data, local ones do
        not) and ``cpu_ratio`` (0 to 1 of that capacity); of the
        partition's leader, ``bytes_in`` and ``bytes_out`` (clients' bytes/s, replication
        not counted) and what :func:`bytes_to` names; of a topic, the same two rates, summed
        over the partitions that the broker leads; of any replica, ``size`` (bytes on disk).
        Any other name is carried along.
    topic, partition
        The partition measured; -1 where the record is about a topic on the broker, and
        None and -1 where it is about the whole broker.
    underscored
        Whether the topic's name has ``_`` where it may have ``.`` in Kafka, as Cruise
        Control's reporter writes it.

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


def bytes_to(topic: str, partition: int) -> str:
    """Name of the metric of a partition: bytes/s that what reads it sends on to another one.

    Examples
    --------
    >>> bytes_to("orders.by-day", 3)
    'bytes_to/orders.by-day/3'
    """
    return f"{BYTES_TO}{topic}/{partition}"
