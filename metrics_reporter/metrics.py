"""The table of known metrics: name, id in the wire format, unit, and scope."""

from __future__ import annotations

from typing import Literal, NamedTuple

Scope = Literal["broker", "topic", "partition"]

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


class Metric(NamedTuple):
    """One metric.

    Parameters
    ----------
    id
        Its number in the wire format.
    name
        Its name in a record.
    unit
        What its value counts. Rates are per second.
    scopes
        What it is reported for: a broker, the leaders of a topic on a broker, or a replica of a
        partition (rates: clients' bytes without replication; of followers only ``bytes_out``,
        what consumers read from them).
    """

    id: int
    name: str
    unit: str
    scopes: tuple[Scope, ...] = ("broker",)


# Ids are part of the wire format: they never change, and a new one goes to the end. Total
# times include a fetch's wait for data, local times do not.
METRIC_TABLE = (
    Metric(1, BYTES_IN, "B/s", ("broker", "topic", "partition")),
    Metric(2, BYTES_OUT, "B/s", ("broker", "topic", "partition")),
    Metric(3, SIZE, "B", ("partition",)),
    Metric(4, CPU, "unit of the cpu capacity"),
    Metric(5, CPU_RATIO, "ratio"),
    Metric(6, REPLICATION_IN, "B/s"),
    Metric(7, REPLICATION_OUT, "B/s"),
    Metric(8, MESSAGES_IN, "1/s"),
    Metric(9, PRODUCE_RATE, "1/s"),
    Metric(10, FETCH_RATE, "1/s"),
    Metric(11, HANDLER_IDLE, "ratio"),
    Metric(12, REQUEST_QUEUE, "requests"),
    Metric(13, LOG_FLUSH_RATE, "1/s"),
    Metric(14, LOG_FLUSH_MEAN, "ms"),
    Metric(15, LOG_FLUSH_P999, "ms"),
    Metric(16, PRODUCE_TIME_MEAN, "ms"),
    Metric(17, PRODUCE_TIME_P999, "ms"),
    Metric(18, FETCH_TIME_MEAN, "ms"),
    Metric(19, FETCH_TIME_P999, "ms"),
    Metric(20, APPEND_TIME_MEAN, "ms"),
    Metric(21, PENDING_APPEND_MAX, "ms"),
    Metric(22, PENDING_FETCH_MAX, "ms"),
    Metric(23, PRODUCE_LOCAL_MEAN, "ms"),
    Metric(24, PRODUCE_LOCAL_P999, "ms"),
    Metric(25, FETCH_LOCAL_MEAN, "ms"),
    Metric(26, FETCH_LOCAL_P999, "ms"),
    Metric(27, FOLLOWER_LOCAL_MEAN, "ms"),
    Metric(28, FOLLOWER_LOCAL_P999, "ms"),
)

METRIC_IDS = {metric.name: metric.id for metric in METRIC_TABLE}

# Broker metrics that the model keeps, cpu first; a ratio of cpu becomes cpu.
BROKER_METRICS = (
    CPU,
    *(m.name for m in METRIC_TABLE if "broker" in m.scopes and m.name not in (CPU, CPU_RATIO)),
)


def bytes_to(topic: str, partition: int) -> str:
    """Name of a partition's metric: bytes/s that its readers send on to another partition.

    Examples
    --------
    >>> bytes_to("orders.by-day", 3)
    'bytes_to/orders.by-day/3'
    """
    return f"{BYTES_TO}{topic}/{partition}"
