"""From the metrics topic back to records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from metrics_reporter.clients import PATIENCE, create, kafka, reason
from metrics_reporter.errors import ReporterError
from metrics_reporter.records import Record
from metrics_reporter.wire import decode_all

_BATCH = 10_000
_PROPERTIES = {
    "group.id": "counterpoise-metrics",
    # Positions are the reader's own affair: reading twice must give the same records.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}


class RecordReader:
    """The records of a topic; iterate it once or more. Made by :func:`read_records`.

    Attributes
    ----------
    malformed : int
        Messages skipped so far because they are not records.
    """

    def __init__(
        self,
        properties: dict[str, Any],
        topic: str,
        follow: bool,
        timeout: float,
    ) -> None:
        self.malformed = 0
        self._properties = properties
        self._topic = topic
        self._follow = follow
        self._timeout = timeout

    def __iter__(self) -> Iterator[Record]:
        consumer = create("Consumer", self._properties)
        try:
            ends = self._assign(consumer)
            heard = time.monotonic()
            while ends or self._follow:
                messages = consumer.consume(_BATCH, 0.2)
                records, malformed = decode_all(self._values(messages, ends))
                self.malformed += malformed
                yield from records
                if records or malformed:
                    heard = time.monotonic()
                elif not self._follow and time.monotonic() - heard > self._timeout:
                    raise self._error(f"no answer in {self._timeout:g} s")
        except kafka().KafkaException as error:
            raise self._error(reason(error)) from None
        finally:
            consumer.close()

    def _assign(self, consumer: Any) -> dict[int, int]:
        """Start every partition; returns the end of each that has something to read."""
        module = kafka()
        found = consumer.list_topics(self._topic, timeout=self._timeout).topics[self._topic]
        if found.error is not None or not found.partitions:
            raise self._error("no such topic" if found.error is None else found.error.str())
        starts = [
            module.TopicPartition(self._topic, p, module.OFFSET_BEGINNING)
            for p in sorted(found.partitions)
        ]
        ends = {}
        for start in starts:
            marks = consumer.get_watermark_offsets(start, timeout=self._timeout)
            if marks is None:
                raise self._error(f"no answer in {self._timeout:g} s")
            if marks[0] < marks[1]:
                ends[start.partition] = marks[1]
        consumer.assign(starts)
        return ends

    def _values(self, messages: list[Any], ends: dict[int, int]) -> Iterator[bytes | None]:
        """Values of the messages; a partition leaves `ends` when it is read to its end."""
        codes = kafka().KafkaError
        # What the client mends by itself, as long as somebody waits.
        passing = (codes._ALL_BROKERS_DOWN, codes._TRANSPORT, codes._TIMED_OUT, codes._RESOLVE)
        for message in messages:
            error = message.error()
            if error is None:
                yield message.value()
                if message.offset() + 1 >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
            elif error.code() == codes._PARTITION_EOF:
                ends.pop(message.partition(), None)
            elif not (error.retriable() or error.code() in passing):
                raise self._error(error.str())

    def _error(self, why: str) -> ReporterError:
        where = self._properties["bootstrap.servers"]
        return ReporterError(f"metrics topic {self._topic!r} at {where}: {why}")


def read_records(
    bootstrap: str,
    topic: str,
    *,
    follow: bool = False,
    timeout: float = PATIENCE,
    client: Mapping[str, Any] | None = None,
) -> RecordReader:
    """Read a metrics topic from its beginning to its end as of now, or on and on.

    Nothing is committed, so every iteration starts anew. Messages that are not records
    are counted in ``malformed`` of the result and skipped.

    Parameters
    ----------
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    follow
        Keep waiting for new records at the end.
    timeout
        Seconds a broker may take to answer.
    client
        Further properties of the librdkafka consumer; they win over the defaults.

    Raises
    ------
    ReporterError
        While iterating: a missing topic, a broker that does not answer or refuses.
    """
    properties = {"bootstrap.servers": bootstrap, **_PROPERTIES, **(client or {})}
    return RecordReader(properties, topic, follow, timeout)
