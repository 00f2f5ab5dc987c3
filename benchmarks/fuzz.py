"""Fuzzes the readers of files with broken documents, and those of messages with broken messages."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import get_args

import numpy as np

from benchmarks.harness.forked import Beat, LostJob, forked, progress
from benchmarks.harness.readers import Reader, all_readers, rows_of
from benchmarks.registry import BenchmarkError, Options, Row, benchmark
from cluster_model import InputError, synthetic_snapshot
from cluster_model.live import ClusterModel
from metrics_reporter import (
    Format,
    MalformedRecordError,
    Record,
    ReporterError,
    decode_any,
    decode_batch,
    encode,
)

# Blocks of a thousand messages that are made and decoded together, and documents of each
# reader: with twelve readers a million inputs at L.
_BLOCK = 1_000
_BLOCKS = {"S": 2, "M": 40, "L": 400}
_DOCUMENTS = {"S": 100, "M": 5_000, "L": 50_000}
# Seconds that one document, or one block of messages, may take before it counts as a hang.
_LONGEST = 5.0
# Seconds of silence after which a process counts as stuck where no alarm reaches it.
_SILENCE = 4 * _LONGEST
_SHOWN = 20
_LONGEST_SENTENCE = 2_000
# Documents, or blocks of messages, that one process reads.
_PART = {"documents": 500, "blocks": 10}
# Temporary files in memory do not wait for a disk.
_MEMORY = Path("/dev/shm")
_WIRE, _ROWS = "messages", "archive rows"
_TIME_MS = 1_700_000_000_000
_FORMATS: tuple[Format | None, ...] = (None, *get_args(Format))
# Bytes at which fields change their meaning.
_EDGES = np.array([0, 1, 2, 3, 4, 62, 63, 127, 128, 255], np.uint8)


@benchmark("fuzz", sizes=tuple(_BLOCKS))
def fuzz(sizes: Sequence[str], options: Options) -> Iterator[Row]:
    """Mutated input for every reader: nothing crashes or hangs, every loss is counted.

    Each message is decoded as each of the formats, and as the format it looks like; decoding it
    alone, among others, and as rows of the archive must give the same. Each document is either
    accepted, and is the same when it is written and read again, or refused in one sentence. One
    document, or one message that is given to all readers of messages, is one input.

    A subject is the name of a reader of documents, or "messages"; with a number after a
    colon ("plan:17"), that input alone, or that block of messages, and a traceback if it fails.
    """
    readers = all_readers()
    one = [name for name in options.subjects if name.rpartition(":")[2].isdecimal()]
    for name in options.subjects:
        subject = name.rpartition(":")[0] if name in one else name
        if subject not in (_WIRE, *readers):
            known = ", ".join((_WIRE, *readers))
            raise BenchmarkError(f"no subject {name!r}; there are {known}")
    for size in sizes:
        began = time.monotonic()
        if one:
            found = [_run_one(readers, name, options) for name in one]
        else:
            found = list(_run_all(readers, size, options))
        total = FuzzCounts()
        for tally in found:
            total.add(tally)
        for (subject, what), n in total.counts.items():
            unit = "documents" if subject in readers else "messages"
            yield Row("fuzz", size, subject, what, float(n), unit)
        yield Row("fuzz", size, "all", "given", float(total.inputs), "inputs")
        yield Row("fuzz", size, "all", "failed", float(len(total.failures)), "inputs")
        yield Row("fuzz", size, "all", "seconds", time.monotonic() - began, "seconds")
        if total.failures:
            more = len(total.failures) - _SHOWN
            rest = [f"and {more} more"] if more > 0 else []
            raise BenchmarkError("; ".join([*total.failures[:_SHOWN], *rest]))


@dataclass
class FuzzCounts:
    """Counts of the outcomes of inputs.

    Parameters
    ----------
    inputs
        Documents and messages that were given to readers.
    counts
        Inputs by reader and outcome.
    failures
        Failures, each with the command that repeats it.
    """

    inputs: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: FuzzCounts) -> None:
        """Add the counts of another tally."""
        self.inputs += other.inputs
        self.counts.update(other.counts)
        self.failures += other.failures


@dataclass(frozen=True)
class Part:
    """Inputs that one process reads: documents of a reader, or blocks of messages."""

    subject: str
    first: int
    last: int


def _run_all(readers: dict[str, Reader], size: str, options: Options) -> Iterator[FuzzCounts]:
    """All inputs of a size, in as many processes as there are cores."""
    last = dict.fromkeys(readers, _DOCUMENTS[size])
    last[_WIRE] = _BLOCKS[size]
    parts = [
        Part(name, first, min(first + step, last[name]))
        for name in last
        if not options.subjects or name in options.subjects
        for step in (_PART["blocks" if name == _WIRE else "documents"],)
        for first in range(0, last[name], step)
    ]
    inputs = sum(_inputs(part) for part in parts)

    def work(part: Part, beat: Beat) -> FuzzCounts:
        return _read(readers, part, options.seed, beat)

    with progress(f"fuzz {size}", inputs, "inputs", options.log) as advance:
        while parts:
            again: list[Part] = []
            for part, tally in zip(parts, forked(work, parts, silence=_SILENCE), strict=True):
                if isinstance(tally, LostJob):
                    at = max(tally.beat, part.first)
                    line = _failure(part.subject, options.seed, at, tally.reason)
                    lost = replace(part, first=at, last=at + 1)
                    n = _inputs(lost)
                    tally = FuzzCounts(n, Counter(), [line])
                    tally.counts[part.subject, "given"] = n
                    tally.counts[part.subject, "failed"] = n
                    # The rest of the part is read by other processes.
                    rest = (replace(part, last=at), replace(part, first=at + 1))
                    again += [p for p in rest if p.first < p.last]
                for line in tally.failures:
                    options.log(line)
                advance(tally.inputs)
                yield tally
            parts = again


def _run_one(readers: dict[str, Reader], name: str, options: Options) -> FuzzCounts:
    """One document or block of messages, with a traceback if it fails."""
    subject, _, number = name.rpartition(":")
    part = Part(subject, int(number), int(number) + 1)
    return _read(readers, part, options.seed, lambda at: None, options.log)


def _inputs(part: Part) -> int:
    return (part.last - part.first) * (_BLOCK if part.subject == _WIRE else 1)


def _read(
    readers: dict[str, Reader],
    part: Part,
    seed: int,
    beat: Beat,
    log: Callable[[str], None] | None = None,
) -> FuzzCounts:
    if part.subject == _WIRE:
        return read_messages(seed, part, beat, log)
    return read_mutants(readers[part.subject], seed, part, beat, log)


def read_mutants(
    reader: Reader, seed: int, part: Part, beat: Beat, log: Callable[[str], None] | None = None
) -> FuzzCounts:
    """Read documents; `log` receives the traceback of each failure."""
    tally = FuzzCounts()
    tally.counts.update({(reader.name, what): 0 for what in _OUTCOMES})
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with TemporaryDirectory(dir=memory) as folder:
        for number in range(part.first, part.last):
            beat(number)
            tally.inputs += 1
            tally.counts[reader.name, "given"] += 1
            try:
                skipped = replay(reader, seed, number, Path(folder))
            except (InputError, ReporterError) as error:
                said = str(error)
                if said and len(said) < _LONGEST_SENTENCE and "Traceback" not in said:
                    tally.counts[reader.name, "refused"] += 1
                    continue
                what = f"{len(said)} characters in a sentence"
            except Exception as error:
                what = f"{type(error).__name__}: {error}"[:200]
                if log is not None:
                    log(traceback.format_exc())
            else:
                tally.counts[reader.name, "taken"] += 1
                tally.counts[reader.name, "parts skipped"] += skipped
                continue
            tally.counts[reader.name, "failed"] += 1
            tally.failures.append(_failure(reader.name, seed, number, what))
    return tally


_OUTCOMES = ("given", "taken", "refused", "parts skipped", "failed")


def read_messages(
    seed: int, part: Part, beat: Beat, log: Callable[[str], None] | None = None
) -> FuzzCounts:
    """Pass blocks of messages to all readers of messages; `log` receives tracebacks."""
    tally = FuzzCounts(inputs=_inputs(part))
    what = ("given", "taken", "refused", "skipped")
    # Its imports take longer than reading a block.
    rows_of([])
    for block in range(part.first, part.last):
        beat(block)
        messages = mutants(np.random.default_rng([seed, block]), _BLOCK)
        try:
            with _deadline():
                for format in _FORMATS:
                    # The last is what a model took: as much as was decoded.
                    found = zip(what, checked(messages, format)[:-1], strict=True)
                    name = f"messages of {format or 'any format'}"
                    tally.counts.update({(name, kind): number for kind, number in found})
                taken, refused = rows_of(messages)
                batch = decode_batch(messages)
                if (taken, refused) != (len(batch), batch.malformed + batch.skipped):
                    raise BenchmarkError(f"fuzz of rows: {taken} taken, {len(batch)} expected")
                rows = {"given": len(messages), "taken": taken, "refused": refused}
                tally.counts.update({(_ROWS, kind): number for kind, number in rows.items()})
        except Exception as error:
            tally.failures.append(_failure(_WIRE, seed, block, f"{type(error).__name__}: {error}"))
            if log is not None:
                log(traceback.format_exc())
    return tally


def _failure(subject: str, seed: int, number: int, what: str) -> str:
    name = shlex.quote(f"{subject}:{number}")
    command = f"python -m benchmarks run fuzz --seed {seed} --subject {name}"
    return f"reader {subject!r}, seed {seed}, input {number}: {what} ({command})"


def replay(reader: Reader, seed: int, number: int, folder: Path) -> int:
    """Read one mutant; returns how many parts of it were skipped and counted."""
    path = folder / f"input{reader.suffix}"
    path.write_bytes(reader.mutant(seed, number))
    with _deadline(), warnings.catch_warnings():
        # A warning of numpy would reach the user's terminal.
        warnings.simplefilter("error", RuntimeWarning)
        return reader.read(path)


class HangError(Exception):
    """A reader took too long."""


@contextmanager
def _deadline() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(f"not done in {_LONGEST:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


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
    """Numbers of messages given, decoded, malformed, skipped, and counted by a model.

    Raises
    ------
    BenchmarkError
        If one goes missing, or if decoding them one by one and together differs.
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
