"""Encodes records as bytes, version 1. Little-endian; values have a fixed, aligned offset.

====== ========== ==============================================================
offset type       field
====== ========== ==============================================================
0      uint8      magic, 0xC7
1      uint8      version, 1
2      uint8      scope: 0 broker, 1 partition, 2 topic (on the broker)
3      uint8      n, the number of values
4      int64      time, ms since 1970 (UTC)
12     int32      broker id
16     int32      partition; -1 with scopes 0 and 2
20     uint16     t, bytes of the topic name; 0 with scope 0
22     uint16     m, bytes of all metric names sent by name
24     float64[n] values, all finite
..     uint16[n]  metric ids: those of :data:`~metrics_reporter.metrics.METRIC_TABLE`,
                  0 by name
..     byte[t]    topic, UTF-8
..     byte[m]    for each id 0 in order: uint8 length, name in UTF-8
====== ========== ==============================================================

A reader drops a value whose id it does not know and keeps the rest, so a new id
needs no new version; anything else new does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import isfinite

from metrics_reporter.errors import MalformedRecordError, ReporterError
from metrics_reporter.metrics import METRIC_IDS
from metrics_reporter.records import Record

VERSION = 1
MAGIC = 0xC7
HEADER_SIZE = 24

_SCOPES = {"broker": 0, "partition": 1, "topic": 2}
_BY_NAME = 0
_NAME = {id_: name for name, id_ in METRIC_IDS.items()}
_HEADER = struct.Struct("<BBBBqiiHH")
_BODY = tuple(struct.Struct(f"<{n}d{n}H") for n in range(256))


def encode(record: Record) -> bytes:
    """Encode a record.

    Raises
    ------
    ReporterError
        For a field that does not fit the format, by name.
    """
    try:
        topic = b"" if record.topic is None else record.topic.encode()
        names = [n.encode() for n in record.metrics if n not in METRIC_IDS]
    except UnicodeEncodeError as error:
        raise ReporterError(f"record: {error.object!r} found, a name in Unicode expected") from None
    _require(
        "topic", record.topic, record.topic is None or 0 < len(topic) < 2**16, "1 to 65535 bytes"
    )
    for name in names:
        _require("metric name", name.decode(), 0 < len(name) < 2**8, "1 to 255 bytes")
    _require("broker", record.broker, 0 <= record.broker < 2**31, "0 to 2147483647")
    _require("time_ms", record.time_ms, -(2**63) <= record.time_ms < 2**63, "a 64-bit integer")
    if record.topic is None:
        _require("partition", record.partition, record.partition == -1, "-1 (there is no topic)")
    else:
        _require(
            "partition",
            record.partition,
            -1 <= record.partition < 2**31,
            "0 to 2147483647, or -1 for the topic",
        )
        _require(
            "topic", record.topic, not record.underscored, "a name as Kafka has it, with its dots,"
        )
    _require("number of metrics", len(record.metrics), len(record.metrics) < 2**8, "at most 255")
    for metric, value in record.metrics.items():
        _require(f"metric {metric}", value, isfinite(value), "a finite number")
    named = b"".join(bytes([len(name)]) + name for name in names)
    return b"".join(
        (
            _HEADER.pack(
                MAGIC,
                VERSION,
                _SCOPES[record.scope],
                len(record.metrics),
                record.time_ms,
                record.broker,
                record.partition,
                len(topic),
                len(named),
            ),
            _BODY[len(record.metrics)].pack(
                *record.metrics.values(),
                *(METRIC_IDS.get(name, _BY_NAME) for name in record.metrics),
            ),
            topic,
            named,
        )
    )


def decode(data: bytes) -> Record:
    """Decode a record; the inverse of :func:`encode`.

    Raises
    ------
    MalformedRecordError
        For any other bytes; `bytes` raise nothing else.
    """
    if len(data) < _HEADER.size:
        raise MalformedRecordError(
            f"record: {len(data)} bytes found, at least {_HEADER.size} expected"
        )
    magic, version, scope, n, time_ms, broker, partition, t, m = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise MalformedRecordError(
            f"record: magic {magic:#x} version {version} found, {MAGIC:#x} version 1 expected"
        )
    body = _BODY[n]
    start = _HEADER.size + body.size
    if len(data) != start + t + m:
        raise MalformedRecordError(f"record: {len(data)} bytes found, {start + t + m} expected")
    if (
        broker < 0
        or scope > 2
        or (scope == 0) != (t == 0)
        or (scope == 1 and partition < 0)
        or (scope != 1 and partition != -1)
    ):
        raise MalformedRecordError(
            f"record: scope {scope}, broker {broker}, partition {partition} and a topic of {t} "
            "bytes found, which contradict each other"
        )
    fields = body.unpack_from(data, _HEADER.size)
    values, ids = fields[:n], fields[n:]
    if not all(map(isfinite, values)):
        raise MalformedRecordError("record: a value found that is not a finite number")
    try:
        topic = data[start : start + t].decode() if scope else None
        names = metric_names(data[start + t :], ids) if m else [_NAME.get(i) for i in ids]
    except UnicodeDecodeError:
        raise MalformedRecordError("record: a name found that is not UTF-8") from None
    metrics = {name: v for name, v in zip(names, values, strict=True) if name is not None}
    if len(metrics) != n and len(metrics) != n - names.count(None):
        raise MalformedRecordError("record: a metric found twice, each once expected")
    if not m and _BY_NAME in ids:
        raise MalformedRecordError("record: a metric without a name found")
    return Record(time_ms, broker, metrics, topic, partition)


def decode_all(values: Iterable[bytes | None]) -> tuple[list[Record], int]:
    """Decode the values that are records.

    Returns
    -------
    records, malformed
        The records in order, and how many values were not records.
    """
    records: list[Record] = []
    malformed = 0
    for value in values:
        try:
            records.append(decode(value or b""))
        except MalformedRecordError:
            malformed += 1
    return records, malformed


def metric_names(named: bytes, ids: tuple[int, ...]) -> list[str | None]:
    """Names of a record's metrics; None for an unknown id.

    Parameters
    ----------
    named
        Names of the metrics that are sent by name, as they are encoded.
    ids
        Ids of all metrics, 0 by name.

    Raises
    ------
    MalformedRecordError, UnicodeDecodeError
        If there are more or fewer names than needed, or one is not UTF-8.
    """
    names: list[str | None] = []
    at = 0
    for i in ids:
        if i != _BY_NAME:
            names.append(_NAME.get(i))
            continue
        length = named[at] if at < len(named) else 0
        name = named[at + 1 : at + 1 + length]
        at += 1 + length
        if not name or at > len(named):
            raise MalformedRecordError("record: a metric without a name found")
        names.append(name.decode())
    if at != len(named):
        raise MalformedRecordError(
            f"record: {len(named)} bytes of metric names found, {at} expected"
        )
    return names


def _require(field: str, value: object, ok: bool, expected: str) -> None:
    if not ok:
        raise ReporterError(f"record, {field}: {value!r} found, {expected} expected")
