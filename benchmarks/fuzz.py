"""Broken messages of all formats, decoded one by one and many at once, into a live model."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np

from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import synthetic_snapshot
from cluster_model.live import ClusterModel
from metrics_reporter import (
    Format,
    MalformedRecordError,
    Record,
    decode_any,
    decode_batch,
    encode,
)

_MESSAGES = {"S": 20_000, "M": 100_000, "L": 1_000_000}
_AT_ONCE = 10_000
_TIME_MS = 1_700_000_000_000
_FORMATS: tuple[Format | None, ...] = (None, *get_args(Format))
# Bytes at which fields change their meaning.
_EDGES = np.array([0, 1, 2, 3, 4, 62, 63, 127, 128, 255], np.uint8)


@benchmark("fuzz", sizes=tuple(_MESSAGES))
def fuzz(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Mutated records of all formats: nothing crashes, every loss is counted.

    Each message is taken for each of the formats, and for what it looks like; decoding it
    by itself and among others must say the same.
    """
    for size in sizes:
        started, rng = time.monotonic(), np.random.default_rng(options.seed)
        totals = {"given": 0, "decoded": 0, "malformed": 0, "skipped": 0, "taken by the model": 0}
        for first in range(0, _MESSAGES[size], _AT_ONCE):
            messages = mutants(rng, min(_AT_ONCE, _MESSAGES[size] - first))
            for format in _FORMATS:
                for what, n in zip(totals, checked(messages, format), strict=True):
                    totals[what] += n
            options.tell(f"fuzz {size}: {first + len(messages)} of {_MESSAGES[size]} messages")
        for what, n in totals.items():
            yield Row("fuzz", size, "counterpoise", what, float(n), "messages")
        yield Row("fuzz", size, "counterpoise", "seconds", time.monotonic() - started, "seconds")


def mutants(rng: np.random.Generator, n: int) -> list[bytes]:
    """Messages of all formats; two in three with bytes changed, cut off or added."""
    sound = _sound_messages()
    found = []
    for kind, edits, cut in zip(
        rng.integers(len(sound), size=n).tolist(),
        rng.integers(4, size=n).tolist(),
        rng.integers(10, size=n).tolist(),
        strict=True,
    ):
        data = bytearray(sound[kind])
        for _ in range(edits):
            edge = rng.random() < 0.5
            data[rng.integers(len(data))] = rng.choice(_EDGES) if edge else rng.integers(256)
        if cut == 0:
            del data[rng.integers(len(data) + 1) :]
        elif cut == 1:
            del data[: rng.integers(len(data) + 1)]
        elif cut == 2:
            data += rng.bytes(int(rng.integers(12)))
        found.append(bytes(data))
    return found


def checked(messages: list[bytes], format: Format | None) -> tuple[int, int, int, int, int]:
    """Messages given, decoded, malformed, skipped, and counted by a model.

    Raises
    ------
    BenchmarkError
        Where one goes missing, or one by one they are not the same as together.
    """
    records: list[Record] = []
    malformed = skipped = 0
    for message in messages:
        try:
            record = decode_any(message, format)
        except MalformedRecordError:
            malformed += 1
            continue
        if record is None:
            skipped += 1
        else:
            records.append(record)
    batch = decode_batch(messages, format)
    model = ClusterModel(synthetic_snapshot(brokers=4, partitions=20, racks=2, topics=2))
    model.add_batch(batch)
    model.completeness()
    counted = sum(model.counters.values())
    tallies = (len(messages), len(batch), batch.malformed, batch.skipped, counted)
    if tallies != (len(batch) + malformed + skipped, len(records), malformed, skipped, len(batch)):
        raise BenchmarkError(
            f"fuzz of {format}: {tallies} found, {len(records)} decoded, {malformed} malformed "
            f"and {skipped} skipped of {len(messages)} expected"
        )
    for alone, together in zip(records, batch.records(), strict=True):
        if alone != together:
            raise BenchmarkError(f"fuzz of {format}: {together} found, {alone} expected")
    return tallies


def _sound_messages() -> list[bytes]:
    topics = ("topic-0", "topic-1", "öffentlich", "a_b.c")
    own = [
        Record(_TIME_MS, 1, {"cpu": 1.0, "named": 2.0, "size": 3.0}),
        Record(_TIME_MS, 2, {"cpu": 1.0, "log_flush_rate": 2.0}),
        Record(_TIME_MS, 3, {}),
        *(Record(_TIME_MS, 1, {"size": 1.0, "bytes_in": 2.0}, t, 1) for t in topics),
        *(Record(_TIME_MS, 1, {"bytes_in": 2.0}, t) for t in topics),
    ]  # fmt: skip
    names = [t.encode() for t in topics]
    return [
        *map(encode, own),
        *(_cruise_control(0, metric) for metric in (0, 5, 17, 62)),
        *(_cruise_control(1, metric, name) for metric in (2, 15) for name in names),
        *(_cruise_control(2, 4, name) for name in names),
        *(_automq(0, values, name) for values in ((), (0, 1, 2), (2, 9)) for name in names),
        *(_automq(1, values) for values in ((), (3, 4, 5, 6), (6,))),
    ]


def _cruise_control(class_: int, metric: int, topic: bytes = b"") -> bytes:
    named = struct.pack(">i", len(topic)) + topic if class_ else b""
    partition = struct.pack(">i", 1) if class_ == 2 else b""
    head = struct.pack(">bbbqi", class_, 0, metric, _TIME_MS, 2)
    return head + named + partition + struct.pack(">d", 10.0)


def _automq(scope: int, metrics: Sequence[int], topic: bytes = b"") -> bytes:
    named = struct.pack(">i", len(topic)) + topic + struct.pack(">i", 1) if scope == 0 else b""
    head = struct.pack(">BBqii", scope, 0, _TIME_MS, 2, 4) + b"rack"
    values = b"".join(struct.pack(">bd", metric, 5.0) for metric in metrics)
    return head + named + struct.pack(">i", len(metrics)) + values
