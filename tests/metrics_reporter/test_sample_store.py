"""Samples that Cruise Control keeps in Kafka are decoded with their original meaning."""

from __future__ import annotations

import struct
from math import nan

import pytest

from metrics_reporter import (
    Format,
    MalformedRecordError,
    Record,
    decode_any,
    decode_batch,
    format_of,
)
from metrics_reporter.foreign import CRUISE_CONTROL_METRICS, TOPIC_FORMATS
from metrics_reporter.sample_store import BROKER_TIMERS

TIME = 1_700_000_000_000
FORMAT: Format = "cruise-control-samples"


def of_partition(
    version: int = 1, broker: int = 3, partition: int = 7, topic: bytes = b"my.topic", x: float = 9
) -> bytes:
    """As ``PartitionMetricSample.toBytes`` writes it."""
    values = (0.25, 2.0, 10.0, 20.0, 1.0, 2.0, 3.0, 4.0, x)[: 4 if version == 0 else 9]
    layout = f">bi{len(values)}dqi"
    return struct.pack(layout, version, broker, *values, TIME, partition) + topic


def of_broker(version: int = 5, host: bytes = b"kafka-3", x: float = 12.5) -> bytes:
    """As ``BrokerMetricSample.toBytes`` writes it, with its two bytes too many."""
    head = struct.pack(f">bih{len(host)}s", version, 3, len(host), host)
    values = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.9, 1e6, 11.0, x)
    timers = [float(i) for i in range(21 if version == 4 else 41)]
    return head + struct.pack(f">13dqii{len(timers)}d", *values, TIME, 17, 18, *timers) + b"\0\0"


PARTITION = {
    "size": 2.0 * 2**20,
    "bytes_in": 10_240.0,
    "bytes_out": 20_480.0,
    "produce_rate": 1.0,
    "fetch_rate": 2.0,
    "messages_in": 3.0,
    "replication_bytes_in": 4096.0,
    "replication_bytes_out": 9216.0,
}


def test_a_partition() -> None:
    record = decode_any(of_partition(), FORMAT)
    assert record == Record(TIME, 3, PARTITION, "my.topic", 7)
    old = decode_any(of_partition(version=0), FORMAT)
    assert old is not None
    assert old.metrics == {k: PARTITION[k] for k in ("size", "bytes_in", "bytes_out")}


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker(version: int) -> None:
    assert len(of_broker(host=b"")) == 457
    record = decode_any(of_broker(version), FORMAT)
    assert record is not None
    assert (record.time_ms, record.broker, record.scope) == (TIME, 3, "broker")
    expected = {
        "cpu_ratio": 0.5, "bytes_in": 1024.0, "bytes_out": 2048.0, "replication_bytes_in": 3072.0,
        "request_handler_idle": 0.9, "fetch_rate": 12.5, "request_queue_size": 17.0,
        "consumer_fetch_total_time_ms_mean": 9.0, "log_flush_rate": 18.0,
    }  # fmt: skip
    assert {**record.metrics, **expected} == record.metrics
    assert ("log_flush_time_ms_p999" in record.metrics) == (version == 5)
    assert record.metrics.get("log_flush_time_ms_p999", 40.0) == 40.0


def test_timers_are_those_of_the_reporter() -> None:
    assert set(BROKER_TIMERS) <= {name for _, name in CRUISE_CONTROL_METRICS}
    assert len(set(BROKER_TIMERS)) == 41


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes found, at least 5"),
        (of_partition()[:80], "80 bytes found, more expected in version 1"),
        (of_broker()[:300], "300 bytes found, more expected in version 5"),
        (of_partition(broker=-1), "broker -1"),
        (of_partition(partition=-1), "partition -1"),
        (of_partition(topic=b""), "of 0 letters"),
        (of_partition(topic=b"\xff"), "not UTF-8"),
        (of_partition(x=nan), "replication_bytes_out nan"),
        (of_broker(x=nan), "fetch_rate nan"),
        (struct.pack(">bih", 5, 3, -1) + bytes(500), "a host name of -1 bytes"),
    ],
)
def test_malformed_samples(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedRecordError, match=problem):
        decode_any(data, FORMAT)


def test_many_at_once() -> None:
    unknown = of_partition(version=9)
    assert decode_any(unknown, FORMAT) is None
    messages = [of_broker(), b"junk", of_partition(), unknown, None, of_partition(partition=8)]
    batch = decode_batch(messages, FORMAT)
    singly = [decode_any(m, FORMAT) for m in (of_broker(), of_partition())]
    assert list(batch.records())[:2] == singly
    assert (len(batch), batch.malformed, batch.skipped) == (3, 2, 1)


def test_the_format_is_that_of_the_topics() -> None:
    for topic in ("PartitionMetricSamples", "ModelTrainingSamples"):
        assert TOPIC_FORMATS[f"__KafkaCruiseControl{topic}"] == FORMAT
        assert format_of(of_broker()) != FORMAT
