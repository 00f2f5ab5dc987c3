"""Reads records back from the metrics topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from metrics_reporter.batch import RecordBatch, decode_batch
from metrics_reporter.clients import (
    ANSWER_TIMEOUT,
    MANUAL_POSITIONS,
    create,
    kafka,
    passing,
    reason,
)
from metrics_reporter.errors import ReporterError
from metrics_reporter.foreign import TOPIC_FORMATS, Format
from metrics_reporter.records import Record

_BATCH = 10_000
# Seconds between checks for partitions added to a topic that is followed.
_LOOK_AGAIN = 30.0
_PROPERTIES = {
    "group.id": "counterpoise-metrics",
    # Reading twice must yield the same records.
    **MANUAL_POSITIONS,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}


class RecordReader:
    """The records of a topic, iterable more than once. Made by :func:`read_records`.

    Attributes
    ----------
    malformed, skipped : int
        Messages skipped so far: those that are not records, and records of an unknown
        kind or metric.
    """

    def __init__(
        self,
        properties: dict[str, Any],
        topic: str,
        follow: bool,
        timeout: float,
        since_ms: int | None,
        format: Format | None,
    ) -> None:
        self.malformed = 0
        self.skipped = 0
        self._properties = properties
        self._topic = topic
        self._follow = follow
        self._timeout = timeout
        self._since_ms = since_ms
        self._format = format
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch.records()

    def stop(self) -> None:
        """End iterations after the current batch; may be called from any thread."""
        self._stopped.set()

    def batches(self) -> Iterator[RecordBatch]:
        """The same records as columns, in batches of up to 10,000 messages, as available.

        Raises
        ------
        ReporterError
            As for :func:`read_records`.
        """
        consumer = create("Consumer", self._properties)
        try:
            assigned: set[int] = set()
            ends = self._assign(consumer, assigned)
            heard = looked = time.monotonic()
            while (ends or self._follow) and not self._stopped.is_set():
                messages = consumer.consume(_BATCH, 0.2)
                values = list(self._values(messages, ends))
                now = time.monotonic()
                if values:
                    heard = now
                    batch = decode_batch(values, self._format)
                    self.malformed += batch.malformed
                    self.skipped += batch.skipped
                    yield batch
                elif not self._follow and now - heard > self._timeout:
                    raise self._error(f"no answer in {self._timeout:g} s")
                if self._follow and now - looked > _LOOK_AGAIN:
                    self._assign(consumer, assigned)
                    looked = now
        except kafka().KafkaException as error:
            raise self._error(reason(error)) from None
        finally:
            consumer.close()

    def _assign(self, consumer: Any, assigned: set[int]) -> dict[int, int]:
        """Start reading new partitions; returns the end of each that is not empty."""
        module = kafka()
        found = consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
        if found.error is not None or not found.partitions:
            raise self._error("no such topic" if found.error is None else found.error.str())
        new = sorted(found.partitions.keys() - assigned)
        # When following, a new partition is read from its beginning.
        since = module.OFFSET_BEGINNING if assigned or self._since_ms is None else self._since_ms
        starts = [module.TopicPartition(self._topic, p, since) for p in new]
        if since != module.OFFSET_BEGINNING and starts:
            starts = consumer.offsets_for_times(starts, timeout=self._timeout)
        ends = {}
        for start in starts:
            if start.error is not None:
                raise self._error(start.error.str())
            marks = consumer.get_watermark_offsets(start, timeout=self._timeout)
            if marks is None:
                raise self._error(f"no answer in {self._timeout:g} s")
            first = marks[1] if start.offset == module.OFFSET_END else start.offset
            if max(marks[0], first) < marks[1]:
                ends[start.partition] = marks[1]
        if starts:
            consumer.incremental_assign(starts)
        assigned.update(new)
        return ends

    def _values(self, messages: list[Any], ends: dict[int, int]) -> Iterator[bytes | None]:
        """Values of the messages; a partition leaves `ends` once it is read to its end."""
        codes = kafka().KafkaError
        for message in messages:
            error = message.error()
            if error is None:
                yield message.value()
                if message.offset() + 1 >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
            elif error.code() == codes._PARTITION_EOF:
                ends.pop(message.partition(), None)
            elif not passing(error):
                raise self._error(error.str())

    def _error(self, why: str) -> ReporterError:
        where = self._properties["bootstrap.servers"]
        return ReporterError(f"metrics topic {self._topic!r} at {where}: {why}")


def read_records(
    bootstrap: str,
    topic: str,
    *,
    follow: bool = False,
    since_ms: int | None = None,
    format: Format | None = None,
    timeout: float = ANSWER_TIMEOUT,
    client: Mapping[str, Any] | None = None,
) -> RecordReader:
    """Read a metrics topic from its beginning to its current end, or without end.

    Nothing is committed, so every iteration starts from the beginning. Messages that are
    not records are skipped and counted in ``malformed`` of the result.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    follow
        Keep waiting for new records at the end, and for new partitions.
    since_ms
        Leave out messages with earlier timestamps, in ms since 1970.
    format
        Format of the messages; by default known for other balancers' topics, and detected
        per message elsewhere.
    timeout
        Seconds a broker may take to answer.
    client
        Further properties of the librdkafka consumer; they override the defaults.

    Raises
    ------
    ReporterError
        While iterating: the topic is missing, or a broker does not answer or refuses.
    """
    properties = {"bootstrap.servers": bootstrap, **_PROPERTIES, **(client or {})}
    format = format or TOPIC_FORMATS.get(topic)
    return RecordReader(properties, topic, follow, timeout, since_ms, format)
