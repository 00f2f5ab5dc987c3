"""Decodes many messages at once into arrays: like :func:`decode_any`, but much faster.

Messages are joined into one run of bytes, and each field is gathered from all of them at
once. Only the look-up of names goes message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics_reporter.arrays import Bools, Floats, Ints
from metrics_reporter.errors import MalformedRecordError
from metrics_reporter.foreign import (
    AUTOMQ_METRICS,
    AUTOMQ_SCOPES,
    CRUISE_CONTROL_CLASSES,
    CRUISE_CONTROL_METRICS,
    EARLIEST_MS,
    LATEST_MS,
    Format,
)
from metrics_reporter.metrics import METRIC_IDS
from metrics_reporter.records import Record
from metrics_reporter.sample_store import decode_sample
from metrics_reporter.wire import HEADER_SIZE, MAGIC, VERSION, metric_names

# Every name that has a number in one of the formats; our own ids come first.
METRICS: tuple[str, ...] = tuple(
    dict.fromkeys(
        [*METRIC_IDS, *(n for _, n in CRUISE_CONTROL_METRICS), *(n for _, n in AUTOMQ_METRICS)]
    )
)
_COLUMN = {name: i for i, name in enumerate(METRICS)}

_OWN = np.dtype(
    {
        "names": ["version", "scope", "n", "time", "broker", "partition", "t", "m"],
        "formats": ["u1", "u1", "u1", "<i8", "<i4", "<i4", "<u2", "<u2"],
        "offsets": [1, 2, 3, 4, 12, 16, 20, 22],
        "itemsize": HEADER_SIZE,
    }
)
_CRUISE_CONTROL = np.dtype(
    [("class", "i1"), ("version", "i1"), ("metric", "i1"), ("time", ">i8"), ("broker", ">i4")]
)
_AUTOMQ = np.dtype(
    [("scope", "u1"), ("version", "u1"), ("time", ">i8"), ("broker", ">i4"), ("rack", ">i4")]
)
_PADDING = bytes(64)

_CC_COLUMN = np.array([_COLUMN[name] for _, name in CRUISE_CONTROL_METRICS])
_CC_CLASS = np.array([CRUISE_CONTROL_CLASSES.index(scope) for scope, _ in CRUISE_CONTROL_METRICS])
_AUTOMQ_COLUMN = np.array([_COLUMN[name] for _, name in AUTOMQ_METRICS])
_AUTOMQ_SCOPE = np.array([AUTOMQ_SCOPES.index(scope) for scope, _ in AUTOMQ_METRICS])

MALFORMED, DECODED, SKIPPED = 0, 1, 2


@dataclass(frozen=True, eq=False)
class RecordBatch:
    """n records as columns, with V values in all.

    Parameters
    ----------
    time_ms, broker, partition : (n,) int
        As in :class:`Record`.
    topic : (n,) int
        Index into `topics`; -1 where the record is about the whole broker.
    row, metric : (V,) int
        Record of each value, ascending, and index of its name in `metrics`.
    value : (V,) float
    topics, underscored
        Names of topics, and whether each has ``_`` for ``.``.
    metrics
        Names of metrics.
    malformed, skipped
        Messages that were not records, and messages of an unknown kind or metric.
    """

    time_ms: Ints
    broker: Ints
    topic: Ints
    partition: Ints
    row: Ints
    metric: Ints
    value: Floats
    topics: tuple[str, ...]
    underscored: tuple[bool, ...]
    metrics: tuple[str, ...] = METRICS
    malformed: int = 0
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.time_ms)

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordBatch:
        """The records as columns.

        Ids beyond 64 bits, which do not occur, become -2; times are cut to 64 bits.
        """
        topics, metrics = _Index(), _Index(METRICS)
        time_ms, broker, topic, partition = [], [], [], []
        row, metric, value = [], [], []
        for i, r in enumerate(records):
            time_ms.append(max(-(2**63), min(r.time_ms, 2**63 - 1)))
            broker.append(r.broker if 0 <= r.broker < 2**63 else -2)
            partition.append(r.partition if -1 <= r.partition < 2**63 else -2)
            topic.append(-1 if r.topic is None else topics[r.topic, r.underscored])
            for name, v in r.metrics.items():
                row.append(i)
                metric.append(metrics[name])
                value.append(v)
        return cls(
            np.array(time_ms, np.int64),
            np.array(broker, np.int64),
            np.array(topic, np.int64),
            np.array(partition, np.int64),
            np.array(row, np.int64),
            np.array(metric, np.int64),
            np.array(value, np.float64),
            tuple(name for name, _ in topics),
            tuple(flag for _, flag in topics),
            tuple(metrics),
        )

    def records(self) -> Iterator[Record]:
        """The records, one by one."""
        ends = np.searchsorted(self.row, np.arange(1, len(self) + 1)).tolist()
        names = [self.metrics[i] for i in self.metric.tolist()]
        values = self.value.tolist()
        columns = (self.time_ms, self.broker, self.topic, self.partition)
        start = 0
        for *fields, end in zip(*(c.tolist() for c in columns), ends, strict=True):
            time_ms, broker, topic, partition = fields
            metrics = dict(zip(names[start:end], values[start:end], strict=True))
            start = end
            if topic < 0:
                yield Record(time_ms, broker, metrics)
            else:
                flag = self.underscored[topic]
                yield Record(time_ms, broker, metrics, self.topics[topic], partition, flag)


def decode_batch(values: Sequence[bytes | None], format: Format | None = None) -> RecordBatch:
    """Decode what can be decoded, and count the rest.

    Parameters
    ----------
    values
        Values of messages; None (a tombstone) is malformed.
    format
        Format of all of them; None to detect each (:func:`metrics_reporter.foreign.format_of`).

    Returns
    -------
    RecordBatch
        The records in order; they add up with the counts of malformed and skipped messages
        to the number of values.

    Examples
    --------
    >>> from metrics_reporter import Record, encode
    >>> batch = decode_batch([encode(Record(5, 1, {"cpu": 40.0})), b"junk"])
    >>> list(batch.records()), batch.malformed
    ([Record(time_ms=5, broker=1, metrics={'cpu': 40.0}, topic=None, partition=-1, \
underscored=False)], 1)
    """
    return decode_messages(values, format)[0]


def decode_messages(
    values: Sequence[bytes | None], format: Format | None = None
) -> tuple[RecordBatch, npt.NDArray[np.int8]]:
    """Like :func:`decode_batch`, with the result for each message.

    Returns
    -------
    RecordBatch
        The records in order.
    (n,) int8
        For each of the n values :data:`MALFORMED`, :data:`DECODED` or :data:`SKIPPED`.
    """
    work = _Work([value or b"" for value in values])
    every = np.arange(len(values))
    if format is None:
        own, automq, cruise_control = _reported_apart(work, every)
    else:
        none = every[:0]
        own = every if format == "counterpoise" else none
        automq = every if format == "automq" else none
        cruise_control = every if format == "cruise-control" else none
        if format == "cruise-control-samples":
            _decode_samples(work, every)
    if len(own):
        _decode_own(work, own)
    if len(automq):
        _decode_automq(work, automq)
    if len(cruise_control):
        _decode_cruise_control(work, cruise_control)
    return work.batch(), work.state


class _Index(dict[Any, int]):
    """Numbers new keys in order."""

    def __init__(self, known: Iterable[Any] = ()) -> None:
        super().__init__((key, i) for i, key in enumerate(known))

    def __missing__(self, key: Any) -> int:
        self[key] = found = len(self)
        return found


class _Topics(dict[bytes, int]):
    """Number of each topic's name as bytes; -1 for bytes that are not a name."""

    def __init__(self, names: _Index, underscored: bool) -> None:
        self._names, self._underscored = names, underscored

    def __missing__(self, name: bytes) -> int:
        try:
            found = self._names[name.decode(), self._underscored]
        except UnicodeDecodeError:
            found = -1
        self[name] = found
        return found


class _Columns(dict[tuple[bytes, bytes], tuple[int, ...] | None]):
    """Numbers of the metrics of a message, -1 for an unknown id, by its ids and its names.

    None if some are not names, or one is given twice.
    """

    def __init__(self, metrics: _Index) -> None:
        self._metrics = metrics

    def __missing__(self, key: tuple[bytes, bytes]) -> tuple[int, ...] | None:
        ids, named = key
        found: tuple[int, ...] | None = None
        try:
            names = metric_names(named, struct.unpack(f"<{len(ids) // 2}H", ids))
        except (MalformedRecordError, UnicodeDecodeError):
            names = None
        if names is not None:
            given = [name for name in names if name is not None]
            if len(set(given)) == len(given):
                found = tuple(-1 if name is None else self._metrics[name] for name in names)
        self[key] = found
        return found


class _Work:
    """The messages' bytes, and the columns decoded from them."""

    def __init__(self, values: list[bytes]) -> None:
        n = len(values)
        self.values = values
        self.length = np.fromiter(map(len, values), np.int64, n)
        self.end = np.cumsum(self.length)
        self.start = self.end - self.length
        # Padding, so that the header of a short message can be read past its end.
        self.data = b"".join([*values, _PADDING])
        self.state = np.full(n, MALFORMED, np.int8)
        self.time_ms, self.broker = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.topic, self.partition = np.full(n, -1), np.full(n, -1)
        self.topics, self.metrics = _Index(), _Index(METRICS)
        self.entries: list[tuple[Ints, Ints, Floats]] = []

    def at(self, kind: Any, place: Ints) -> npt.NDArray[Any]:
        """Values of this type at each place, aligned or not."""
        kind = np.dtype(kind)
        everywhere = np.ndarray(len(self.data) - kind.itemsize + 1, kind, self.data, strides=(1,))
        found = everywhere[place]
        return found if kind.fields else found.astype(kind.newbyteorder("="), copy=False)

    def take(self, row: Ints, time_ms: Any, broker: Any, topic: Ints, partition: Any) -> None:
        self.state[row] = DECODED
        self.time_ms[row] = time_ms
        self.broker[row] = broker
        self.topic[row] = topic
        self.partition[row] = partition

    def name_topics(self, start: Ints, length: Ints, underscored: bool = False) -> Ints:
        """Number of the topic named at each place; -1 if the name is not UTF-8."""
        known, data = _Topics(self.topics, underscored), self.data
        ends = (start + length).tolist()
        names = [known[data[a:b]] for a, b in zip(start.tolist(), ends, strict=True)]
        return np.array(names, np.int64)

    def batch(self) -> RecordBatch:
        decoded = self.state == DECODED
        number = np.cumsum(decoded) - 1
        if len(self.entries) == 1:
            ((row, metric, value),) = self.entries
        else:
            columns = zip(*self.entries, strict=True) if self.entries else ([], [], [])
            row, metric, value = (np.concatenate([*c, []]) for c in columns)
            order = np.argsort(row, kind="stable")
            row, metric, value = row[order].astype(int), metric[order].astype(int), value[order]
        return RecordBatch(
            self.time_ms[decoded],
            self.broker[decoded],
            self.topic[decoded],
            self.partition[decoded],
            number[row],
            metric,
            value,
            tuple(name for name, _ in self.topics),
            tuple(flag for _, flag in self.topics),
            tuple(self.metrics),
            int((self.state == MALFORMED).sum()),
            int((self.state == SKIPPED).sum()),
        )


def _reported_apart(work: _Work, row: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows in our format, AutoMQ's and Cruise Control's; others are left out."""
    start = work.start
    full = work.length > 0
    own = full & (work.at("u1", start) == MAGIC)
    other = ~own & (work.length >= 11) & (work.at("u1", start + 1) == 0)

    def timed(at: int) -> Bools:
        time_ms = work.at(">i8", start + at)
        found: Bools = (time_ms >= EARLIEST_MS) & (time_ms < LATEST_MS)
        return found

    automq = other & timed(2)
    return row[own], row[automq], row[other & ~automq & timed(3)]


def _decode_own(work: _Work, row: Ints) -> None:
    row = row[work.length[row] >= HEADER_SIZE]
    start = work.start[row]
    header = work.at(_OWN, start)
    n, t, m = (header[name].astype(np.int64) for name in ("n", "t", "m"))
    scope, partition = header["scope"], header["partition"]
    good = (work.at("u1", start) == MAGIC) & (header["version"] == VERSION) & (scope <= 2)
    good &= work.length[row] == HEADER_SIZE + 10 * n + t + m
    good &= (header["broker"] >= 0) & ((scope == 0) == (t == 0))
    good &= np.where(scope == 1, partition >= 0, partition == -1)
    named = good & (m > 0)
    if named.any():
        _decode_named(work, row[named], header[named])

    good &= m == 0
    row, start, header, n, t = row[good], start[good], header[good], n[good], t[good]
    message, within = _ragged(n)
    body = (start + HEADER_SIZE)[message]
    value = work.at("<f8", body + 8 * within)
    metric = work.at("<u2", body + 8 * n[message] + 2 * within).astype(np.int64) - 1
    known = metric < len(METRIC_IDS)
    good = _sound(len(row), message, metric, known, np.isfinite(value) & (metric >= 0))
    topic = np.full(len(row), -1)
    named = np.flatnonzero(good & (t > 0))
    topic[named] = work.name_topics((start + HEADER_SIZE + 10 * n)[named], t[named])
    good[named[topic[named] < 0]] = False
    work.take(
        row[good], header["time"][good], header["broker"][good], topic[good],
        header["partition"][good],
    )  # fmt: skip
    kept = known & good[message]
    work.entries.append((row[message[kept]], metric[kept], value[kept]))


def _decode_named(work: _Work, row: Ints, header: npt.NDArray[Any]) -> None:
    """Decode messages that send metrics by name; messages have few different sets of names."""
    start, data = work.start[row] + HEADER_SIZE, work.data
    n, length, m = (header[name].astype(np.int64) for name in ("n", "t", "m"))
    ids, names = start + 8 * n, start + 10 * n + length
    known = _Columns(work.metrics)
    places = zip(*(a.tolist() for a in (ids, ids + 2 * n, names, names + m)), strict=True)
    columns = [known[data[a:b], data[c:d]] for a, b, c, d in places]
    sound = np.array([found is not None for found in columns], np.bool_)
    row, header, start, n = row[sound], header[sound], start[sound], n[sound]
    length = length[sound]
    metric = np.fromiter(chain.from_iterable(c for c in columns if c is not None), np.int64)
    message, within = _ragged(n)
    value = work.at("<f8", start[message] + 8 * within)
    good = np.ones(len(row), np.bool_)
    good[message[~np.isfinite(value)]] = False
    topic = np.full(len(row), -1)
    about = np.flatnonzero(good & (length > 0))
    topic[about] = work.name_topics((start + 10 * n)[about], length[about])
    good[about[topic[about] < 0]] = False
    work.take(
        row[good], header["time"][good], header["broker"][good], topic[good],
        header["partition"][good],
    )  # fmt: skip
    kept = (metric >= 0) & good[message]
    work.entries.append((row[message[kept]], metric[kept], value[kept]))


def _decode_cruise_control(work: _Work, row: Ints) -> None:
    row = row[work.length[row] >= _CRUISE_CONTROL.itemsize]
    header = work.at(_CRUISE_CONTROL, work.start[row])
    good = (header["version"] == 0) & (header["broker"] >= 0)
    known = (header["class"] >= 0) & (header["class"] < len(CRUISE_CONTROL_CLASSES))
    known &= (header["metric"] >= 0) & (header["metric"] < len(CRUISE_CONTROL_METRICS))
    work.state[row[good & ~known]] = SKIPPED

    row, header = row[good & known], header[good & known]
    class_, metric = header["class"], header["metric"].astype(np.int64)
    at = work.start[row] + _CRUISE_CONTROL.itemsize
    end = work.end[row]
    good = _CC_CLASS[metric] == class_
    named = class_ > 0
    good &= ~named | (at + 4 <= end)
    length = np.zeros(len(row), np.int64)
    reported = np.flatnonzero(named & good)
    length[reported] = work.at(">i4", at[reported])
    good &= ~named | (length > 0)
    value_at = at + np.where(named, 4 + length, 0) + np.where(class_ == 2, 4, 0)
    good &= value_at + 8 == end

    row, header, at, length = row[good], header[good], at[good], length[good]
    metric, value_at, class_ = metric[good], value_at[good], class_[good]
    value = work.at(">f8", value_at)
    partition = np.full(len(row), -1)
    partition[class_ == 2] = work.at(">i4", value_at[class_ == 2] - 4)
    good = np.isfinite(value) & ((class_ != 2) | (partition >= 0))
    topic = np.full(len(row), -1)
    named = np.flatnonzero(good & (class_ > 0))
    topic[named] = work.name_topics(at[named] + 4, length[named], underscored=True)
    good[named[topic[named] < 0]] = False
    work.take(row[good], header["time"][good], header["broker"][good], topic[good], partition[good])
    work.entries.append((row[good], _CC_COLUMN[metric[good]], value[good]))


def _decode_automq(work: _Work, row: Ints) -> None:
    row = row[work.length[row] >= _AUTOMQ.itemsize]
    header = work.at(_AUTOMQ, work.start[row])
    good = (header["version"] == 0) & (header["broker"] >= 0)
    known = header["scope"] < len(AUTOMQ_SCOPES)
    work.state[row[good & ~known]] = SKIPPED

    good &= known & (header["rack"] >= 0)
    row, header = row[good], header[good]
    end = work.end[row]
    at = work.start[row] + _AUTOMQ.itemsize + header["rack"]
    of_partition = header["scope"] == AUTOMQ_SCOPES.index("partition")
    topic_at, length, partition = at + 4, np.zeros(len(row), np.int64), np.full(len(row), -1)
    good = ~of_partition | (at + 4 <= end)
    reported = np.flatnonzero(of_partition & good)
    length[reported] = work.at(">i4", at[reported])
    good &= ~of_partition | ((length > 0) & (topic_at + length + 4 <= end))
    reported = np.flatnonzero(of_partition & good)
    partition[reported] = work.at(">i4", topic_at[reported] + length[reported])
    at = np.where(of_partition, topic_at + length + 4, at)
    good &= (~of_partition | (partition >= 0)) & (at + 4 <= end)
    n = np.zeros(len(row), np.int64)
    n[good] = work.at(">i4", at[good])
    good &= (n >= 0) & (at + 4 + 9 * n <= end)

    row, header, partition = row[good], header[good], partition[good]
    at, n, topic_at, length = at[good] + 4, n[good], topic_at[good], length[good]
    message, within = _ragged(n)
    place = at[message] + 9 * within
    metric = work.at("i1", place).astype(np.int64)
    value = work.at(">f8", place + 1)
    known = (metric >= 0) & (metric < len(AUTOMQ_METRICS))
    scope = header["scope"][message]
    known[known] = _AUTOMQ_SCOPE[metric[known]] == scope[known]
    good = _sound(len(row), message, metric, known, np.isfinite(value))
    topic = np.full(len(row), -1)
    named = np.flatnonzero(good & (length > 0))
    topic[named] = work.name_topics(topic_at[named], length[named])
    good[named[topic[named] < 0]] = False
    work.take(row[good], header["time"][good], header["broker"][good], topic[good], partition[good])
    kept = known & good[message]
    work.entries.append((row[message[kept]], _AUTOMQ_COLUMN[metric[kept]], value[kept]))


def _decode_samples(work: _Work, row: Ints) -> None:
    """Decode samples of Cruise Control's store one by one: there is one a minute."""
    entries: list[tuple[int, int, float]] = []
    for i in row.tolist():
        try:
            record = decode_sample(work.values[i])
        except MalformedRecordError:
            continue
        if record is None:
            work.state[i] = SKIPPED
            continue
        work.state[i] = DECODED
        work.time_ms[i], work.broker[i] = record.time_ms, record.broker
        work.partition[i] = record.partition
        if record.topic is not None:
            work.topic[i] = work.topics[record.topic, False]
        entries += [(i, work.metrics[name], value) for name, value in record.metrics.items()]
    if entries:
        rows, metrics, values = zip(*entries, strict=True)
        work.entries.append((np.array(rows), np.array(metrics), np.array(values)))


def _ragged(n: Ints) -> tuple[Ints, Ints]:
    """Message of each of n[0] + n[1] + ... values, and its place among the message's values."""
    message = np.repeat(np.arange(len(n)), n)
    return message, np.arange(len(message)) - np.repeat(np.cumsum(n) - n, n)


def _sound(messages: int, message: Ints, metric: Ints, known: Bools, fine: Bools) -> Bools:
    """(messages,) bool: all values are fine, and no known metric is given twice."""
    good = np.ones(messages, np.bool_)
    good[message[~fine]] = False
    if len(message):
        first = np.flatnonzero(np.diff(message, prepend=-1))
        # A repeated metric makes the sum of powers of two exceed their union; ids of known
        # metrics are small enough for one word.
        bit = np.where(known, np.int64(1) << np.where(known, metric, 0), 0)
        twice = np.add.reduceat(bit, first) != np.bitwise_or.reduceat(bit, first)
        good[message[first[twice]]] = False
    return good
