"""Records survive encoding and decoding; all other bytes are refused with one kind of error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import RECORDS

from metrics_reporter import MalformedRecordError, Record, ReporterError, decode, decode_all, encode
from metrics_reporter.metrics import BROKER_METRICS, METRIC_IDS, METRIC_TABLE


@given(RECORDS)
def test_decode_is_the_inverse_of_encode(record: Record) -> None:
    assert decode(encode(record)) == record


@given(RECORDS, st.data())
def test_mutated_bytes_decode_or_are_malformed(record: Record, data: st.DataObject) -> None:
    value = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)))
    for mutant in (bytes(value), bytes(value[:cut]), bytes(value[cut:]), bytes(value) + b"\0"):
        records, malformed = decode_all([mutant])
        assert len(records) + malformed == 1
        for decoded in records:
            assert decode(encode(decoded)) == decoded


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=5))
def test_any_bytes_are_counted(values: list[bytes | None]) -> None:
    records, malformed = decode_all(values)
    assert len(records) + malformed == len(values)


def test_golden_bytes_of_version_1() -> None:
    broker = Record(1_700_000_000_000, 3, {"cpu": 0.25})
    assert encode(broker).hex() == (
        "c7010001" + "0068e5cf8b010000" + "03000000" + "ffffffff" + "0000" + "0000"
        "000000000000d03f" + "0400"
    )
    partition = Record(1_700_000_000_000, 3, {"size": 1.0, "x": 2.0}, "t", 7)
    assert encode(partition).hex() == (
        "c7010102" + "0068e5cf8b010000" + "03000000" + "07000000" + "0100" + "0200"
        "000000000000f03f" + "0000000000000040" + "0300" + "0000" + "74" + "0178"
    )


def test_golden_bytes_of_local_times() -> None:
    times = {
        f"{request}_local_time_ms_{of}": 1.0
        for request in ("produce", "consumer_fetch", "follower_fetch")
        for of in ("mean", "p999")
    }
    broker = Record(1_700_000_000_000, 3, times)
    assert encode(broker).hex() == (
        "c7010006" + "0068e5cf8b010000" + "03000000" + "ffffffff" + "0000" + "0000"
        + 6 * "000000000000f03f" + "170018001900" + "1a001b001c00"
    )  # fmt: skip
    assert decode(encode(broker)) == broker


def test_no_id_was_moved() -> None:
    """The numbers are part of the format: old records contain them."""
    first = ["bytes_in", "bytes_out", "size", "cpu", "cpu_ratio"]
    assert list(METRIC_IDS)[:5] == first
    assert METRIC_IDS["consumer_fetch_total_time_ms_p999"] == 19
    assert METRIC_IDS["pending_fetch_latency_ms_max"] == 22
    assert list(METRIC_IDS.values()) == list(range(1, 29))


def test_golden_bytes_of_a_topic_on_a_broker() -> None:
    topic = Record(1_700_000_000_000, 3, {"bytes_in": 1.0, "cpu_ratio": 2.0}, "t")
    assert encode(topic).hex() == (
        "c7010202" + "0068e5cf8b010000" + "03000000" + "ffffffff" + "0100" + "0000"
        "000000000000f03f" + "0000000000000040" + "0100" + "0500" + "74"
    )
    assert decode(encode(topic)) == topic


def test_an_unknown_id_is_dropped_and_the_rest_kept() -> None:
    data = bytearray(encode(Record(1, 2, {"cpu": 5.0, "size": 6.0})))
    data[-2:] = struct.pack("<H", 900)
    assert decode(bytes(data)).metrics == {"cpu": 5.0}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda d: b"", "0 bytes found, at least 24 expected"),
        (lambda d: b"\0" + d[1:], "magic 0x0 version 1 found"),
        (lambda d: d[:1] + b"\2" + d[2:], "version 2 found"),
        (lambda d: d[:2] + b"\1" + d[3:], "contradict"),
        (lambda d: d + b"\0", "45 bytes found, 44 expected"),
        (lambda d: d[:24] + struct.pack("<d", float("nan")) + d[32:], "not a finite number"),
        (lambda d: d[:-2] + d[-4:-2], "found twice"),
        (lambda d: d[:-2] + b"\0\0", "without a name"),
    ],
)
def test_malformed_says_what_is_wrong(edit, says: str) -> None:  # type: ignore[no-untyped-def]
    good = encode(Record(1, 2, {"cpu": 5.0, "size": 6.0}))
    with pytest.raises(MalformedRecordError) as caught:
        decode(edit(good))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (Record(0, -1, {}), "broker: -1 found, 0 to 2147483647 expected"),
        (Record(0, 1, {}, "t", -2), "partition: -2 found"),
        (Record(0, 1, {}, "a_b", 1, True), "topic: 'a_b' found, a name as Kafka has it"),
        (Record(0, 1, {}, None, 3), "partition: 3 found, -1"),
        (Record(0, 1, {}, "", 3), "topic: '' found"),
        (Record(0, 1, {}, "\ud800", 3), "a name in Unicode expected"),
        (Record(0, 1, {"x" * 256: 1.0}), "1 to 255 bytes expected"),
        (Record(0, 1, {"cpu": float("inf")}), "metric cpu: inf found, a finite number expected"),
        (Record(0, 1, {f"m{i}": 0.0 for i in range(256)}), "number of metrics: 256 found"),
        (Record(2**63, 1, {}), "time_ms"),
    ],
)
def test_encode_refuses_what_does_not_fit(record: Record, says: str) -> None:
    with pytest.raises(ReporterError) as caught:
        encode(record)
    assert says in str(caught.value)


def test_the_table_of_metrics_states_each_once_with_a_unit() -> None:
    assert len({m.name for m in METRIC_TABLE}) == len({m.id for m in METRIC_TABLE})
    assert [m.id for m in METRIC_TABLE] == list(range(1, len(METRIC_TABLE) + 1))
    for metric in METRIC_TABLE:
        assert metric.unit
        assert ("_ms_" in metric.name) == (metric.unit == "ms")
    # The model's windows of brokers have a column for each, in this order.
    assert BROKER_METRICS[:3] == ("cpu", "bytes_in", "bytes_out")
    assert len(BROKER_METRICS) == 26
