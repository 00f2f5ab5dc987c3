"""Decoding many messages at once gives the same as decoding each one alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import RECORDS

from benchmarks.fuzz import checked, mutants
from metrics_reporter import (
    Format,
    MalformedRecordError,
    Record,
    RecordBatch,
    decode_any,
    decode_batch,
    encode,
)

FORMATS: list[Format | None] = [None, "counterpoise", "cruise-control", "automq"]


@given(st.lists(RECORDS, max_size=12))
def test_records_decoded_together_are_the_records(records: list[Record]) -> None:
    assert list(RecordBatch.of(records).records()) == records
    batch = decode_batch([encode(record) for record in records])
    assert list(batch.records()) == records
    assert (batch.malformed, batch.skipped) == (0, 0)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=80)), max_size=8), st.sampled_from(FORMATS))
def test_any_bytes_are_counted(values: list[bytes | None], format: Format | None) -> None:
    batch = decode_batch(values, format)
    assert len(batch) + batch.malformed + batch.skipped == len(values)
    for value in values:
        try:
            decode_any(value or b"", format)
        except MalformedRecordError:
            continue


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages_are_the_same_together_and_one_by_one(format: Format | None) -> None:
    rng = np.random.default_rng(11)
    given_, decoded, malformed, skipped, counted = np.sum(
        [checked(mutants(rng, 1000), format) for _ in range(20)], axis=0
    )
    assert given_ == 20_000
    assert decoded + malformed + skipped == given_
    assert counted == decoded > 1000


def test_ids_that_nothing_has_do_not_break_columns() -> None:
    records = [Record(2**80, 2**70, {"cpu": 1.0}), Record(-(2**80), -5, {"cpu": 1.0}, "t", 2**70)]
    batch = RecordBatch.of(records)
    assert batch.broker.tolist() == [-2, -2]
    assert batch.partition.tolist() == [-1, -2]
    assert batch.time_ms.tolist() == [2**63 - 1, -(2**63)]


def test_a_batch_of_nothing() -> None:
    for format in FORMATS:
        assert list(decode_batch([], format).records()) == []
    assert list(RecordBatch.of([]).records()) == []
