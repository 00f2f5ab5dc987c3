"""Sends records from a source to the metrics topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from metrics_reporter.clients import ANSWER_TIMEOUT, create, kafka, reason
from metrics_reporter.errors import ReporterError
from metrics_reporter.quantities import plural
from metrics_reporter.records import Record
from metrics_reporter.sources import Source
from metrics_reporter.wire import encode

# With an idempotent producer the client's retries cannot duplicate a record.
_PROPERTIES = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 100}


class Reporter:
    """Sends a source's measurements to a topic, one report per interval.

    Records are keyed by topic, or by broker id, so that records of one partition or
    broker stay in order; a message's timestamp is the record's time.

    Parameters
    ----------
    source
        The source of records.
    bootstrap
        Addresses of brokers, ``host:port`` separated by commas.
    topic
        The metrics topic.
    interval
        Seconds from the start of one report to the start of the next; 0 does not wait,
        for a source with its own pace or none (a simulation).
    client
        Further properties of the librdkafka producer; they override the defaults.
    """

    def __init__(
        self,
        source: Source,
        *,
        bootstrap: str,
        topic: str,
        interval: float = 0.0,
        client: Mapping[str, Any] | None = None,
    ) -> None:
        if not interval >= 0:
            raise ReporterError(f"reporter, interval: {interval} found, at least 0 s expected")
        self.delivered = 0
        self._reports = iter(source)
        self._bootstrap = bootstrap
        self._topic = topic
        self._interval = interval
        self._properties = {"bootstrap.servers": bootstrap, **_PROPERTIES, **(client or {})}
        self._stop = threading.Event()
        self._failures: list[str] = []

    def run(self, intervals: int | None = None) -> int:
        """Report until `intervals` reports are sent, the source ends, or :meth:`stop`.

        Another call resumes the source where it was left.

        Returns
        -------
        int
            Records acknowledged by the topic during this call.

        Raises
        ------
        ReporterError
            At the end of the first interval with a record that could not be delivered
            within the client's retries, or that is invalid.
        """
        producer = create("Producer", self._properties)
        before = self.delivered
        started = 0.0
        for n in count() if intervals is None else range(intervals):
            pause = self._interval - (time.monotonic() - started) if n else 0.0
            if self._stop.wait(max(pause, 0.0)):
                break
            started = time.monotonic()
            report = next(self._reports, None)
            if report is None:
                break
            self._send(producer, report)
        return self.delivered - before

    def stop(self) -> None:
        """End :meth:`run` after the current report; may be called from any thread."""
        self._stop.set()

    def _send(self, producer: Any, report: Iterable[Record]) -> None:
        for record in report:
            self._produce(producer, record)
            producer.poll(0)
        left = producer.flush(ANSWER_TIMEOUT)
        if left or self._failures:
            why = self._failures[0] if self._failures else f"no answer in {ANSWER_TIMEOUT:g} s"
            lost = left + len(self._failures)
            self._failures.clear()
            raise self._error(f"{plural(lost, 'record')} not delivered: {why}")

    def _produce(self, producer: Any, record: Record) -> None:
        message = {
            "topic": self._topic,
            "key": (str(record.broker) if record.topic is None else record.topic).encode(),
            "value": encode(record),
            "timestamp": max(record.time_ms, 0),
            "on_delivery": self._acknowledge,
        }
        try:
            try:
                producer.produce(**message)
            except BufferError:
                producer.flush(ANSWER_TIMEOUT)
                producer.produce(**message)
        except (BufferError, kafka().KafkaException) as error:
            raise self._error(reason(error)) from None

    def _error(self, why: str) -> ReporterError:
        return ReporterError(f"metrics topic {self._topic!r} at {self._bootstrap}: {why}")

    def _acknowledge(self, error: Any, _message: Any) -> None:
        if error is None:
            self.delivered += 1
        else:
            self._failures.append(str(error.str()))
