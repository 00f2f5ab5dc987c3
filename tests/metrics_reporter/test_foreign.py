"""Records of other balancers' reporters are decoded with their original meaning."""

import struct

import pytest

from metrics_reporter import (
    BROKER_METRICS,
    Format,
    MalformedRecordError,
    Record,
    decode_any,
    decode_batch,
    encode,
    format_of,
)
from metrics_reporter.foreign import CRUISE_CONTROL_METRICS, decode_automq, decode_cruise_control
from metrics_reporter.metrics import (
    FETCH_LOCAL_MEAN,
    FETCH_LOCAL_P999,
    FOLLOWER_LOCAL_MEAN,
    FOLLOWER_LOCAL_P999,
    PRODUCE_LOCAL_MEAN,
    PRODUCE_LOCAL_P999,
)

TIME = 1_700_000_000_000
# Written by the reporters themselves.
CRUISE_CONTROL = {
    "0000000000018bcfe568000000000340934a0000000000": Record(TIME, 3, {"bytes_in": 1234.5}),
    "0000050000018bcfe56800000000033fd0000000000000": Record(TIME, 3, {"cpu_ratio": 0.25}),
    "0100030000018bcfe5680000000003000000086d792d746f7069634024000000000000": Record(
        TIME, 3, {"bytes_out": 10.0}, "my-topic", -1, True
    ),
    "0200040000018bcfe5680000000003000000086d792d746f706963000000074130000000000000": Record(
        TIME, 3, {"size": 1048576.0}, "my-topic", 7, True
    ),
}
AUTOMQ = (
    "0000000000000000007b000000000000000000000005746f7069630000006400000002"
    "003fc999999999999a023fb999999999999a"
)


@pytest.mark.parametrize("value", CRUISE_CONTROL)
def test_golden_bytes_of_cruise_control(value: str) -> None:
    data, record = bytes.fromhex(value), CRUISE_CONTROL[value]
    assert decode_cruise_control(data) == record
    assert decode_any(data) == record
    assert format_of(data) == "cruise-control"
    for format in ("cruise-control", None):
        assert list(decode_batch([data], format).records()) == [record]


@pytest.mark.parametrize("trailing", [0, 1, 55])
def test_golden_bytes_of_automq(trailing: int) -> None:
    data = bytes.fromhex(AUTOMQ) + bytes(trailing)
    record = Record(123, 0, {"bytes_in": 0.2, "size": 0.1}, "topic", 100)
    assert decode_automq(data) == record
    assert list(decode_batch([data], "automq").records()) == [record]


def automq(scope: int = 1, rack: bytes = b"r", rest: bytes = b"", version: int = 0) -> bytes:
    return struct.pack(">BBqii", scope, version, TIME, 2, len(rack)) + rack + rest


def automq_values(*values: tuple[int, float]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(struct.pack(">bd", *v) for v in values)


def test_a_broker_of_automq() -> None:
    data = automq(rest=automq_values((3, 1.5), (4, 2.5), (5, 3.5), (6, 2.0), (0, 9.0), (77, 9.0)))
    record = Record(
        TIME,
        2,
        {
            "append_latency_ms_mean": 1.5,
            "pending_append_latency_ms_max": 2.5,
            "pending_fetch_latency_ms_max": 3.5,
            "metric_version": 2.0,
        },
    )
    assert format_of(data) == "automq"
    assert decode_any(data) == record
    assert list(decode_batch([data]).records()) == [record]


def cruise_control(
    class_: int = 0, metric: int = 0, rest: bytes = b"", version: int = 0, broker: int = 3
) -> bytes:
    return struct.pack(">bbbqi", class_, version, metric, TIME, broker) + rest


ONE = struct.pack(">d", 1.0)
NAN = struct.pack(">d", float("nan"))


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (cruise_control(metric=63, rest=ONE), "cruise-control"),
        (cruise_control(metric=-1, rest=ONE), "cruise-control"),
        (cruise_control(class_=3, rest=ONE), "cruise-control"),
        (automq(scope=2), "automq"),
    ],
)
def test_what_is_not_known_is_skipped(data: bytes, format: Format) -> None:
    assert decode_any(data, format) is None
    batch = decode_batch([data, data], format)
    assert (len(batch), batch.malformed, batch.skipped) == (0, 0, 2)


@pytest.mark.parametrize(
    ("data", "format", "says"),
    [
        (b"", None, "0 bytes found, of none"),
        (b"junk of no known format", None, "of none"),
        (b"\0\0", "cruise-control", "2 bytes found, at least 15"),
        (cruise_control(version=1, rest=ONE), "cruise-control", "version 1"),
        (cruise_control(broker=-1, rest=ONE), "cruise-control", "broker -1"),
        (cruise_control(rest=ONE + b"\0"), "cruise-control", "24 bytes found, 23 expected"),
        (cruise_control(rest=ONE[1:]), "cruise-control", "ends before its value"),
        (cruise_control(rest=NAN), "cruise-control", "value nan"),
        (cruise_control(metric=2, rest=ONE), "cruise-control", "of a topic found in one of a b"),
        (cruise_control(1, 2, b"\0\0\0\0" + ONE), "cruise-control", "topic name of 0 bytes"),
        (cruise_control(1, 2, b"\xff\0\0\1a" + ONE), "cruise-control", "topic name of -"),
        (cruise_control(1, 2, b"\0\0\0\1\xff" + ONE), "cruise-control", "not UTF-8"),
        (cruise_control(2, 4, b"\0\0\0\1a" + b"\xff" * 4 + ONE), "cruise-control", "partition -1"),
        (b"\1\0", "automq", "2 bytes found, at least 18"),
        (automq(version=1), "automq", "version 1"),
        (automq(), "automq", "ends before its values"),
        (automq(rest=b"\xff" * 4), "automq", "-1 values found"),
        (automq(rest=b"\0\0\0\2" + bytes(9)), "automq", "2 values found"),
        (automq(rest=automq_values((3, 1.0), (3, 1.0))), "automq", "found twice"),
        (automq(rest=automq_values((3, float("inf")))), "automq", "not a finite number"),
        (automq(scope=0, rest=b"\0\0\0\1a" + b"\xff" * 4 + bytes(4)), "automq", "partition -1"),
        (automq()[:14] + b"\xff" * 4, "automq", "a rack of -1 bytes"),
    ],
)
def test_malformed_says_what_is_wrong(data: bytes, format: Format | None, says: str) -> None:
    with pytest.raises(MalformedRecordError) as caught:
        decode_any(data, format)
    assert says in str(caught.value)
    batch = decode_batch([data], format)
    assert (len(batch), batch.malformed, batch.skipped) == (0, 1, 0)


def test_every_metric_of_cruise_control_has_a_name_of_its_own() -> None:
    assert len(set(CRUISE_CONTROL_METRICS)) == len(CRUISE_CONTROL_METRICS) == 63
    names = [name for _, name in CRUISE_CONTROL_METRICS]
    assert names[28:30] == ["produce_total_time_ms_max", "produce_total_time_ms_mean"]
    assert names[40:43] == ["log_flush_rate", "log_flush_time_ms_max", "log_flush_time_ms_mean"]
    assert names[43:45] == [
        "produce_request_queue_time_ms_p50",
        "produce_request_queue_time_ms_p999",
    ]
    assert names[61:] == ["log_flush_time_ms_p50", "log_flush_time_ms_p999"]


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (35, PRODUCE_LOCAL_MEAN),
        (37, FETCH_LOCAL_MEAN),
        (39, FOLLOWER_LOCAL_MEAN),
        (56, PRODUCE_LOCAL_P999),
        (58, FETCH_LOCAL_P999),
        (60, FOLLOWER_LOCAL_P999),
    ],
)
def test_local_times_of_cruise_control_are_local_times_here(metric: int, name: str) -> None:
    data = cruise_control(metric=metric, rest=ONE)
    assert name in BROKER_METRICS
    assert decode_any(data) == Record(TIME, 3, {name: 1.0})
    assert list(decode_batch([data]).records()) == [Record(TIME, 3, {name: 1.0})]


def test_a_topic_may_hold_all_formats() -> None:
    ours = Record(TIME, 1, {"cpu": 1.0})
    batch = decode_batch(
        [
            bytes.fromhex(next(iter(CRUISE_CONTROL))),
            encode(ours),
            None,
            automq(rest=automq_values((3, 1.5))),
            encode(ours._replace(metrics={"by name": 2.0, "cpu": 3.0})),
            bytes.fromhex(list(CRUISE_CONTROL)[3]),
        ]
    )
    assert list(batch.records()) == [
        Record(TIME, 3, {"bytes_in": 1234.5}),
        ours,
        Record(TIME, 2, {"append_latency_ms_mean": 1.5}),
        Record(TIME, 1, {"by name": 2.0, "cpu": 3.0}),
        Record(TIME, 3, {"size": 1048576.0}, "my-topic", 7, True),
    ]
    assert (batch.malformed, batch.skipped) == (1, 0)
