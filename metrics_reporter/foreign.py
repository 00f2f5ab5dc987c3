"""Decodes records of other balancers' reporters: Cruise Control's and AutoMQ's.

The samples that Cruise Control stores are those of :mod:`metrics_reporter.sample_store`.

Both are big-endian. Cruise Control's reporter writes one value per message to
``__CruiseControlMetrics``, writes ``_`` for ``.`` in a topic's name, and reports rates per
topic and broker, never per partition:

====== ========= ===============================================================
offset type      field
====== ========= ===============================================================
0      int8      class: 0 broker, 1 topic, 2 partition
1      int8      version, 0
2      int8      metric, an index of :data:`CRUISE_CONTROL_METRICS`
3      int64     time, ms since 1970 (UTC)
11     int32     broker id
15     int32     t, bytes of the topic name; not in class 0
19     byte[t]   topic, UTF-8; not in class 0
..     int32     partition; in class 2 only
..     float64   value
====== ========= ===============================================================

AutoMQ's writes one message per partition or broker to ``__auto_balancer_metrics``; bytes
after the last value are ignored:

====== ========= ===============================================================
offset type      field
====== ========= ===============================================================
0      uint8     scope: 0 partition, 1 broker
1      uint8     version, 0
2      int64     time, ms since 1970 (UTC)
10     int32     broker id
14     int32     r, bytes of the rack name
18     byte[r]   rack
..     int32     t, bytes of the topic name; in scope 0 only
..     byte[t]   topic, UTF-8; in scope 0 only
..     int32     partition; in scope 0 only
..     int32     n, the number of values
..     n times   int8 metric, an index of :data:`AUTOMQ_METRICS`; float64 value
====== ========= ===============================================================
"""

from __future__ import annotations

import struct
from math import isfinite
from typing import Literal

from metrics_reporter.errors import MalformedRecordError
from metrics_reporter.metrics import (
    APPEND_TIME_MEAN,
    BYTES_IN,
    BYTES_OUT,
    CPU_RATIO,
    FETCH_RATE,
    HANDLER_IDLE,
    LOG_FLUSH_RATE,
    MESSAGES_IN,
    PENDING_APPEND_MAX,
    PENDING_FETCH_MAX,
    PRODUCE_RATE,
    REPLICATION_IN,
    REPLICATION_OUT,
    REQUEST_QUEUE,
    SIZE,
    Scope,
)
from metrics_reporter.records import Record
from metrics_reporter.sample_store import decode_sample
from metrics_reporter.wire import MAGIC, decode

Format = Literal["counterpoise", "cruise-control", "automq", "cruise-control-samples"]

# The format of messages in a topic of this name.
TOPIC_FORMATS: dict[str, Format] = {
    "__CruiseControlMetrics": "cruise-control",
    "__KafkaCruiseControlPartitionMetricSamples": "cruise-control-samples",
    "__KafkaCruiseControlModelTrainingSamples": "cruise-control-samples",
    "__auto_balancer_metrics": "automq",
}

_REQUESTS = ("produce", "consumer_fetch", "follower_fetch")
_TIMERS = [f"{r}_{t}_time_ms" for t in ("request_queue", "total", "local") for r in _REQUESTS]
_FLUSH = "log_flush_time_ms"

# Scope and our name of each of Cruise Control's raw metric types, by id.
CRUISE_CONTROL_METRICS: tuple[tuple[Scope, str], ...] = (
    ("broker", BYTES_IN),
    ("broker", BYTES_OUT),
    ("topic", BYTES_IN),
    ("topic", BYTES_OUT),
    ("partition", SIZE),
    ("broker", CPU_RATIO),
    ("broker", REPLICATION_IN),
    ("broker", REPLICATION_OUT),
    ("broker", PRODUCE_RATE),
    ("broker", FETCH_RATE),
    ("broker", MESSAGES_IN),
    ("topic", REPLICATION_IN),
    ("topic", REPLICATION_OUT),
    ("topic", PRODUCE_RATE),
    ("topic", FETCH_RATE),
    ("topic", MESSAGES_IN),
    *(("broker", f"{r}_request_rate") for r in _REQUESTS),
    ("broker", HANDLER_IDLE),
    ("broker", REQUEST_QUEUE),
    ("broker", "response_queue_size"),
    *(("broker", f"{timer}_{of}") for timer in _TIMERS for of in ("max", "mean")),
    ("broker", LOG_FLUSH_RATE),
    *(("broker", f"{timer}_{of}") for timer in (_FLUSH,) for of in ("max", "mean")),
    *(("broker", f"{timer}_{of}") for timer in (*_TIMERS, _FLUSH) for of in ("p50", "p999")),
)

# The same for AutoMQ's.
AUTOMQ_METRICS: tuple[tuple[Scope, str], ...] = (
    ("partition", BYTES_IN),
    ("partition", BYTES_OUT),
    ("partition", SIZE),
    ("broker", APPEND_TIME_MEAN),
    ("broker", PENDING_APPEND_MAX),
    ("broker", PENDING_FETCH_MAX),
    ("broker", "metric_version"),
)

CRUISE_CONTROL_CLASSES: tuple[Scope, ...] = ("broker", "topic", "partition")
AUTOMQ_SCOPES: tuple[Scope, ...] = ("partition", "broker")

# A time read one byte off is 256 times too large or too small, so at most one of the two
# readings lies between 1987 and 4199.
EARLIEST_MS, LATEST_MS = 2**39, 2**46

_CRUISE_CONTROL = struct.Struct(">bbbqi")
_AUTOMQ = struct.Struct(">BBqii")
_INT = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")
_VALUE = struct.Struct(">bd")


def format_of(data: bytes) -> Format | None:
    """Detect the format of a message by its first bytes; None if it is none of the reporters'.

    Ours has a magic byte. The others differ in the offset at which a plausible time stands.
    Samples of Cruise Control's store have no such sign: their format must be given.
    """
    if data[:1] == bytes([MAGIC]):
        return "counterpoise"
    if len(data) >= 11 and data[1] == 0:
        if EARLIEST_MS <= int.from_bytes(data[2:10], "big", signed=True) < LATEST_MS:
            return "automq"
        if EARLIEST_MS <= int.from_bytes(data[3:11], "big", signed=True) < LATEST_MS:
            return "cruise-control"
    return None


def decode_any(data: bytes, format: Format | None = None) -> Record | None:
    """Decode `data` in the format given, or in the one detected.

    Parameters
    ----------
    data
        A message's value.
    format
        None to detect it from the message (:func:`format_of`).

    Returns
    -------
    Record or None
        None for a well-formed message of an unknown kind or metric.

    Raises
    ------
    MalformedRecordError
        For any other bytes.
    """
    found = format or format_of(data)
    if found == "counterpoise":
        return decode(data)
    if found == "cruise-control":
        return decode_cruise_control(data)
    if found == "automq":
        return decode_automq(data)
    if found == "cruise-control-samples":
        return decode_sample(data)
    raise MalformedRecordError(f"record: {len(data)} bytes found, of none of the known formats")


def decode_cruise_control(data: bytes) -> Record | None:
    """Decode a message of Cruise Control's reporter; None for an unknown class or metric.

    Raises
    ------
    MalformedRecordError

    Examples
    --------
    >>> data = "0100030000018bcfe5680000000003000000086d792d746f7069634024000000000000"
    >>> record = decode_cruise_control(bytes.fromhex(data))
    >>> record.scope, record.topic, record.metrics
    ('topic', 'my-topic', {'bytes_out': 10.0})
    """
    if len(data) < _CRUISE_CONTROL.size:
        raise MalformedRecordError(
            f"Cruise Control record: {len(data)} bytes found, "
            f"at least {_CRUISE_CONTROL.size} expected"
        )
    class_, version, metric, time_ms, broker = _CRUISE_CONTROL.unpack_from(data)
    _check("Cruise Control", version, broker)
    if not (
        0 <= class_ < len(CRUISE_CONTROL_CLASSES) and 0 <= metric < len(CRUISE_CONTROL_METRICS)
    ):
        return None
    scope, name = CRUISE_CONTROL_METRICS[metric]
    if scope != CRUISE_CONTROL_CLASSES[class_]:
        raise MalformedRecordError(
            f"Cruise Control record: metric {metric} of a {scope} found in one of a "
            f"{CRUISE_CONTROL_CLASSES[class_]}"
        )
    topic, partition, at = None, -1, _CRUISE_CONTROL.size
    try:
        if scope != "broker":
            topic, at = _topic(data, at)
        if scope == "partition":
            partition, at = _INT.unpack_from(data, at)[0], at + _INT.size
        (value,) = _DOUBLE.unpack_from(data, at)
    except struct.error:
        raise MalformedRecordError("Cruise Control record: it ends before its value") from None
    if at + _DOUBLE.size != len(data):
        raise MalformedRecordError(
            f"Cruise Control record: {len(data)} bytes found, {at + _DOUBLE.size} expected"
        )
    if not isfinite(value) or (scope == "partition" and partition < 0):
        raise MalformedRecordError(
            f"Cruise Control record: partition {partition} and value {value} found, at least 0 "
            "and a finite number expected"
        )
    return Record(time_ms, broker, {name: value}, topic, partition, topic is not None)


def decode_automq(data: bytes) -> Record | None:
    """Decode a message of AutoMQ's reporter; None for an unknown scope.

    Values of unknown metrics, and of metrics of the other scope, are left out.

    Raises
    ------
    MalformedRecordError
    """
    if len(data) < _AUTOMQ.size:
        raise MalformedRecordError(
            f"AutoMQ record: {len(data)} bytes found, at least {_AUTOMQ.size} expected"
        )
    kind, version, time_ms, broker, rack = _AUTOMQ.unpack_from(data)
    _check("AutoMQ", version, broker)
    if kind >= len(AUTOMQ_SCOPES):
        return None
    scope = AUTOMQ_SCOPES[kind]
    if rack < 0:
        raise MalformedRecordError(f"AutoMQ record: a rack of {rack} bytes found")
    topic, partition, at = None, -1, _AUTOMQ.size + rack
    try:
        if scope == "partition":
            topic, at = _topic(data, at)
            partition, at = _INT.unpack_from(data, at)[0], at + _INT.size
        (n,) = _INT.unpack_from(data, at)
    except struct.error:
        raise MalformedRecordError("AutoMQ record: it ends before its values") from None
    at += _INT.size
    if n < 0 or at + n * _VALUE.size > len(data):
        raise MalformedRecordError(f"AutoMQ record: {n} values found in {len(data)} bytes")
    if scope == "partition" and partition < 0:
        raise MalformedRecordError(f"AutoMQ record: partition {partition} found")
    values = list(_VALUE.iter_unpack(data[at : at + n * _VALUE.size]))
    known = [
        (AUTOMQ_METRICS[i][1], v)
        for i, v in values
        if 0 <= i < len(AUTOMQ_METRICS) and AUTOMQ_METRICS[i][0] == scope
    ]
    metrics = dict(known)
    if not all(isfinite(v) for _, v in values) or len(metrics) != len(known):
        raise MalformedRecordError(
            "AutoMQ record: a metric found twice, or a value that is not a finite number"
        )
    return Record(time_ms, broker, metrics, topic, partition)


def _check(whose: str, version: int, broker: int) -> None:
    if version != 0 or broker < 0:
        raise MalformedRecordError(
            f"{whose} record: version {version} and broker {broker} found, 0 and at least 0 "
            "expected"
        )


def _topic(data: bytes, at: int) -> tuple[str, int]:
    """The topic name whose length is at `at`, and the offset after it."""
    (length,) = _INT.unpack_from(data, at)
    end = at + _INT.size + length
    if length <= 0 or end > len(data):
        raise MalformedRecordError(f"record: a topic name of {length} bytes found")
    try:
        return data[at + _INT.size : end].decode(), end
    except UnicodeDecodeError:
        raise MalformedRecordError("record: a name found that is not UTF-8") from None
