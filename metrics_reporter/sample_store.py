"""Decodes the samples that Cruise Control keeps in Kafka to survive its own restarts.

Topics ``__KafkaCruiseControlPartitionMetricSamples`` and
``__KafkaCruiseControlModelTrainingSamples``, by default. All is big-endian. Names of topics are
real ones. Rates of bytes are in KiB/s and sizes in MiB, here B/s and B.

Of a partition, from its leader (version 0 has the first four values only):

====== ============ ===========================================================
offset type         field
====== ============ ===========================================================
0      int8         version, 0 or 1
1      int32        broker id
5      4 or 9       an index of :data:`PARTITION_VALUES` each; the cpu is an
       float64      estimate from the rates, and is left out here
..     int64        time, ms since 1970 (UTC)
..     int32        partition
..     to the end   topic, UTF-8
====== ============ ===========================================================

Of a broker (version 4 has 21 timers, version 5 another 20; bytes after them are ignored):

====== ============ ===========================================================
offset type         field
====== ============ ===========================================================
0      int8         version, 4 or 5
1      int32        broker id
5      int16        h, bytes of the host name
7      byte[h]      host
..     13 float64   an index of :data:`BROKER_VALUES` each
..     int64        time, ms since 1970 (UTC)
..     int32        length of the request queue
..     int32        length of the response queue
..     21 float64   an index of :data:`BROKER_TIMERS` each
..     20 float64   the rest of :data:`BROKER_TIMERS`; in version 5 only
====== ============ ===========================================================
"""

from __future__ import annotations

import struct
from math import isfinite

from metrics_reporter.errors import MalformedRecordError
from metrics_reporter.metrics import (
    BYTES_IN,
    BYTES_OUT,
    CPU_RATIO,
    FETCH_RATE,
    HANDLER_IDLE,
    LOG_FLUSH_RATE,
    MESSAGES_IN,
    PRODUCE_RATE,
    REPLICATION_IN,
    REPLICATION_OUT,
    REQUEST_QUEUE,
    SIZE,
)
from metrics_reporter.records import Record

_KIB, _MIB = 2.0**10, 2.0**20
_REQUESTS = ("produce", "consumer_fetch", "follower_fetch")
_TIMERS = [f"{r}_{t}_time_ms" for t in ("request_queue", "total", "local") for r in _REQUESTS]
_FLUSH = "log_flush_time_ms"

# Our name of each value and its factor; None for what a record does not take.
PARTITION_VALUES: tuple[tuple[str | None, float], ...] = (
    (None, 1.0),
    (SIZE, _MIB),
    (BYTES_IN, _KIB),
    (BYTES_OUT, _KIB),
    (PRODUCE_RATE, 1.0),
    (FETCH_RATE, 1.0),
    (MESSAGES_IN, 1.0),
    (REPLICATION_IN, _KIB),
    (REPLICATION_OUT, _KIB),
)
BROKER_VALUES: tuple[tuple[str | None, float], ...] = (
    (CPU_RATIO, 1.0),
    (BYTES_IN, _KIB),
    (BYTES_OUT, _KIB),
    (REPLICATION_IN, _KIB),
    (REPLICATION_OUT, _KIB),
    (MESSAGES_IN, 1.0),
    *((f"{r}_request_rate", 1.0) for r in _REQUESTS),
    (HANDLER_IDLE, 1.0),
    # of all replicas, whose own samples have it
    (None, 1.0),
    (PRODUCE_RATE, 1.0),
    (FETCH_RATE, 1.0),
)
BROKER_TIMERS: tuple[str, ...] = (
    *(f"{timer}_{of}" for timer in _TIMERS for of in ("max", "mean")),
    LOG_FLUSH_RATE,
    *(f"{_FLUSH}_{of}" for of in ("max", "mean")),
    *(f"{timer}_{of}" for timer in (*_TIMERS, _FLUSH) for of in ("p50", "p999")),
)
# Version to the number of a partition's values, and of a broker's timers.
_PARTITION_VERSIONS = {0: 4, 1: 9}
_BROKER_VERSIONS = {4: 21, 5: 41}

_HEADER = struct.Struct(">bi")
_HOST = struct.Struct(">h")
_OF_PARTITION = {v: struct.Struct(f">{n}dqi") for v, n in _PARTITION_VERSIONS.items()}
_OF_BROKER = {v: struct.Struct(f">13dqii{n}d") for v, n in _BROKER_VERSIONS.items()}


def decode_sample(data: bytes) -> Record | None:
    """Decode a message of Cruise Control's sample store; None for an unknown version.

    Raises
    ------
    MalformedRecordError

    Examples
    --------
    >>> data = struct.pack(">bi4dqi", 0, 3, 0.5, 2.0, 10.0, 20.0, 1_700_000_000_000, 7) + b"orders"
    >>> record = decode_sample(data)
    >>> record.broker, record.topic, record.partition, record.metrics
    (3, 'orders', 7, {'size': 2097152.0, 'bytes_in': 10240.0, 'bytes_out': 20480.0})
    """
    if len(data) < _HEADER.size:
        raise MalformedRecordError(
            f"Cruise Control sample: {len(data)} bytes found, at least {_HEADER.size} expected"
        )
    version, broker = _HEADER.unpack_from(data)
    if broker < 0:
        raise MalformedRecordError(
            f"Cruise Control sample: broker {broker} found, at least 0 expected"
        )
    try:
        if version in _OF_PARTITION:
            return _of_partition(data, version, broker)
        if version in _OF_BROKER:
            return _of_broker(data, version, broker)
    except struct.error:
        raise MalformedRecordError(
            f"Cruise Control sample: {len(data)} bytes found, more expected in version {version}"
        ) from None
    return None


def _of_partition(data: bytes, version: int, broker: int) -> Record:
    layout = _OF_PARTITION[version]
    *values, time_ms, partition = layout.unpack_from(data, _HEADER.size)
    try:
        topic = data[_HEADER.size + layout.size :].decode()
    except UnicodeDecodeError:
        raise MalformedRecordError(
            "Cruise Control sample: a name found that is not UTF-8"
        ) from None
    if not topic or partition < 0:
        raise MalformedRecordError(
            f"Cruise Control sample: partition {partition} of a topic of {len(topic)} letters "
            "found, at least 0 and 1 expected"
        )
    known = zip(PARTITION_VALUES[: len(values)], values, strict=True)
    metrics = {name: factor * value for (name, factor), value in known if name is not None}
    return Record(time_ms, broker, _finite(metrics), topic, partition)


def _of_broker(data: bytes, version: int, broker: int) -> Record:
    (length,) = _HOST.unpack_from(data, _HEADER.size)
    if length < 0:
        raise MalformedRecordError(f"Cruise Control sample: a host name of {length} bytes found")
    found = _OF_BROKER[version].unpack_from(data, _HEADER.size + _HOST.size + length)
    n = len(BROKER_VALUES)
    time_ms, requests, responses = found[n : n + 3]
    known = zip(BROKER_VALUES, found[:n], strict=True)
    metrics = {name: factor * value for (name, factor), value in known if name is not None}
    metrics |= {REQUEST_QUEUE: float(requests), "response_queue_size": float(responses)}
    # In version 4 the last ones are missing.
    metrics |= dict(zip(BROKER_TIMERS, found[n + 3 :], strict=False))
    return Record(time_ms, broker, _finite(metrics))


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    wrong = next((name for name, value in metrics.items() if not isfinite(value)), None)
    if wrong is not None:
        raise MalformedRecordError(
            f"Cruise Control sample: {wrong} {metrics[wrong]} found, a finite number expected"
        )
    return metrics
