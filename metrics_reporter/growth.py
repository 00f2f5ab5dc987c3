"""Compares rates with the growth of sizes: a rate taken for a counter shows at once."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from metrics_reporter.metrics import BYTES_IN, SIZE
from metrics_reporter.quantities import amount, plural
from metrics_reporter.records import Record

# Copies, compression and the interval of scrapes explain a factor of ten, and never this.
_FACTOR = 100.0
# Bytes below which a topic says nothing.
_LEAST = 1e5


class Growth:
    """What the replicas of topics grew by, and what was written to them by their rates.

    Replicas that were moved grow too, and others lose old segments, but never those of most
    topics at once.

    Examples
    --------
    >>> growth = Growth()
    >>> for minute in (0, 1):
    ...     size = {"size": 1e9 + minute * 180e6}
    ...     growth.add([Record(minute * 60_000, 1, {"bytes_in": 2e3}, "a"),
    ...                 Record(minute * 60_000, 1, size, "a", 0)])
    >>> growth.contradiction()
    'bytes_in contradict the growth of sizes more than a hundredfold, in most of 1 topic: of a \
they are 2 kB/s, and it grows by 3 MB/s; is a rate read as a counter, or a counter as a rate? \
See # TYPE on the page, and kind of a rule'
    """

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, str | None, int], float] = {}
        self._times: dict[int, int] = {}
        self.restart()

    def restart(self) -> None:
        """Forget the sums, and keep the sizes that the next ones are compared with."""
        self._grown: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._span = 0.0

    def add(self, records: Iterable[Record]) -> None:
        """Add what brokers reported at a time, which is later than those before."""
        times: dict[int, int] = {}
        for record in records:
            topic, before = record.topic, self._times.get(record.broker)
            times[record.broker] = record.time_ms
            if topic is None:
                continue
            rate, size = record.metrics.get(BYTES_IN), record.metrics.get(SIZE)
            if rate is not None and before is not None:
                seconds = (record.time_ms - before) / 1000
                self._written[topic] = self._written.get(topic, 0.0) + rate * seconds
            if size is not None:
                key = record.broker, topic, record.partition
                grown = max(size - self._sizes.get(key, size), 0.0)
                self._grown[topic] = self._grown.get(topic, 0.0) + grown
                self._sizes[key] = size
        lengths = [at - self._times[b] for b, at in times.items() if b in self._times]
        self._span += max(lengths, default=0) / 1000
        self._times |= times

    def contradiction(self) -> str | None:
        """What is wrong, in a sentence; None if the rates may be right."""
        found = {
            topic: self._grown[topic] / written if written else float("inf")
            for topic, written in self._written.items()
            if self._grown.get(topic, 0.0) > 0 and max(self._grown[topic], written) >= _LEAST
        }
        if not found or 1 / _FACTOR < median(found.values()) < _FACTOR:
            return None
        topic = max(found, key=lambda name: max(self._grown[name], self._written[name]))
        rates = (self._written[topic], self._grown[topic])
        said, grown = (amount(value / self._span, "B/s") for value in rates)
        return (
            f"{BYTES_IN} contradict the growth of sizes more than a hundredfold, in most of "
            f"{plural(len(found), 'topic')}: of {topic} they are {said}, and it grows by {grown}; "
            "is a rate read as a counter, or a counter as a rate? See # TYPE on the page, and kind "
            "of a rule"
        )
